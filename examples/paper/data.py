"""The data sets, and their splits.

A set is a file ``<name>.npz`` with ``X`` [N, D] and ``y`` (classes 0..K-1) in ``--data-dir``; any name
will do, and each runs unless ``--datasets`` says which: in ``uci-exact`` if it has fewer than 1,500
rows, else in ``uci-sparse``. Those of scikit-learn, and ``pulsars``, which is simulated, need no file.
A set of the paper that is in neither place is downloaded. Splits have the paper's sizes; those of
other sets, 50 test rows if they are small, else a quarter.
"""

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from download import DownloadError, download
from published import published
from pulsars import pulsars

__all__ = ["SMALL", "DataMissingError", "Split", "available", "load", "others", "split"]

OF_SCIKIT_LEARN = ("wine", "iris", "breast_cancer", "digits")
SIMULATED = {"pulsars": pulsars}
SMALL, SMALL_TEST_ROWS = 1500, 50
QUICK_ROWS = 240


class DataMissingError(Exception):
    """There is no such set, and a sentence says what to do."""


@dataclass(frozen=True)
class Split:
    """Raw rows and labels.

    :param X: [N, D], training rows.
    :param y: [N], their classes.
    :param X_test: [n, D].
    :param y_test: [n].
    :param num_classes: K.
    """

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    num_classes: int


def available(names: tuple[str, ...], data_dir: Path | None) -> list[str]:
    """Those of some sets that can be had without a network.

    :param names: of sets.
    :param data_dir: where files are.
    """
    return [
        name
        for name in names
        if name in OF_SCIKIT_LEARN
        or name in SIMULATED
        or (data_dir is not None and (data_dir / f"{name}.npz").exists())
    ]


def others(data_dir: Path, small: bool) -> list[str]:
    """Sets in a folder that are not the paper's: those of fewer than :data:`SMALL` rows, or the others.

    Files that hold no classification set are left out, with a word.

    :param data_dir: where files are.
    :param small: whether sets are to be small.
    """
    found = []
    for file in sorted(data_dir.glob("*.npz")):
        if file.stem not in published()["sets"]["values"]:
            try:
                X, _ = load(file.stem, data_dir, data_dir)
            except DataMissingError as error:
                print(f"{file.stem} is left out: {error}")
                continue
            if (len(X) < SMALL) == small:
                found.append(file.stem)
    return found


def load(name: str, data_dir: Path | None, cache: Path) -> tuple[np.ndarray, np.ndarray]:
    """All rows [N, D] and classes [N] of a set.

    :param name: of the set.
    :param data_dir: where files are; None for nowhere.
    :param cache: where downloaded sets are kept.
    :raises DataMissingError: if the set is nowhere to be had.
    """
    path = (cache if data_dir is None else data_dir) / f"{name}.npz"
    if path.exists():
        if not zipfile.is_zipfile(path):
            raise DataMissingError(f"{path} is cut short, or no .npz file: remove it.")
        with np.load(path) as arrays:
            if not {"X", "y"} <= set(arrays.files):
                raise DataMissingError(
                    f"{path} has {sorted(arrays.files)}, but needs arrays X and y."
                )
            return _checked(path, arrays["X"], arrays["y"])
    if name in OF_SCIKIT_LEARN:
        from sklearn import datasets

        return getattr(datasets, f"load_{name}")(return_X_y=True)
    if name in SIMULATED:
        return SIMULATED[name]()
    if data_dir is not None:
        found = sorted(file.stem for file in data_dir.glob("*.npz"))
        raise DataMissingError(
            f"There is no {name}.npz in {data_dir}, which has {', '.join(found) or 'no .npz file'}. "
            f"Put it there (arrays X and y), or leave out --data-dir to download a set of the paper."
        )
    if name not in published()["sets"]["values"]:
        raise DataMissingError(
            f"{name!r} is neither a set of the paper ({', '.join(published()['sets']['values'])}) nor "
            f"of scikit-learn ({', '.join(OF_SCIKIT_LEARN)}), nor simulated ({', '.join(SIMULATED)}). "
            f"Pass --data-dir with a {name}.npz in it."
        )
    try:
        X, y = download(name)
    except DownloadError as error:
        raise DataMissingError(str(error)) from error
    cache.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{name}.unfinished")
    with unfinished.open("wb") as file:  # a kill must leave no half of a set
        np.savez_compressed(file, X=X, y=y)
    os.replace(unfinished, path)
    return X.astype(float), y


def _checked(path: Path, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    classes = np.unique(y)
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise DataMissingError(
            f"{path} has X of shape {X.shape} and y of shape {y.shape}, but needs [N, D] and [N]."
        )
    if not np.array_equal(classes, np.arange(len(classes))):
        raise DataMissingError(
            f"{path} has classes {classes[:10]}, but needs 0, 1, …, K-1, all of them."
        )
    return X.astype(float), y.astype(np.int64)


def split(name: str, X: np.ndarray, y: np.ndarray, seed: int, quick: bool = False) -> Split:
    """Training and test rows, the same for all models.

    :param name: of the set: those of the paper have its number of test rows.
    :param X: [N, D].
    :param y: [N].
    :param seed: of the shuffle.
    :param quick: a few rows only, to see that everything runs.
    """
    K = int(np.max(y)) + 1
    order = np.random.default_rng(seed).permutation(len(X))
    known = published()["sets"]["values"].get(name)
    num_test = SMALL_TEST_ROWS if len(X) < SMALL else len(X) // 4
    if known is not None and known["rows"] == len(X):
        num_test = known["test"]
    if quick:
        order, num_test = order[:QUICK_ROWS], SMALL_TEST_ROWS
    test, train = np.split(order, [num_test])
    return Split(X[train], y[train], X[test], y[test], K)
