"""Gaussian regression of each row on a few rows of its own, all of them at once.

A row with covariance k to its m neighbours S, whose joint covariance is K and whose targets have
noise V, is predicted with weights w = (K + V)⁻¹ k: mean wᵀ t_S and variance k** − wᵀ k. The weights do
not know the targets, so one m × m factor serves all outputs that share their noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from check_shapes import check_shapes

from gpflow_ilr.linalg.inverse_factors import cholesky_or_error
from gpflow_ilr.linalg.jitter import least_noise

__all__ = ["LocalPrediction", "local_weights", "nested_weights"]


class LocalPrediction(NamedTuple):
    """How rows are predicted from their neighbours."""

    weights: tf.Tensor
    """w, [n, U, m]: a row of weights for each distinct noise."""
    variance: tf.Tensor
    """k** − wᵀ k, [n, U]."""


@check_shapes("K: [n, q, q]  # q = 1 + m", "V: [n, U, m]")
def local_weights(K: tf.Tensor, V: tf.Tensor) -> LocalPrediction:
    """Each row predicted from all its neighbours.

    With an adjoint dw and u = (K + V)⁻¹ dw: d(K + V) = −½ (u wᵀ + w uᵀ), dk = u. So the gradient needs
    two more triangular solves, and none through a factorisation.

    :param K: joint covariance of the row itself, which is the first, and of its neighbours.
    :param V: noise variances of the neighbours; U is 1 or the number of outputs.
    """
    A, k = _noisy_and_cross_covariance(K, V)

    @tf.custom_gradient
    def solve(A: tf.Tensor, k: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        L = cholesky_or_error(A, "K + V of a row's neighbours")
        w = tf.linalg.cholesky_solve(L, k)

        def gradient(dw: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            u = tf.linalg.cholesky_solve(L, dw)
            outer = tf.matmul(u, w, transpose_b=True)
            return -0.5 * (outer + tf.linalg.matrix_transpose(outer)), u

        return w, gradient

    return _prediction(K, k, solve(A, k))


@check_shapes("K: [n, q, q]  # q = 1 + m", "V: [n, U, m]")
def nested_weights(K: tf.Tensor, V: tf.Tensor, counts: Sequence[int]) -> list[LocalPrediction]:
    """Each row predicted from its first neighbours, for several numbers of them.

    The factor of the first c rows is the leading block of the factor of all: one serves every c.

    :param K: joint covariance of the row itself, which is the first, and of its neighbours.
    :param V: noise variances of the neighbours.
    :param counts: numbers of neighbours, none above m.
    """
    A, k = _noisy_and_cross_covariance(K, V)
    L = cholesky_or_error(A, "K + V of a row's neighbours")
    z = tf.linalg.triangular_solve(L, k)
    predictions = []
    for c in counts:
        block = L[..., :c, :c]
        w = tf.linalg.triangular_solve(block, z[..., :c, :], adjoint=True)
        predictions.append(_prediction(K, k[..., :c, :], w))
    return predictions


def _noisy_and_cross_covariance(K: tf.Tensor, V: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """K_SS + V, [n, U, m, m], and k, [n, U, m, 1]."""
    diagonal = tf.linalg.diag_part(K)[:, None, 1:]
    noisy = diagonal + tf.maximum(V, tf.stop_gradient(least_noise(diagonal)[..., None]))
    A, k = K[:, None, 1:, 1:], K[:, None, 1:, :1]
    if V.shape[1] != 1:
        A, k = (tf.repeat(x, tf.shape(V)[1], axis=1) for x in (A, k))
    return tf.linalg.set_diag(A, noisy), k


def _prediction(K: tf.Tensor, k: tf.Tensor, w: tf.Tensor) -> LocalPrediction:
    variance = K[:, None, 0, 0] - tf.reduce_sum(w * k, axis=[-2, -1])
    return LocalPrediction(w[..., 0], tf.maximum(variance, 0.0))
