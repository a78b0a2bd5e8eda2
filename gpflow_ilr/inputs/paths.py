"""Where files are to be written to or read from, and writing them whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows: what a kill has left there stays
    fcntl = None  # type: ignore[assignment]

__all__ = ["check_path", "path_to_write", "unfinished_file", "unfinished_folder"]

_ENDING = ".unfinished"
_YOUNG_SECONDS = 60.0


def check_path(name: str, path: Any) -> Path:
    """A path.

    :param name: what the argument is called, for the error.
    :param path: text, or an object of ``pathlib``.
    :raises TypeError: if it is something else.
    :raises ValueError: if it has a character that no path can have.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path, but is {path!r}. Pass text such as 'folder/name'.")
    if "\0" in os.fspath(path):
        raise ValueError(f"{name} is {path!r}, and no path has a null character. Leave it out.")
    return Path(path)


def path_to_write(path: Any, name: str = "path") -> Path:
    """A path in a folder that exists; of a symbolic link, what it points to.

    :param path: text, or an object of ``pathlib``.
    :param name: what the argument is called, for the error.
    :raises TypeError: if it is something else.
    :raises FileNotFoundError: if there is no such folder.
    :raises OSError: if there is what must not be replaced: a device, a pipe, a circle of links, or the
        folder that this process is in.
    """
    checked, said = check_path(name, path), f"{name} is {os.fspath(path)!r}"
    if checked.is_symlink():
        checked = Path(os.path.realpath(checked))
    if checked.is_symlink():
        raise OSError(f"{said}, a symbolic link that leads back to itself. Remove it first.")
    if checked.name in ("", ".."):
        raise IsADirectoryError(
            f"{said}, a folder that cannot be replaced from here. Name a file or folder in it."
        )
    if not checked.parent.is_dir():
        raise FileNotFoundError(
            f"{said}, but there is no folder {os.fspath(checked.parent)!r}. Make it first."
        )
    if checked.exists() and not (checked.is_file() or checked.is_dir()):
        raise FileExistsError(
            f"{said}, a device or a pipe, which would be lost. Name another path."
        )
    return checked


@contextmanager
def unfinished_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of another once it is complete and on the disk.

    Whatever happens, the old file or the new one is there. The new one has the old one's permissions,
    or those that the umask gives. What killed processes have left unfinished is removed.

    :param path: of the file; no symbolic link.
    """
    _remove_left(path)
    unfinished = _beside(path)
    try:
        with unfinished.open("xb") as file:
            _lock(file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            os.chmod(unfinished, stat.S_IMODE(path.stat().st_mode))
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def unfinished_folder(path: Path) -> Iterator[Path]:
    """A folder beside a path, for what is to be moved there; what remains in it is removed.

    :param path: what is written.
    """
    _remove_left(path)
    unfinished = _beside(path)
    unfinished.mkdir()
    try:
        handle = os.open(unfinished, os.O_RDONLY) if fcntl is not None else None
        try:
            _lock(handle)
            yield unfinished
        finally:
            if handle is not None:
                os.close(handle)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.{secrets.token_hex(4)}{_ENDING}")


def _lock(handle: int | None) -> None:
    """Tell others that a process lives that writes here; the lock ends with it."""
    if fcntl is not None and handle is not None:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_left(path: Path) -> None:
    """Remove what processes that were killed have left: it would fill the disk."""
    if fcntl is None:
        return
    try:
        names = os.listdir(path.parent)
    except OSError:  # a folder that may be written to, but not be read
        return
    ours = re.compile(rf"{re.escape(path.name)}\.[0-9a-f]{{8}}{re.escape(_ENDING)}")
    for left in (path.with_name(name) for name in names if ours.fullmatch(name)):
        with suppress(OSError):  # another process may be faster, or still write
            handle = os.open(left, os.O_RDONLY)
            try:
                # Between its making and its lock a file is not locked.
                if time.time() - os.fstat(handle).st_mtime > _YOUNG_SECONDS:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
            finally:
                os.close(handle)
