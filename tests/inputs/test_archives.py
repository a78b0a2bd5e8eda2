"""Claims about checkpoints' files: what was written comes back, and other files are told apart."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from gpflow_ilr.inputs.archives import NO_CHECKPOINT, read_arrays, refused, write_arrays


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


def test_what_is_refused_is_named_with_the_reason_and_the_remedy() -> None:
    sentence = str(refused("a/file", "fit", KeyError("format")))
    assert "checkpoint='a/file' was not written by fit ('format')" in sentence
    assert "Name a file that does not exist" in sentence
