"""Whole models as files of data, for later work in Python."""

from __future__ import annotations

import os
import pickle
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO

import tensorflow as tf
from gpflow.config import default_float
from gpflow.models import GPModel

from gpflow_ilr.inputs.paths import check_path, path_to_write
from gpflow_ilr.saving.container import (
    FORMAT,
    check_body,
    read_body,
    read_header,
    write,
)
from gpflow_ilr.saving.describe import Description
from gpflow_ilr.saving.names import RefusedError
from gpflow_ilr.saving.rebuild import rebuild
from gpflow_ilr.version import __version__

__all__ = ["load", "save"]


def save(model: GPModel, path: str | os.PathLike[str]) -> int:
    """Write a model to a file, atomically.

    The file is data: classes by their names, attributes, arrays. Objects of your own classes are saved
    after :func:`gpflow_ilr.saving.register`.

    :param model: any model of this package (or of GPflow), or what ``fit_auto`` returns.
    :param path: the file; an existing one is replaced once the new one is complete. Of a symbolic link,
        what it points to is replaced.
    :returns: the size of the file in bytes.
    :raises TypeError: if it is no model, or no path.
    :raises ValueError: if a part of it is no data, such as a function; the sentence says where. Or if
        it was built under another default float.
    :raises OSError: if the file cannot be there.
    """
    if not isinstance(model, tf.Module):
        raise TypeError(
            f"model must be a model, but is {model!r}. Pass a model of this package or of GPflow, or "
            "what fit_auto returns."
        )
    path = path_to_write(path)
    if path.is_dir():
        raise IsADirectoryError(
            f"path is {os.fspath(path)!r}, which is a folder. Pass a file in it, such as "
            f"{os.fspath(path / 'model')!r}."
        )
    description = Description(model)
    _check_built(description.floats)
    header = {
        "version": __version__,
        "class": type(model).__name__,
        "float": tf.as_dtype(default_float()).name,
    }
    return write(path, header, description.as_json(), description.arrays)


def load(path: str | os.PathLike[str], *, trust: bool = False) -> Any:
    """Read a model that :func:`save` wrote. Nothing in a file is executed.

    :param path: the file.
    :param trust: whether to read a file of before format 1, which was a pickle: those execute what they
        say, so only do this with a file of your own. The next version will not read them.
    :raises FileNotFoundError: if there is no such file.
    :raises ValueError: if the file is not a saved model, is incomplete, damaged or of a later format,
        was saved under another default float, or has classes that are not here.
    """
    if not check_path("path", path).is_file():
        raise FileNotFoundError(
            f"path is {os.fspath(path)!r}, which is no file. Pass one of save's."
        )
    header: dict[str, Any] = {}
    with Path(path).open("rb") as file:
        try:
            header |= read_header(file)
            if "format" not in header:
                return _read_pickle(file, header, trust)
            if type(header["format"]) is not int or not 1 <= header["format"] <= FORMAT:
                raise RefusedError(
                    f"It has format {header['format']!r}, and gpflow_ilr {__version__} reads formats "
                    f"up to {FORMAT}. Load it with the version that saved it, or a later one."
                )
            sizes = [header.get(part) for part in ("description", "arrays")]
            if not all(type(size) is int and size >= 0 for size in sizes):
                raise RefusedError("It is damaged: its header cannot be read.")
            check_body(file, sum(sizes), header["sha256"])
            _check_float(header)
            model = rebuild(*read_body(file, header))
        except RefusedError as refusal:
            by = f", saved by gpflow_ilr {header['version']}," if header else ""
            raise ValueError(f"{os.fspath(path)!r}{by} cannot be loaded. {refusal}") from None
        except Exception as error:
            raise ValueError(
                f"{os.fspath(path)!r} cannot be loaded. It is damaged: {type(error).__name__}: {error}"
            ) from error
    if not isinstance(model, tf.Module):
        raise ValueError(f"{os.fspath(path)!r} is not a model, but a {type(model).__name__}.")
    return model


def _check_built(floats: Collection[tf.DType]) -> None:
    """Refuse a model of another default float: its file would name the present one."""
    if floats and tf.as_dtype(default_float()) not in floats:
        built = min(dtype.name for dtype in floats)
        raise RefusedError(
            f"model was built in {built}, but GPflow's default float is "
            f"{tf.as_dtype(default_float()).name} now. Call "
            f"gpflow.config.set_default_float(tf.{built}) before saving it."
        )


def _check_float(header: dict[str, Any]) -> None:
    if header["float"] != tf.as_dtype(default_float()).name:
        raise RefusedError(
            f"The {header['class']} was saved with {header['float']}, but GPflow's default float "
            f"is now {tf.as_dtype(default_float()).name}. Call "
            f"gpflow.config.set_default_float(tf.{header['float']}) before loading."
        )


def _read_pickle(file: BinaryIO, header: dict[str, Any], trust: bool) -> Any:
    """A file of the days before format 1."""
    if trust is not True:
        raise RefusedError(
            "It is a pickle, which can execute anything. If it is yours, load it with trust=True, and "
            "save it again: the next version will not read it."
        )
    check_body(file, header.get("bytes"), header["sha256"])
    _check_float(header)
    try:
        return pickle.load(file)
    except (ModuleNotFoundError, AttributeError) as error:
        raise RefusedError(
            f"Its {header['class']} has a class that is not here ({error}). Load it with that version, "
            "where modules have other names, or import the module of your own class first."
        ) from error
