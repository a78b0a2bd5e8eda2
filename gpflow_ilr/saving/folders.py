"""A folder takes the place of another, and at no moment there is none.

Two renames leave a moment without a folder, in which a kill loses it. Linux can exchange two of them in
one step (``renameat2``); elsewhere the old one is put aside and comes back if anything fails.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
from pathlib import Path

__all__ = ["put_in_place"]

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
        # Outside the folder of what is unfinished, which is removed whatever happens.
        aside = new.parent.with_suffix(".old")
        os.rename(path, aside)
        try:
            os.rename(new, path)
        except BaseException:
            os.rename(aside, path)
            raise
        shutil.rmtree(aside, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; False where the system, or the file system, cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # another system than Linux, or an old one
        return False
    paths = (os.fsencode(one), os.fsencode(other))
    return renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0
