"""Programs that are killed in the middle of writing, and disks that are full.

``python -m tests.whole.faults FOLDER`` replaces a model and a folder in processes that are killed, each
at another step, and looks after each of them whether what was there can be read.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["full_disk", "killed_at", "killed_while_writing", "make_room"]

STEPS = (
    "open",
    "os.chmod",
    "os.rename",
    "fcntl.flock",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "ctypes.call_function",
)


@contextmanager
def full_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of so many kilobytes.

    :param folder: where it is mounted.
    :param kilobytes: its size.
    :raises PermissionError: if this process may not mount.
    """
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise PermissionError("there is no mount") from error
    if done.returncode:
        raise PermissionError(done.stderr)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def make_room(disk: Path) -> None:
    """Four megabytes where there were kilobytes; what is on the disk stays.

    :param disk: of ``full_disk``.
    """
    subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)


def killed_at(number: int, folder: Path, work: Callable[[], Any]) -> bool:
    """Do some work in a child that is killed at one of its steps in a folder; whether it came so far.

    :param number: of the step, from 0 on.
    :param folder: only steps that name something in it count.
    :param work: what is done.
    """

    def child() -> None:
        steps = []

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            inside = any(str(folder) in str(argument) for argument in arguments)
            if event in STEPS and (inside or event == "fcntl.flock"):
                steps.append(event)
                if len(steps) > number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        work()

    return _ended_by(child) == signal.SIGKILL


def killed_while_writing(size: int, work: Callable[[], Any]) -> bool:
    """Do some work in a child that the kernel kills when a file grows beyond a size.

    :param size: in bytes.
    :param work: what is done.
    """

    def child() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        work()

    return _ended_by(child) == signal.SIGXFSZ


def _ended_by(child: Callable[[], None]) -> int:
    """The signal that ended a child process, or 0 if it ended by itself."""
    process = os.fork()
    if process == 0:
        try:
            child()
        except BaseException as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(process, 0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        raise AssertionError("The child failed: see above.")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def main(folder: Path) -> None:
    """Kill what saves, at every step, and look whether the old model or the new one is there."""
    from gpflow_ilr.saving import load, save
    from tests.saving.models import MODELS, X

    path = folder / "model"
    old, new = MODELS["ILRGPR"](), MODELS["ILRSVGP"]()
    size = save(old, path)
    expected = {type(model).__name__: model.predict_f(X)[0].numpy() for model in (old, new)}

    def check() -> str:
        loaded = load(path)
        name = type(loaded).__name__
        assert (loaded.predict_f(X)[0].numpy() == expected[name]).all()
        return name

    number = 0
    while killed_at(number, folder, lambda: save(new, path)):
        assert check() == "ILRGPR"  # until the last step
        for file in folder.glob("*.unfinished"):
            file.unlink()
        number += 1
    assert number > 2
    assert check() == "ILRSVGP"
    save(old, path)
    for limit in (0, 100, size // 2, size - 1):
        assert killed_while_writing(limit, lambda: save(old, path))
        assert check() == "ILRGPR"
    left = list(folder.glob("*.unfinished"))
    assert len(left) == 4, left
    for file in left:
        os.utime(file, (0, 0))
    save(new, path)
    assert check() == "ILRSVGP"
    assert list(folder.iterdir()) == [path]
    for exchange in (True, False):
        replace_folders(folder, exchange)
    print("nothing is lost")


def replace_folders(folder: Path, exchange: bool) -> None:
    """Kill what puts a folder in another's place, at every step.

    :param folder: where this is tried.
    :param exchange: whether the system can exchange folders.
    """
    from gpflow_ilr.inputs.paths import unfinished_folder
    from gpflow_ilr.saving import folders

    served = folder / "served"
    if not exchange:
        folders._exchanged = lambda one, other: False

    def replace(content: str) -> None:
        folders.restore(served)
        with unfinished_folder(served) as scratch:
            (scratch / "new").mkdir()
            (scratch / "new" / "file").write_text(content, encoding="utf-8")
            folders.put_in_place(scratch / "new", served)

    replace("old")
    number, seen, missing = 0, [], 0
    while killed_at(number, folder, lambda: replace("new")):
        missing += not served.exists()
        folders.restore(served)
        seen.append((served / "file").read_text(encoding="utf-8"))
        for left in folder.glob("*.unfinished"):
            shutil.rmtree(left)
        replace("old")
        assert list(folder.glob("served*")) == [served]
        number += 1
    # The old one, and from some step on the new one.
    assert seen == sorted(seen, reverse=True), seen
    assert set(seen) == {"old", "new"}, seen
    assert (served / "file").read_text(encoding="utf-8") == "new"
    assert bool(missing) == (not exchange)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
