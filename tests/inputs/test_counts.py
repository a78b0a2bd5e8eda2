"""Claims about counts: which values are counts, and what is said of the others."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from gpflow_ilr.inputs.counts import (
    check_count,
    check_row_numbers,
    check_seed,
    evenly_spaced,
    number_or_nan,
)


@given(st.integers(-5, 5), st.integers(0, 100))
def test_integers_of_any_kind_become_python_integers(smallest: int, above: int) -> None:
    value = smallest + above
    for given_value in (value, np.int64(value), np.int16(value)):
        count = check_count("num_rows", given_value, smallest)
        assert type(count) is int
        assert count == value
    with pytest.raises(
        ValueError, match=f"num_rows must be an integer of at least {smallest}, but"
    ):
        check_count("num_rows", smallest - 1 - above, smallest)


def test_a_count_is_at_least_one_unless_said_otherwise() -> None:
    assert check_count("num_burnin", 0, smallest=0) == 0
    with pytest.raises(
        ValueError, match=r"^num_rows must be an integer of at least 1, but is 0\.$"
    ):
        check_count("num_rows", 0)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "True"),
        (np.bool_(True), repr(np.bool_(True))),
        (2.0, "2.0"),
        (np.float32(2), repr(np.float32(2))),
        (float("nan"), "nan"),
        ("2", "'2'"),
        (None, "None"),
        ([2], "[2]"),
        (np.array(2), "array(2)"),
        (np.array([2, 3]), "array([2, 3])"),
        (tf.constant(2), "<tf.Tensor"),
        (1j, "1j"),
    ],
)
def test_what_is_no_integer_is_refused_and_shown(value: Any, shown: str) -> None:
    sentence = f"num_bins must be an integer of at least 1, but is {shown}"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        check_count("num_bins", value)


@pytest.mark.parametrize(("num_rows", "count"), [(1, 5), (3, 64), (64, 64), (65, 64), (10_000, 64)])
def test_rows_are_spread_from_the_first_to_the_last(num_rows: int, count: int) -> None:
    rows = evenly_spaced(num_rows, count)
    assert len(np.unique(rows)) == len(rows) == min(num_rows, count)
    assert (rows[0], rows[-1]) == (0, num_rows - 1)
    steps = np.diff(rows)
    assert steps.size == 0 or steps.max() - steps.min() <= 1


def test_row_numbers_become_int32() -> None:
    numbers = check_row_numbers("rows", [4, 0, 2], 5)
    assert numbers.dtype == np.int32
    np.testing.assert_array_equal(numbers, [4, 0, 2])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "one or more rows"),
        ([[1]], r"shape \[1, 1\]"),
        ([0.5], "dtype float64"),
        ([True], "dtype bool"),
        ([0, 5], "between 0 and 4, but they reach from 0 to 5"),
        ([-1], "reach from -1 to -1"),
    ],
)
def test_other_row_numbers_are_refused(rows: list, message: str) -> None:
    with pytest.raises(ValueError, match=f"rows must be .*{message}"):
        check_row_numbers("rows", rows, 5)


def test_seeds_are_integers_that_are_not_negative() -> None:
    assert check_seed(0) == 0
    assert type(check_seed(np.uint32(7))) is int
    for value in (-1, 2.0, "a", None, True):
        with pytest.raises(
            ValueError, match=f"^start must be an integer .* but is {value!r}. Pass 0"
        ):
            check_seed(value, "start")


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2.0), np.array(2), tf.constant(2.0)])
def test_numbers_of_any_kind_become_floats(value: Any) -> None:
    assert number_or_nan(value) == 2.0


@pytest.mark.parametrize("value", ["2", b"2", None, [2.0, 3.0], True, {}, 2j])
def test_what_is_no_number_fails_every_comparison(value: Any) -> None:
    number = number_or_nan(value)
    assert not number > 0.0
    assert not number <= 0.0
