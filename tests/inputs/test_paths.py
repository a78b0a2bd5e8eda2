"""Claims about paths: what cannot be written to is known before anything is computed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpflow_ilr.inputs.paths import check_path, path_to_write, unfinished_file


def test_text_and_objects_are_paths(tmp_path: Path) -> None:
    assert check_path("path", str(tmp_path)) == check_path("path", tmp_path) == tmp_path
    assert path_to_write(tmp_path / "new") == tmp_path / "new"
    assert path_to_write("beside") == Path("beside")


@pytest.mark.parametrize("given", [None, 3, b"bytes"])
def test_anything_else_is_refused_by_the_name_of_the_argument(given: object) -> None:
    with pytest.raises(TypeError, match=f"folder must be a path, but is {given!r}. Pass text"):
        check_path("folder", given)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere'. Make it first"):
        path_to_write(tmp_path / "nowhere" / "model")


def test_a_symbolic_link_stands_for_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "model")
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere'. Make it first"):
        path_to_write(tmp_path / "link")
    (tmp_path / "nowhere").mkdir()
    assert path_to_write(tmp_path / "link") == tmp_path / "nowhere" / "model"


def test_what_is_no_file_is_never_replaced(tmp_path: Path) -> None:
    pipe, circle = tmp_path / "pipe", tmp_path / "circle"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError, match=r"path is .*pipe', a device or a pipe.*Name another"):
        path_to_write(pipe)
    circle.symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(circle)
    with pytest.raises(OSError, match=r"path is .*circle'.*leads back to itself. Remove it first"):
        path_to_write(circle)
    assert circle.is_symlink()


def test_the_folder_of_the_process_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for here in ("", ".", ".."):
        with pytest.raises(IsADirectoryError, match=r"path is .*Name a file or folder in it"):
            path_to_write(here)


def test_a_path_with_a_null_character_is_refused() -> None:
    with pytest.raises(ValueError, match=r"path is 'a\\x00b', and no path has a null character"):
        check_path("path", "a\0b")


def test_an_interrupted_file_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with unfinished_file(path) as file:
            file.write(b"ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_of_one_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with unfinished_file(path) as one:
        one.write(b"one")
        os.utime(one.name, (0, 0))  # long ago, but still being written
        with unfinished_file(path) as other:
            other.write(b"other")
        assert path.read_bytes() == b"other"
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    path, left = tmp_path / "file", tmp_path / "file.0123abcd.unfinished"
    folder = tmp_path / "file.4567cdef.unfinished"
    others = [tmp_path / name for name in ("file.txt.unfinished", "other.0123abcd.unfinished", "x")]
    folder.mkdir()
    for each in (left, folder / "part", *others):
        each.write_bytes(b"part")
        os.utime(each, (0, 0))
    os.utime(folder, (0, 0))
    with unfinished_file(path) as file:
        file.write(b"new")
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])
