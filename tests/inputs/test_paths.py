"""Claims about paths: what cannot be written to is known before anything is computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpflow_ilr.inputs.paths import check_path, path_to_write


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
