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
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter, TensorType
from gpflow.config import default_float

from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.inputs.labels import check_num_classes
from gpflow_ilr.likelihoods.base import SoftmaxOfLatents
from gpflow_ilr.simplex import helmert

__all__ = ["ILRLikelihood", "SoftmaxLikelihood", "LinkedSoftmax"]


class LinkedSoftmax(SoftmaxOfLatents):
    """p(y = k | f) = softmax(C f)_k with C = B W, where the basis B [K, R] is the subclass's.

    :param num_classes: number of classes K, at least 2.
    :param num_latent_gps: number of latents L, that is of latent GPs; by default R. Fewer need a
        mixing matrix, of low rank.
    :param mixing: True for a trainable W [R, L] that starts as the identity (its first L columns),
        False for no W, or the matrix that W starts from; by default there is a W only where
        ``num_latent_gps`` needs one.
    :param nodes: the rule that chooses the nodes of expectations, kept as ``nodes`` for
        probabilities and as ``bound_nodes`` for the variational bound; by default
        :func:`gpflow_ilr.expectations.default_rule` for each.
    :raises ValueError: if ``num_latent_gps`` does not fit the basis or ``mixing``.
    :raises TypeError: if ``nodes`` is not a node rule.
    """

    def __init__(
        self,
        num_classes: int,
        num_latent_gps: int | None = None,
        mixing: bool | TensorType | None = None,
        nodes: NodeRule | None = None,
    ) -> None:
        num_classes = check_num_classes(num_classes)
        rank = self._basis(num_classes).shape[1]
        start = _mixing_start(rank, num_latent_gps, mixing)
        super().__init__(num_classes, rank if start is None else start.shape[1], nodes)
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


class ILRLikelihood(LinkedSoftmax):
    """K classes from K − 1 latents: π = φ⁻¹(W f) = softmax(Hᵀ W f).

    A drop-in for ``gpflow.likelihoods.Softmax`` that needs one latent GP less::

        likelihood = ILRLikelihood(num_classes=K)
        gpflow.models.SVGP(kernel, likelihood, Z, num_latent_gps=K - 1, num_data=N)

    :param num_classes: number of classes K, at least 2.
    :param num_latent_gps: number of latents L, that is of latent GPs; by default K − 1. Fewer need
        a mixing matrix, of low rank.
    :param mixing: True for a trainable W [K − 1, L] that starts as the first L columns of the
        identity, False for no W, or the matrix that W starts from; by default there is a W only
        where ``num_latent_gps`` needs one (learned elsewhere, it over-fits small data: README).
    :param nodes: the rule that chooses the nodes of expectations; by default Gauss–Hermite for one
        latent and Sobol otherwise. Two classes have closed forms and need no nodes.
        :func:`gpflow_ilr.expectations.default_rule` says how wrong the default may be.
    :raises ValueError: if ``num_latent_gps`` does not fit ``num_classes`` or ``mixing``.
    :raises TypeError: if ``nodes`` is not a node rule.
    """

    @staticmethod
    def _basis(num_classes: int) -> tf.Tensor:
        return tf.transpose(helmert(num_classes))


class SoftmaxLikelihood(LinkedSoftmax):
    """K classes from K latents: π = softmax(W f), the paper's SVGPC.

    :param num_classes: number of classes K, at least 2.
    :param num_latent_gps: number of latents L, that is of latent GPs; by default K. Fewer need a
        mixing matrix, of low rank.
    :param mixing: True for a trainable W [K, L] that starts as the first L columns of the identity,
        False for no W, or the matrix that W starts from; by default there is a W only where
        ``num_latent_gps`` needs one.
    :param nodes: the rule that chooses the nodes of expectations; by default Gauss–Hermite for one
        latent and Sobol otherwise. Two classes have closed forms and need no nodes.
        :func:`gpflow_ilr.expectations.default_rule` says how wrong the default may be.
    :raises ValueError: if ``num_latent_gps`` does not fit ``num_classes`` or ``mixing``.
    :raises TypeError: if ``nodes`` is not a node rule.
    """

    @staticmethod
    def _basis(num_classes: int) -> tf.Tensor:
        return tf.eye(num_classes, dtype=default_float())


def _mixing_start(
    rank: int, num_latent_gps: int | None, mixing: bool | TensorType | None
) -> AnyNDArray | None:
    """The start of W [rank, L], or None without mixing."""
    if num_latent_gps is not None:
        check_count("num_latent_gps", num_latent_gps)
    if mixing is None:
        mixing = num_latent_gps not in (None, rank)
    if isinstance(mixing, (bool, np.bool_)):
        if not mixing and num_latent_gps not in (None, rank):
            raise ValueError(
                f"num_latent_gps must be {rank} without mixing, but it is {num_latent_gps}: pass "
                "mixing=True for another number of latents."
            )
        if num_latent_gps is not None and num_latent_gps > rank:
            raise ValueError(
                f"num_latent_gps must be at most {rank}, but it is {num_latent_gps}: the identity has "
                f"no columns for more. Pass the start of W, a matrix [{rank}, {num_latent_gps}], as "
                "mixing."
            )
        return np.eye(rank, num_latent_gps) if mixing else None
    try:
        start = np.asarray(mixing, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"mixing must be True, False or a matrix [{rank}, {num_latent_gps or 'num_latent_gps'}], "
            f"but is {mixing!r}. Pass True for one that starts at the identity."
        ) from None
    if start.ndim != 2 or start.shape[0] != rank or num_latent_gps not in (None, start.shape[-1]):
        raise ValueError(
            f"mixing must be True, False or a matrix [{rank}, {num_latent_gps or 'num_latent_gps'}], "
            f"but its shape is {list(start.shape)}."
        )
    return start
