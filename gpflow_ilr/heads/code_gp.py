"""The GP of ``GPHead(objective="code")``: pseudo-targets in closed form, at little cost.

This is :class:`~gpflow_ilr.CodeSVGP` with one covariance of q(u) for all latents, which is what its
optimum has: noise, kernel and inputs do not differ between them. A step has one M × M factor and one
product more than a Dense layer of M units, and no nodes. Latents are in the code's units.
"""

from __future__ import annotations

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
from gpflow_ilr.heads.whitening import (
    covariance_with_points,
    whitened_features,
    whitening_factor,
)
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
        self.q_mu = Parameter(np.zeros([len(Z), code.num_outputs]), dtype=default_float())
        self.q_sqrt = Parameter(np.eye(len(Z)), dtype=default_float())

    @property
    def root(self) -> tf.Tensor:
        """S, lower triangular, [M, M]: the covariance of the whitened q(u) is S Sᵀ."""
        return tf.linalg.band_part(tf.convert_to_tensor(self.q_sqrt), -1, 0)

    def predict_marginals(self, Xnew: tf.Tensor) -> MeanAndVariance:
        """Mean [N, P] of the latents, and the variance [N, 1] that they share.

        :param Xnew: features [N, D].
        """
        X = as_inputs(Xnew, self.num_columns, "features")
        Z = tf.convert_to_tensor(self.inducing_variable.Z)
        A = whitened_features(covariance_with_points(self.kernel, Z, X))
        explained = tf.reduce_sum(tf.square(A), axis=0)
        both = tf.matmul(A, tf.concat([self.q_mu, self.root], axis=1), transpose_a=True)
        mean, spread = tf.split(both, [self.q_mu.shape[1], Z.shape[0]], axis=1)
        variance = tf.maximum(self.kernel(X, full_cov=False) - explained, 0.0)
        return mean, (variance + tf.reduce_sum(tf.square(spread), axis=1))[:, None]

    def prior_variance(self, Xnew: tf.Tensor) -> tf.Tensor:
        """Largest prior variance of the latents at the inputs, [].

        :param Xnew: features [N, D].
        """
        return tf.reduce_max(self.kernel(Xnew, full_cov=False))

    # The bound

    def expected_log_density(self, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
        """−½ (|t_k − m|² + P v)/V for each class k: E[log N(t_k | f, V)] less its constant, [N, K].

        At most 0, and largest for the class that is predicted.

        :param mean: m, [N, P].
        :param variance: v, [N, 1].
        """
        code = self.likelihood.code
        T = code.targets
        squares = tf.reduce_sum(tf.square(T), axis=1) - 2.0 * tf.matmul(mean, T, transpose_b=True)
        squares += tf.reduce_sum(tf.square(mean), axis=1, keepdims=True)
        squares = tf.maximum(squares, 0.0)  # rounding may leave less than nothing
        return -0.5 * (squares + code.num_outputs * variance) / code.noise_variance

    def constant(self) -> tf.Tensor:
        """½ P log 2πVL², [], the part of −E[log N(t | f, V)] that no row changes."""
        code = self.likelihood.code
        variance = 2.0 * np.pi * code.noise_variance[0, 0] * tf.square(code.scale)
        return 0.5 * code.num_outputs * tf.math.log(variance)

    def prior_kl(self) -> tf.Tensor:
        """KL[q(u) ‖ p(u)], []."""
        M, P = self.q_mu.shape
        S = self.root
        log_det = tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(S))))
        spread = tf.reduce_sum(tf.square(S)) - 2.0 * log_det - float(M)
        return 0.5 * (tf.reduce_sum(tf.square(self.q_mu)) + float(P) * spread)

    # The collapsed optimum

    def collapse(self, model: CollapsedClassifier) -> None:
        """Take over q(u), noise and λ of a collapsed model with this kernel and inducing inputs.

        :param model: with one noise for all outputs.
        """
        (q,) = model.whitened_posteriors()
        self.q_mu.assign(q.mean)
        self.q_sqrt.assign(
            tf.linalg.cholesky(q.covariance(tf.eye(len(q.mean), dtype=q.mean.dtype))[0])
        )
        code = self.likelihood.code
        code.base_noise.assign(model.code.noise_variance)
        code.sharpness.assign(model.code.scale)

    def snapshot(self) -> Snapshot:
        """What predictions need."""
        Z = tf.convert_to_tensor(self.inducing_variable.Z)
        L_inv = triangular_inverse(whitening_factor(self.kernel(Z)))
        root, q_mu = tf.transpose(self.root)[None], tf.convert_to_tensor(self.q_mu)
        return Snapshot(self.kernel, Z, L_inv, q_mu, root, self.likelihood.code.scale)
