"""Which rows are nearest, in the metric of a kernel.

Stationary kernels fall with the distance of inputs divided by lengthscales, so the rows that say most
about another are those nearest in that metric (:func:`kernel_metric`). In graphs :func:`nearest_rows`
compares with all rows, by ops that run on a GPU, compile under XLA and can be exported. Where values
are known, an index over the rows is faster (:mod:`.neighbour_index`).
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from gpflow.kernels import Combination, IsotropicStationary, Kernel, Static

from gpflow_ilr.linalg.row_chunks import map_rows

__all__ = ["kernel_metric", "nearest_rows"]

_CHUNK_ELEMENTS = 2**24


def kernel_metric(kernel: Kernel, num_columns: int) -> tf.Tensor:
    """What each column is multiplied with, so that the kernel falls with the distance, [D].

    One over the lengthscales, zero for columns that are not active, up to a common factor: the largest
    is one. The squares of the parts of a sum or a product are added, as the exponents of squared
    exponentials are. Kernels with parts that have no lengthscales (linear, periodic, …) have the
    Euclidean metric. Constant for gradients: neighbours change by jumps.

    :param kernel: any single-output kernel.
    :param num_columns: D.
    """
    squares = _squared_metric(kernel, num_columns)
    if squares is None:
        return tf.ones([num_columns], default_float())
    largest = tf.reduce_max(squares)
    ratios = tf.math.divide_no_nan(squares, largest)
    return tf.stop_gradient(tf.where(largest > 0.0, tf.sqrt(ratios), tf.ones_like(ratios)))


def _squared_metric(kernel: Kernel, num_columns: int) -> tf.Tensor | None:
    """One over the squared lengthscales, [D], or None where a part has none."""
    if isinstance(kernel, Combination):
        parts = [_squared_metric(part, num_columns) for part in kernel.kernels]
        return None if any(part is None for part in parts) else tf.add_n(parts)
    if isinstance(kernel, Static):
        return tf.zeros([num_columns], default_float())
    if not isinstance(kernel, IsotropicStationary):
        return None
    columns = np.arange(num_columns)[kernel.active_dims]
    smallest = tf.constant(np.finfo(default_float()).tiny ** 0.25, default_float())
    inverse = 1.0 / tf.square(tf.maximum(kernel.lengthscales, smallest))
    return tf.scatter_nd(columns[:, None], tf.broadcast_to(inverse, columns.shape), [num_columns])


def nearest_rows(X: tf.Tensor, Xnew: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
    """Numbers of the ``count`` rows of X nearest to each of some others, nearest first, [n, count].

    By comparison with all rows: O(N D) for each.

    :param X: [N, D], scaled by the metric.
    :param Xnew: [n, D], scaled likewise.
    :param count: at most N.
    """
    centre = tf.reduce_mean(X, axis=0)  # distances by expansion err less near the origin
    X, Xnew = X - centre, Xnew - centre
    norms = tf.reduce_sum(tf.square(X), axis=1)

    def nearest(rows: tf.Tensor) -> list[tf.Tensor]:
        closeness = 2.0 * tf.matmul(rows, X, transpose_b=True) - norms
        return [tf.math.top_k(closeness, count).indices]

    chunk = max(1, _CHUNK_ELEMENTS // X.shape[0])
    return map_rows(nearest, [Xnew], chunk)[0]
