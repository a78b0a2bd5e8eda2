"""The posterior of an SVGP, which predicts what its model does.

GPflow's keeps K⁻¹ − K⁻¹ S K⁻¹ and takes variances as k** − kᵀ(K⁻¹ − K⁻¹ S K⁻¹)k, a small difference of
large numbers: in float32 nothing is left of it (a variance of 0.005 came out as 0.99), and kernels of
large variance spoil it in float64. Here the factor L of K_uu is kept, and q in whitened coordinates, so
that with a = L⁻¹k the mean is aᵀm and the variance k** − aᵀa + |Sᵀa|², as in the model itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, MeanAndVariance
from gpflow.conditionals.util import expand_independent_outputs
from gpflow.covariances import Kuf
from gpflow.kernels import MultioutputKernel
from gpflow.posteriors import PrecomputeCacheType

from gpflow_ilr.inputs.model_parts import check_float
from gpflow_ilr.inputs.rows import as_inputs
from gpflow_ilr.models.shared_marginals import factor_of_inducing, shared_marginals

if TYPE_CHECKING:
    from gpflow_ilr.models.svgp import ClassifierSVGP

__all__ = ["SVGPPosterior"]


class SVGPPosterior(tf.Module):
    """Stands in for GPflow's posterior.

    Where latents have kernels of their own nothing is kept: each prediction is the model's.

    :param model: the model, whose present parameters count.
    :param precompute_cache: how to keep what predictions need of q(u) and the inducing inputs.
    """

    def __init__(self, model: ClassifierSVGP, precompute_cache: PrecomputeCacheType) -> None:
        super().__init__()
        self.model = model
        self.cache: tuple[tf.Tensor, ...] | None = None
        self._kind = precompute_cache
        self.update_cache()

    def update_cache(self, precompute_cache: PrecomputeCacheType | None = None) -> None:
        """Compute what is kept anew, from the model's present parameters.

        :param precompute_cache: how to keep it; as before if None.
        """
        self._kind = self._kind if precompute_cache is None else precompute_cache
        shared = not isinstance(self.model.kernel, MultioutputKernel)
        if self._kind == PrecomputeCacheType.NOCACHE or not shared:
            self.cache = None
            return
        L = factor_of_inducing(self.model.inducing_variable, self.model.kernel)
        mean, root = (tf.convert_to_tensor(x) for x in (self.model.q_mu, self.model.q_sqrt))
        if root.shape.rank == 2:  # q_diag
            root = tf.linalg.diag(tf.transpose(root))
        if not self.model.whiten:
            mean = tf.linalg.triangular_solve(L, mean)
            root = tf.linalg.triangular_solve(tf.broadcast_to(L, tf.shape(root)), root)
        values = (L, mean, root)
        if self._kind == PrecomputeCacheType.TENSOR:
            self.cache = values
        elif self.cache is not None and isinstance(self.cache[0], tf.Variable):
            for kept, value in zip(self.cache, values, strict=True):
                kept.assign(value)  # and so compiled functions see it
        else:
            self.cache = tuple(tf.Variable(value, trainable=False) for value in values)

    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of the latent functions.

        :param Xnew: new inputs.
        :param full_cov: whether to return covariances between rows.
        :param full_output_cov: whether to return covariances between latents.
        """
        check_float(self.model)
        return self._predict_f(as_inputs(Xnew, self.model.num_columns), full_cov, full_output_cov)

    @check_shapes(
        "X: [batch..., N, D]",
        "return[0]: [batch..., N, P]",
        "return[1]: [batch..., N, P] if (not full_cov) and (not full_output_cov)",
    )
    def _predict_f(self, X: tf.Tensor, full_cov: bool, full_output_cov: bool) -> MeanAndVariance:
        if self.cache is None or X.shape.rank != 2:
            return self.model.predict_f(X, full_cov, full_output_cov)
        L, m, S = self.cache
        kernel, inducing = self.model.kernel, self.model.inducing_variable
        if full_cov:
            A = tf.linalg.triangular_solve(L, Kuf(inducing, kernel, X))
            B = tf.matmul(S, A[None], transpose_a=True)  # [P, M, N]
            residual = kernel(X, full_cov=True) - tf.matmul(A, A, transpose_a=True)
            mean = tf.matmul(A, m, transpose_a=True)
            covariance = residual + tf.matmul(B, B, transpose_a=True)
        else:
            mean, covariance = shared_marginals(X, kernel, inducing, m, S, whiten=True, factor=L)
        mean += self.model.mean_function(X)
        return mean, expand_independent_outputs(covariance, full_cov, full_output_cov)

    fused_predict_f = predict_f
