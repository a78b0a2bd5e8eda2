r"""What keeps an optimiser from exploiting the nodes of E[log π].

E[log Σ exp C f], f ~ N(m, diag v), by plain averages over fixed nodes is what an optimiser learns to
cheat: it leads the variances past the nodes. Two remedies, both of which follow the row:

- a control variate: each class against the level of the others is a one-dimensional problem with a
  known answer (:func:`one_against_rest`), and what the nodes miss of it corrects the average
  (:func:`correction`);
- a leading direction: one coordinate of the nodes, their best, is laid along the direction in which
  the row is most uncertain of its class (:func:`with_leading_direction`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_ilr.expectations.nodes import average

__all__ = [
    "contrast_variance",
    "correction",
    "expected_softplus",
    "leading_direction",
    "one_against_rest",
    "softplus_sum",
    "with_leading_direction",
]

LOGISTIC_SCALES = (
    0.7675129539,
    1.0458260185,
    1.4394128664,
    2.0114754038,
    2.8063576355,
    3.8871781203,
)
LOGISTIC_WEIGHTS = (
    0.0074847151,
    0.1313028286,
    0.3978567226,
    0.3576748190,
    0.1004208714,
    0.0052600433,
)
"""1/(1 + e^−x) = Σ_i w_i Φ(x/s_i) to 1.4e-6: the logistic distribution is a scale mixture of normals,
2κ z with κ of Kolmogorov's distribution (Andrews and Mallows, 1974), and this is the Gauss rule of
log κ with six nodes."""


def one_against_rest(
    centre: tf.Tensor,
    logits: tf.Tensor,
    common: tf.Tensor,
    var: tf.Tensor,
    C: tf.Tensor,
    r: tf.Tensor,
    level: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """A control variate for log Σ exp: q − q(0) [S, R, 1] at the nodes, and its expectation [R, 1].

    With logits C m + d, contrasts d_k − rᵀd and a_k = 1 − r_k, each class k against the level of the
    others contributes

        q(d) = Σ_k a_k softplus(b_k + t_k),   t_k = (d_k − rᵀd)/a_k,   b_k = (C m)_k − level − log a_k.

    This is log Σ exp − rᵀd itself, but for a constant, for two classes, and where at most one class
    at a time comes near the leading one; its curvature at d = 0 is the right one for all K. The t_k
    are Gaussian, so that E[softplus(b + t)] has a closed form (:func:`expected_softplus`).

    :param centre: C m, [R, K].
    :param logits: C m + d at the nodes, [S, R, K].
    :param common: rᵀd at the nodes, [S, R, 1].
    :param var: variances of the latents, [R, L].
    :param C: the link matrix, [K, L].
    :param r: E[π], roughly, [R, K]; rows sum to one.
    :param level: E[log Σ exp], roughly, [R, 1].
    """
    a = (
        1.0 - r + 0.05 * tf.square(tf.square(r))
    )  # bounded away from zero, where a term does not matter any more
    b = centre - level - tf.math.log(a)
    control = softplus_sum(logits, common, a, b - centre / a)
    control -= tf.reduce_sum(a * tf.nn.softplus(b), axis=-1, keepdims=True)
    known = expected_softplus(b, contrast_variance(var, C, r) / tf.square(a))
    known -= expected_softplus(b, tf.zeros_like(b))  # so that their errors cancel for small var
    return control, tf.reduce_sum(a * known, axis=-1, keepdims=True)


@tf.custom_gradient
def softplus_sum(
    logits: tf.Tensor, common: tf.Tensor, a: tf.Tensor, b: tf.Tensor
) -> tuple[tf.Tensor, Callable[..., Any]]:
    """Σ_k a_k softplus(b_k + x_k/a_k) with x = logits − common, [S, R, 1], in few passes over x.

    :param logits: [S, R, K].
    :param common: [S, R, 1].
    :param a: [R, K].
    :param b: [R, K].
    """
    inverse = 1.0 / a
    x = logits - common
    z = x * inverse + b
    bounded = tf.minimum(z, 40.0)  # beyond, softplus is the identity, to rounding
    rest = 1.0 / (1.0 + tf.exp(bounded))
    values = (z - bounded) - tf.math.log(rest)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
        dx = (1.0 - rest) * upstream  # the logistic function, of z
        da = tf.reduce_sum(values * upstream, axis=0) - inverse * tf.reduce_sum(dx * x, axis=0)
        d_common = -tf.reduce_sum(dx, axis=-1, keepdims=True)
        return dx, d_common, da, a * tf.reduce_sum(dx, axis=0)

    return tf.reduce_sum(a * values, axis=-1, keepdims=True), gradient


def correction(
    weights: tf.Tensor, excess: tf.Tensor, control: tf.Tensor, known: tf.Tensor, gap: tf.Tensor
) -> tf.Tensor:
    """β(known − Σ_s w_s control_s), [R, 1]: what the nodes miss of E[log Σ exp].

    β is the regression of the excess on the control over the nodes: near one where classes come up
    one at a time, less where some rise together, which the control counts each for itself. A fixed
    weight is exploited: the optimiser makes the control err. Beyond gap/Σ_s w_s control_s a weight
    would break Jensen's inequality, E[log Σ exp] ≥ log Σ exp C m, which centred nodes respect; so
    what an optimiser can gain is bounded for all nodes whatever.

    :param weights: weights of the nodes, [S].
    :param excess: log Σ exp − rᵀd at the nodes less its average, [S, R, 1].
    :param control: the control variate at the nodes, [S, R, 1].
    :param known: its expectation, [R, 1].
    :param gap: the average of log Σ exp over the nodes less its value at the mean, [R, 1].
    """
    tiny = tf.cast(100.0 * np.finfo(gap.dtype.as_numpy_dtype).eps, gap.dtype)
    estimated = average(weights, control)
    residual = control - estimated
    beta = average(weights, excess * residual) / (average(weights, tf.square(residual)) + tiny**2)
    largest = (tf.nn.relu(gap) + tiny) / (tf.nn.relu(estimated) + tiny)
    return tf.clip_by_value(beta, 0.0, tf.minimum(largest, 1.0)) * (known - estimated)


def expected_softplus(mean: tf.Tensor, var: tf.Tensor) -> tf.Tensor:
    """E[log(1 + eˣ)] for x ~ N(mean, var), to 1e-6 for every mean and variance.

    With the logistic function as Σ_i w_i Φ(x/s_i), softplus is Σ_i w_i s_i ψ(x/s_i), where
    ψ(u) = φ(u) + u Φ(u), and its expectation replaces s_i² by s_i² + var.

    :param mean: any shape.
    :param var: variances of the same shape.
    """
    mean, var = tf.convert_to_tensor(mean), tf.convert_to_tensor(var)
    first = [-1] + [1] * mean.shape.rank  # the scales have an axis of their own
    scales = tf.reshape(tf.constant(LOGISTIC_SCALES, mean.dtype), first)
    weights = tf.reshape(tf.constant(LOGISTIC_WEIGHTS, mean.dtype), first)

    @tf.custom_gradient
    def expectation(mean: tf.Tensor, var: tf.Tensor) -> tuple[tf.Tensor, Any]:
        width = tf.sqrt(tf.square(scales) + var)
        u = mean / width
        density = weights * tf.exp(-0.5 * tf.square(u)) / np.sqrt(2.0 * np.pi)
        slope = tf.reduce_sum(0.5 * weights * tf.math.erfc(-u / np.sqrt(2.0)), axis=0)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return upstream * slope, 0.5 * upstream * tf.reduce_sum(density / width, axis=0)

        return tf.reduce_sum(width * density, axis=0) + mean * slope, gradient

    return expectation(mean, var)


def contrast_variance(var: tf.Tensor, C: tf.Tensor, r: tf.Tensor) -> tf.Tensor:
    """Var[d_k − rᵀd] of the deviations d = C(f − m): [R, K].

    :param var: variances of the latents, [R, L].
    :param C: the link matrix, [K, L].
    :param r: weights of the classes, [R, K].
    """
    mixed = tf.matmul(r, C)
    spread = tf.matmul(var, tf.square(C), transpose_b=True)
    spread -= 2.0 * tf.matmul(var * mixed, C, transpose_b=True)
    spread += tf.reduce_sum(var * tf.square(mixed), axis=-1, keepdims=True)
    return tf.nn.relu(spread)  # rounding may leave less than nothing


def with_leading_direction(
    loading: tf.Tensor, centre: tf.Tensor, sd: tf.Tensor, C: tf.Tensor
) -> tf.Tensor:
    """Lay a first, additional coordinate of the nodes along each row's own direction q.

    (x, g) ↦ g + q(x − κ qᵀg), κ = 1/(1 + √(1 − |q|²)), leaves g standard normal, as a rotation of
    (x, g) does; its part along q becomes x if q has length one.

    :param loading: the map of each row from nodes g to logits, [L, R, K].
    :param centre: C m, [R, K].
    :param sd: standard deviations of the latents, [R, L].
    :param C: the link matrix, [K, L].
    :return: the map of each row from nodes (x, g) to logits, [1 + L, R, K].
    """
    q, complement = leading_direction(centre, sd, C)
    along = tf.matmul(sd * q, C, transpose_b=True)
    loading -= tf.transpose(q / (1.0 + complement))[:, :, None] * along
    return tf.concat([along[None], loading], axis=0)


def leading_direction(
    centre: tf.Tensor, sd: tf.Tensor, C: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """A direction q [R, L] of g in which log Σ exp C(m + sd ∘ g) is far from linear; √(1 − |q|²).

    It moves the likely classes against each other, q ∝ sd ∘ Cᵀ(r ∘ (s − rᵀs)) for different scores s
    of the classes and a rough guess r of E[π]. Rows differ in q, so that the optimiser, which may
    turn the latents of all rows together by the mixing matrix, cannot turn them away from the nodes.
    q is shorter than one where hardly any class is in doubt.

    :param centre: C m, [R, K].
    :param sd: standard deviations of the latents, [R, L].
    :param C: the link matrix, [K, L].
    """
    K = C.shape[0]
    spread = tf.matmul(tf.square(sd), tf.reduce_sum(tf.square(C), axis=0)[:, None]) / K
    r = tf.nn.softmax(centre / tf.sqrt(1.0 + np.pi / 8.0 * spread))  # as for E[σ(x)], roughly
    scores = tf.constant(np.linspace(-1.0, 1.0, K)[:, None], C.dtype)
    q = sd * tf.matmul(r * (tf.transpose(scores) - tf.matmul(r, scores)), C)
    norm2 = tf.reduce_sum(tf.square(q), axis=-1, keepdims=True)
    return q * tf.math.rsqrt(norm2 + 1e-12), tf.sqrt(1e-12 / (norm2 + 1e-12))
