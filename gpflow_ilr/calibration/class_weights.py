"""Weights of classes: what they do to probabilities, and how to undo it.

A class whose rows have the weight w_k is learned as if it were w_k times as frequent as it is. So the
probabilities are those of a world with other frequencies, p_w(k | x) ∝ w_k p(k | x): good for decisions
in that world (rare classes are found more often), not calibrated in this one. Dividing by the weights,
and normalising, goes back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from gpflow_ilr.inputs.labels import as_labels
from gpflow_ilr.inputs.probabilities import as_probabilities

__all__ = ["balanced_class_weights", "undo_class_weights"]


def balanced_class_weights(y: Any, num_classes: int) -> np.ndarray:
    """Weights n/(K n_k), [K], with which all classes count alike, and a row counts once on average.

    Weights of the rows are ``balanced_class_weights(y, K)[y]``. A class without rows has weight one.

    :param y: class indices [N], or one-hot rows [N, K].
    :param num_classes: K.
    :raises ValueError: if the labels are soft, or make no sense.
    """
    labels = as_labels(y, num_classes)
    if labels.shape.rank != 1:
        raise ValueError(
            "y must be class indices or one-hot rows, but has soft rows, which have no class to count. "
            "Pass y.argmax(axis=1)."
        )
    counts = np.bincount(labels.numpy(), minlength=num_classes)
    present = np.count_nonzero(counts)
    return np.where(counts > 0, len(labels) / (present * np.maximum(counts, 1)), 1.0)


def undo_class_weights(probabilities: TensorType, class_weights: Any) -> tf.Tensor:
    """Probabilities in a world where classes are as frequent as they were before weighting, [..., K].

    :param probabilities: of a model whose rows had weights of their classes, [..., K].
    :param class_weights: w_k > 0, [K].
    :raises ValueError: if the weights are not K positive numbers, or rows that are known are off the
        simplex.
    """
    if not tf.is_symbolic_tensor(probabilities):
        rows = np.asarray(probabilities)
        as_probabilities(rows.reshape(-1, rows.shape[-1]) if rows.ndim else rows)
    p = tf.convert_to_tensor(probabilities)
    weights = np.asarray(class_weights, np.float64)
    if weights.shape != (p.shape[-1],) or not np.all(np.isfinite(weights) & (weights > 0.0)):
        raise ValueError(
            f"class_weights must be {p.shape[-1]} positive numbers, one for each class, but is "
            f"{class_weights!r}."
        )
    unweighted = p / tf.constant(weights, p.dtype)
    return unweighted / tf.reduce_sum(unweighted, axis=-1, keepdims=True)
