r"""Gaussian expectations of the softmax and of its logarithm.

A classifier's latents are Gaussian, f ~ N(m, diag v), and its class probabilities are
π = softmax(C f) with a link matrix C [K, L]: C = Hᵀ for the isometric logratio, C = HᵀW with a
mixing matrix, C = I for the plain softmax. What training and prediction need, E[π], E[log π], Var[π]
and the expected entropy, has no closed form, so it is a weighted sum over the nodes g_s of a rule
(:mod:`gpflow_ilr.expectations.nodes`): f_s = m + √v ∘ g_s.

Probabilities are plain averages: positive, and of sum one. E[log π] is what variational training
maximises, and an optimiser finds every weakness of fixed nodes: where classes are well separated it
makes the variances large and leads them past the nodes, until the bound it reports is wrong by ten
percent or more, with 64 nodes as with 512. So E[log π] has a control variate: each class against the
level of the others is a one-dimensional problem with a known answer, and their sum catches the
events between the nodes (:func:`_one_against_rest`), with a weight that follows the row
(:func:`_correction`). And one coordinate of the nodes is each row's own
(:func:`_leading_direction`).

Rows are worked off in blocks: memory does not grow with their number. Only E[log π] of rows whose
number is unknown when traced, as those of a minibatch, is one block.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from gpflow_ilr.expectations.nodes import GaussHermite, MonteCarlo, NodeRule, Sobol, default_rule
from gpflow_ilr.linalg.row_chunks import map_rows

__all__ = [
    "GaussHermite",
    "MonteCarlo",
    "NodeRule",
    "Sobol",
    "default_rule",
    "expected_entropy",
    "expected_log_softmax",
    "expected_softmax",
    "logits_at_nodes",
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
    "Fmu: [N, L]",
    "Fvar: [N, one_or_L]",
    "C: [K, L]",
    "return[0]: [S, N, K]",
    "return[1]: [S]",
)
def logits_at_nodes(
    Fmu: tf.Tensor, Fvar: tf.Tensor, C: tf.Tensor, rule: NodeRule
) -> tuple[tf.Tensor, tf.Tensor]:
    """C f_s at the nodes f_s of f ~ N(Fmu, diag Fvar), and the weights of the nodes.

    They are linear in the scale of f: those of N(a Fmu, a² diag Fvar) are a times as large.

    :param Fmu: means of the latents.
    :param Fvar: variances of the latents, or one common variance, as in :func:`expected_softmax`.
    :param C: the link matrix.
    :param rule: the node rule.
    """
    centre, deviation, weights = _logits(Fmu, Fvar, C, rule)
    return centre + deviation, weights


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
        centre, deviation, weights = _logits(mean, var, C, rule, leading=rule.has_leading)
        logits = centre + deviation
        peak = tf.stop_gradient(tf.reduce_max(logits, axis=-1, keepdims=True))
        exponential = tf.exp(logits - peak)
        total = tf.reduce_sum(exponential, axis=-1, keepdims=True)
        r = _average(weights, exponential / total)  # E[π], as the nodes have it
        common = tf.reduce_sum(r * deviation, axis=-1, keepdims=True)
        excess = tf.math.log(total) + peak - common  # E[rᵀd] is known to be 0
        level = _average(weights, excess)  # E[log Σ exp], as the nodes have it
        control, known = _one_against_rest(centre, deviation - common, var, C, r, level)
        gap = level - tf.reduce_logsumexp(centre, axis=-1, keepdims=True)
        return centre - level - _correction(weights, excess - level, control, known, gap)

    return _by_rows(block, Fmu, Fvar, C, rule, minibatch=True)


def _one_against_rest(
    centre: tf.Tensor,
    contrast: tf.Tensor,
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
    are Gaussian, so that E[softplus(b + t)] has a closed form (:func:`_expected_softplus`).
    """
    a = 1.0 - r + 0.05 * r**4  # bounded away from zero, where a term does not matter any more
    b = centre - level - tf.math.log(a)
    control = tf.reduce_sum(a * tf.nn.softplus(b + contrast / a), axis=-1, keepdims=True)
    control -= tf.reduce_sum(a * tf.nn.softplus(b), axis=-1, keepdims=True)
    known = _expected_softplus(b, _spread(var, C, r) / tf.square(a))
    known -= _expected_softplus(b, tf.zeros_like(b))  # so that their errors cancel for small var
    return control, tf.reduce_sum(a * known, axis=-1, keepdims=True)


def _correction(
    weights: tf.Tensor, excess: tf.Tensor, control: tf.Tensor, known: tf.Tensor, gap: tf.Tensor
) -> tf.Tensor:
    """β(known − Σ_s w_s control_s): what the nodes miss of the excess [S, R, 1], of average 0.

    β is the regression of the excess on the control over the nodes: near one where classes come up
    one at a time, less where some rise together, which the control counts each for itself. A fixed
    weight is exploited: the optimiser makes the control err. Beyond gap/Σ_s w_s control_s a weight
    would break Jensen's inequality, E[log Σ exp] ≥ log Σ exp C m, which centred nodes respect; so
    what an optimiser can gain is bounded for all nodes whatever.
    """
    tiny = tf.cast(100.0 * np.finfo(gap.dtype.as_numpy_dtype).eps, gap.dtype)
    estimated = _average(weights, control)
    residual = control - estimated
    beta = _average(weights, excess * residual) / (_average(weights, tf.square(residual)) + tiny**2)
    largest = (tf.nn.relu(gap) + tiny) / (tf.nn.relu(estimated) + tiny)
    return tf.clip_by_value(beta, 0.0, tf.minimum(largest, 1.0)) * (known - estimated)


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


def _logits(
    mean: tf.Tensor, var: tf.Tensor, C: tf.Tensor, rule: NodeRule, leading: bool = False
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """C m [R, K], the deviations C(f_s − m) [S, R, K] and the weights [S].

    :param leading: whether the rule's first coordinate takes the place of the nodes' part along
        each row's own direction q (:func:`_leading_direction`).
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
    nodes, weights = rule(num_latents + leading, mean.dtype)
    if var.shape[-1] == 1 and not leading:
        return centre, sd * tf.matmul(nodes, C, transpose_b=True)[:, None, :], weights
    # The map of each row from nodes to logits, [L, R, K]: one large product with the nodes.
    loading = tf.transpose(sd)[:, :, None] * tf.transpose(C)[:, None, :]
    if leading:
        # (x, g) ↦ g + q(x − κ qᵀg), κ = 1/(1 + √(1 − |q|²)), leaves g standard normal, as a
        # rotation of (x, g) does; its part along q becomes x if q has length one.
        q, complement = _leading_direction(centre, sd, C)
        along = tf.matmul(sd * q, C, transpose_b=True)
        loading -= tf.transpose(q / (1.0 + complement))[:, :, None] * along
        loading = tf.concat([along[None], loading], axis=0)
    flat = tf.reshape(loading, [num_latents + leading, num_rows * C.shape[0]])
    deviation = tf.reshape(tf.matmul(nodes, flat), [weights.shape[0], num_rows, C.shape[0]])
    return centre, deviation, weights


def _leading_direction(
    centre: tf.Tensor, sd: tf.Tensor, C: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """A direction q [R, L] of g in which log Σ exp C(m + sd ∘ g) is far from linear; √(1 − |q|²).

    It moves the likely classes against each other, q ∝ sd ∘ Cᵀ(r ∘ (s − rᵀs)) for different scores s
    of the classes and a rough guess r of E[π]. Rows differ in q, so that the optimiser, which may
    turn the latents of all rows together by the mixing matrix, cannot turn them away from the nodes.
    q is shorter than one where hardly any class is in doubt.
    """
    K = C.shape[0]
    spread = tf.matmul(tf.square(sd), tf.reduce_sum(tf.square(C), axis=0)[:, None]) / K
    r = tf.nn.softmax(centre / tf.sqrt(1.0 + np.pi / 8.0 * spread))  # as for E[σ(x)], roughly
    scores = tf.linspace(tf.cast(-1.0, C.dtype), 1.0, K)[:, None]
    q = sd * tf.matmul(r * (tf.transpose(scores) - tf.matmul(r, scores)), C)
    norm2 = tf.reduce_sum(tf.square(q), axis=-1, keepdims=True)
    return q * tf.math.rsqrt(norm2 + 1e-12), tf.sqrt(1e-12 / (norm2 + 1e-12))


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
    minibatch: bool = False,
) -> tf.Tensor:
    """Apply ``block(mean [R, L], var [R, L or 1], C)`` to all rows, in blocks.

    :param minibatch: rows of unknown number are few enough for one block: in training they are those
        of a minibatch, and the gradient of a loop takes several times as long to trace.
    """
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
    num_rows = mean.shape[0]
    if num_rows is None and minibatch:
        result = block(mean, var, C)
    else:
        if not rule.per_row and (num_rows is None or num_rows * row_elements > KEPT_ELEMENTS):
            block = tf.recompute_grad(block)
        rows = max(1, BLOCK_ELEMENTS // row_elements)
        (result,) = map_rows(lambda mean, var: [block(mean, var, C)], [mean, var], rows)
    return tf.reshape(result, tf.concat([tf.shape(Fmu)[:-1], [result.shape[-1]]], axis=0))
