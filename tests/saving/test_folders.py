"""Claims about folders that take another's place."""

import multiprocessing
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpflow_ilr.saving import folders
from gpflow_ilr.saving.folders import put_in_place, restore


@pytest.fixture(name="places")
def _places(tmp_path: Path) -> tuple[Path, Path]:
    """An old folder with a file, and a new one where exports are made."""
    old, new = tmp_path / "served", tmp_path / "served.12345678.unfinished" / "new"
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "file").write_text(folder.name, encoding="utf-8")
    return old, new


@pytest.fixture(name="without_exchange")
def _without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_exchanged", lambda one, other: False)


def content(folder: Path) -> str:
    return (folder / "file").read_text(encoding="utf-8")


def test_new_folder_takes_the_place_in_one_step(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = places
    if not folders._exchanged(new, old):
        pytest.skip("this file system cannot exchange folders")
    assert content(old) == "new"
    assert content(new) == "served"
    monkeypatch.setattr(os, "rename", None)  # so that there is no second step
    put_in_place(new, old)
    assert content(old) == "served"
    assert not new.exists()


@pytest.mark.usefixtures("without_exchange")
def test_new_folder_takes_the_place_where_folders_cannot_be_exchanged(
    places: tuple[Path, Path], tmp_path: Path
) -> None:
    old, new = places
    put_in_place(new, old)
    assert content(old) == "new"
    assert {path.name for path in tmp_path.iterdir()} == {"served", new.parent.name}


@pytest.mark.parametrize("mode", [0o750, 0o700, 0o500])
def test_new_folder_has_the_permissions_of_the_old_one(
    mode: int, places: tuple[Path, Path]
) -> None:
    old, new = places
    old.chmod(mode)
    put_in_place(new, old)
    assert stat.S_IMODE(old.stat().st_mode) == mode | stat.S_IRWXU


def interrupted(number: int) -> Callable[[Any, Any], None]:
    """A rename that is interrupted at one of its calls."""
    rename, calls = os.rename, []

    def interrupted_rename(source: Any, target: Any) -> None:
        calls.append(source)
        if len(calls) == number:
            raise KeyboardInterrupt
        rename(source, target)

    return interrupted_rename


@pytest.mark.usefixtures("without_exchange")
@pytest.mark.parametrize("number", [1, 2])
def test_old_folder_comes_back_when_a_rename_is_interrupted(
    number: int, places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = places
    monkeypatch.setattr(os, "rename", interrupted(number))
    with pytest.raises(KeyboardInterrupt):
        put_in_place(new, old)
    assert content(old) == "served"
    assert content(new) == "new"


@pytest.mark.usefixtures("without_exchange")
@pytest.mark.skipif(sys.platform != "linux", reason="forks, locks and kills")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12, for all threads
def test_old_folder_comes_back_when_a_kill_has_left_none(places: tuple[Path, Path]) -> None:
    old, new = places

    def put_and_stop() -> None:
        rename = os.rename
        os.rename = lambda one, other: rename(one, other) or time.sleep(100)
        put_in_place(new, old)

    process = multiprocessing.get_context("fork").Process(target=put_and_stop)
    process.start()
    while old.exists():
        time.sleep(0.01)
    restore(old)
    assert not old.exists()  # the process lives, and is at it
    process.kill()
    process.join()
    restore(old)
    assert content(old) == "served"
    assert {path.name for path in old.parent.iterdir()} == {"served", new.parent.name}


@pytest.mark.usefixtures("without_exchange")
def test_what_was_put_aside_is_no_choice_where_there_is_a_folder(
    places: tuple[Path, Path], tmp_path: Path
) -> None:
    old, new = places
    for name in ("served.00000000.old", "served.mine.old", "another.00000000.old"):
        shutil.copytree(new, tmp_path / name)
    restore(old)
    assert content(old) == "served"
    put_in_place(new, old)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"served", new.parent.name, "served.mine.old", "another.00000000.old"}
