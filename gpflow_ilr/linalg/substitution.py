"""Solving with a triangular factor, mostly by products.

A factor L that is kept for many solutions has its diagonal blocks D_i inverted, and stays as it is
below them. A strip of X = L⁻¹ B after the other is then

    X_i = D_i⁻¹ (B_i − Σ_{j<i} L_ij X_j),

which are products, as they would be with the whole of L⁻¹, but that takes as long as the
factorisation itself to compute.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_ilr.linalg.inverse_factors import block_edges, has_values_on_cpu

__all__ = ["LARGE_SOLVE", "substituted"]

LARGE_SOLVE = 2048
"""Factors of this size or more are multiplied by NumPy where it can: BLAS reached 90 to 150 Gflop/s,
TensorFlow 60 to 80 (AMD EPYC, two cores, float64)."""


def substituted(S: tf.Tensor, B: tf.Tensor) -> tf.Tensor:
    """L⁻¹ B, [..., M, n].

    :param S: L with its diagonal blocks inverted, [..., M, M].
    :param B: [..., M, n].
    """
    by_blas = has_values_on_cpu(S) and S.shape[-1] >= LARGE_SOLVE
    return _by_blas(S, B) if by_blas else _by_tensorflow(S, B)


def _by_tensorflow(S: tf.Tensor, B: tf.Tensor) -> tf.Tensor:
    if S.shape[-1] is None:  # then the factor is one block
        return tf.matmul(S, B)
    X: list[tf.Tensor] = []
    for start, stop in pairwise(block_edges(S.shape[-1])):
        rest = B[..., start:stop, :]
        if X:
            solved = X[0] if len(X) == 1 else tf.concat(X, axis=-2)
            rest -= tf.matmul(S[..., start:stop, :start], solved)
        X.append(tf.matmul(S[..., start:stop, start:stop], rest))
    return X[0] if len(X) == 1 else tf.concat(X, axis=-2)


@tf.custom_gradient
def _by_blas(S: tf.Tensor, B: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
    def gradient(G: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([S, B])
            X = _by_tensorflow(S, B)
        return tape.gradient(X, [S, B], G)

    factor = np.asarray(S)  # the tensor's own memory
    leading = np.broadcast_shapes(S.shape[:-2], B.shape[:-2])
    X = np.array(np.broadcast_to(B, [*leading, *B.shape[-2:]]))
    for start, stop in pairwise(block_edges(S.shape[-1])):
        X[..., start:stop, :] -= np.matmul(factor[..., start:stop, :start], X[..., :start, :])
        X[..., start:stop, :] = np.matmul(
            factor[..., start:stop, start:stop], X[..., start:stop, :]
        )
    return tf.constant(X), gradient
