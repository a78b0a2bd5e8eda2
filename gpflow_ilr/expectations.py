r"""Gaussian expectations of the softmax and of its logarithm.

A classifier's latents are Gaussian, f ~ N(m, diag v), and its class probabilities are
π = softmax(C f) with a link matrix C [K, L]: C = Hᵀ for the isometric logratio, C = HᵀW with a
mixing matrix, C = I for the plain softmax. What training and prediction need, E[π], E[log π], Var[π]
and the expected entropy, has no closed form, so it is a weighted sum over the nodes g_s of a rule
(:mod:`gpflow_ilr.nodes`): f_s = m + √v ∘ g_s.

Probabilities are plain averages: positive, and of sum one. E[log π] is what variational training
maximises, and an optimiser finds every weakness of fixed nodes: where classes are well separated it
makes the variances large and leads them past the nodes, until the bound it reports is wrong by ten
percent or more, with 64 nodes as with 512. So E[log π] is computed with more care:

- Each class against the level of the others is a one-dimensional problem with a known answer; their
  sum is a control variate that catches the events between the nodes (:func:`_one_against_rest`).
- The leading coordinates of the nodes point where the row is most uncertain of its class, however
  the latents are mixed (:func:`_leading_directions`).

Rows are worked off in blocks: memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType

from gpflow_ilr.blocks import map_rows
from gpflow_ilr.nodes import GaussHermite, MonteCarlo, NodeRule, Sobol, default_rule

__all__ = [
    "GaussHermite",
    "MonteCarlo",
    "NodeRule",
    "Sobol",
    "default_rule",
    "expected_entropy",
    "expected_log_softmax",
    "expected_softmax",
    "softmax_variance",
]

BLOCK_ELEMENTS = 2**20
"""Elements (nodes × rows × classes) of one block of rows: few enough for the processor's cache."""

KEPT_ELEMENTS = 2**22
"""Elements whose intermediate results are kept for the gradient, about a gigabyte; of more rows the
gradient computes each block again."""

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


@check_shapes(
    "Fmu: [broadcast batch..., L]",
    "Fvar: [broadcast batch..., one_or_L]",
    "C: [K, L]",
    "return: [batch..., K]",
)
def expected_softmax(Fmu: TensorType, Fvar: TensorType, C: TensorType, rule: NodeRule) -> tf.Tensor:
    """E[softmax(C f)] for f ~ N(Fmu, diag Fvar); rows are positive and sum to one.

    :param Fmu: means of the latents.
    :param Fvar: variances of the latents; a last dimension of one means a variance common to all
        latents, and spares a matrix product per row and node.
    :param C: the link matrix.
    :param rule: the node rule.
    """

    def block(mean: tf.Tensor, var: tf.Tensor, C: tf.Tensor) -> tf.Tensor:
        centre, deviation, weights = _logits(mean, var, C, rule)
        return _average(weights, tf.nn.softmax(centre + deviation))

    return _by_rows(block, Fmu, Fvar, C, rule)


@check_shapes(
    "Fmu: [broadcast batch..., L]",
    "Fvar: [broadcast batch..., one_or_L]",
    "C: [K, L]",
    "return: [batch..., K]",
)
def softmax_variance(Fmu: TensorType, Fvar: TensorType, C: TensorType, rule: NodeRule) -> tf.Tensor:
    """Var[softmax(C f)] for f ~ N(Fmu, diag Fvar): how uncertain the probabilities are.

    :param Fmu: means of the latents.
    :param Fvar: variances of the latents, or one common variance, as in :func:`expected_softmax`.
    :param C: the link matrix.
    :param rule: the node rule.
    """

    def block(mean: tf.Tensor, var: tf.Tensor, C: tf.Tensor) -> tf.Tensor:
        centre, deviation, weights = _logits(mean, var, C, rule)
        pi = tf.nn.softmax(centre + deviation)
        return _average(weights, tf.square(pi - _average(weights, pi)))

    return _by_rows(block, Fmu, Fvar, C, rule)


@check_shapes(
    "Fmu: [broadcast batch..., L]",
    "Fvar: [broadcast batch..., one_or_L]",
    "C: [K, L]",
    "return: [batch...]",
)
def expected_entropy(Fmu: TensorType, Fvar: TensorType, C: TensorType, rule: NodeRule) -> tf.Tensor:
    """E[−Σ_k π_k log π_k] in nats, π = softmax(C f), f ~ N(Fmu, diag Fvar).

    :param Fmu: means of the latents.
    :param Fvar: variances of the latents, or one common variance, as in :func:`expected_softmax`.
    :param C: the link matrix.
    :param rule: the node rule.
    """

    def block(mean: tf.Tensor, var: tf.Tensor, C: tf.Tensor) -> tf.Tensor:
        centre, deviation, weights = _logits(mean, var, C, rule)
        log_pi = tf.nn.log_softmax(centre + deviation)
        entropy = -tf.reduce_sum(tf.exp(log_pi) * log_pi, axis=-1, keepdims=True)
        return _average(weights, entropy)

    return tf.squeeze(_by_rows(block, Fmu, Fvar, C, rule), axis=-1)


@check_shapes(
    "Fmu: [broadcast batch..., L]",
    "Fvar: [broadcast batch..., one_or_L]",
    "C: [K, L]",
    "return: [batch..., K]",
)
def expected_log_softmax(
    Fmu: TensorType, Fvar: TensorType, C: TensorType, rule: NodeRule
) -> tf.Tensor:
    """E[log softmax(C f)] = C m − E[log Σ_k exp (C f)_k] for f ~ N(m, diag v).

    :param Fmu: means of the latents.
    :param Fvar: variances of the latents, or one common variance, as in :func:`expected_softmax`.
    :param C: the link matrix.
    :param rule: the node rule.
    """

    def block(mean: tf.Tensor, var: tf.Tensor, C: tf.Tensor) -> tf.Tensor:
        var = tf.broadcast_to(var, tf.shape(mean))
        centre, deviation, weights = _logits(mean, var, C, rule, leading=True)
        logits = centre + deviation
        peak = tf.stop_gradient(tf.reduce_max(logits, axis=-1, keepdims=True))
        exponential = tf.exp(logits - peak)
        total = tf.reduce_sum(exponential, axis=-1, keepdims=True)
        r = _average(weights, exponential / total)  # E[π], as the nodes have it
        level = _average(weights, tf.math.log(total) + peak)  # E[log Σ exp], as the nodes have it
        if rule.per_row:  # draws do not have mean 0, and E[rᵀd] is known to be 0
            level -= tf.reduce_sum(r * _average(weights, deviation), axis=-1, keepdims=True)
        gap = level - tf.reduce_logsumexp(centre, axis=-1, keepdims=True)
        known, estimated = _one_against_rest(centre, deviation, weights, var, C, r, level)
        # The weight of the control is one, but where classes rise together and the control counts
        # them twice. As Jensen's inequality wants it, level ≥ log Σ exp C m for every set of
        # centred nodes, and with this weight also after the correction.
        tiny = tf.cast(100.0 * np.finfo(centre.dtype.as_numpy_dtype).eps, centre.dtype)
        weight = tf.minimum(
            tf.ones_like(gap), (tf.nn.relu(gap) + tiny) / (tf.nn.relu(estimated) + tiny)
        )
        return centre - (level + weight * (known - estimated))

    return _by_rows(block, Fmu, Fvar, C, rule)


def _one_against_rest(
    centre: tf.Tensor,
    deviation: tf.Tensor,
    weights: tf.Tensor,
    var: tf.Tensor,
    C: tf.Tensor,
    r: tf.Tensor,
    level: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """E[q] − q(0) of a control variate q for log Σ exp: its value, and what the nodes make of it.

    With logits C m + d and a_k = 1 − r_k, each class k against the level of the others contributes

        q(d) = Σ_k a_k softplus(b_k + t_k),   t_k = (d_k − rᵀd)/a_k,   b_k = (C m)_k − level − log a_k.

    This is log Σ exp itself, but for a linear term, for two classes, and where at most one class at
    a time comes near the leading one; its curvature at d = 0 is the right one for all K. The t_k
    are Gaussian, so that E[softplus(b + t)] has a closed form (:func:`_expected_softplus`).
    """
    a = 1.0 - r + 0.05 * r**4  # bounded away from zero, where a term does not matter any more
    b = centre - level - tf.math.log(a)
    known = _expected_softplus(b, _spread(var, C, r) / tf.square(a))
    known -= _expected_softplus(b, tf.zeros_like(b))
    common = tf.reduce_sum(r * deviation, axis=-1, keepdims=True)
    estimated = _average(weights, tf.nn.softplus(b + (deviation - common) / a))
    estimated -= tf.nn.softplus(b)
    return (
        tf.reduce_sum(a * known, axis=-1, keepdims=True),
        tf.reduce_sum(a * estimated, axis=-1, keepdims=True),
    )


def _expected_softplus(mean: tf.Tensor, var: tf.Tensor) -> tf.Tensor:
    """E[log(1 + eˣ)] for x ~ N(mean, var), to 1e-6 for every mean and variance.

    With the logistic function as Σ_i w_i Φ(x/s_i), softplus is Σ_i w_i s_i ψ(x/s_i), where
    ψ(u) = φ(u) + u Φ(u), and its expectation replaces s_i² by s_i² + var.
    """
    result = tf.zeros_like(mean)
    for scale, weight in zip(LOGISTIC_SCALES, LOGISTIC_WEIGHTS, strict=True):
        width = tf.sqrt(scale**2 + var)
        u = mean / width
        density = tf.exp(-0.5 * tf.square(u)) / np.sqrt(2.0 * np.pi)
        result += weight * (width * density + mean * 0.5 * tf.math.erfc(-u / np.sqrt(2.0)))
    return result


def _spread(var: tf.Tensor, C: tf.Tensor, r: tf.Tensor) -> tf.Tensor:
    """Var[d_k − rᵀd] of the deviations d = C(f − m): [R, K]."""
    mixed = tf.matmul(r, C)
    spread = tf.matmul(var, tf.square(C), transpose_b=True)
    spread -= 2.0 * tf.matmul(var * mixed, C, transpose_b=True)
    spread += tf.reduce_sum(var * tf.square(mixed), axis=-1, keepdims=True)
    return tf.nn.relu(spread)  # rounding may leave less than nothing


def _leading_directions(
    centre: tf.Tensor, var: tf.Tensor, C: tf.Tensor, count: int
) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Directions q [R, L] of g, orthogonal, in which log Σ exp C(m + √v ∘ g) is least linear.

    They span a random sketch of √V Cᵀ(diag r − r rᵀ), the noise in the metric of the curvature of
    log Σ exp, with r a rough guess of E[π] that needs no nodes. A direction that hardly differs from
    the previous ones is shorter than one: with it comes √(1 − |q|²), [R, 1].
    """
    spread = _spread(var, C, tf.nn.softmax(centre))
    # E[σ(x)] for x ~ N(μ, τ²) is about σ(μ/√(1 + πτ²/8)).
    r = tf.sigmoid(tf.nn.log_softmax(centre) / tf.sqrt(1.0 + np.pi / 8.0 * spread))
    r /= tf.reduce_sum(r, axis=-1, keepdims=True)
    scores = tf.constant(_scores(C.shape[0], count), C.dtype)
    contrast = r[:, :, None] * (scores - tf.matmul(r, scores)[:, None, :])  # [R, K, J]
    sd = tf.sqrt(tf.maximum(var, np.finfo(var.dtype.as_numpy_dtype).eps))
    directions: list[tuple[tf.Tensor, tf.Tensor]] = []
    for j in range(count):
        q = sd * tf.matmul(contrast[:, :, j], C)
        q *= tf.math.rsqrt(tf.reduce_sum(q * q, axis=-1, keepdims=True) + 1e-30)
        for previous, _ in directions:
            q -= previous * tf.reduce_sum(previous * q, axis=-1, keepdims=True)
        norm2 = tf.reduce_sum(q * q, axis=-1, keepdims=True)
        directions.append((q * tf.math.rsqrt(norm2 + 1e-6), tf.sqrt(1e-6 / (norm2 + 1e-6))))
    return directions


@lru_cache(maxsize=32)
def _scores(num_classes: int, count: int) -> AnyNDArray:
    """Fixed random scores of the classes, whose contrasts the leading directions are."""
    return np.random.default_rng(0).normal(size=(num_classes, count))


def _logits(
    mean: tf.Tensor, var: tf.Tensor, C: tf.Tensor, rule: NodeRule, leading: bool = False
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """C m [R, K], the deviations C(f_s − m) [S, R, K] and the weights [S].

    :param leading: whether the rule's leading coordinates go to the leading directions.
    """
    num_rows, num_latents = tf.shape(mean)[0], mean.shape[-1]
    centre = tf.matmul(mean, C, transpose_b=True)
    # A variance below the rounding error of one changes only the slope of √, which is ∞ at 0.
    sd = tf.sqrt(tf.maximum(var, np.finfo(mean.dtype.as_numpy_dtype).eps))
    if rule.per_row:
        flat, weights = rule(num_latents * num_rows, mean.dtype)
        nodes = tf.reshape(flat, [tf.shape(flat)[0], num_rows, num_latents])
        scaled = tf.reshape(sd * nodes, [-1, num_latents])  # one large product, not S small ones
        deviation = tf.matmul(scaled, C, transpose_b=True)
        return centre, tf.reshape(deviation, [weights.shape[0], num_rows, C.shape[0]]), weights
    if var.shape[-1] == 1:
        nodes, weights = rule(num_latents, mean.dtype)
        return centre, sd * tf.matmul(nodes, C, transpose_b=True)[:, None, :], weights
    count = min(rule.num_leading, num_latents - 1) if leading else 0
    nodes, weights = rule(count + num_latents, mean.dtype)
    # The map of each row from nodes to logits, [J + L, R, K]: one large product with the nodes.
    loading = tf.transpose(sd)[:, :, None] * tf.transpose(C)[:, None, :]
    if count:
        loading = _turned(loading, _leading_directions(centre, var, C, count), sd, C)
    flat = tf.reshape(loading, [count + num_latents, num_rows * C.shape[0]])
    deviation = tf.reshape(tf.matmul(nodes, flat), [weights.shape[0], num_rows, C.shape[0]])
    return centre, deviation, weights


def _turned(
    loading: tf.Tensor, directions: list[tuple[tf.Tensor, tf.Tensor]], sd: tf.Tensor, C: tf.Tensor
) -> tf.Tensor:
    """The loading [J + L, R, K] after leading coordinate j has taken the place of direction q_j.

    With nodes (x, g) this is g ← g + q_j t_j, t_j = x_j − q_jᵀg/(1 + √(1 − |q_j|²)), one j after the
    other: rotations of (x, g), so that g stays standard normal, and its part along q_j becomes x_j
    if q_j has length one. t_j is linear in the nodes; its coefficients are in ``rows``.
    """
    count = len(directions)
    loading = tf.concat([tf.zeros_like(loading[:count]), loading], axis=0)
    rows: list[tf.Tensor] = []  # of t_j, each [J + L, R]
    for j, (q, complement) in enumerate(directions):
        row = tf.pad(tf.transpose(q), [[count, 0], [0, 0]])
        for i in range(j):
            row += tf.reduce_sum(q * directions[i][0], axis=-1) * rows[i]
        unit = tf.one_hot(j, row.shape[0], dtype=q.dtype)[:, None]
        rows.append(unit - row / (1.0 + complement[:, 0]))
        loading += rows[j][:, :, None] * tf.matmul(sd * q, C, transpose_b=True)
    return loading


def _average(weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Σ_s w_s values_s for values [S, R, K]."""
    shape = tf.shape(values)
    flat = tf.reshape(values, [shape[0], -1])
    average = tf.reshape(tf.linalg.matvec(flat, weights, transpose_a=True), shape[1:])
    return tf.ensure_shape(average, values.shape[1:])


def _by_rows(
    block: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor],
    Fmu: TensorType,
    Fvar: TensorType,
    C: TensorType,
    rule: NodeRule,
) -> tf.Tensor:
    """Apply ``block(mean [R, L], var [R, L or 1], C)`` to all rows, in blocks."""
    Fmu = tf.convert_to_tensor(Fmu)
    Fvar = tf.convert_to_tensor(Fvar, Fmu.dtype)
    C = tf.convert_to_tensor(C, Fmu.dtype)
    num_latents = Fmu.shape[-1]
    if Fmu.shape[:-1] != Fvar.shape[:-1] or not Fmu.shape[:-1].is_fully_defined():
        batch = tf.broadcast_dynamic_shape(tf.shape(Fmu)[:-1], tf.shape(Fvar)[:-1])
        Fmu = tf.broadcast_to(Fmu, tf.concat([batch, [num_latents]], axis=0))
        Fvar = tf.broadcast_to(Fvar, tf.concat([batch, [Fvar.shape[-1]]], axis=0))
    mean = tf.reshape(Fmu, [-1, num_latents])
    var = tf.reshape(Fvar, [-1, Fvar.shape[-1]])
    _, weights = rule(1 if rule.per_row else num_latents, Fmu.dtype)
    row_elements = weights.shape[0] * C.shape[0]
    if not rule.per_row and (mean.shape[0] is None or mean.shape[0] * row_elements > KEPT_ELEMENTS):
        block = tf.recompute_grad(block)
    rows = max(1, BLOCK_ELEMENTS // row_elements)
    (result,) = map_rows(lambda mean, var: [block(mean, var, C)], [mean, var], rows)
    return tf.reshape(result, tf.concat([tf.shape(Fmu)[:-1], [result.shape[-1]]], axis=0))
