"""The logistic-softmax and bijective-softmax likelihoods with closed-form variational bounds.

Put into ``gpflow.models.SVGP`` they are the sparse variants of the augmented models: the
variational expectation is the bound of :mod:`gpflow_ilr.augmented.link`, in which all auxiliary
variables have been maximised out. One full-batch step of ``NaturalGradient(gamma=1.0)`` is
therefore exactly one sweep of coordinate ascent, minibatches need no stored local variables, and
kernel and inducing inputs are learned by Adam or L-BFGS on the same objective::

    likelihood = LogisticSoftmaxLikelihood(num_classes=K)
    model = gpflow.models.SVGP(kernel, likelihood, Z, num_latent_gps=likelihood.num_latent_gps)

The bounds are looser than E_q[log p(y | f)], the factorised one much more so; their values are not
comparable as evidence with each other or with those of other models. The links are bounded, so
these models want kernels of large variance: start between 1 and 10 and learn it. With a variance of
100 or more start from a narrow q (GPflow's ``q_sqrt`` times 0.1), for from a broad one coordinate
ascent finds a far worse optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood

from gpflow_ilr.augmented.link import LogisticSoftmaxLink
from gpflow_ilr.expectations import NodeRule, label_variance
from gpflow_ilr.expectations.nodes import average, log_average, rule_or_default
from gpflow_ilr.inputs.labels import label_rows
from gpflow_ilr.likelihoods.latents import after_a_look, of_known_latents
from gpflow_ilr.linalg.row_chunks import map_rows

__all__ = ["LogisticSoftmaxLikelihood", "BijectiveSoftmaxLikelihood"]

Bound = Literal["marginal", "factorised"]

# Elements (rows × nodes × classes) of one chunk of rows.
_CHUNK_ELEMENTS = 2**22


@of_known_latents
class AugmentedLikelihood(Likelihood):
    """A likelihood with the link of :class:`LogisticSoftmaxLink`: the body of LSM and BSM alike.

    Labels are class indices [..., 1], or one-hot or soft rows [..., K]. A soft row stands for the
    average over labels drawn from it, as in :mod:`gpflow_ilr.likelihoods.base`.

    :param link: the link.
    :param bound: "marginal" (λ marginalised; tighter) or "factorised" (q(λ) q(n), as in the UAI
        2019 paper and AugmentedGaussianProcesses.jl).
    :param nodes: node rule of predictions; :func:`gpflow_ilr.expectations.default_rule` when None. Of
        some thousand rows none of its probabilities was off by more than .03, however large the
        variances were. Training needs no nodes.
    :raises ValueError: if `bound` is neither.
    :raises TypeError: if `nodes` is not a node rule.
    """

    def __init__(
        self, link: LogisticSoftmaxLink, bound: Bound = "marginal", nodes: NodeRule | None = None
    ) -> None:
        super().__init__(input_dim=None, latent_dim=link.num_latent_gps, observation_dim=None)
        if bound not in ("marginal", "factorised"):
            raise ValueError(f"bound must be 'marginal' or 'factorised', but it is {bound!r}.")
        self.link = link
        self.bound = bound
        self.nodes = rule_or_default(nodes, link.num_latent_gps)

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return self.link.num_classes

    @property
    def num_latent_gps(self) -> int:
        """Number of latents L, and so of latent GPs."""
        return self.link.num_latent_gps

    @property
    def link_dtype(self) -> None:
        """Latents have any float: the link has no numbers of its own."""

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        # Finite wherever F is: no probability is formed that could underflow.
        return self._of_labels(self.link.log_probabilities(F), Y)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(self.link.log_probabilities(F))

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        p = self._conditional_mean(X, F)
        return label_variance(p)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        # The variance is that of the one-hot label.
        p = self.expected_probabilities(Fmu, Fvar)
        return p, label_variance(p)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._of_labels(self._by_rows(log_average, Fmu, Fvar), Y)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        Fmu = tf.convert_to_tensor(Fmu)
        Y = label_rows(Y, self.num_classes, Fmu.dtype)
        evaluate = (
            self.link.marginal_bound if self.bound == "marginal" else self.link.factorised_bound
        )
        return evaluate(Fmu, Fvar, Y)

    @after_a_look
    @check_shapes(
        "Fmu: [batch..., L]",
        "Fvar: [batch..., L]",
        "return: [batch..., K]",
    )
    def expected_probabilities(self, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
        """E[p(y = k | f)] for f ~ N(Fmu, diag Fvar), by the nodes: never the link of the mean.

        :param Fmu: means of the latents.
        :param Fvar: variances of the latents.
        """
        return self._by_rows(lambda weights, log_pi: average(weights, tf.exp(log_pi)), Fmu, Fvar)

    def _of_labels(self, log_p: tf.Tensor, Y: TensorType) -> tf.Tensor:
        """Σ_k y_k log p_k, to which classes that do not occur add nothing, whatever their p."""
        rows = label_rows(Y, self.num_classes, log_p.dtype)
        return tf.reduce_sum(tf.math.multiply_no_nan(log_p, rows), axis=-1)

    def _by_rows(
        self,
        summarise: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
        Fmu: TensorType,
        Fvar: TensorType,
    ) -> tf.Tensor:
        """``summarise`` the weights [S] and log p(y | m + √v g_s) [S, R, K], chunk by chunk."""
        Fmu = tf.convert_to_tensor(Fmu)
        Fvar = tf.convert_to_tensor(Fvar, Fmu.dtype)
        num_latent_gps = self.num_latent_gps

        def chunk(mean: tf.Tensor, variance: tf.Tensor) -> list[tf.Tensor]:
            num_rows = tf.shape(mean)[0]
            num_coordinates = num_rows * num_latent_gps if self.nodes.per_row else num_latent_gps
            nodes, weights = self.nodes(num_coordinates, mean.dtype)
            nodes = tf.reshape(nodes, [tf.shape(nodes)[0], -1, num_latent_gps])  # [S, R or 1, L]
            # A variance below the rounding of one changes nothing but the slope of √, ∞ at 0.
            sd = tf.sqrt(tf.maximum(variance, np.finfo(mean.dtype.as_numpy_dtype).eps))
            return [summarise(weights, self.link.log_probabilities(mean + sd * nodes))]

        num_nodes = self.nodes(num_latent_gps, Fmu.dtype)[0].shape[0]
        rows = max(1, _CHUNK_ELEMENTS // (num_nodes * self.num_classes))
        flat = [tf.reshape(x, [-1, num_latent_gps]) for x in (Fmu, Fvar)]
        (result,) = map_rows(chunk, flat, rows)
        return tf.reshape(result, tf.concat([tf.shape(Fmu)[:-1], [self.num_classes]], axis=0))


class LogisticSoftmaxLikelihood(AugmentedLikelihood):
    """LSM: K classes from K latents, p(y = k | f) = σ(f_k) / Σ_j σ(f_j).

    :param num_classes: number of classes K, at least 2.
    :param bound: "marginal" (tighter) or "factorised" (as in AugmentedGaussianProcesses.jl).
    :param class_scaling: θ of p_k ∝ θ_k σ(f_k), one positive number per class; ones when None.
    :param nodes: node rule of predictions; by default Sobol. Training needs no nodes.
    :raises ValueError: if an argument is not one of these.
    :raises TypeError: if `nodes` is not a node rule.
    """

    def __init__(
        self,
        num_classes: int,
        bound: Bound = "marginal",
        class_scaling: Sequence[float] | None = None,
        nodes: NodeRule | None = None,
    ) -> None:
        super().__init__(LogisticSoftmaxLink.logistic(num_classes, class_scaling), bound, nodes)


class BijectiveSoftmaxLikelihood(AugmentedLikelihood):
    """BSM: K classes from K − 1 latents; the last class has the constant σ(0) = ½ for a latent.

    p(y = k | f) = σ(f_k) / (½ + Σ_j σ(f_j)) for k < K, and ½ / (½ + Σ_j σ(f_j)) for the last class.

    The classes are not treated alike: no class but the last can have a probability above 2/3, so
    that the NLL is at least 0.405 times the share of points of the other classes. This is the
    model's own, and no training removes it.

    :param num_classes: number of classes K, at least 2; the last one, K − 1, is the fixed class.
    :param bound: "marginal" (tighter) or "factorised".
    :param class_scaling: θ of p_k ∝ θ_k σ(f_k), one positive number per class; ones when None.
    :param nodes: node rule of predictions; by default Gauss–Hermite for K = 2 and Sobol otherwise.
    :raises ValueError: if an argument is not one of these.
    :raises TypeError: if `nodes` is not a node rule.
    """

    def __init__(
        self,
        num_classes: int,
        bound: Bound = "marginal",
        class_scaling: Sequence[float] | None = None,
        nodes: NodeRule | None = None,
    ) -> None:
        super().__init__(LogisticSoftmaxLink.bijective(num_classes, class_scaling), bound, nodes)
