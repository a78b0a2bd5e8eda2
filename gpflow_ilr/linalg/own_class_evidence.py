r"""The log evidence of outputs whose noises differ on the rows of one class only.

With Dirichlet's code a row has one noise variance o for the output of its own class and a larger one h
for all others. The covariances of the outputs are then all but the same,

    A_p = A − E_p Δ E_pᵀ,   A = K + diag h,   Δ = diag(h − o),

where E_p picks the rows of class p. Classes do not overlap, so that one factor of A, and one of

    M = I − Δ^½ (C ∘ [same class]) Δ^½,   C = A⁻¹,

which is block-diagonal but for the order of rows, serve all P outputs, where each would need a
factorisation of its own:

    log|A_p| = log|A| + log|M_p|,   A_p⁻¹ = C + C E_p Δ^½ M_p⁻¹ Δ^½ E_pᵀ C.

M is well conditioned: its eigenvalues are between the least o/h and one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes

from gpflow_ilr.linalg.inverse_factors import inverse_cholesky

__all__ = ["own_class_log_evidence"]

_CHANGED = (
    "The noise of a row must be the same for all classes but its own, where it is less. The table of "
    "noises has changed since the evidence was compiled: compile it again. Numerics"
)


@check_shapes("K: [N, N]", "Y: [N, P]", "V: [N, P]", "E: [N, P]", "return: []")
def own_class_log_evidence(K: tf.Tensor, Y: tf.Tensor, V: tf.Tensor, E: tf.Tensor) -> tf.Tensor:
    """Σ_p log N(y_p | 0, K + diag V_p), as :func:`.evidence.dense_log_evidence` has it.

    With C_p = A_p⁻¹ and α_p = C_p y_p: dK = ½ Σ_p (α_p α_pᵀ − C_p), dV_p = ½ (α_p² − diag C_p) and
    dy_p = −α_p.

    :param K: covariance shared by all outputs.
    :param Y: one column for each output; at least two.
    :param V: noise variances: one number in each row, but for a smaller one where E is one.
    :param E: one where an output is that of the row's class, and zero elsewhere.
    """
    num_outputs = tf.cast(tf.shape(Y)[1], Y.dtype)

    @tf.custom_gradient
    def evidence(K: tf.Tensor, Y: tf.Tensor, V: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        others, own = tf.reduce_max(V, axis=1), tf.reduce_min(V, axis=1)
        W = inverse_cholesky(tf.linalg.set_diag(K, tf.linalg.diag_part(K) + others), "K + V")
        C = W.inverse()
        root = tf.sqrt(others - own)[:, None]
        F = root * E
        # Only its lower triangle is read.
        M = -C * tf.matmul(F, F, transpose_b=True)
        W_M = inverse_cholesky(tf.linalg.set_diag(M, 1.0 + tf.linalg.diag_part(M)), "K + V")
        alpha = tf.matmul(C, Y)
        z = W_M.solve(tf.reduce_sum(F * alpha, axis=1, keepdims=True))
        alpha += tf.matmul(C, F * z)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            X = W_M.product(root * C)  # row i is of one class, that of row i
            inverses = num_outputs * C + tf.matmul(X, X, transpose_a=True)
            dK = tf.matmul(alpha, alpha, transpose_b=True) - inverses
            diagonals = tf.linalg.diag_part(C)[:, None] + tf.matmul(
                tf.square(X), E, transpose_a=True
            )
            half = 0.5 * upstream
            return half * dK, -upstream * alpha, half * (tf.square(alpha) - diagonals)

        log_det = num_outputs * W.log_determinant() + W_M.log_determinant()
        expected = tf.where(E > 0.0, own[:, None], others[:, None])
        fits = tf.where(tf.reduce_all(expected == V), 0.0, np.nan)
        fits = tf.debugging.check_numerics(tf.cast(fits, Y.dtype), _CHANGED)
        return fits - 0.5 * (tf.reduce_sum(Y * alpha) + log_det), gradient

    constant = tf.cast(tf.size(Y), Y.dtype) * np.log(2 * np.pi)
    return evidence(K, Y, V) - 0.5 * constant
