r"""Gaussian expectations of the softmax and of its logarithm.

A classifier's latents are Gaussian, f ~ N(m, diag v), and its class probabilities are
π = softmax(C f) with a link matrix C [K, L]: C = Hᵀ for the isometric logratio, C = HᵀW with a
mixing matrix, C = I for the plain softmax. What training and prediction need, E[π], E[log π], Var[π]
and the expected entropy, has a closed form for two classes, whatever the rule
(:mod:`gpflow_ilr.expectations.two_classes`). For more it is a weighted sum over the nodes g_s of a rule
(:mod:`gpflow_ilr.expectations.nodes`): f_s = m + √v ∘ g_s.

Probabilities are plain averages: positive, and of sum one. E[log π] is what variational training
maximises, and an optimiser finds every weakness of fixed nodes: where classes are well separated it
makes the variances large and leads them past the nodes, until the bound it reports is wrong by ten
percent or more, with 64 nodes as with 512. So E[log π] has a control variate and a direction of each
row's own (:mod:`gpflow_ilr.expectations.control_variate`).

Rows are worked off in chunks: memory does not grow with their number. Only E[log π] of rows whose
number is unknown when traced, as those of a minibatch, is one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from gpflow_ilr.expectations import two_classes
from gpflow_ilr.expectations.control_variate import (
    correction,
    one_against_rest,
    with_leading_direction,
)
from gpflow_ilr.expectations.logarithms import entropy
from gpflow_ilr.expectations.nodes import NodeRule, average, log_average
from gpflow_ilr.linalg.row_chunks import map_rows

__all__ = [
    "expected_entropy",
    "expected_log_softmax",
    "expected_softmax",
    "label_variance",
    "logits_at_nodes",
    "predictive_log_density",
    "softmax_variance",
]

CHUNK_ELEMENTS = 2**20
"""Elements (nodes × rows × classes) of one chunk of rows: few enough for the processor's cache."""

KEPT_ELEMENTS = 2**22
"""Elements whose intermediate results are kept for the gradient, about a gigabyte; of more rows the
gradient computes each chunk again."""


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
    :param rule: the node rule; two classes need none.
    """
    if C.shape[0] == 2:
        return _of_two_classes(two_classes.expected_probabilities, Fmu, Fvar, C)

    def chunk(mean: tf.Tensor, var: tf.Tensor, C: tf.Tensor) -> tf.Tensor:
        _, at_nodes, weights = _logits(mean, var, C, rule)
        return average(weights, tf.nn.softmax(at_nodes.logits))

    return _by_rows(chunk, Fmu, Fvar, C, rule)


@check_shapes(
    "Fmu: [broadcast batch..., L]",
    "Fvar: [broadcast batch..., one_or_L]",
    "C: [K, L]",
    "rows: [broadcast batch..., K]",
    "return: [batch...]",
)
def predictive_log_density(
    Fmu: TensorType,
    Fvar: TensorType,
    C: TensorType,
    rule: NodeRule,
    rows: tf.Tensor,
    one_hot: bool = False,
) -> tf.Tensor:
    """Σ_k y_k log E[softmax(C f)_k] for f ~ N(Fmu, diag Fvar): the log probability of each label.

    Computed in logarithms throughout, so that it is right where the probability itself underflows.

    :param Fmu: means of the latents.
    :param Fvar: variances of the latents, or one common variance, as in :func:`expected_softmax`.
    :param C: the link matrix.
    :param rule: the node rule; two classes need none.
    :param rows: labels as rows on the simplex.
    :param one_hot: whether each row is one label, which spares the logarithms of all others.
    """

    def chunk(mean: tf.Tensor, var: tf.Tensor, C: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        if C.shape[0] == 2:
            log_p = two_classes.log_probabilities(*two_classes.log_odds(mean, var, C))
            return tf.reduce_sum(rows * tf.cast(log_p, rows.dtype), axis=-1, keepdims=True)
        _, at_nodes, weights = _logits(mean, var, C, rule)
        log_pi = tf.nn.log_softmax(at_nodes.logits)
        if one_hot:
            return log_average(weights, tf.reduce_sum(rows * log_pi, axis=-1, keepdims=True))
        return tf.reduce_sum(rows * log_average(weights, log_pi), axis=-1, keepdims=True)

    rule_or_none = None if C.shape[0] == 2 else rule
    return _by_rows(chunk, Fmu, Fvar, C, rule_or_none, others=[rows])[..., 0]


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
    _, at_nodes, weights = _logits(Fmu, Fvar, C, rule)
    return at_nodes.logits, weights


def label_variance(p: tf.Tensor) -> tf.Tensor:
    """The variance p (1 − p) of the one-hot label, [..., K]: not negative, though p may round above 1.

    :param p: class probabilities, [..., K].
    """
    return tf.maximum(p - tf.square(p), 0.0)


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
    if C.shape[0] == 2:
        return _of_two_classes(two_classes.probability_variance, Fmu, Fvar, C)

    def chunk(mean: tf.Tensor, var: tf.Tensor, C: tf.Tensor) -> tf.Tensor:
        _, at_nodes, weights = _logits(mean, var, C, rule)
        pi = tf.nn.softmax(at_nodes.logits)
        return average(weights, tf.square(pi - average(weights, pi)))

    return _by_rows(chunk, Fmu, Fvar, C, rule)


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
    if C.shape[0] == 2:
        return _of_two_classes(two_classes.mean_entropy, Fmu, Fvar, C)[..., 0]

    def chunk(mean: tf.Tensor, var: tf.Tensor, C: tf.Tensor) -> tf.Tensor:
        _, at_nodes, weights = _logits(mean, var, C, rule)
        return average(weights, entropy(tf.nn.softmax(at_nodes.logits))[..., None])

    return tf.squeeze(_by_rows(chunk, Fmu, Fvar, C, rule), axis=-1)


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
    if C.shape[0] == 2:
        return _of_two_classes(two_classes.expected_log_probabilities, Fmu, Fvar, C, minibatch=True)

    def chunk(mean: tf.Tensor, var: tf.Tensor, C: tf.Tensor) -> tf.Tensor:
        var = tf.broadcast_to(var, tf.shape(mean))
        centre, at_nodes, weights = _logits(mean, var, C, rule, leading=rule.has_leading)
        # E[π], as the nodes have it, and log Σ exp.
        r, log_total = mean_and_log_total(at_nodes.logits, weights)
        common = at_nodes.mixed_deviation(r)
        excess = log_total - common  # E[rᵀd] is known to be 0
        level = average(weights, excess)  # E[log Σ exp], as the nodes have it
        control, known = one_against_rest(centre, at_nodes.logits, common, var, C, r, level)
        gap = level - tf.reduce_logsumexp(centre, axis=-1, keepdims=True)
        return centre - level - correction(weights, excess - level, control, known, gap)

    return _by_rows(chunk, Fmu, Fvar, C, rule, minibatch=True)


def mean_and_log_total(logits: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The average of softmax over the nodes, [R, K], and log Σ exp at each, [S, R, 1].

    :param logits: at the nodes, [S, R, K].
    :param weights: of the nodes, [S], constants.
    """

    @tf.custom_gradient
    def both(logits: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable[..., Any]]:
        peak = tf.reduce_max(logits, axis=-1, keepdims=True)
        exponential = tf.exp(logits - peak)
        total = tf.reduce_sum(exponential, axis=-1, keepdims=True)
        pi = exponential * (1.0 / total)

        def gradient(d_mean: tf.Tensor, d_log_total: tf.Tensor) -> tf.Tensor:
            known = tf.get_static_value(weights)
            if known is not None and np.all(known == known[0]):  # one pass less
                along = pi * (known[0] * d_mean)
            else:
                along = weights[:, None, None] * (pi * d_mean)
            return pi * (d_log_total - tf.reduce_sum(along, axis=-1, keepdims=True)) + along

        return (average(weights, pi), tf.math.log(total) + peak), gradient

    return both(logits)


class _AtNodes(NamedTuple):
    """Logits C f_s at the nodes, and how they come about, where all rows share their nodes."""

    logits: tf.Tensor
    """[S, R, K]."""
    centre: tf.Tensor
    """C m, [R, K]."""
    nodes: tf.Tensor | None = None
    """[S, L]."""
    loading: tf.Tensor | None = None
    """The map of each row from nodes to deviations d = C(f_s − m), [L, R, K]."""

    def mixed_deviation(self, r: tf.Tensor) -> tf.Tensor:
        """rᵀd, [S, R, 1], without a pass over all logits where the map is known.

        :param r: [R, K].
        """
        if self.nodes is None or self.loading is None:
            return tf.reduce_sum(r * (self.logits - self.centre), axis=-1, keepdims=True)
        return tf.matmul(self.nodes, tf.reduce_sum(r * self.loading, axis=-1))[..., None]


def _logits(
    mean: tf.Tensor, var: tf.Tensor, C: tf.Tensor, rule: NodeRule, leading: bool = False
) -> tuple[tf.Tensor, _AtNodes, tf.Tensor]:
    """C m [R, K], the logits C f_s at the nodes and the weights [S].

    :param leading: whether the rule's first coordinate takes the place of the nodes' part along
        each row's own direction (:func:`.control_variate.with_leading_direction`).
    """
    num_rows, dimension = tf.shape(mean)[0], mean.shape[-1]
    centre = tf.matmul(mean, C, transpose_b=True)
    # A variance below the rounding error of one changes only the slope of √, which is ∞ at 0.
    sd = tf.sqrt(tf.maximum(var, np.finfo(mean.dtype.as_numpy_dtype).eps))
    if rule.per_row:
        flat, weights = rule(dimension * num_rows, mean.dtype)
        nodes = tf.reshape(flat, [tf.shape(flat)[0], num_rows, dimension])
        scaled = tf.reshape(sd * nodes, [-1, dimension])  # one large product, not S small ones
        deviation = tf.matmul(scaled, C, transpose_b=True)
        deviation = tf.reshape(deviation, [weights.shape[0], num_rows, C.shape[0]])
        return centre, _AtNodes(centre + deviation, centre), weights
    nodes, weights = rule(dimension + leading, mean.dtype)
    if var.shape[-1] == 1 and not leading:
        deviation = sd * tf.matmul(nodes, C, transpose_b=True)[:, None, :]
        return centre, _AtNodes(centre + deviation, centre), weights
    loading = tf.transpose(sd)[:, :, None] * tf.transpose(C)[:, None, :]
    shape = [weights.shape[0], num_rows, C.shape[0]]
    if not leading:
        flat = tf.reshape(loading, [dimension, num_rows * C.shape[0]])
        logits = centre + tf.reshape(tf.matmul(nodes, flat), shape)
        return centre, _AtNodes(logits, centre, nodes, loading), weights
    loading = with_leading_direction(loading, centre, sd, C)
    # One large product with the nodes, which have a coordinate more for the centre.
    maps = tf.concat([loading, centre[None]], axis=0)
    flat = tf.reshape(maps, [dimension + 2, num_rows * C.shape[0]])
    logits = tf.matmul(tf.concat([nodes, tf.ones_like(nodes[:, :1])], axis=1), flat)
    return centre, _AtNodes(tf.reshape(logits, shape), centre, nodes, loading), weights


def _of_two_classes(
    expectation: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    Fmu: TensorType,
    Fvar: TensorType,
    C: TensorType,
    minibatch: bool = False,
) -> tf.Tensor:
    """``expectation`` of the Gaussian difference of two logits, for all rows, [..., Q]."""

    def chunk(mean: tf.Tensor, var: tf.Tensor, C: tf.Tensor) -> tf.Tensor:
        return tf.cast(expectation(*two_classes.log_odds(mean, var, C)), mean.dtype)

    return _by_rows(chunk, Fmu, Fvar, C, rule=None, minibatch=minibatch)


def _by_rows(
    chunk: Callable[..., tf.Tensor],
    Fmu: TensorType,
    Fvar: TensorType,
    C: TensorType,
    rule: NodeRule | None,
    minibatch: bool = False,
    others: Sequence[tf.Tensor] = (),
) -> tf.Tensor:
    """Apply ``chunk(mean [R, L], var [R, L or 1], C, *others)`` to all rows, chunk by chunk.

    :param rule: the node rule; None for the closed form of two classes.
    :param minibatch: rows of unknown number, and those whose intermediate results are kept, are one
        chunk: in training they are those of a minibatch, and the gradient of a loop takes several
        times as long to trace.
    :param others: what else belongs to the rows, [..., Q] each; nothing for a minibatch.
    """
    Fmu = tf.convert_to_tensor(Fmu)
    Fvar = tf.convert_to_tensor(Fvar, Fmu.dtype)
    C = tf.convert_to_tensor(C, Fmu.dtype)
    dimension = Fmu.shape[-1]
    tensors = [Fmu, Fvar, *others]
    batch = tf.shape(Fmu)[:-1]
    leading = Fmu.shape[:-1]
    if not leading.is_fully_defined() or any(x.shape[:-1] != leading for x in tensors):
        for x in tensors[1:]:
            batch = tf.broadcast_dynamic_shape(batch, tf.shape(x)[:-1])
        tensors = [tf.broadcast_to(x, tf.concat([batch, [x.shape[-1]]], axis=0)) for x in tensors]
    tensors = [tf.reshape(x, [-1, x.shape[-1]]) for x in tensors]
    per_row = rule is not None and rule.per_row
    if rule is None:
        num_nodes = two_classes.NUM_SCALES
    else:
        num_nodes = rule(1 if per_row else dimension, Fmu.dtype)[1].shape[0]
    row_elements = num_nodes * C.shape[0]
    num_rows = tensors[0].shape[0]
    few = num_rows is not None and num_rows * row_elements <= KEPT_ELEMENTS
    if minibatch and (few or num_rows is None):
        mean, var = tensors
        result = chunk(mean, var, C)
    else:
        recomputed = chunk if few or per_row else tf.recompute_grad(chunk)

        def of_rows(mean: tf.Tensor, var: tf.Tensor, *others: tf.Tensor) -> list[tf.Tensor]:
            return [recomputed(mean, var, C, *others)]

        (result,) = map_rows(of_rows, tensors, max(1, CHUNK_ELEMENTS // row_elements))
    return tf.reshape(result, tf.concat([batch, [result.shape[-1]]], axis=0))
