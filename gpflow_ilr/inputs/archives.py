"""Checkpoints on disk: named arrays in an archive of NumPy's, written whole or not at all.

They hold numbers and text alone: nothing in them is executed when they are read.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpflow_ilr.inputs.paths import path_to_write, unfinished_file

__all__ = ["NO_CHECKPOINT", "read_arrays", "refused", "write_arrays"]

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
    """Read them.

    :param path: of the file.
    :raises Exception: one of ``NO_CHECKPOINT``, if it is no such file.
    """
    with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as content:
        return dict(content)


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
