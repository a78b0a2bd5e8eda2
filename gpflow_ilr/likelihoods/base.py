"""What every likelihood of class labels here has: π = softmax(C f), and GPflow's methods from it.

Subclasses differ by the link matrix C [K, L] alone; :class:`CodeGaussian` has densities of its own.

Labels are class indices [..., 1] or one-hot or soft rows [..., K] (:mod:`gpflow_ilr.inputs.labels`). A
soft row stands for the average over labels drawn from it: each density below is Σ_k y_k times its
value for label k.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import cast

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood

from gpflow_ilr.expectations import (
    NodeRule,
    expected_log_softmax,
    expected_softmax,
    label_variance,
    predictive_log_density,
    rule_or_default,
)
from gpflow_ilr.inputs.labels import label_rows
from gpflow_ilr.likelihoods.latents import of_known_latents

__all__ = ["SoftmaxOfLatents"]


@of_known_latents
class SoftmaxOfLatents(Likelihood):
    """p(y = k | f) = softmax(C f)_k, for subclasses with a link C [K, L].

    :param num_classes: number of classes K.
    :param num_latent_gps: number of latents L, that is of latent GPs.
    :param nodes: the rule that chooses the nodes of expectations, kept as ``nodes`` for
        probabilities and as ``bound_nodes`` for the variational bound; by default
        :func:`gpflow_ilr.expectations.default_rule` for each, which says how wrong they may be. Both
        may be set later: ``likelihood.nodes = Sobol(2048)``.
    :raises TypeError: if ``nodes`` is not a node rule.
    """

    def __init__(self, num_classes: int, num_latent_gps: int, nodes: NodeRule | None) -> None:
        super().__init__(input_dim=None, latent_dim=num_latent_gps, observation_dim=None)
        self.num_classes = num_classes
        self.nodes = rule_or_default(nodes, num_latent_gps)
        self.bound_nodes = rule_or_default(nodes, num_latent_gps, controlled=True)

    @property
    def num_latent_gps(self) -> int:
        """L, the number of latent GPs that a model needs."""
        return cast(int, self.latent_dim)

    @property
    @abstractmethod
    def link(self) -> tf.Tensor:
        """C [K, L], the matrix that maps latents to logits."""

    @property
    def link_dtype(self) -> tf.DType:
        """The float that the link has, and latents must have."""
        return self.link.dtype

    def _log_softmax(self, F: TensorType) -> tf.Tensor:
        """Log π for latents F [..., L]: [..., K]."""
        return tf.nn.log_softmax(tf.linalg.matvec(self.link, F))

    def _rows(self, Y: TensorType, like: tf.Tensor) -> tf.Tensor:
        """Labels as rows on the simplex."""
        return label_rows(Y, self.num_classes, dtype=like.dtype)

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        log_pi = self._log_softmax(F)
        return tf.reduce_sum(self._rows(Y, log_pi) * log_pi, axis=-1)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(self._log_softmax(F))

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        pi = self._conditional_mean(X, F)
        return label_variance(pi)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        # The variance is that of the one-hot label; Var[π] is
        # gpflow_ilr.expectations.softmax_variance.
        p = expected_softmax(Fmu, Fvar, self.link, self.nodes)
        return p, label_variance(p)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        link = self.link
        rows = self._rows(Y, link)
        shape = np.shape(Y) if isinstance(Y, (list, tuple)) else Y.shape
        one_hot = shape[-1] == 1  # class indices
        return predictive_log_density(Fmu, Fvar, link, self.nodes, rows, one_hot)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        expected = expected_log_softmax(Fmu, Fvar, self.link, self.bound_nodes)
        return tf.reduce_sum(self._rows(Y, expected) * expected, axis=-1)
