"""The collapsed (Titsias) bound and its posterior, from sufficient statistics.

With the group-wise sums of :mod:`gpflow_ilr.collapsed.statistics`, tables of targets T_g and noise
variances V,

    Λ_p = Σ_g G_g / V_gp,   B_p = I + Λ_p,   b_p = Σ_g S_g T_gp / V_gp,
    bound = Σ_p [ −½ Σ_g ( n_g log 2πV_gp + (T_gᵀ Q_g T_g)_pp / V_gp + r_g / V_gp )
                  − ½ log|B_p| + ½ b_pᵀ B_p⁻¹ b_p ],   r_g = κ_g − tr G_g,
    q(whitened u_p) = N(B_p⁻¹ b_p, B_p⁻¹).

The shape of V says what is shared: with a single group all B_p have the eigenvectors of G, and with
a single column there is one B for all outputs.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance

from gpflow_ilr.collapsed.statistics import GroupStatistics
from gpflow_ilr.linalg.evidence import (
    LARGE_EIGENBASIS,
    eigenbasis,
    spectral_log_evidence,
    whitened_log_evidence,
    whitened_solution,
)

__all__ = ["WhitenedPosterior", "collapsed_bound", "leave_one_out", "whitened_posterior"]


class WhitenedPosterior(NamedTuple):
    """q(whitened u_p) = N(mean_p, Rᵀ diag(w_p) R), in the form that predictions need."""

    L_inv: tf.Tensor
    """L_u⁻¹, [M, M], which whitens."""
    mean: tf.Tensor
    """B_p⁻¹ b_p, [M, P]."""
    rotation: tf.Tensor
    """R, [U, M, M]: one for all outputs, or one for each."""
    weights: tf.Tensor
    """w, [M, 1 or P]."""

    def variance(self, A: tf.Tensor) -> tf.Tensor:
        """aᵀ B_p⁻¹ a for each column of A, [..., n, 1 or P].

        :param A: whitened features, [..., M, n].
        """
        squares = tf.square(tf.matmul(self.rotation, A[..., None, :, :]))
        if self.rotation.shape[0] == 1:
            return tf.matmul(squares[..., 0, :, :], self.weights, transpose_a=True)
        return tf.linalg.matrix_transpose(tf.reduce_sum(squares * self.weights, axis=-2))

    def covariance(self, A: tf.Tensor) -> tf.Tensor:
        """Aᵀ B_p⁻¹ A, [..., 1 or P, n, n].

        :param A: whitened features, [..., M, n].
        """
        root = tf.linalg.matrix_transpose(tf.sqrt(self.weights))[..., None]  # [1 or P, M, 1]
        half = tf.matmul(self.rotation, A[..., None, :, :]) * root
        return tf.matmul(half, half, transpose_a=True)


def collapsed_bound(stats: GroupStatistics, T: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    """The bound on the log evidence, [].

    :param stats: sums over G groups.
    :param T: tables of targets, [G, C, P].
    :param V: noise variances, [G, 1 or P].
    """
    squares = tf.einsum("gcp,gcd,gdp->gp", T, stats.labels, T)
    residual = tf.maximum(stats.kernel_diagonal - tf.linalg.trace(stats.second), 0.0)
    rows = stats.count[:, None] * tf.math.log(2.0 * np.pi * V) + (squares + residual[:, None]) / V
    if V.shape[0] == 1 and V.shape[1] > 1:
        s = tf.matmul(stats.first[0], T[0])
        explained = spectral_log_evidence(stats.second[0], s, V[0])
    else:
        explained = whitened_log_evidence(*_precisions(stats, T, V))
    return explained - 0.5 * tf.reduce_sum(rows)


def whitened_posterior(
    L_inv: tf.Tensor,
    stats: GroupStatistics,
    T: tf.Tensor,
    V: tf.Tensor,
    differentiable: bool = False,
) -> WhitenedPosterior:
    """q(whitened u).

    :param L_inv: L_u⁻¹, [M, M].
    :param stats: sums over G groups.
    :param T: tables of targets, [G, C, P].
    :param V: noise variances, [G, 1 or P].
    :param differentiable: use Cholesky factors throughout. Otherwise a single group is treated in
        the eigenbasis of its G, which serves all outputs at once but has no safe gradient where
        eigenvalues coincide; a large G with one noise for all outputs is factorised, too, which is
        many times faster.
    """
    one_factor = V.shape[1] == 1 and L_inv.shape[-1] >= LARGE_EIGENBASIS
    if V.shape[0] == 1 and not differentiable and not one_factor:
        g, U = eigenbasis(stats.second[0])
        total = g[:, None] + V
        s = tf.matmul(U, tf.matmul(stats.first[0], T[0]), transpose_a=True)
        return WhitenedPosterior(L_inv, tf.matmul(U, s / total), tf.transpose(U)[None], V / total)
    W, mean = whitened_solution(*_precisions(stats, T, V))
    weights = tf.ones([tf.shape(mean)[1], 1], mean.dtype)
    return WhitenedPosterior(L_inv, tf.transpose(mean), W.dense(), weights)


def leave_one_out(
    mean: tf.Tensor, uncertainty: tf.Tensor, targets: tf.Tensor, V: tf.Tensor, residual: tf.Tensor
) -> MeanAndVariance:
    """Predictions of f_n without row n: (m − h t)/(1 − h) and c/(1 − h) + r, with h = c/v.

    :param mean: m = aᵀB⁻¹b, [n, P].
    :param uncertainty: c = aᵀB⁻¹a, [n, 1 or P].
    :param targets: t, [n, P].
    :param V: v, broadcasting to [n, P].
    :param residual: r = k_nn − aᵀa, [n, 1].
    """
    h = uncertainty / V
    # h < 1 in exact arithmetic; a row that alone determines f at its input comes within rounding.
    left = tf.maximum(1.0 - h, np.finfo(mean.dtype.as_numpy_dtype).eps)
    return (mean - h * targets) / left, uncertainty / left + residual


def _precisions(stats: GroupStatistics, T: tf.Tensor, V: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Λ, [1 or P, M, M], and b, [P, M]."""
    Lambda = tf.einsum("gmn,gu->umn", stats.second, 1.0 / V)
    return Lambda, tf.einsum("gmc,gcp->pm", stats.first, T / V[:, None, :])
