"""The file of a model: a line that says what it is, a header, a description, and arrays.

    gpflow_ilr model
    {"format": 1, "version": …, "class": …, "float": …, "description": bytes, "arrays": …, "sha256": …}
    {"root": …, "objects": […]}
    raw little-endian arrays, one after the other, in the order of the description

There are no names of members, no compression and no offsets, so a file can neither name a path, nor
grow when it is read, nor read twice. All sizes are compared with the file's before memory is taken.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gpflow_ilr.inputs.paths import unfinished_file
from gpflow_ilr.saving.names import RefusedError
from gpflow_ilr.saving.rebuild import arrays_of

__all__ = ["FORMAT", "MAGIC", "check_body", "read_body", "read_header", "write"]

FORMAT = 1
MAGIC = b"gpflow_ilr model\n"
_HEADER_BYTES = 10_000
_BLOCK = 2**20


def write(
    path: Path, header: dict[str, Any], description: dict[str, Any], arrays: list[np.ndarray]
) -> int:
    """Write a file whole or not at all; its size in bytes.

    :param path: of the file.
    :param header: what is known before the rest is read.
    :param description: data that JSON takes.
    :param arrays: of numbers.
    """
    text = json.dumps(description, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    ordered = [np.ascontiguousarray(a, a.dtype.newbyteorder("<")) for a in arrays]
    parts: list[Any] = [text, *(a.reshape(-1).view(np.uint8) for a in ordered)]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    sizes = {"description": len(text), "arrays": sum(a.nbytes for a in ordered)}
    whole = {"format": FORMAT} | header | sizes | {"sha256": digest.hexdigest()}
    first = MAGIC + json.dumps(whole).encode() + b"\n"
    with unfinished_file(path) as file:
        for part in (first, *parts):
            file.write(part)
    return len(first) + sum(map(len, parts))


def read_header(file: BinaryIO) -> dict[str, Any]:
    """The header, after which the description begins.

    :param file: at its beginning.
    :raises RefusedError: if it is of something else.
    """
    if file.read(len(MAGIC)) != MAGIC:
        raise RefusedError("It is not a model saved by gpflow_ilr.saving.save.")
    try:
        header = json.loads(file.readline(_HEADER_BYTES))
        known = {key: header[key] for key in ("version", "class", "float", "sha256")}
    except (ValueError, KeyError, TypeError, RecursionError):
        known = {"sha256": None}
    if not all(isinstance(value, str) for value in known.values()):
        raise RefusedError("It is damaged: its header cannot be read.")
    return header


def check_body(file: BinaryIO, size: Any, digest: str) -> None:
    """Compare what follows with what was written, without keeping it; the file stays where it is.

    :param file: after its header.
    :param size: bytes that were written.
    :param digest: of them.
    :raises RefusedError: if something else is there.
    """
    start, found = file.tell(), hashlib.sha256()
    here = os.fstat(file.fileno()).st_size - start
    if size == here:
        while block := file.read(_BLOCK):
            found.update(block)
        file.seek(start)
    if size != here or found.hexdigest() != digest:
        raise RefusedError(
            f"It is damaged: it has {here} bytes of model where {size} were written, or other ones. "
            "Restore it from a copy."
        )


def read_body(
    file: BinaryIO, header: dict[str, Any]
) -> tuple[dict[str, Any], Iterator[np.ndarray]]:
    """The description, and the arrays one after the other.

    :param file: after its header, with a body that has been checked.
    :param header: what it says.
    :raises RefusedError: if description and arrays do not belong together.
    """
    description = json.loads(file.read(header["description"]))
    expected = list(arrays_of(description))
    size = sum(dtype.itemsize * math.prod(shape) for dtype, shape in expected)
    if size != header["arrays"]:
        raise RefusedError(f"It has {header['arrays']} bytes of arrays, but describes {size}.")
    return description, (_read_array(file, dtype, shape) for dtype, shape in expected)


def _read_array(file: BinaryIO, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    array = np.fromfile(file, dtype, math.prod(shape)).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)
