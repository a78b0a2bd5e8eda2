"""The one place that reads weights of rows.

A row of weight w counts as w rows: its pseudo-targets have the noise V/w, and the expectations of its
label count w times. A row of weight zero is as good as absent.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.config import default_float

from gpflow_ilr.inputs.arrays import first, is_real, row_name

__all__ = ["as_weights", "weights_of_batch"]


def as_weights(
    weights: Any, num_rows: int, name: str = "sample_weight", may_vanish: bool = False
) -> tf.Tensor:
    """Weights [N] in the default float, which are finite, not negative, and not all zero.

    :param weights: [N] or [N, 1], as an array, a tensor, a pandas object or a list.
    :param num_rows: the number of rows of X.
    :param name: what the argument is called, for the error.
    :param may_vanish: whether all of them may be zero.
    :raises TypeError: if they are symbolic, or no real numbers.
    :raises ValueError: if they are not such weights.
    """
    if tf.is_symbolic_tensor(weights):
        raise TypeError(
            f"{name} must have values, but is symbolic ({weights!r}). Pass it outside tf.function."
        )
    values = np.asarray(weights)
    if values.dtype == object:
        with contextlib.suppress(TypeError, ValueError):  # refused below
            values = values.astype(np.float64)
    if not is_real(values.dtype):
        raise TypeError(
            f"{name} must hold real numbers, but has dtype {values.dtype.name}. Pass one number for "
            "each row; weights of classes are class_weight."
        )
    if values.shape not in ((num_rows,), (num_rows, 1)):
        raise ValueError(
            f"{name} must have one weight for each of the {num_rows} rows of X, but has shape "
            f"{list(values.shape)}."
        )
    values = values.reshape(-1).astype(np.float64)
    bad = ~(np.isfinite(values) & (values >= 0.0))
    if bad.any():
        index = first(bad)
        raise ValueError(
            f"{name} must be finite and not negative, but {row_name(index)} has {values[index]}. A "
            "weight of 0 leaves a row out."
        )
    if not may_vanish and not values.any():
        raise ValueError(
            f"{name} must not be zero for all rows, but is, for all {num_rows}. Give the rows that "
            "count a positive weight, 1 for a row that counts once."
        )
    return tf.constant(values, default_float())


def weights_of_batch(weights: Any, X: tf.Tensor) -> tf.Tensor:
    """Weights [n] of a batch, also of one that only a running graph knows, whose values are trusted.

    :param weights: [n] or [n, 1].
    :param X: [n, D], the rows.
    :raises ValueError: if there are more or fewer weights than rows, or one is wrong.
    """
    if not tf.is_symbolic_tensor(weights) and X.shape[0] is not None:
        return as_weights(weights, int(X.shape[0]), may_vanish=True)
    weights = tf.cast(weights, default_float())
    if weights.shape.rank == 2:
        weights = tf.ensure_shape(weights, [None, 1])[:, 0]
    if not X.shape[:1].is_compatible_with(weights.shape):
        raise ValueError(
            f"sample_weight must have one weight for each row of X, but has shape {weights.shape} "
            f"where X has {X.shape}."
        )
    return weights
