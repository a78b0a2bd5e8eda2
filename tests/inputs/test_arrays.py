"""Claims about what reading inputs and reading labels share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis.extra import numpy as npst

from gpflow_ilr.inputs.arrays import encoding, first, is_real, odd_row, row_name


@given(npst.arrays(bool, npst.array_shapes(min_dims=0, max_dims=3)))
def test_the_first_is_the_first_in_the_order_of_rows(bad: np.ndarray) -> None:
    bad[(-1,) * bad.ndim] = True
    index = first(bad)
    assert all(type(i) is int for i in index)
    assert bad[index]
    assert index == min(tuple(found) for found in np.argwhere(bad))


def test_rows_are_called_by_one_number_or_by_all() -> None:
    assert row_name((3,)) == "row 3"
    assert row_name((1, 2)) == "row (1, 2)"


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "longdouble"])
def test_booleans_integers_and_floats_are_real(dtype: str) -> None:
    assert is_real(np.dtype(dtype))
    assert is_real(tf.constant(0, tf.bfloat16).numpy().dtype)


@pytest.mark.parametrize("dtype", ["complex64", "U3", "S3", "O", "M8[D]", "m8[D]", "V8"])
def test_nothing_else_is_real(dtype: str) -> None:
    assert not is_real(np.dtype(dtype))


@pytest.mark.parametrize(
    ("rows", "odd"),
    [
        ([], None),
        ([[1, 2], [3, 4]], None),
        ([1, 2, [3]], 2),
        ([[1, 2], [3], [4]], 1),
        ([np.zeros([2, 2]), np.zeros([2, 1])], 1),
        ([["a", 1], [None, 2]], None),
    ],
)
def test_the_odd_row_is_the_first_of_another_shape(rows: list[Any], odd: int | None) -> None:
    assert odd_row(rows) == odd


def test_advice_depends_on_what_was_found() -> None:
    assert encoding("M", "X").startswith("Pass times as numbers")
    assert encoding("m", "X").startswith("Pass durations as numbers")
    assert encoding("c", "X").startswith("Pass real and imaginary parts")
    for kind in "OUSV":
        assert encoding(kind, "X['a']").endswith("X['a'].astype(float).")
