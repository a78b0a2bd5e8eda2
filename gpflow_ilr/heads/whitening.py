"""Latents of a batch with few operations: in a small step it is their number that costs.

A step of a head with some dozen inducing inputs takes microseconds of arithmetic and as long again for
every operation that TensorFlow starts. So the functions here have gradients of their own, in a few
products, where automatic ones have dozens of operations. Rows are never transposed, nor put together
with the inducing inputs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.kernels import Kernel, SquaredExponential

from gpflow_ilr.linalg.inverse_factors import triangular_inverse
from gpflow_ilr.linalg.jitter import relative_jitter

__all__ = [
    "Covariances",
    "WhitenedTerms",
    "covariance_gradient",
    "covariances",
    "jittered",
    "whitened_terms",
]


class Covariances(NamedTuple):
    """Of inducing inputs, of rows with them, and the variances of the rows."""

    uu: tf.Tensor  # [M, M], with jitter
    fu: tf.Tensor  # [N, M]
    ff: tf.Tensor  # [N, 1] or []


class WhitenedTerms(NamedTuple):
    """Mean of the latents, what q takes from their prior variance, and KL[q(u) ‖ p(u)]."""

    mean: tf.Tensor  # [N, P]
    explained: tf.Tensor  # [N, 1]
    kl: tf.Tensor  # []


def covariances(kernel: Kernel, Z: tf.Tensor, X: tf.Tensor) -> Covariances:
    """K_uu with jitter · mean(diag K_uu) on its diagonal, K_fu, and the diagonal of K_ff.

    :param kernel: any single-output kernel.
    :param Z: [M, D].
    :param X: [N, D].
    """
    if type(kernel) is not SquaredExponential or not isinstance(kernel.active_dims, slice):
        return Covariances(jittered(kernel(Z)), kernel(X, Z), kernel(X, full_cov=False)[:, None])
    lengthscales, variance = (
        tf.convert_to_tensor(p) for p in (kernel.lengthscales, kernel.variance)
    )
    if lengthscales.shape.rank > 0:
        Z, X, lengthscales = Z / lengthscales, X / lengthscales, tf.ones([], Z.dtype)
    K_uu, K_fu = _gaussians(Z, X, 1.0 / tf.square(lengthscales), tf.math.log(variance))
    diagonal = 1.0 + relative_jitter() * tf.eye(Z.shape[0], dtype=Z.dtype)
    return Covariances(diagonal * K_uu, K_fu, variance)


@tf.custom_gradient
def _gaussians(
    Z: tf.Tensor, X: tf.Tensor, gamma: tf.Tensor, log_variance: tf.Tensor
) -> tuple[tuple[tf.Tensor, tf.Tensor], Any]:
    """exp(log σ² − ½ γ ‖z_i − z_j‖²), [M, M], and exp(log σ² − ½ γ ‖x_i − z_j‖²), [N, M].

    Everything of the size of X is multiplied by γ as late, or as small, as can be.
    """
    scaled = gamma * Z
    of_z = 0.5 * tf.reduce_sum(Z * scaled, axis=1, keepdims=True)
    of_x = 0.5 * gamma * tf.reduce_sum(tf.square(X), axis=1, keepdims=True)
    across = log_variance - tf.reshape(of_z, [-1])
    exponents = [
        tf.matmul(U, scaled, transpose_b=True) + across - norms
        for U, norms in ((Z, of_z), (X, of_x))
    ]
    K_uu, K_fu = (tf.exp(exponent) for exponent in exponents)

    def gradient(dK_uu: tf.Tensor, dK_fu: tf.Tensor) -> tuple[tf.Tensor, ...]:
        G_uu, G_fu = dK_uu * K_uu, dK_fu * K_fu
        of_rows = tf.reduce_sum(G_fu, axis=1, keepdims=True)
        of_points = sum(tf.reduce_sum(G, axis=0) for G in (G_uu, G_fu)) + tf.reduce_sum(
            G_uu, axis=1
        )
        dX = tf.matmul(G_fu, scaled) - gamma * of_rows * X
        dZ = tf.matmul(G_fu, X, transpose_a=True) + tf.matmul(G_uu, Z, transpose_a=True)
        dZ = gamma * (dZ + tf.matmul(G_uu, Z) - of_points[:, None] * Z)
        pairs = zip((G_uu, G_fu), exponents, strict=True)
        squares = sum(tf.reduce_sum(G * (e - log_variance)) for G, e in pairs)
        return dZ, dX, squares / gamma, tf.reduce_sum(G_uu) + tf.reduce_sum(of_rows)

    return (K_uu, K_fu), gradient


def whitened_terms(K_uu: tf.Tensor, K_fu: tf.Tensor, q: tf.Tensor) -> WhitenedTerms:
    """Latents that share q's covariance, and q's distance from the prior.

    With L Lᵀ = K_uu, A = K_fu L⁻ᵀ and Q = I − S Sᵀ the mean is A m, what q takes from the variance are
    the sums of the rows of A ∘ AQ, and KL = ½ (|m|² + P (|S|² − log|S Sᵀ| − M)). Let dm and de be the
    gradients that come in for the first two, and Φ(W) the lower triangle of W, its diagonal halved:

        G = Aᵀ diag(de) A,      dS = −2 G S,      dq = Aᵀ dm,
        dA = dm mᵀ + 2 diag(de) AQ,      dK_fu = dA L⁻¹,
        dK_uu = −L⁻ᵀ Φ(W) L⁻¹   with   W = dAᵀ A = m dqᵀ + 2 Q G,

    where dK_uu counts an entry and its mirror image together.

    :param K_uu: [M, M], with jitter.
    :param K_fu: [N, M].
    :param q: mean m and root S of the whitened q(u) side by side, [M, P + M]; of the root the lower
        triangle counts.
    """
    M, P = q.shape[0], q.shape[1] - q.shape[0]
    identity = tf.eye(M, dtype=q.dtype)
    lower = tf.linalg.band_part(tf.ones_like(identity), -1, 0)
    counts = tf.constant(P * [1.0] + M * [float(P)], q.dtype)  # how often KL has a column's squares

    @tf.custom_gradient
    def forward(K_uu: tf.Tensor, K_fu: tf.Tensor, q: tf.Tensor) -> tuple[WhitenedTerms, Any]:
        m, S = q[:, :P], lower * q[:, P:]
        L_inv = triangular_inverse(tf.linalg.cholesky(K_uu))  # products are faster than solves
        A = tf.matmul(K_fu, L_inv, transpose_b=True)
        Q = identity - tf.matmul(S, S, transpose_b=True)
        AQ = tf.matmul(A, Q)
        diagonal, weighted = tf.linalg.diag_part(S), counts * tf.concat([m, S], axis=1)
        logarithms = tf.reduce_sum(tf.math.log(tf.abs(diagonal)))
        kl = 0.5 * tf.reduce_sum(weighted * q) - P * (logarithms + 0.5 * M)
        explained = tf.reduce_sum(A * AQ, axis=1, keepdims=True)

        def gradient(dm: tf.Tensor, de: tf.Tensor, dkl: tf.Tensor) -> tuple[tf.Tensor, ...]:
            minus = -2.0 * de
            G = tf.matmul(A, minus * A, transpose_a=True)  # times −2
            dq = tf.matmul(A, dm, transpose_a=True)
            dA = tf.matmul(dm, m, transpose_b=True) - minus * AQ
            W = tf.matmul(m, dq, transpose_b=True) - tf.matmul(Q, G)
            dK_uu = covariance_gradient(L_inv, W)
            dS = lower * tf.matmul(G, S) - identity * (P * dkl / diagonal)
            return dK_uu, tf.matmul(dA, L_inv), dkl * weighted + tf.concat([dq, dS], axis=1)

        return WhitenedTerms(tf.matmul(A, m), explained, kl), gradient

    return WhitenedTerms(*forward(K_uu, K_fu, q))


def covariance_gradient(L_inv: tf.Tensor, W: tf.Tensor) -> tf.Tensor:
    """dK_uu = −L⁻ᵀ Φ(W) L⁻¹, where Φ halves the diagonal of the lower triangle, [M, M].

    :param L_inv: L⁻¹ of L Lᵀ = K_uu, [M, M].
    :param W: dAᵀA of A = K_fu L⁻ᵀ, [M, M].
    """
    identity = tf.eye(W.shape[0], dtype=W.dtype)
    minus_phi = 0.5 * identity - tf.linalg.band_part(tf.ones_like(identity), -1, 0)
    return tf.matmul(L_inv, tf.matmul(minus_phi * W, L_inv), transpose_a=True)


def jittered(K_uu: tf.Tensor) -> tf.Tensor:
    """K_uu with the jitter that collapsed models have, [M, M].

    :param K_uu: [M, M].
    """
    diagonal = tf.linalg.diag_part(K_uu)
    jitter = relative_jitter() * tf.reduce_mean(diagonal)
    return tf.linalg.set_diag(K_uu, diagonal + jitter)
