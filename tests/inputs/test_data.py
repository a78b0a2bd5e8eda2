"""Pairs of inputs and labels: check_data and as_column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from gpflow_ilr.inputs.rows import as_column, check_data

X = np.array([[0, 1], [1, 0], [1, 1]])


@pytest.mark.parametrize("data", [X, (X,), (X, [0, 1], None, [0, 1]), None, {"X": X, "y": [0, 1]}])
def test_data_must_be_a_pair(data: Any) -> None:
    with pytest.raises(
        ValueError, match=r"data must be a pair \(X, y\), or \(X, y, sample_weight\), but"
    ):
        check_data(data, 2)


def test_data_must_have_as_many_labels_as_rows() -> None:
    with pytest.raises(ValueError, match="X has 3 rows and y has 2"):
        check_data((X, [0, 1]), 2)


LABELS = [0, 1, 1]


@pytest.mark.parametrize(
    ("y", "dtype"),
    [
        (np.array(LABELS, np.int8), tf.int8),
        (np.array(LABELS, np.float32), tf.float32),
        (tf.constant(LABELS, tf.int64), tf.int64),
        (LABELS, tf.int32),
        (np.array(LABELS, bool), tf.int32),
        (np.array(LABELS, object), tf.int32),
        (np.array(LABELS, np.longdouble), tf.int32),
        (pd.Series(LABELS), tf.int64),
        (pd.Series(LABELS, dtype="Int64"), tf.int32),
        (pd.Series(LABELS, dtype="category"), tf.int32),
        (np.eye(2, dtype=int)[LABELS], tf.int64),
    ],
)
def test_class_indices_keep_their_dtype_where_tensorflow_has_it(y: Any, dtype: tf.DType) -> None:
    rows = check_data((pd.DataFrame(X), y), 2)
    inputs, labels = rows.X, rows.labels
    column = as_column(labels, getattr(y, "dtype", labels.dtype))
    assert (inputs.dtype, column.dtype, labels.dtype) == (tf.float64, dtype, tf.int32)
    np.testing.assert_array_equal(column[:, 0], LABELS)
    np.testing.assert_array_equal(labels, LABELS)


def test_soft_rows_stay_soft_rows() -> None:
    soft = np.array([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]])
    labels = check_data((X, soft), 2).labels
    np.testing.assert_array_equal(labels, soft)
    assert as_column(labels, tf.int32) is labels
