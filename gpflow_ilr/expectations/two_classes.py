r"""Two classes: expectations of the logistic function in closed form, without nodes.

Of two classes only the difference of the logits counts, x = (C₁ − C₀)f, a Gaussian of some mean m
and variance v, and π₁ = σ(x). The logistic distribution is a scale mixture of normals: σ(x) = E[Φ(x/s)]
with s = 2κ, κ of Kolmogorov's distribution (Andrews and Mallows, 1974). A Gaussian x replaces s² by
s² + v. With t² = s² + v and the entropy H(x) = log(1 + eˣ) − x σ(x), which is E[s φ(x/s)],

    E[σ(x)] = E[Φ(m/t)],   E[σ(1 − σ)] = E[φ(m/t)/t],   E[H(x)] = E[s² φ(m/t)/t],

with expectations over s on the right: by the trapezium rule in log s, whose error is that of rounding.
Far from zero a probability keeps its relative precision, and its logarithm is finite where it
underflows, by e⁻ˣ σ(x) = σ(−x), which gives

    E[σ(x)] = exp(m + v/2) E[σ(x')],   x' ~ N(−m − v, v).

All of it is computed in double precision, whatever that of m and v: it is cheap, and variances of
probabilities are small differences.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

__all__ = [
    "NUM_SCALES",
    "expected_log_probabilities",
    "expected_probabilities",
    "log_odds",
    "log_probabilities",
    "mean_entropy",
    "probability_variance",
]

_LOG_SCALES = np.arange(-1.9, 1.65, 0.12)

NUM_SCALES = len(_LOG_SCALES)
"""Number of terms of each sum over scales."""


def _mixture() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scales s [S, 1] and their weights, from the distribution function (√2π/κ) Σ_n exp(−a_n/κ²)."""
    kappa = np.exp(_LOG_SCALES)
    a = np.square((2.0 * np.arange(1, 101)[:, None] - 1.0) * np.pi) / 8.0
    rate = a / kappa**2
    density = np.sqrt(2.0 * np.pi) / kappa**2 * np.sum(np.exp(-rate) * (2.0 * rate - 1.0), axis=0)
    weights = np.maximum(density * kappa, np.finfo(float).tiny)
    return 2.0 * kappa[:, None], weights[:, None] / np.sum(weights)


_SCALES, _WEIGHTS = _mixture()


def log_odds(mean: tf.Tensor, var: tf.Tensor, C: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of x = (C₁ − C₀)f, [R] each, in double precision.

    :param mean: means of the latents, [R, L].
    :param var: their variances, [R, L or 1].
    :param C: the link matrix, [2, L].
    """
    c = tf.cast(C[1] - C[0], tf.float64)
    m = tf.linalg.matvec(tf.cast(mean, tf.float64), c)
    var = tf.nn.relu(tf.cast(var, tf.float64))
    v = tf.reduce_sum(var * tf.square(c), axis=-1)  # a common variance broadcasts
    return m, v


def log_probabilities(m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """Log E[π] of both classes, [R, 2]: finite wherever m and v are.

    :param m: mean of x, [R].
    :param v: variance of x, [R].
    """
    first_is_smaller = m >= 0.0
    below = tf.where(first_is_smaller, -m, m)
    smaller = _log_tail(below, v)
    larger = tf.math.log1p(-tf.exp(smaller))
    return _ordered(first_is_smaller, smaller, larger)


def expected_probabilities(m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """E[π] of both classes, [R, 2], of sum one.

    :param m: mean of x, [R].
    :param v: variance of x, [R].
    """
    first_is_smaller = m >= 0.0
    smaller = tf.exp(_log_tail(tf.where(first_is_smaller, -m, m), v))
    return _ordered(first_is_smaller, smaller, 1.0 - smaller)


def probability_variance(m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """Var[π], [R, 2]: p(1 − p) − E[σ(1 − σ)], the same for both classes.

    :param m: mean of x, [R].
    :param v: variance of x, [R].
    """
    p = expected_probabilities(m, v)
    _, density = _at_scales(m, v)
    variance = p[:, :1] * p[:, 1:] - tf.reduce_sum(density, axis=0)[:, None]
    below = tf.stop_gradient(tf.minimum(variance, 0.0))  # rounding: it has no slope
    return tf.repeat(variance - below, 2, axis=1)


def mean_entropy(m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """E[H(x)] in nats, [R, 1].

    :param m: mean of x, [R].
    :param v: variance of x, [R].
    """
    _, density = _at_scales(m, v)
    return tf.reduce_sum(tf.square(_SCALES) * density, axis=0)[:, None]


def expected_log_probabilities(m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """E[log π] of both classes, [R, 2]: −E[log(1 + e^±x)] = −E[t φ(m/t) ± m Φ(±m/t)].

    :param m: mean of x, [R].
    :param v: variance of x, [R].
    """
    width, density = _at_scales(m, v)
    below = tf.where(m >= 0.0, -m, m)
    cumulative = 0.5 * tf.math.erfc(-below / (np.sqrt(2.0) * width))
    # Of the likelier class, whose expectation is the smaller one; the other's differs by |m|.
    near = tf.reduce_sum(tf.square(width) * density + _WEIGHTS * below * cumulative, axis=0)
    return -_ordered(m >= 0.0, near - below, near)


def _at_scales(m: tf.Tensor, v: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Widths t = √(s² + v) and weighted densities w φ(m/t)/t, [S, R] each."""
    width = tf.sqrt(_SCALES**2 + v)
    return width, _WEIGHTS * tf.exp(-0.5 * tf.square(m / width)) / (np.sqrt(2.0 * np.pi) * width)


def _log_tail(m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """Log E[σ(x)] for m ≤ 0, [R]."""
    far = m < -0.5 * v
    centre = tf.where(far, -m - v, m)
    u = centre / tf.sqrt(_SCALES**2 + v)
    log_mean = tf.reduce_logsumexp(np.log(_WEIGHTS) + _log_ndtr(u), axis=0)
    return log_mean + tf.where(far, m + 0.5 * v, tf.zeros_like(m))


def _log_ndtr(u: tf.Tensor) -> tf.Tensor:
    """Log Φ(u): by its asymptotic series from −30 on, right to rounding there."""
    near = tf.math.log(0.5 * tf.math.erfc(-tf.maximum(u, -30.0) / np.sqrt(2.0)))
    z = tf.minimum(u, -30.0)
    r = 1.0 / tf.square(z)
    series = 1.0 - r * (1.0 - 3.0 * r * (1.0 - 5.0 * r * (1.0 - 7.0 * r * (1.0 - 9.0 * r))))
    asymptotic = -0.5 * tf.square(z) - tf.math.log(-z * np.sqrt(2.0 * np.pi)) + tf.math.log(series)
    return tf.where(u > -30.0, near, asymptotic)


def _ordered(first_is_smaller: tf.Tensor, smaller: tf.Tensor, larger: tf.Tensor) -> tf.Tensor:
    """Values of the two classes, [R, 2], from those of the less and of the more likely one."""
    first = tf.where(first_is_smaller, smaller, larger)
    second = tf.where(first_is_smaller, larger, smaller)
    return tf.stack([first, second], axis=-1)
