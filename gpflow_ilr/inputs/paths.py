"""Where files are to be written to or read from, checked before anything is computed for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

__all__ = ["check_path", "path_to_write"]


def check_path(name: str, path: Any) -> Path:
    """A path.

    :param name: what the argument is called, for the error.
    :param path: text, or an object of ``pathlib``.
    :raises TypeError: if it is something else.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path, but is {path!r}. Pass text such as 'folder/name'.")
    return Path(path)


def path_to_write(path: Any) -> Path:
    """A path in a folder that exists.

    :param path: text, or an object of ``pathlib``.
    :raises TypeError: if it is something else.
    :raises FileNotFoundError: if there is no such folder.
    """
    checked = check_path("path", path)
    if not checked.parent.is_dir():
        raise FileNotFoundError(
            f"path is {os.fspath(path)!r}, but there is no folder {os.fspath(checked.parent)!r}. Make "
            "it first."
        )
    return checked
