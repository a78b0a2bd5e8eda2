"""Sets of the paper from the UCI repository, checked against what is known of them.

What is checked are the arrays, not the archive, whose bytes may change: their shape and the rows of
each class and, for those sets whose digest is known, the SHA-256 of X (float32) and y (int64). The
preparations are those of dirichletGPC (Milios et al., 2018), which the paper follows.
"""

import hashlib
import io
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["SOURCES", "DownloadError", "Source", "digest", "download"]

SERVER = "https://archive.ics.uci.edu/static/public"
SECONDS = 30


class DownloadError(Exception):
    """A set could not be had, or is not what it should be; a sentence says what to do."""


@dataclass(frozen=True)
class Source:
    """Where a set is, how its file is read, and how it is recognised.

    :param archive: path of a zip on the server.
    :param file: the file in it.
    :param read: from the file's lines to X and y.
    :param shape: of X.
    :param counts: rows of each class; None where unknown.
    :param sha256: of the arrays; None where unknown.
    """

    archive: str
    file: str
    read: Callable[[list[str]], tuple[np.ndarray, np.ndarray]]
    shape: tuple[int, int]
    counts: tuple[int, ...] | None = None
    sha256: str | None = None


def _columns(label: int, separator: str | None = ",", skip: int = 0, drop: tuple[int, ...] = ()):
    """A reader of tables with one column of labels, which become 0, 1, … in their sorted order."""

    def read(lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
        rows = [line.strip().split(separator) for line in lines[skip:] if line.strip()]
        labels = [row[label].strip() for row in rows]
        left_out = {label % len(rows[0]), *drop}
        kept = [i for i in range(len(rows[0])) if i not in left_out]
        X = np.array([[row[i] for i in kept] for row in rows], np.float32)
        numeric = all(value.replace(".", "", 1).isdigit() for value in set(labels))
        order = sorted(set(labels), key=float if numeric else str)
        return X, np.array([order.index(value) for value in labels], np.int64)

    return read


def _arff(lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
    start = next(i for i, line in enumerate(lines) if line.strip().lower() == "@data")
    return _columns(-1)(lines[start + 1 :])


def _miniboo(lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The first line has the numbers of signal (class 0) and background rows, in this order."""
    signal, background = map(int, lines[0].split())
    X = np.loadtxt(lines[1:], np.float32)
    return X, np.repeat(np.array([0, 1], np.int64), [signal, background])


def _mocap(lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The first row after the header is all zeros; missing coordinates are zero."""
    return _columns(0, skip=2)([line.replace("?", "0") for line in lines])


SOURCES = {
    "eeg": Source(
        "264/eeg+eye+state.zip",
        "EEG Eye State.arff",
        _arff,
        (14980, 14),
        (8257, 6723),
        sha256="e56bfc1f1fa343418e2f8ac8bb5ffd8d90ac9d3a2c86c059f752631fcef20bf0",
    ),
    "magic": Source(
        "159/magic+gamma+telescope.zip",
        "magic04.data",
        _columns(-1),
        (19020, 10),
        (12332, 6688),
        sha256="ed2bcde46b889405445a83b3aa0b08d72e74ac04fd7c0ded92c39410b3268b2f",
    ),
    "letter": Source(
        "59/letter+recognition.zip",
        "letter-recognition.data",
        _columns(0),
        (20000, 16),
        sha256="2cb171821ebb07967c0a1f94225cfc1f35dcdcd73e9fd94d3a744cb9d716dc39",
    ),
    "thyroid": Source(
        "102/thyroid+disease.zip",
        "new-thyroid.data",
        _columns(0),
        (215, 5),
        (150, 35, 30),
        sha256="e274db85a783c9ba22490637ae396fcadb2edb1ae9c7568556ed711333d9765e",
    ),
    "glass": Source(
        "42/glass+identification.zip",
        "glass.data",
        _columns(-1, drop=(0,)),
        (214, 9),
        (70, 76, 17, 13, 9, 29),
        sha256="d2b69998a75a4158e9ed9946e5f58ed51181d74411ebedff553435ae221d8df6",
    ),
    "htru2": Source("372/htru2.zip", "HTRU_2.csv", _columns(-1), (17898, 8), (16259, 1639)),
    "miniboo": Source(
        "199/miniboone+particle+identification.zip",
        "MiniBooNE_PID.txt",
        _miniboo,
        (130064, 50),
        (36499, 93565),
    ),
    "drive": Source(
        "325/dataset+for+sensorless+drive+diagnosis.zip",
        "Sensorless_drive_diagnosis.txt",
        _columns(-1, separator=None),
        (58509, 48),
        (5319,) * 11,
    ),
    "mocap": Source(
        "405/motion+capture+hand+postures.zip",
        "Postures/allUsers.lcl.csv",
        _mocap,
        (78095, 37),
    ),
}


def digest(X: np.ndarray, y: np.ndarray) -> str:
    """SHA-256 of the numbers, whatever file they are in."""
    arrays = np.ascontiguousarray(X, np.float32), np.ascontiguousarray(y, np.int64)
    return hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()


def download(name: str, server: str = SERVER) -> tuple[np.ndarray, np.ndarray]:
    """X [N, D] and classes [N] of a set of the paper.

    :param name: of the set, among :data:`SOURCES`.
    :param server: where archives are.
    :raises DownloadError: without a network, or if what came is another set.
    """
    source = SOURCES[name]
    address = f"{server}/{source.archive}"
    print(f"{name}: {address}", flush=True)
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:
            archive = zipfile.ZipFile(io.BytesIO(answer.read()))
        file = next(n for n in archive.namelist() if n.endswith(source.file.split("/")[-1]))
        lines = archive.read(file).decode("latin-1").splitlines()
    except (OSError, urllib.error.URLError, zipfile.BadZipFile, StopIteration) as error:
        raise DownloadError(
            f"{name} could not be downloaded from {address} ({error or type(error).__name__}). Where "
            f"there is no network, put {name}.npz (arrays X and y) into a folder and pass it as "
            "--data-dir."
        ) from error
    X, y = source.read(lines)
    _verify(name, X, y)
    return X, y


def _verify(name: str, X: np.ndarray, y: np.ndarray) -> None:
    source = SOURCES[name]
    counts = tuple(int(n) for n in np.bincount(y))
    known = X.shape == source.shape and source.counts in (None, counts)
    if not known or source.sha256 not in (None, digest(X, y)):
        raise DownloadError(
            f"{name} came with X of shape {X.shape}, {counts} rows of each class and SHA-256 "
            f"{digest(X, y)[:12]}…, but {source.shape}, {source.counts} and "
            f"{(source.sha256 or 'any')[:12]} were expected: the repository has another set there now."
        )
