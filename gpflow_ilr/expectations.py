r"""Gaussian expectations of the softmax and of its logarithm.

A classifier's latents are Gaussian, f ~ N(m, diag v), and its class probabilities are
π = softmax(C f) with a link matrix C [K, L]: C = Hᵀ for the isometric logratio, C = HᵀW with a mixing
matrix, C = I for the plain softmax. What training and prediction need, E[π], E[log π], Var[π] and
the expected entropy, has no closed form, so it is a weighted sum over nodes g_s: f_s = m + √v ∘
g_s. A *node rule* chooses them.
:class:`GaussHermite` is the default for one latent. :class:`Sobol` is the default otherwise: its
nodes are a constant, so the objective is a smooth deterministic function that L-BFGS and natural
gradients may optimise, and they have the mean, and where there are enough of them the covariance,
of the standard normal, so that the first two terms of the Taylor series of log Σ exp are
integrated exactly and an optimiser finds nothing there to exploit. :class:`MonteCarlo` draws
afresh at every call, as the paper does.

Terms of that series that a rule does not integrate exactly serve as control variates instead, with
weights by regression, so that they never do harm. Rows are worked off in blocks: memory does not
grow with their number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType
from scipy.special import ndtri, roots_hermitenorm
from scipy.stats import qmc

from gpflow_ilr.blocks import map_rows

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

MAX_PRODUCT_NODES = 4096
"""Largest product rule :class:`GaussHermite` will build."""


class NodeRule(ABC):
    """Nodes and weights for expectations under the standard normal.

    A rule of your own needs ``__call__`` only, and should be hashable and deterministic.
    """

    per_row: ClassVar[bool] = False
    """Whether every row gets nodes of its own: the rule is then called with (number of latents ×
    number of rows) coordinates."""

    @abstractmethod
    def __call__(
        self, num_latents: int | tf.Tensor, dtype: tf.DType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Nodes [S, num_latents] and weights [S] that sum to one.

        :param num_latents: dimension of the standard normal.
        :param dtype: floating type of the result.
        """


def _check_count(name: str, value: int, smallest: int) -> None:
    """Refuse a number of nodes that is not an integer of at least ``smallest``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < smallest:
        raise ValueError(f"{name} must be an integer of at least {smallest}, but it is {value!r}.")


@dataclass(frozen=True)
class GaussHermite(NodeRule):
    """Gauss–Hermite nodes, exact to degree 2·num_nodes − 1; a product rule beyond one latent.

    :param num_nodes: nodes per latent.
    :raises ValueError: if ``num_nodes`` is not a positive integer, or (when called) if the product
        rule would have more than 4096 nodes.
    """

    num_nodes: int = 32

    def __post_init__(self) -> None:
        _check_count("num_nodes", self.num_nodes, 1)

    def __call__(  # noqa: D102
        self, num_latents: int | tf.Tensor, dtype: tf.DType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        if self.num_nodes**num_latents > MAX_PRODUCT_NODES:
            raise ValueError(
                f"GaussHermite(num_nodes={self.num_nodes}) needs {self.num_nodes}**{num_latents} "
                f"nodes for {num_latents} latents, and {MAX_PRODUCT_NODES} is the limit: use "
                "Sobol(num_nodes=...), whose number of nodes does not depend on the latents."
            )
        nodes, weights = _gauss_hermite(self.num_nodes, num_latents)
        return tf.constant(nodes, dtype), tf.constant(weights, dtype)


@lru_cache(maxsize=32)
def _gauss_hermite(num_nodes: int, num_latents: int) -> tuple[AnyNDArray, AnyNDArray]:
    """Product of the probabilists' Gauss–Hermite rule."""
    x, w = roots_hermitenorm(num_nodes)  # NumPy's hermegauss overflows beyond 370 nodes
    grid = np.meshgrid(*[np.arange(num_nodes)] * num_latents, indexing="ij")
    index = np.stack([axis.ravel() for axis in grid], axis=-1)  # [S, L]
    weights = np.prod((w / w.sum())[index], axis=-1)
    return x[index], weights


@dataclass(frozen=True)
class Sobol(NodeRule):
    """Scrambled Sobol nodes, antithetic and moment-matched: a constant for every seed.

    The nodes come in pairs ±g, so odd moments are exact. With at least 4L nodes their covariance is
    exactly the identity. With fewer that would put all nodes at almost the same radius, which is
    worse than plain Monte Carlo for large variances; then their mean squared radius is L.

    :param num_nodes: number of nodes, even; powers of two balance best.
    :param seed: seed of the scrambling.
    :raises ValueError: if ``num_nodes`` is not a positive even integer.
    """

    num_nodes: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        _check_count("num_nodes", self.num_nodes, 2)
        if self.num_nodes % 2:
            raise ValueError(
                f"num_nodes must be even, because the nodes come in pairs ±g, but it is "
                f"{self.num_nodes}: use {self.num_nodes + 1}."
            )

    def __call__(  # noqa: D102
        self, num_latents: int | tf.Tensor, dtype: tf.DType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        nodes = tf.constant(_sobol(self.num_nodes, num_latents, self.seed), dtype)
        weights = np.full(self.num_nodes, 1.0 / self.num_nodes)
        return nodes, tf.constant(weights, dtype)


@lru_cache(maxsize=32)
def _sobol(num_nodes: int, num_latents: int, seed: int) -> AnyNDArray:
    """Antithetic scrambled Sobol nodes with the first two moments of the standard normal."""
    num_pairs = num_nodes // 2
    engine = qmc.Sobol(num_latents, scramble=True, seed=seed)
    uniform = engine.random_base2(int(np.ceil(np.log2(num_pairs))))[:num_pairs]
    half = ndtri(uniform + 2.0**-31)  # the middle of a cell of the 30-bit grid is never 0 or 1
    if num_pairs >= num_latents:
        # The nearest matrix with orthogonal columns (polar factor): Σ_s g_s g_sᵀ / S = I.
        left, _, right = np.linalg.svd(half, full_matrices=False)
        half = np.sqrt(num_pairs) * left @ right
    else:
        half = half / np.sqrt(np.mean(half**2))
    return np.concatenate([half, -half])


@dataclass(frozen=True)
class MonteCarlo(NodeRule):
    """Independent standard normal draws, fresh at every call and for every row.

    The objective is then random: use it with stochastic optimisers, never with L-BFGS.

    :param num_samples: number of draws.
    :param seed: operation seed of ``tf.random.normal``.
    :raises ValueError: if ``num_samples`` is not a positive integer.
    """

    num_samples: int = 100
    seed: int | None = None
    per_row: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_count("num_samples", self.num_samples, 1)

    def __call__(  # noqa: D102
        self, num_latents: int | tf.Tensor, dtype: tf.DType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        nodes = tf.random.normal([self.num_samples, num_latents], dtype=dtype, seed=self.seed)
        return nodes, tf.fill([self.num_samples], tf.cast(1.0 / self.num_samples, dtype))


def default_rule(num_latents: int) -> NodeRule:
    """Gauss–Hermite for one latent, Sobol otherwise.

    :param num_latents: number of latents L.
    """
    if num_latents == 1:
        return GaussHermite()
    # Twice the next power of two above 2L, so that the covariance of the nodes is matched with
    # room to spare.
    return Sobol(num_nodes=max(64, 2 ** (2 + int(np.ceil(np.log2(num_latents))))))


@check_shapes(
    "Fmu: [batch..., L]",
    "Fvar: [batch..., one_or_L]",
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
    "Fmu: [batch..., L]",
    "Fvar: [batch..., one_or_L]",
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
    "Fmu: [batch..., L]",
    "Fvar: [batch..., one_or_L]",
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
    "Fmu: [batch..., L]",
    "Fvar: [batch..., one_or_L]",
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
        centre, deviation, weights = _logits(mean, var, C, rule)
        lse = tf.reduce_logsumexp(centre + deviation, axis=-1)  # [S, R]
        expected = tf.linalg.matvec(lse, weights, transpose_a=True)  # [R]
        if not _integrates_quadratics(rule, mean.shape[-1], mean.dtype):
            expected -= _control(lse, centre, deviation, weights, var, C)
        return centre - expected[:, None]

    return _by_rows(block, Fmu, Fvar, C, rule)


def _control(
    lse: tf.Tensor,
    centre: tf.Tensor,
    deviation: tf.Tensor,
    weights: tf.Tensor,
    var: tf.Tensor,
    C: tf.Tensor,
) -> tf.Tensor:
    """The part of the average of ``lse`` [S, R] that its Taylor terms show to be an error, [R].

    With p₀ = softmax(C m) and d = C(f − m) they are p₀ᵀd, of mean 0, and ½(p₀ᵀd² − (p₀ᵀd)²), of
    mean ½ Σ_l v_l (Σ_k p₀ₖ C_kl² − (Σ_k p₀ₖ C_kl)²). Their weights are least-squares coefficients
    over the nodes.
    """
    p0 = tf.nn.softmax(centre)  # [R, K]
    first = tf.reduce_sum(p0 * deviation, axis=-1)  # [S, R]
    second = 0.5 * (tf.reduce_sum(p0 * tf.square(deviation), axis=-1) - tf.square(first))
    curvature = tf.matmul(p0, tf.square(C)) - tf.square(tf.matmul(p0, C))  # [R, L]
    second_mean = 0.5 * tf.reduce_sum(var * curvature, axis=-1)  # [R]

    def average(x: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(x, weights, transpose_a=True)

    mean1, mean2 = average(first), average(second)
    a, b, h = first - mean1, second - mean2, lse - average(lse)
    aa, ab, bb = average(a * a), average(a * b), average(b * b)
    ah, bh = average(a * h), average(b * h)
    # Cramer's rule on the 2 × 2 normal equations; with the ridge identical nodes have weight 0,
    # not 0/0.
    ridge = tf.cast(np.finfo(lse.dtype.as_numpy_dtype).tiny ** 0.25, lse.dtype)
    aa, bb = aa + ridge, bb + ridge
    determinant = aa * bb - tf.square(ab)
    weight1 = (bb * ah - ab * bh) / determinant
    weight2 = (aa * bh - ab * ah) / determinant
    return weight1 * mean1 + weight2 * (mean2 - second_mean)


@lru_cache(maxsize=256)
def _integrates_quadratics(rule: NodeRule, num_latents: int, dtype: tf.DType) -> bool:
    """Whether the nodes have mean 0 and covariance I, which makes the controls superfluous."""
    if rule.per_row:
        return False
    with tf.init_scope():
        nodes, weights = (x.numpy().astype(np.float64) for x in rule(num_latents, dtype))
    mean = weights @ nodes
    covariance = (weights[:, None] * nodes).T @ nodes
    tolerance = 100 * np.finfo(dtype.as_numpy_dtype).eps
    return bool(
        np.all(np.abs(mean) < tolerance)
        and np.all(np.abs(covariance - np.eye(num_latents)) < tolerance)
    )


def _logits(
    mean: tf.Tensor, var: tf.Tensor, C: tf.Tensor, rule: NodeRule
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """C m [R, K], the deviations C(f_s − m) [S, R, K] and the weights [S]."""
    num_rows, num_latents = tf.shape(mean)[0], mean.shape[-1]
    num_classes = C.shape[0]
    # A variance below the rounding error of one changes only the slope of √, which is ∞ at 0.
    sd = tf.sqrt(tf.maximum(var, np.finfo(mean.dtype.as_numpy_dtype).eps))
    if rule.per_row:
        flat, weights = rule(num_latents * num_rows, mean.dtype)
        nodes = tf.reshape(flat, [tf.shape(flat)[0], num_rows, num_latents])
    else:
        nodes, weights = rule(num_latents, mean.dtype)
        nodes = nodes[:, None, :]
    if var.shape[-1] == 1 and not rule.per_row:
        deviation = sd * tf.matmul(nodes[:, 0], C, transpose_b=True)[:, None, :]
    else:
        scaled = tf.reshape(sd * nodes, [-1, num_latents])  # one large product, not S small ones
        deviation = tf.matmul(scaled, C, transpose_b=True)
        deviation = tf.reshape(deviation, [tf.shape(nodes)[0], num_rows, num_classes])
    return tf.matmul(mean, C, transpose_b=True), deviation, weights


def _average(weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Σ_s w_s values_s for values [S, R, K]."""
    shape = tf.shape(values)
    flat = tf.reshape(values, [shape[0], -1])
    return tf.reshape(tf.linalg.matvec(flat, weights, transpose_a=True), shape[1:])


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
    mean = tf.reshape(Fmu, [-1, num_latents])
    var = tf.reshape(Fvar, [-1, Fvar.shape[-1]])
    _, weights = rule(1 if rule.per_row else num_latents, Fmu.dtype)
    rows = max(1, BLOCK_ELEMENTS // (weights.shape[0] * C.shape[0]))
    (result,) = map_rows(lambda mean, var: [block(mean, var, C)], [mean, var], rows)
    return tf.reshape(result, tf.concat([tf.shape(Fmu)[:-1], [result.shape[-1]]], axis=0))
