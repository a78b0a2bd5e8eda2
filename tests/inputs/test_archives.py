"""Claims about checkpoints' files: what was written comes back, and other files are told apart."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpflow_ilr.inputs.archives import (
    NO_CHECKPOINT,
    check_checkpoint,
    read_arrays,
    refused,
    write_arrays,
)


def test_arrays_come_back_to_the_bit(tmp_path: Path) -> None:
    arrays = {".kernel.parts[0]": np.arange(6.0).reshape(2, 3), "format": "a text", "one": 0.1}
    write_arrays(tmp_path / "file", arrays)
    found = read_arrays(tmp_path / "file")
    assert list(found) == list(arrays)
    for name, value in arrays.items():
        np.testing.assert_array_equal(found[name], value)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_objects_are_neither_written_nor_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(ValueError, match="allow_pickle"):
        write_arrays(path, {"x": np.array([object()])})
    assert not path.exists()
    path.write_bytes(pickle.dumps({"x": 1.0}))
    with pytest.raises(NO_CHECKPOINT):
        read_arrays(path)
    np.savez(path.with_suffix(".npz"), x=np.array([{}]))
    with pytest.raises(NO_CHECKPOINT):
        read_arrays(path.with_suffix(".npz"))


def test_a_folder_that_is_not_there_is_named_as_the_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"checkpoint is .*Make it first"):
        write_arrays(tmp_path / "no" / "file", {})
    with pytest.raises(FileNotFoundError, match=r"checkpoint is .*Make it first"):
        check_checkpoint(tmp_path / "no" / "file", 10.0)


def test_a_checkpoint_is_a_path_or_none(tmp_path: Path) -> None:
    assert check_checkpoint(None, 0.0) is None
    assert check_checkpoint(str(tmp_path / "file"), 0.0) == tmp_path / "file"
    with pytest.raises(TypeError, match="checkpoint must be a path, but is 3"):
        check_checkpoint(3, 10.0)


@pytest.mark.parametrize("value", [-1e-9, np.nan, "10", None])
@pytest.mark.parametrize("path", [None, "file"])
def test_a_pause_is_seconds_that_are_not_negative(path: Any, value: Any) -> None:
    with pytest.raises(ValueError, match=r"checkpoint_every .*Try 10"):
        check_checkpoint(path, value)


def test_what_is_refused_is_named_with_the_reason_and_the_remedy() -> None:
    sentence = str(refused("a/file", "fit", KeyError("format")))
    assert "checkpoint='a/file' was not written by fit ('format')" in sentence
    assert "Name a file that does not exist" in sentence
