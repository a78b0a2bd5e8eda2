"""Likelihoods of class labels for GPflow's variational and sampling models.

Both likelihoods here are p(y = k | f) = π_k with π = softmax(C f), and differ by the link matrix C
alone:

===================  =============  =======================  ==================
likelihood           latents        C, ``mixing=False``      C with mixing
===================  =============  =======================  ==================
ILRLikelihood        D = K − 1      Hᵀ                       Hᵀ W, W [D, L]
SoftmaxLikelihood    K              I                        W, W [K, L]
===================  =============  =======================  ==================

H is the Helmert matrix of :mod:`gpflow_ilr.simplex`. The mixing matrix W lives here, and not in a
kernel such as ``LinearCoregionalization``, because GPflow's models hand a likelihood only the
marginals of each latent: of W f these are not enough, while the latents f themselves are
independent under q, so that every expectation below is exact up to its nodes
(:mod:`gpflow_ilr.expectations.softmax`).

Labels are class indices [..., 1] or one-hot or soft rows [..., K] (:mod:`gpflow_ilr.inputs.labels`). A
soft row stands for the average over labels drawn from it: each density below is Σ_k y_k times its
value for label k.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, MeanAndVariance, Parameter, TensorType
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood

from gpflow_ilr.expectations import (
    NodeRule,
    default_rule,
    expected_log_softmax,
    expected_softmax,
    label_log_density,
)
from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.inputs.labels import check_num_classes, label_rows
from gpflow_ilr.simplex import helmert

__all__ = ["ILRLikelihood", "SoftmaxLikelihood", "LinkedSoftmax", "SoftmaxOfLatents"]


class SoftmaxOfLatents(Likelihood):
    """What a label's probabilities softmax(C f) imply, for subclasses with a link C and nodes."""

    num_classes: int
    nodes: NodeRule

    @property
    @abstractmethod
    def link(self) -> tf.Tensor:
        """C [K, L], the matrix that maps latents to logits."""

    def _log_softmax(self, F: TensorType) -> tf.Tensor:
        """Log π for latents F [..., L]: [..., K]."""
        return tf.nn.log_softmax(tf.linalg.matvec(self.link, F))

    def _rows(self, Y: TensorType, like: tf.Tensor) -> tf.Tensor:
        """Labels as rows on the simplex."""
        return label_rows(Y, self.num_classes, dtype=like.dtype)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(self._log_softmax(F))

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        pi = self._conditional_mean(X, F)
        return pi - tf.square(pi)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        # The variance is that of the one-hot label; Var[π] is
        # gpflow_ilr.expectations.softmax.softmax_variance.
        p = expected_softmax(Fmu, Fvar, self.link, self.nodes)
        return p, p - tf.square(p)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        p = expected_softmax(Fmu, Fvar, self.link, self.nodes)
        return label_log_density(p, self._rows(Y, p))


class LinkedSoftmax(SoftmaxOfLatents):
    """p(y = k | f) = softmax(C f)_k with C = B W, where the basis B [K, R] is the subclass's.

    :param num_classes: number of classes K, at least 2.
    :param num_latents: number of latents L, that is of latent GPs; by default R. Fewer make the
        mixing low-rank and need ``mixing``.
    :param mixing: True for a trainable W [R, L] that starts as the identity (its first L columns),
        False for no W, or the matrix that W starts from.
    :param nodes: the rule that chooses the nodes of expectations, kept as ``nodes`` for
        probabilities and as ``bound_nodes`` for the variational bound; by default
        :func:`gpflow_ilr.expectations.softmax.default_rule` for each.
    :raises ValueError: if ``num_latents`` does not fit the basis or ``mixing``.
    :raises TypeError: if ``nodes`` is not a node rule.
    """

    def __init__(
        self,
        num_classes: int,
        num_latents: int | None = None,
        mixing: bool | TensorType = True,
        nodes: NodeRule | None = None,
    ) -> None:
        num_classes = check_num_classes(num_classes)
        rank = self._basis(num_classes).shape[1]
        start = _mixing_start(rank, num_latents, mixing)
        num_latents = rank if start is None else start.shape[1]
        super().__init__(input_dim=None, latent_dim=num_latents, observation_dim=None)
        self.num_classes = num_classes
        if nodes is not None and not isinstance(nodes, NodeRule):
            raise TypeError(
                f"nodes must be a node rule such as Sobol(num_nodes=64), but it is {nodes!r}."
            )
        self.nodes = default_rule(num_latents) if nodes is None else nodes
        self.bound_nodes = default_rule(num_latents, controlled=True) if nodes is None else nodes
        self.W = None if start is None else Parameter(start, dtype=default_float())

    @staticmethod
    @abstractmethod
    def _basis(num_classes: int) -> tf.Tensor:
        """B [K, R], the matrix that maps mixed latents to logits."""

    @property
    def link(self) -> tf.Tensor:
        """C [K, L], the matrix that maps latents to logits."""
        basis = self._basis(self.num_classes)
        return basis if self.W is None else tf.matmul(basis, self.W)

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        log_pi = self._log_softmax(F)
        return tf.reduce_sum(self._rows(Y, log_pi) * log_pi, axis=-1)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        expected = expected_log_softmax(Fmu, Fvar, self.link, self.bound_nodes)
        return tf.reduce_sum(self._rows(Y, expected) * expected, axis=-1)


class ILRLikelihood(LinkedSoftmax):
    """K classes from K − 1 latents: π = φ⁻¹(W f) = softmax(Hᵀ W f).

    A drop-in for ``gpflow.likelihoods.Softmax`` that needs one latent GP less::

        likelihood = ILRLikelihood(num_classes=K)
        gpflow.models.SVGP(kernel, likelihood, Z, num_latent_gps=K - 1, num_data=N)

    :param num_classes: number of classes K, at least 2.
    :param num_latents: number of latents L, that is of latent GPs; by default K − 1. Fewer make the
        mixing low-rank.
    :param mixing: True for a trainable W [K − 1, L] that starts as the first L columns of the
        identity, False for no W, or the matrix that W starts from.
    :param nodes: the rule that chooses the nodes of expectations; by default Gauss–Hermite for one
        latent and Sobol otherwise.
    :raises ValueError: if ``num_latents`` does not fit ``num_classes`` or ``mixing``.
    :raises TypeError: if ``nodes`` is not a node rule.
    """

    @staticmethod
    def _basis(num_classes: int) -> tf.Tensor:
        return tf.transpose(helmert(num_classes))


class SoftmaxLikelihood(LinkedSoftmax):
    """K classes from K latents: π = softmax(W f), the paper's SVGPC.

    :param num_classes: number of classes K, at least 2.
    :param num_latents: number of latents L, that is of latent GPs; by default K. Fewer make the
        mixing low-rank.
    :param mixing: True for a trainable W [K, L] that starts as the first L columns of the identity,
        False for no W, or the matrix that W starts from.
    :param nodes: the rule that chooses the nodes of expectations; by default Gauss–Hermite for one
        latent and Sobol otherwise.
    :raises ValueError: if ``num_latents`` does not fit ``num_classes`` or ``mixing``.
    :raises TypeError: if ``nodes`` is not a node rule.
    """

    @staticmethod
    def _basis(num_classes: int) -> tf.Tensor:
        return tf.eye(num_classes, dtype=default_float())


def _mixing_start(
    rank: int, num_latents: int | None, mixing: bool | TensorType
) -> AnyNDArray | None:
    """The start of W [rank, L], or None without mixing."""
    if num_latents is not None:
        check_count("num_latents", num_latents)
    if isinstance(mixing, (bool, np.bool_)):
        if not mixing and num_latents not in (None, rank):
            raise ValueError(
                f"num_latents must be {rank} without mixing, but it is {num_latents}: pass "
                "mixing=True for another number of latents."
            )
        if num_latents is not None and num_latents > rank:
            raise ValueError(
                f"num_latents must be at most {rank}, but it is {num_latents}: the identity has "
                f"no columns for more. Pass the start of W, a matrix [{rank}, {num_latents}], as "
                "mixing."
            )
        return np.eye(rank, num_latents) if mixing else None
    start = np.asarray(mixing, dtype=np.float64)
    if start.ndim != 2 or start.shape[0] != rank or num_latents not in (None, start.shape[-1]):
        raise ValueError(
            f"mixing must be True, False or a matrix [{rank}, {num_latents or 'num_latents'}], "
            f"but its shape is {list(start.shape)}."
        )
    return start
