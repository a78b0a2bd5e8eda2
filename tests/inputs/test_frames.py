"""Claims about data frames, of pandas and of packages that look like polars."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_ilr.inputs.frames import is_frame, read_frame
from gpflow_ilr.inputs.rows import as_inputs

VALUES = {
    "bool": [True, False],
    "int8": [1, -1],
    "uint64": [1, 2],
    "float32": [0.5, 1.5],
    "float64": [0.1, 0.2],
    "boolean": [True, False],
    "Int64": [1, 2],
    "UInt8": [1, 2],
    "Float64": [0.5, 1.5],
    "Float32": [0.5, 1.5],
    "Sparse[float]": [0.0, 1.0],
}


@pytest.mark.parametrize("second", VALUES)
@pytest.mark.parametrize("dtype", VALUES)
def test_boolean_integer_and_float_columns_are_read_beside_each_other(
    dtype: str, second: str
) -> None:
    frame = pd.DataFrame(
        {"a": pd.Series(VALUES[dtype], dtype=dtype), "b": pd.Series(VALUES[second], dtype=second)}
    )
    expected = np.stack([VALUES[dtype], VALUES[second]], axis=1).astype(float)
    values, columns = read_frame(frame, "X")
    assert columns == ["a", "b"]
    np.testing.assert_array_equal(values, expected.astype(values.dtype))
    np.testing.assert_allclose(as_inputs(frame, num_columns=2), expected, rtol=1e-7)


@pytest.mark.parametrize("dtype", ["boolean", "Int64", "Float64", "float64"])
def test_a_missing_value_is_refused_by_row_and_column(dtype: str) -> None:
    frame = pd.DataFrame({"a": [0, 1], "b": pd.array([1, None], dtype=dtype)})
    with pytest.raises(ValueError, match="row 1, column 'b' is nan"):
        as_inputs(frame)


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (pd.Categorical(["u", "v"]), "dtype category (row 0 is 'u'). Encode categories as numbers"),
        (pd.Categorical([1, 2]), "column 'b' has dtype category (row 0 is 1). Encode categories"),
        (["u", "v"], "(row 0 is 'u'). Encode categories as numbers, for example one-hot"),
        (np.array([1, "v"], object), "column 'b' has dtype object (row 1 is 'v'). Encode"),
        (np.array([1, 2], object), "text with X['b'].astype(float)."),
        (np.array([1, None], object), "column 'b' has dtype object (row 1 is None). Encode"),
        (
            pd.to_datetime(["2020", "2021"]),
            "(row 0 is Timestamp('2020-01-01 00:00:00')). Pass times",
        ),
        (pd.to_datetime(["2020", "2021"]).tz_localize("UTC"), "Pass times as numbers, for example"),
        (
            pd.to_timedelta([1, 2], unit="D"),
            "(row 0 is Timedelta('1 days 00:00:00')). Pass durations",
        ),
        ([1j, 2], "column 'b' has dtype complex128 (row 0 is 1j). Pass real and imaginary parts"),
        (pd.period_range("2020", periods=2), "column 'b' has dtype period"),
    ],
)
def test_columns_of_anything_else_are_refused_by_name(column: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=re.escape(sentence)):
        as_inputs(pd.DataFrame({"a": [0.5, 1.5], "b": column}))


def test_columns_of_one_name_are_told_apart() -> None:
    frame = pd.DataFrame([[1, "u"]], columns=["a", "a"])
    with pytest.raises(TypeError, match=r"column 'a' has dtype .* \(row 0 is 'u'\)"):
        as_inputs(frame)
    np.testing.assert_array_equal(as_inputs(pd.DataFrame([[1, 2]], columns=["a", "a"])), [[1, 2]])


def test_an_empty_column_of_objects_is_refused_without_a_value() -> None:
    with pytest.raises(TypeError, match=r"column 'a' has dtype object\. Encode"):
        as_inputs(pd.DataFrame({"a": np.array([], object)}))


def test_a_frame_of_one_float_dtype_is_not_copied() -> None:
    frame = pd.DataFrame(np.zeros([4, 3]))
    assert np.shares_memory(read_frame(frame, "X")[0], frame.to_numpy())


@pytest.mark.parametrize("other", [np.zeros([2, 2]), [[1]], pd.Series([1]), None])
def test_arrays_lists_and_series_are_no_frames(other: Any) -> None:
    assert not is_frame(other)


class Dtype:
    """A dtype as polars has them: without NumPy's letters."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    def is_numeric(self) -> bool:
        return self.name.startswith(("Int", "UInt", "Float"))


class Frame:
    """A frame as polars has them."""

    def __init__(self, columns: dict[str, tuple[str, list[Any]]]) -> None:
        self.columns = list(columns)
        self.dtypes = [Dtype(name) for name, _ in columns.values()]
        self._values = np.array([values for _, values in columns.values()]).T

    def to_numpy(self) -> np.ndarray:
        return self._values

    def __getitem__(self, key: Any) -> Any:
        return self._values[key]


def test_frames_like_polars_are_read_and_refused_too() -> None:
    good = Frame(
        {"a": ("Int64", [1, 2]), "b": ("Boolean", [True, False]), "c": ("Float32", [3, 4])}
    )
    np.testing.assert_array_equal(as_inputs(good), [[1, 1, 3], [2, 0, 4]])
    for dtype in ("String", "Categorical", "Date"):
        with pytest.raises(TypeError, match=f"column 'b' has dtype {dtype} \\(row 0 is .*u'"):
            as_inputs(Frame({"a": ("Int64", [1, 2]), "b": (dtype, ["u", "v"])}))
    missing = Frame({"a": ("Float64", [1.0, float("nan")])})
    with pytest.raises(ValueError, match="row 1, column 'a' is nan"):
        as_inputs(missing)
