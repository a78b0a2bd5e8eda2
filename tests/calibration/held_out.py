"""Predictions of held-out rows that are right by construction, for tests of calibration."""

from __future__ import annotations

import numpy as np
import scipy.special
import tensorflow as tf

from gpflow_ilr.calibration.criterion import Marginals, label_nll
from gpflow_ilr.calibration.search import SMOOTHING_BOUNDS
from gpflow_ilr.codes import ILRCode, sharpness_of


def link_of(K: int) -> tf.Tensor:
    return ILRCode(K).link


def mean_nll(held_out: Marginals, link: tf.Tensor, sharpness: float) -> float:
    return float(tf.reduce_mean(label_nll(held_out, link, tf.constant(sharpness, link.dtype))))


def sharpness_grid(K: int, size: int) -> np.ndarray:
    return np.geomspace(*(sharpness_of(value, K) for value in SMOOTHING_BOUNDS), size)


def draw(K: int, num_rows: int, sharpness: float, seed: int = 0) -> Marginals:
    """Predictions that are right: f is drawn from them, and labels from softmax(L C f)."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(num_rows, K - 1))
    variance = rng.uniform(0.01, 0.3, size=(num_rows, 1))
    f = mean + np.sqrt(variance) * rng.normal(size=mean.shape)
    pi = scipy.special.softmax(sharpness * f @ link_of(K).numpy().T, axis=1)
    labels = np.argmax(np.cumsum(pi, axis=1) > rng.uniform(size=(num_rows, 1)), axis=1)
    return Marginals(tf.constant(mean), tf.constant(variance), tf.constant(labels, tf.int32))
