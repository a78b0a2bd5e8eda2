"""Checkpoints on disk: named arrays in an archive of NumPy's, written whole or not at all.

They hold numbers and text alone: nothing in them is executed when they are read.
"""

from __future__ import annotations

import errno
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gpflow_ilr.inputs.counts import number_or_nan
from gpflow_ilr.inputs.paths import path_to_write, unfinished_file

__all__ = ["NO_CHECKPOINT", "check_checkpoint", "read_arrays", "refused", "write_arrays"]

NO_CHECKPOINT = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    NotImplementedError,
    EOFError,
    MemoryError,
    IsADirectoryError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What is raised where the content is that of another file, or damaged."""


def check_checkpoint(checkpoint: Any, checkpoint_every: Any) -> Path | None:
    """Where checkpoints are to be written, known before the first of them; None for nowhere.

    :param checkpoint: a path in a folder that exists, or None.
    :param checkpoint_every: seconds between two of them; zero is after every step.
    :raises TypeError: if the one is no path.
    :raises ValueError: if the other is negative or no number.
    :raises FileNotFoundError: if there is no such folder.
    """
    if not number_or_nan(checkpoint_every) >= 0.0:
        raise ValueError(
            f"checkpoint_every must be seconds, not negative, but is {checkpoint_every!r}. Try 10."
        )
    return None if checkpoint is None else path_to_write(checkpoint, "checkpoint")


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write arrays, atomically: a crash leaves the old file or the new one.

    :param path: of the file, which users pass as ``checkpoint``.
    :param arrays: numbers and text, by name.
    """
    place = path_to_write(path, "checkpoint")
    # As np.savez does, which leaves its archive open where the disk is full.
    with unfinished_file(place) as file, zipfile.ZipFile(file, "w") as archive:
        for name, value in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(value), allow_pickle=False)


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read them. Whatever a file says, no more memory is taken than it has bytes.

    :param path: of the file.
    :raises Exception: one of ``NO_CHECKPOINT``, if it is no such file.
    """
    with Path(path).open("rb") as file:
        try:
            return _read_members(file)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise ValueError("it names places before its beginning") from error


def _read_members(file: BinaryIO) -> dict[str, np.ndarray]:
    size = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        stored = all(m.compress_type == zipfile.ZIP_STORED and not m.flag_bits & 1 for m in members)
        if not stored or sum(m.file_size for m in members) > size:
            raise ValueError(
                f"its arrays are compressed, or said to be larger than its {size} bytes"
            )
        return {m.filename.removesuffix(".npy"): _read_array(archive, m) for m in members}


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as content:
        try:
            np.lib.format.read_magic(content)
            shape, _, dtype = np.lib.format.read_array_header_1_0(content)
        except Exception as error:  # of whatever parses what damage has left
            raise ValueError(f"{member.filename} has no header of an array") from error
        size = dtype.itemsize * math.prod(shape)
        if dtype.hasobject or not dtype.itemsize or size != member.file_size - content.tell():
            raise ValueError(
                f"{member.filename} does not hold the {dtype} {list(shape)} that it names"
            )
    with archive.open(member) as content:
        return np.lib.format.read_array(content, allow_pickle=False)


def refused(path: str | os.PathLike[str], writer: str, error: Exception) -> ValueError:
    """What to raise of a file that is no checkpoint.

    :param path: of the file.
    :param writer: what should have written it.
    :param error: what was wrong.
    """
    return ValueError(
        f"checkpoint={os.fspath(path)!r} was not written by {writer} ({error}). Name a file that does "
        "not exist, to begin anew."
    )
