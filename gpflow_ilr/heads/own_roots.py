"""Latents of a batch that each have a covariance of their own, with few operations.

As :mod:`.whitening`, for the q(u) of an ``ILRSVGP``: one product serves all latents, and the gradient
is two products of the same size. Mean, variance and KL read every parameter once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.kernels import MultioutputKernel

from gpflow_ilr.heads.whitening import covariance_gradient, covariances
from gpflow_ilr.linalg.inverse_factors import cholesky_or_error, triangular_inverse
from gpflow_ilr.models import ILRSVGP

__all__ = ["LatentTerms", "latent_terms", "rooted_terms"]


class LatentTerms(NamedTuple):
    """Mean and variance of the latents, and KL[q(u) ‖ p(u)]."""

    mean: tf.Tensor  # [N, P]
    variance: tf.Tensor  # [N, P]
    kl: tf.Tensor  # []


def latent_terms(gp: ILRSVGP, X: tf.Tensor) -> LatentTerms:
    """What a training step of a head needs of its GP: ``predict_f`` and ``prior_kl`` in one.

    :param gp: the GP of a head: whitened, without a mean function, each covariance a full matrix.
    :param X: features [N, D], of the GP's dtype.
    """
    if isinstance(gp.kernel, MultioutputKernel):
        return LatentTerms(*gp.predict_f(X), gp.prior_kl())
    found = covariances(gp.kernel, tf.convert_to_tensor(gp.inducing_variable.Z), X)
    q_mu, q_sqrt = (tf.convert_to_tensor(p) for p in (gp.q_mu, gp.q_sqrt))
    terms = rooted_terms(found.uu, found.fu, q_mu, q_sqrt)
    return terms._replace(variance=found.ff + terms.variance)


def rooted_terms(
    K_uu: tf.Tensor, K_fu: tf.Tensor, q_mu: tf.Tensor, q_sqrt: tf.Tensor
) -> LatentTerms:
    """Latents with a root S_p each, and q's distance from the prior; variances less their prior's.

    With L Lᵀ = K_uu and A = K_fu L⁻ᵀ the mean is A m, and the variance of latent p at row n is
    |S_pᵀ a_n|² − |a_n|² more than the prior's. Let dm and dv be the gradients that come in for them,
    B_p = A S_p, and Φ(W) the lower triangle of W, its diagonal halved:

        dB_p = 2 diag(dv_p) B_p,      dS_p = Aᵀ dB_p,
        dA = dm mᵀ + Σ_p dB_p S_pᵀ − 2 diag(Σ_p dv_p) A,      dK_fu = dA L⁻¹,
        dK_uu = −L⁻ᵀ Φ(dAᵀ A) L⁻¹,

    where dK_uu counts an entry and its mirror image together.

    :param K_uu: [M, M], with jitter.
    :param K_fu: [N, M].
    :param q_mu: mean m of the whitened q(u), [M, P].
    :param q_sqrt: lower triangular roots of its covariances, [P, M, M].
    """
    M, P = q_mu.shape

    @tf.custom_gradient
    def forward(
        K_uu: tf.Tensor, K_fu: tf.Tensor, m: tf.Tensor, S: tf.Tensor
    ) -> tuple[LatentTerms, Any]:
        L_inv = triangular_inverse(cholesky_or_error(K_uu, "K_uu"))
        A = tf.matmul(K_fu, L_inv, transpose_b=True)
        roots = tf.reshape(tf.transpose(S, [1, 0, 2]), [M, P * M])  # side by side
        B = tf.reshape(tf.matmul(A, roots), [-1, P, M])
        variance = tf.reduce_sum(tf.square(B), axis=2)
        variance -= tf.reduce_sum(tf.square(A), axis=1, keepdims=True)
        diagonal = tf.linalg.diag_part(S)
        logarithms = tf.reduce_sum(tf.math.log(tf.abs(diagonal)))
        kl = tf.nn.l2_loss(m) + tf.nn.l2_loss(S) - logarithms - 0.5 * P * M

        def gradient(dm: tf.Tensor, dv: tf.Tensor, dkl: tf.Tensor) -> tuple[tf.Tensor, ...]:
            twice = 2.0 * dv
            dB = tf.reshape(twice[:, :, None] * B, [-1, P * M])
            both = tf.concat([dm, dB], axis=1)  # for one product instead of two, twice
            dA = tf.matmul(both, tf.concat([m, roots], axis=1), transpose_b=True)
            dA -= tf.reduce_sum(twice, axis=1, keepdims=True) * A
            dK_uu = covariance_gradient(L_inv, tf.matmul(dA, A, transpose_a=True))
            dq = tf.matmul(A, both, transpose_a=True)
            dS = tf.transpose(tf.reshape(dq[:, P:], [M, P, M]), [1, 0, 2])
            dS = tf.linalg.band_part(dS, -1, 0)
            dS += dkl * (S - tf.linalg.diag(1.0 / diagonal))
            return dK_uu, tf.matmul(dA, L_inv), dq[:, :P] + dkl * m, dS

        return LatentTerms(tf.matmul(A, m), variance, kl), gradient

    return LatentTerms(*forward(K_uu, K_fu, q_mu, q_sqrt))
