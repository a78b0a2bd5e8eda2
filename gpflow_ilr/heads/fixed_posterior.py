"""A sparse posterior that is no longer trained: what predictions need of it, and nothing else.

With a = L_u⁻¹ k_u(h) of a row's features h, the latents have mean s·mᵀa and variance
s²(k − aᵀa + |R a|²): of a collapsed model R is one matrix for all latents, whatever the number of
classes, and s is the sharpness L; of a variational one each latent has its own Rᵀ, the root of q.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance
from gpflow.config import default_float
from gpflow.covariances import Kuu
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel
from gpflow.models import SVGP
from gpflow.utilities import parameter_dict, set_trainable

from gpflow_ilr.collapsed.bound import WhitenedPosterior
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.heads.head_gp import HeadGP
from gpflow_ilr.inputs.rows import as_inputs
from gpflow_ilr.likelihoods import ILRLikelihood
from gpflow_ilr.linalg.covariances import inducing_covariance
from gpflow_ilr.linalg.inverse_factors import cholesky_or_error, triangular_inverse
from gpflow_ilr.linalg.jitter import absolute_jitter
from gpflow_ilr.models.collapsed import CollapsedClassifier

__all__ = ["FixedPosterior", "Snapshot", "snapshot"]


class Snapshot(NamedTuple):
    """The arrays of a posterior, beside its kernel's parameters."""

    kernel: Kernel
    """The kernel, with its parameters as they are."""
    Z: tf.Tensor
    """Inducing inputs, [M, D]."""
    L_inv: tf.Tensor
    """L_u⁻¹, [M, M], which whitens."""
    mean: tf.Tensor
    """m, [M, L]."""
    root: tf.Tensor
    """R, [1 or L, M, M]."""
    scale: tf.Tensor
    """s."""
    mixing: tf.Tensor | None = None
    """W, [K − 1, L], or None for the identity."""


def snapshot(model: CollapsedClassifier | SVGP, scale: float | tf.Tensor = 1.0) -> Snapshot:
    """What predictions need of a model with one kernel and one set of inducing inputs.

    :param model: a collapsed model, with one noise for all outputs, or a whitened SVGP.
    :param scale: a further factor of the latents.
    """
    scale = tf.cast(scale, default_float())
    if isinstance(model, CollapsedClassifier):
        (q,) = model.whitened_posteriors()
        root = tf.sqrt(q.weights)[None] * q.rotation
        Z = model.inducing_variable.Z
        return Snapshot(
            model.kernel, Z, q.L_inv, q.mean, root, scale * tf.reshape(model.code.scale, [])
        )
    K_uu = Kuu(model.inducing_variable, model.kernel)
    diagonal = tf.linalg.diag_part(K_uu)
    jitter = absolute_jitter(tf.reduce_mean(diagonal))
    L = cholesky_or_error(tf.linalg.set_diag(K_uu, diagonal + jitter), "K_uu")
    root = tf.linalg.matrix_transpose(tf.convert_to_tensor(model.q_sqrt))
    W = getattr(model.likelihood, "W", None)
    Z = model.inducing_variable.Z
    q_mu = tf.convert_to_tensor(model.q_mu)
    return Snapshot(model.kernel, Z, triangular_inverse(L), q_mu, root, scale, W)


class FixedPosterior(HeadGP):
    """Class probabilities from a posterior that stays what it is; predicts as a model does.

    It begins with zeros; :meth:`assign` gives it a posterior.

    :param kernel: a kernel of the structure of the posterior's.
    :param num_classes: K.
    :param shape: M, D, L and the number of roots, 1 or L.
    :param mixing: whether there is a mixing matrix W.
    :param nodes: node rule of the predictive probabilities.
    """

    def __init__(
        self,
        kernel: Kernel,
        num_classes: int,
        shape: tuple[int, int, int, int],
        mixing: bool = False,
        nodes: NodeRule | None = None,
    ) -> None:
        super().__init__()
        M, D, num_latent_gps, num_roots = shape
        self.kernel = kernel
        self.inducing_variable = InducingPoints(np.zeros([M, D]))
        self.likelihood = ILRLikelihood(num_classes, num_latent_gps, mixing or None, nodes)
        set_trainable(self, False)

        def zeros(*shape: int) -> tf.Variable:
            return tf.Variable(tf.zeros(shape, default_float()), trainable=False)

        self.L_inv, self.mean = zeros(M, M), zeros(M, num_latent_gps)
        self.root, self.scale = zeros(num_roots, M, M), zeros()

    def assign(self, posterior: Snapshot) -> None:
        """Take over a posterior.

        :param posterior: of the same shape, and with a kernel of the same structure.
        """
        mine, theirs = parameter_dict(self.kernel), parameter_dict(posterior.kernel)
        for path, parameter in mine.items():
            parameter.assign(tf.cast(theirs[path], default_float()))
        targets: list[tuple[Any, Any]] = [
            (self.inducing_variable.Z, posterior.Z),
            *(
                (getattr(self, n), getattr(posterior, n))
                for n in ("L_inv", "mean", "root", "scale")
            ),
        ]
        if posterior.mixing is not None:
            targets.append((self.likelihood.W, posterior.mixing))
        for mine, value in targets:
            mine.assign(tf.cast(tf.convert_to_tensor(value), default_float()))

    def predict_marginals(self, Xnew: Any) -> MeanAndVariance:
        """Mean [N, L] and variance [N, L] of the latents, or [N, 1] if they share it.

        :param Xnew: features [N, D].
        """
        X = as_inputs(Xnew, self.num_columns, "features")
        A = tf.matmul(self.L_inv, inducing_covariance(self.inducing_variable, self.kernel, X))
        ones = tf.ones([A.shape[0], 1], A.dtype)
        q = WhitenedPosterior(self.L_inv, self.mean, tf.convert_to_tensor(self.root), ones)
        residual = self.kernel(X, full_cov=False) - tf.reduce_sum(tf.square(A), axis=0)
        variance = tf.maximum(residual, 0.0)[:, None] + q.variance(A)
        mean = tf.matmul(A, self.mean, transpose_a=True)
        return self.scale * mean, tf.square(self.scale) * variance

    def prior_variance(self, Xnew: tf.Tensor) -> tf.Tensor:
        """Largest prior variance of the latents at the inputs, [].

        :param Xnew: features [N, D].
        """
        return tf.square(self.scale) * tf.reduce_max(self.kernel(Xnew, full_cov=False))
