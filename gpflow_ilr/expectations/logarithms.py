"""The one rule for log 0, where probabilities are given.

Log densities of models are computed in logarithms and need none of it
(:func:`gpflow_ilr.expectations.predictive_log_density`). A probability may underflow to 0. The
logarithm of a label that then occurs is that of the smallest normal number, a finite loss from which
training can return; a class that does not occur contributes nothing, whatever its probability:
0 · log 0 = 0, in values and in gradients.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

__all__ = ["entropy", "label_log_density"]


def label_log_density(p: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Σ_k y_k log p_k: the log probability of each label, [...].

    :param p: class probabilities, [..., K].
    :param rows: labels as rows on the simplex, broadcasting to [..., K].
    """
    smallest = tf.constant(np.finfo(p.dtype.as_numpy_dtype).tiny, p.dtype)
    return tf.reduce_sum(rows * tf.math.log(tf.maximum(p, smallest)), axis=-1)


def entropy(p: tf.Tensor) -> tf.Tensor:
    """−Σ_k p_k log p_k, in nats, [...].

    :param p: class probabilities, [..., K].
    """
    return -tf.reduce_sum(tf.math.xlogy(p, p), axis=-1)
