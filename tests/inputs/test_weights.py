"""Weights of rows: what is read, and what is refused with a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from gpflow_ilr.inputs.rows import check_data
from gpflow_ilr.inputs.weights import as_weights, weights_of_batch


@pytest.mark.parametrize(
    "weights",
    [
        [1, 2, 0.5],
        np.array([[1.0], [2.0], [0.5]], np.float32),
        tf.constant([1.0, 2.0, 0.5]),
        pd.Series([1.0, 2.0, 0.5], index=[7, 8, 9]),
        np.array([1, 2, 0.5], object),
    ],
)
def test_weights_come_in_many_forms(weights: Any) -> None:
    found = as_weights(weights, 3)
    assert found.dtype == tf.float64
    np.testing.assert_array_equal(found, [1.0, 2.0, 0.5])


@pytest.mark.parametrize(
    ("weights", "error", "sentence"),
    [
        ([1, -2, 1], ValueError, r"sample_weight .* not negative, but row 1 has -2\.0"),
        ([1, 2, np.nan], ValueError, "but row 2 has nan"),
        ([1, np.inf, 1], ValueError, "but row 1 has inf"),
        ([0, 0, 0], ValueError, "sample_weight must not be zero for all rows, but is, for all 3"),
        ([1, 2], ValueError, r"one weight for each of the 3 rows of X, but has shape \[2\]"),
        (np.ones((3, 2)), ValueError, r"but has shape \[3, 2\]"),
        (2.0, ValueError, r"but has shape \[\]"),
        (["a", "b", "c"], TypeError, "sample_weight must hold real numbers, but has dtype str"),
        ({0: 1.0, 1: 2.0}, TypeError, "weights of classes are class_weight"),
        (np.array([1, None, 2], object), ValueError, "but row 1 has nan"),
    ],
)
def test_other_weights_are_refused(weights: Any, error: type, sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        as_weights(weights, 3)


def test_symbolic_weights_are_for_batches() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 1]), tf.TensorSpec([None, 2])])
    def read(weights: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
        with pytest.raises(TypeError, match="must have values"):
            as_weights(weights, 3)
        return weights_of_batch(weights, X)

    np.testing.assert_array_equal(read(np.array([[1.0], [3.0]]), np.zeros((2, 2))), [1.0, 3.0])

    @tf.function
    def mismatched() -> tf.Tensor:
        return weights_of_batch(tf.zeros([3]) + tf.random.uniform([]), tf.zeros([2, 2]))

    with pytest.raises(ValueError, match="one weight for each row of X"):
        mismatched()
    np.testing.assert_array_equal(weights_of_batch([0, 0], tf.zeros([2, 1])), [0.0, 0.0])


def test_rows_of_weight_zero_are_left_out() -> None:
    X = np.arange(6.0).reshape(3, 2)
    rows = check_data((X, [0, 1, 1], [2.0, 0.0, 0.5]), 2)
    np.testing.assert_array_equal(rows.X, X[[0, 2]])
    np.testing.assert_array_equal(rows.labels, [0, 1])
    np.testing.assert_array_equal(rows.weights, [2.0, 0.5])
    assert float(rows.total_weight) == 2.5
    assert check_data((X, [0, 1, 1], None), 2).weights is None
    assert len(check_data((X, [0, 1, 1], [0, 0, 0]), 2, may_vanish=True)) == 0
    with pytest.raises(ValueError, match="must not be zero for all rows"):
        check_data((X, [0, 1, 1], [0, 0, 0]), 2)


def test_rows_without_weights_join_others_as_rows_that_count_once() -> None:
    X = np.zeros((2, 1))
    weighted, plain = check_data((X, [0, 1], [3, 4]), 2), check_data((X, [1, 0]), 2)
    np.testing.assert_array_equal(weighted.joined(plain).weights, [3, 4, 1, 1])
    np.testing.assert_array_equal(plain.joined(weighted).weights, [1, 1, 3, 4])
    assert plain.joined(plain).weights is None
