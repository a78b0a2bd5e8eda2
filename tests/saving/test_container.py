"""Claims about files: kept ones are read for ever, damaged and hostile ones are refused."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpflow_ilr as gi
from gpflow_ilr.saving import load, save
from gpflow_ilr.saving.container import FORMAT, MAGIC
from tests.saving.hostile import tamper
from tests.saving.kept import FOLDER, KEPT, predictions
from tests.saving.models import MODELS, X

FILES = sorted(FOLDER.glob("*.format-*"))


def test_every_kind_of_model_has_a_kept_file() -> None:
    assert {path.stem for path in FILES} == {name.replace(" ", "_") for name in KEPT}
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 200_000


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_kept_file_is_read_with_its_predictions(path: Path) -> None:
    model = load(path)
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    found = predictions(model)
    assert found["class"] == expected["class"]
    # With other default nodes of expectations "y" would be another, and only that.
    for name in {"mean", "variance", "y"} & set(expected):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9, atol=1e-12)


@pytest.fixture(name="path", scope="module")
def _written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("container") / "model"
    save(MODELS["ILRSGPR"](), path)
    return path


@pytest.fixture(name="copy")
def _copy(path: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "model"
    copy.write_bytes(path.read_bytes())
    return copy


@pytest.mark.parametrize("keep", [0, 10, 40, 500, 2000, -1])
def test_truncated_file_is_refused(keep: int, copy: Path) -> None:
    copy.write_bytes(copy.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"is damaged|is not a model saved by"):
        load(copy)


def test_any_byte_that_is_changed_or_added_is_noticed(copy: Path) -> None:
    content = copy.read_bytes()
    body = content.index(b"\n", len(MAGIC)) + 1
    for place in np.random.default_rng(0).integers(body, len(content), 20):
        changed = bytearray(content)
        changed[place] ^= 1
        copy.write_bytes(bytes(changed))
        with pytest.raises(ValueError, match="is damaged"):
            load(copy)
    copy.write_bytes(content + b"x")
    with pytest.raises(ValueError, match="is damaged"):
        load(copy)


@pytest.mark.parametrize("content", [b"", b"text\n", b"\x80\x04N.", b"PK\x03\x04" + bytes(99)])
def test_foreign_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(content)
    with pytest.raises(ValueError, match=r"model' cannot be loaded. It is not a model saved by"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    "header", [b"", b"[]", b"3", b"{}", b"[" * 10**6, b'{"version": 1}', b"\xff"]
)
def test_header_that_is_none_is_refused(header: bytes, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(MAGIC + header + b"\n{}")
    with pytest.raises(ValueError, match="header cannot be read"):
        load(tmp_path / "model")


@pytest.mark.parametrize("number", [FORMAT + 1, 0, -1, "1", None, 1.5, True])
def test_other_formats_are_refused_with_the_remedy(number: Any, copy: Path) -> None:
    tamper(copy, lambda d: None, format=number, version="9.1")
    with pytest.raises(
        ValueError, match=rf"saved by gpflow_ilr 9.1,.*reads formats up to {FORMAT}"
    ):
        load(copy)


@pytest.mark.parametrize("size", [-1, 2**62, "9", None, 1.5])
def test_sizes_that_are_not_the_files_are_refused(size: Any, copy: Path) -> None:
    tamper(copy, lambda d: None, arrays=size)
    with pytest.raises(ValueError, match="is damaged"):
        load(copy)


def first_array(description: dict[str, Any]) -> list[Any]:
    found: list[Any] = next(t["tensor"] for t in description["objects"] if "tensor" in t)
    return found


@pytest.mark.parametrize(
    "dtype", ["object", "O", "V8", "U5", "float128", "datetime64[s]", ["f8"], None, 3, "float63"]
)
def test_arrays_of_anything_but_numbers_are_refused(dtype: Any, copy: Path) -> None:
    def change(description: dict[str, Any]) -> None:
        first_array(description)[0] = dtype

    tamper(copy, change)
    with pytest.raises(ValueError, match=r"cannot be loaded"):
        load(copy)


@pytest.mark.parametrize(
    "shape", [[2**40, 2**40], [2**33], [-1, -60], [1.5], ["3"], [True], 60, None, [1] * 99]
)
def test_shapes_that_the_file_has_no_bytes_for_are_refused(shape: Any, copy: Path) -> None:
    def change(description: dict[str, Any]) -> None:
        first_array(description)[1] = shape

    tamper(copy, change)
    with pytest.raises(ValueError, match=r"cannot be loaded"):
        load(copy)


def test_missing_and_additional_arrays_are_refused(copy: Path) -> None:
    tamper(copy, lambda d: d["objects"].append({"array": ["int8", [4]], "transposed": False}))
    with pytest.raises(ValueError, match="bytes of arrays, but describes"):
        load(copy)
    tamper(copy, lambda d: d["objects"].pop(), more=bytes(8))
    with pytest.raises(ValueError, match="bytes of arrays, but describes"):
        load(copy)


def test_giant_arrays_are_refused_before_memory_is_taken(copy: Path) -> None:
    def change(description: dict[str, Any]) -> None:
        first_array(description)[1] = [2**24]

    tamper(copy, change)
    tracemalloc.start()  # NumPy tells it what it takes
    try:
        with pytest.raises(ValueError, match="bytes of arrays, but describes"):
            load(copy)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def test_file_is_data_that_other_programs_can_read(tmp_path: Path) -> None:
    model = MODELS["ILRGPR"]()
    path = tmp_path / "model"
    assert save(model, path) == path.stat().st_size
    first, header, description, _ = path.read_bytes().split(b"\n", 3)
    assert first + b"\n" == MAGIC
    assert json.loads(header)["class"] == "ILRGPR"
    assert json.loads(description)["objects"][0]["class"] == "gpflow_ilr.ILRGPR"
    assert X.tobytes() in path.read_bytes()
    assert isinstance(load(path), gi.ILRGPR)
