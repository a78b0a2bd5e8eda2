"""Claims about checkpoints' files: what was written comes back, and other files are told apart."""

import io
import pickle
import tempfile
import tracemalloc
import zipfile
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def member(shape: tuple[int, ...], dtype: str, content: bytes) -> bytes:
    written = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(written, header)
    return written.getvalue() + content


HUGE = member((2**21,), "<f8", bytes(2**24))
HOSTILE: dict[str, tuple[dict[str, bytes], int]] = {
    "compressed": ({"a": HUGE}, zipfile.ZIP_DEFLATED),
    "by another method": ({"a": HUGE}, zipfile.ZIP_LZMA),
    "says more than it has": ({"a": HUGE[:1000]}, zipfile.ZIP_STORED),
    "says less than it has": ({"a": member((3,), "<f8", bytes(99))}, zipfile.ZIP_STORED),
    "text without letters": ({"a": member((2**24,), "<U0", b"")}, zipfile.ZIP_STORED),
    "negative": ({"a": member((-1, -3), "<f8", bytes(24))}, zipfile.ZIP_STORED),
    "no array": ({"a": b"text"}, zipfile.ZIP_STORED),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_would_take_more_memory_than_the_file_has_bytes_is_refused(
    name: str, tmp_path: Path
) -> None:
    members, method = HOSTILE[name]
    with zipfile.ZipFile(tmp_path / "file", "w", method) as archive:
        for key, content in members.items():
            archive.writestr(f"{key}.npy", content)
    tracemalloc.start()  # NumPy tells it what it takes
    try:
        with pytest.raises(NO_CHECKPOINT):
            read_arrays(tmp_path / "file")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_members_that_lie_on_each_other_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_arrays(path, {"a": np.zeros(1000)})
    with zipfile.ZipFile(path, "a") as archive:
        (first,) = archive.infolist()
        archive.filelist += [copy(first) for _ in range(99)]
        archive._didModify = True
    with pytest.raises(ValueError, match="said to be larger than its"):
        read_arrays(path)


@pytest.fixture(name="content", scope="module")
def _content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("archives") / "file"
    write_arrays(path, {"a": np.arange(6.0).reshape(2, 3), "b": "a text", "c": np.ones(3, bool)})
    return path.read_bytes()


@settings(max_examples=500)
@given(data=st.data())
def test_damaged_files_are_refused_or_have_the_arrays(content: bytes, data: Any) -> None:
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place] = data.draw(st.integers(0, 255))
    with tempfile.NamedTemporaryFile() as file:
        file.write(changed)
        file.flush()
        try:
            found = read_arrays(file.name)
        except NO_CHECKPOINT:
            return
    assert sum(value.nbytes for value in found.values()) <= len(content)


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
