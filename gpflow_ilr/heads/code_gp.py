"""The GP of ``GPHead(objective="code")``: pseudo-targets in closed form, at little cost.

This is :class:`~gpflow_ilr.CodeSVGP` with one covariance of q(u) for all latents, which is what its
optimum has: noise, kernel and inputs do not differ between them. A step has one M × M factor and one
product more than a Dense layer of M units, and no nodes. Latents are in the code's units.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, Parameter
from gpflow.config import default_float
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel

from gpflow_ilr.codes import ILRCode
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.heads.fixed_posterior import Snapshot
from gpflow_ilr.heads.head_gp import HeadGP
from gpflow_ilr.heads.whitening import covariances, jittered, whitened_terms
from gpflow_ilr.inputs.rows import as_inputs
from gpflow_ilr.likelihoods import CodeGaussian
from gpflow_ilr.linalg.inverse_factors import triangular_inverse
from gpflow_ilr.models.collapsed import CollapsedClassifier

__all__ = ["SharedCodeGP"]


class SharedCodeGP(HeadGP):
    """Sparse GP on the pseudo-targets of the ILR code, one covariance of q for all latents.

    :param kernel: kernel of f/L.
    :param Z: inducing inputs, [M, D].
    :param code: with one noise for all classes and outputs.
    :param nodes: node rule of the predictive probabilities.
    """

    def __init__(
        self, kernel: Kernel, Z: np.ndarray, code: ILRCode, nodes: NodeRule | None = None
    ) -> None:
        super().__init__()
        self.kernel = kernel
        self.inducing_variable = InducingPoints(Z)
        self.likelihood = CodeGaussian(code, nodes)
        # One parameter, for each costs an optimiser as many operations as half a layer.
        start = np.concatenate([np.zeros([len(Z), code.num_outputs]), np.eye(len(Z))], axis=1)
        self.q = Parameter(start, dtype=default_float())

    @property
    def q_mu(self) -> tf.Tensor:
        """Mean of the whitened q(u), [M, P]."""
        return tf.convert_to_tensor(self.q)[:, : -self.q.shape[0]]

    @property
    def q_sqrt(self) -> tf.Tensor:
        """S, lower triangular, [M, M]: the covariance of the whitened q(u) is S Sᵀ."""
        return tf.linalg.band_part(tf.convert_to_tensor(self.q)[:, -self.q.shape[0] :], -1, 0)

    def predict_marginals(self, Xnew: tf.Tensor) -> MeanAndVariance:
        """Mean [N, P] of the latents, and the variance [N, 1] that they share.

        :param Xnew: features [N, D].
        """
        return self._terms(Xnew)[:2]

    def _terms(self, Xnew: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Mean and variance of the latents, and KL[q(u) ‖ p(u)]."""
        X = as_inputs(Xnew, self.num_columns, "features")
        found = covariances(self.kernel, tf.convert_to_tensor(self.inducing_variable.Z), X)
        terms = whitened_terms(found.uu, found.fu, tf.convert_to_tensor(self.q))
        return terms.mean, _at_least_zero(found.ff - terms.explained), terms.kl

    def prior_variance(self, Xnew: tf.Tensor) -> tf.Tensor:
        """Largest prior variance of the latents at the inputs, [].

        :param Xnew: features [N, D].
        """
        return tf.reduce_max(self.kernel(Xnew, full_cov=False))

    # The bound

    def bound(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The parts of the evidence lower bound, of which each reads every parameter once.

        E[log N(t_k | f, V)] for each class k is −½ (|t_k − m|² + P v)/V, [N, K], less a constant
        ½ P log 2πVL², []; the third is KL[q(u) ‖ p(u)], []. The first is at most 0, and largest for
        the class that is predicted.

        :param X: features [N, D].
        """
        code = self.likelihood.code
        V, P = code.noise_variance, code.num_outputs
        mean, variance, kl = self._terms(X)
        squares = _expected_squares(mean, variance, code.targets)
        constant = 0.5 * P * tf.math.log(2.0 * np.pi * V[0, 0] * tf.square(code.scale))
        return -0.5 / V * squares, constant, kl

    # The collapsed optimum

    def collapse(self, model: CollapsedClassifier) -> None:
        """Take over q(u), noise and λ of a collapsed model with this kernel and inducing inputs.

        :param model: with one noise for all outputs.
        """
        (q,) = model.whitened_posteriors()
        root = tf.linalg.cholesky(q.covariance(tf.eye(len(q.mean), dtype=q.mean.dtype))[0])
        self.q.assign(tf.concat([q.mean, root], axis=1))
        code = self.likelihood.code
        code.base_noise.assign(model.code.noise_variance)
        code.sharpness.assign(model.code.scale)

    def snapshot(self) -> Snapshot:
        """What predictions need."""
        Z = tf.convert_to_tensor(self.inducing_variable.Z)
        L_inv = triangular_inverse(tf.linalg.cholesky(jittered(self.kernel(Z))))
        root = tf.transpose(self.q_sqrt)[None]
        return Snapshot(self.kernel, Z, L_inv, self.q_mu, root, self.likelihood.code.scale)


# Gradients in closed form, for a step is a few products and many small operations


@tf.custom_gradient
def _expected_squares(
    mean: tf.Tensor, variance: tf.Tensor, targets: tf.Tensor
) -> tuple[tf.Tensor, Any]:
    """E|t_k − f|² = |t_k − m|² + P v for f ~ N(m, v I) and each target, [N, K].

    :param mean: m, [N, P].
    :param variance: v, [N, 1].
    :param targets: [K, P]; constants.
    """
    P = float(targets.shape[1])
    squares = tf.reduce_sum(tf.square(targets), axis=1) + P * variance
    squares += tf.reduce_sum(tf.square(mean), axis=1, keepdims=True)
    squares -= 2.0 * tf.matmul(mean, targets, transpose_b=True)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, None]:
        total = tf.reduce_sum(upstream, axis=1, keepdims=True)
        return 2.0 * (total * mean - tf.matmul(upstream, targets)), P * total, None

    return tf.maximum(squares, 0.0), gradient  # rounding may leave less than nothing


@tf.custom_gradient
def _at_least_zero(variance: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """A variance that rounding may have left below 0; the gradient is that of the exact one."""
    return tf.maximum(variance, 0.0), lambda upstream: upstream
