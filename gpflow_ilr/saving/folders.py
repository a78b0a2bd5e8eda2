"""A folder takes the place of another, and at no moment there is none.

Two renames leave a moment without a folder, in which a kill loses it. Linux can exchange two of them in
one step (``renameat2``); elsewhere the old one is put aside and comes back if anything fails: at once,
or, after a kill, when the next one is written.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where one process at a time must do
    fcntl = None  # type: ignore[assignment]

__all__ = ["put_in_place", "restore"]

_ENDING = ".old"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def put_in_place(new: Path, path: Path) -> None:
    """Move a folder to a path, from where an older one is removed; it gets the older one's mode.

    :param new: on the same file system.
    :param path: where it goes.
    """
    if not path.exists():
        os.rename(new, path)
        return
    # A folder that its owner may not write to cannot be moved.
    os.chmod(new, stat.S_IMODE(path.stat().st_mode) | stat.S_IRWXU)
    if _exchanged(new, path):
        shutil.rmtree(new, ignore_errors=True)
    else:
        _remove_put_aside(path, new.parent)  # so that there is never a choice of what comes back
        # Outside the folder of what is unfinished, which is removed whatever happens.
        aside = new.parent.with_suffix(_ENDING)
        with _locked(path):
            os.rename(path, aside)
            try:
                os.rename(new, path)
            except BaseException:
                os.rename(aside, path)
                raise
        _remove_put_aside(path, new.parent)


def restore(path: Path) -> None:
    """Bring back the folder that a process had put aside when it was killed, if there is no other.

    :param path: where it was.
    """
    for left in _put_aside(path):
        with suppress(OSError), _locked(left):  # another process was faster, or lives and is at it
            if not path.exists():
                os.rename(left, path)


def _remove_put_aside(path: Path, unfinished: Path) -> None:
    """Move it in one step, so that what has its name is whole, to where all is removed."""
    for left in _put_aside(path):
        with suppress(OSError), _locked(left):
            os.rename(left, unfinished / left.name)


def _put_aside(path: Path) -> list[Path]:
    try:
        names = os.listdir(path.parent)
    except OSError:  # a folder that may be written to, but not be read
        return []
    ours = re.compile(rf"{re.escape(path.name)}\.[0-9a-f]{{8}}{re.escape(_ENDING)}")
    return [path.with_name(name) for name in names if ours.fullmatch(name)]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Others leave a folder alone, whatever its name becomes, until this ends, or the process does.

    :raises BlockingIOError: if another process has it.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; False where the system, or the file system, cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # another system than Linux, or an old one
        return False
    paths = (os.fsencode(one), os.fsencode(other))
    return renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0
