"""Whitened features of a batch with few operations: in a small step it is their number that costs.

A step of a head with some dozen inducing inputs takes microseconds of arithmetic and as long again for
every operation that TensorFlow starts. So the two functions here have gradients of their own, with two
products each, where automatic ones have dozens of operations.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from gpflow.kernels import Kernel, SquaredExponential

from gpflow_ilr.linalg.inverse_factors import triangular_inverse
from gpflow_ilr.linalg.jitter import relative_jitter

__all__ = ["covariance_with_points", "whitened_features", "whitening_factor"]


def covariance_with_points(kernel: Kernel, Z: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
    """[K_uu, K_uf], [M, M + N]: both matrices by one pass of operations.

    :param kernel: any single-output kernel.
    :param Z: [M, D].
    :param X: [N, D].
    """
    U = tf.concat([Z, X], axis=0)
    if type(kernel) is not SquaredExponential or not isinstance(kernel.active_dims, slice):
        K = kernel(Z, U)
    else:
        scaled = U / tf.convert_to_tensor(kernel.lengthscales)
        K = tf.convert_to_tensor(kernel.variance) * _gaussians(scaled, Z.shape[0])
    K.set_shape([Z.shape[0], None])  # which is lost where the number of rows is unknown
    return K


def _gaussians(U: tf.Tensor, M: int) -> tf.Tensor:
    """exp(−½ ‖u_i − u_j‖²) between the first M rows and all, [M, n]."""

    @tf.custom_gradient
    def gaussians(U: tf.Tensor) -> tuple[tf.Tensor, Any]:
        Z = U[:M]
        norms = 0.5 * tf.reduce_sum(tf.square(U), axis=1)
        exponent = tf.matmul(Z, U, transpose_b=True) - norms - norms[:M, None]
        K = tf.exp(tf.minimum(exponent, 0.0))  # rounding may leave more than 0

        def gradient(dK: tf.Tensor) -> tf.Tensor:
            G = dK * K
            dU = tf.matmul(G, Z, transpose_a=True) - tf.reduce_sum(G, axis=0)[:, None] * U
            dZ = tf.matmul(G, U) - tf.reduce_sum(G, axis=1)[:, None] * Z
            return tf.concat([dU[:M] + dZ, dU[M:]], axis=0)

        return K, gradient

    return gaussians(U)


@tf.custom_gradient
def whitened_features(K: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """A = L⁻¹ K_uf with L Lᵀ = K_uu + jitter · mean(diag K_uu) · I, [M, N].

    With W = dA Aᵀ and Φ(W) its lower triangle, the diagonal halved, dK_uf = L⁻ᵀ dA and
    dK_uu = −½ L⁻ᵀ (Φ(W) + Φ(W)ᵀ) L⁻¹, each entry of a symmetric pair by itself.

    :param K: [K_uu, K_uf], [M, M + N].
    """
    M, jitter = K.shape[0], relative_jitter()  # which gradients, taken elsewhere, would not know
    L_inv = triangular_inverse(
        whitening_factor(K[:, :M])
    )  # of which products are the faster solves
    A = tf.matmul(L_inv, K[:, M:])

    def gradient(dA: tf.Tensor) -> tf.Tensor:
        lower = tf.linalg.band_part(tf.matmul(dA, A, transpose_b=True), -1, 0)
        both = 0.5 * (lower + tf.transpose(lower))
        both = tf.linalg.set_diag(both, 0.5 * tf.linalg.diag_part(lower))
        dK_uu = -tf.matmul(L_inv, tf.matmul(both, L_inv), transpose_a=True)
        share = jitter * tf.linalg.trace(dK_uu) / M
        dK_uu += tf.linalg.diag(tf.fill([M], share))
        return tf.concat([dK_uu, tf.matmul(L_inv, dA, transpose_a=True)], axis=1)

    return A, gradient


def whitening_factor(K_uu: tf.Tensor) -> tf.Tensor:
    """L, as collapsed models have it, [M, M].

    :param K_uu: [M, M].
    """
    diagonal = tf.linalg.diag_part(K_uu)
    jitter = relative_jitter() * tf.reduce_mean(diagonal)
    return tf.linalg.cholesky(tf.linalg.set_diag(K_uu, diagonal + jitter))
