"""Log evidences and leave-one-out of Gaussian regression, with gradients in closed form.

Differentiating through a Cholesky factorisation costs several times the factorisation itself and
keeps every intermediate alive. The functions here know their gradient, so value and gradient
together need one inverse factor (:mod:`gpflow_ilr.linalg.inverse_factors`) per distinct covariance,
and those of size N × N are in memory one at a time. They serve the exact model
(:func:`dense_log_evidence`, and :func:`inverse_diagonal_and_solution` for its leave-one-out
predictions) and the collapsed one (:func:`whitened_log_evidence`, and :func:`spectral_log_evidence`
where outputs differ by their noise alone); each treats outputs that share a covariance together.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from scipy.linalg import eigh

from gpflow_ilr.linalg.inverse_factors import InverseFactor, has_values_on_cpu, inverse_cholesky
from gpflow_ilr.linalg.jitter import absolute_jitter
from gpflow_ilr.linalg.row_chunks import stack_over

__all__ = [
    "LARGE_EIGENBASIS",
    "relative_inverse_cholesky",
    "spd_inverse",
    "inverse_diagonal_and_solution",
    "dense_log_evidence",
    "whitened_log_evidence",
    "whitened_solution",
    "eigenbasis",
    "spectral_log_evidence",
]

LARGE_EIGENBASIS = 1000
"""From this size on an eigenbasis is left to LAPACK, and replaced by a factor where one is enough."""


def relative_inverse_cholesky(K: tf.Tensor, name: str) -> tf.Tensor:
    """W = L⁻¹ for the Cholesky factor L of K + jitter · mean(diag K) · I, [M, M].

    :param K: [M, M], positive semi-definite.
    :param name: what K is, for the error.
    """
    diagonal = tf.linalg.diag_part(K)
    jitter = absolute_jitter(tf.reduce_mean(diagonal))
    return inverse_cholesky(tf.linalg.set_diag(K, diagonal + jitter), name).dense()


@tf.custom_gradient
def spd_inverse(A: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
    """C = A⁻¹ of a positive definite matrix, with the gradient dA = −C dC C.

    :param A: [..., M, M].
    """
    C = inverse_cholesky(A, "K + V").inverse()
    return C, lambda dC: -tf.matmul(C, tf.matmul(dC, C))


@check_shapes("A: [N, N]", "B: [N, P]", "return[0]: [N]", "return[1]: [N, P]")
def inverse_diagonal_and_solution(A: tf.Tensor, B: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The diagonal of C = A⁻¹, and α = C B: what leave-one-out needs of A.

    With gradients δ of the diagonal and γ of α: dB = C γ, dA = −C diag(δ) C − dB αᵀ, symmetrised.

    :param A: positive definite; only its lower triangle is read.
    :param B: one column for each output.
    """

    @tf.custom_gradient
    def terms(A: tf.Tensor, B: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Callable[..., Any]]:
        W = inverse_cholesky(A, "K + V")

        def gradient(d_diagonal: tf.Tensor, d_alpha: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            C = W.inverse()
            dB = tf.matmul(C, d_alpha)
            outer = tf.matmul(dB, tf.matmul(C, B), transpose_b=True)
            return -tf.matmul(C * d_diagonal, C) - 0.5 * (outer + tf.transpose(outer)), dB

        return (W.inverse_diagonal(), W.solve(B)), gradient

    return terms(A, B)


@check_shapes("K: [N, N]", "Y: [N, P]", "V: [N, U]  # U is 1 or P", "return: []")
def dense_log_evidence(K: tf.Tensor, Y: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    """Σ_p log N(y_p | 0, K + diag V_p), one Cholesky factor for each column of V.

    With C = (K + diag V)⁻¹ and α = C y: dK = ½ Σ (ααᵀ − C), dV = its diagonal, dy = −α.

    :param K: covariance shared by all outputs.
    :param Y: one column for each output.
    :param V: noise variances; a single column serves all outputs.
    """
    num_rows, num_outputs = tf.shape(Y)[0], tf.shape(Y)[1]
    shared = V.shape[1] == 1

    def column(p: tf.Tensor) -> tuple[tf.Tensor, InverseFactor, tf.Tensor]:
        """Targets, L⁻¹ and α of the outputs that column p of V governs."""
        targets = Y if shared else Y[:, p, None]
        W = inverse_cholesky(tf.linalg.set_diag(K, tf.linalg.diag_part(K) + V[:, p]), "K + V")
        return targets, W, W.solve(targets)

    @tf.custom_gradient
    def evidence(K: tf.Tensor, Y: tf.Tensor, V: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        def value(targets: tf.Tensor, W: InverseFactor, alpha: tf.Tensor) -> tf.Tensor:
            outputs = tf.cast(tf.shape(targets)[1], Y.dtype)
            return -0.5 * (tf.reduce_sum(targets * alpha) + outputs * W.log_determinant())

        def slope(targets: tf.Tensor, W: InverseFactor, alpha: tf.Tensor) -> tf.Tensor:
            outputs = tf.cast(tf.shape(targets)[1], Y.dtype)
            return 0.5 * (tf.matmul(alpha, alpha, transpose_b=True) - outputs * W.inverse())

        if shared:
            solved = column(tf.constant(0))

            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
                dK = upstream * slope(*solved)
                return dK, -upstream * solved[2], tf.linalg.diag_part(dK)[:, None]

            return value(*solved), gradient

        def gradient_by_column(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            # Factors are computed again, one at a time: P of them at once may not fit in memory.
            def step(p: tf.Tensor, dK: tf.Tensor, dVs: Any, alphas: Any) -> tuple[Any, ...]:
                solved = column(p)
                term = slope(*solved)
                dVs = dVs.write(p, tf.linalg.diag_part(term))
                return p + 1, dK + term, dVs, alphas.write(p, solved[2][:, 0])

            arrays = [tf.TensorArray(Y.dtype, size=num_outputs) for _ in range(2)]
            _, dK, dVs, alphas = tf.while_loop(
                lambda p, *_: p < num_outputs,
                step,
                (0, tf.zeros_like(K), *arrays),
                parallel_iterations=1,
            )
            dV, alpha = tf.transpose(dVs.stack()), tf.transpose(alphas.stack())
            return upstream * dK, -upstream * alpha, upstream * dV

        scalar = tf.TensorSpec([], Y.dtype)
        (values,) = stack_over(lambda p: [value(*column(p))], num_outputs, [scalar])
        return tf.reduce_sum(values), gradient_by_column

    constant = tf.cast(num_rows * num_outputs, Y.dtype) * np.log(2 * np.pi)
    return evidence(K, Y, V) - 0.5 * constant


@check_shapes("Lambda: [U, M, M]  # U is 1 or P", "b: [P, M]", "return: []")
def whitened_log_evidence(Lambda: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Σ_p (−½ log|B_p| + ½ b_pᵀ B_p⁻¹ b_p) with B = I + Λ.

    With β = B⁻¹ b: dΛ = −½ (B⁻¹ + ββᵀ), summed over the outputs that share Λ, and db = β.

    :param Lambda: precision that the data add to the whitened inducing variables.
    :param b: precision-weighted mean, one row for each output.
    """
    outputs = tf.cast(tf.shape(b)[0] // tf.shape(Lambda)[0], b.dtype)

    @tf.custom_gradient
    def evidence(Lambda: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        W, beta = whitened_solution(Lambda, b)
        log_det = tf.reduce_sum(W.log_determinant())

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            columns = _columns_of_factor(beta, tf.shape(Lambda)[0])
            dLambda = outputs * W.inverse() + tf.matmul(columns, columns, transpose_b=True)
            return -0.5 * upstream * dLambda, upstream * beta

        return 0.5 * (tf.reduce_sum(b * beta) - outputs * log_det), gradient

    return evidence(Lambda, b)


@check_shapes("Lambda: [U, M, M]", "b: [P, M]", "return[1]: [P, M]")
def whitened_solution(Lambda: tf.Tensor, b: tf.Tensor) -> tuple[InverseFactor, tf.Tensor]:
    """W = L⁻¹ for the Cholesky factor L of B = I + Λ, and β_p = B_p⁻¹ b_p.

    :param Lambda: U is 1 (all outputs share it) or P.
    :param b: one row for each output.
    """
    B = tf.linalg.set_diag(Lambda, tf.linalg.diag_part(Lambda) + 1.0)
    W = inverse_cholesky(B, "B = I + Λ")
    beta = W.solve(_columns_of_factor(b, tf.shape(Lambda)[0]))
    return W, tf.reshape(tf.linalg.matrix_transpose(beta), tf.shape(b))


def eigenbasis(G: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Eigenvalues g, [M], none below zero, and eigenvectors U, [M, M], of a G = U diag(g) Uᵀ.

    :param G: [M, M], positive semi-definite.
    """
    if G.shape[-1] >= LARGE_EIGENBASIS and has_values_on_cpu(G):
        # LAPACK's divide and conquer runs on all cores, TensorFlow's iterations on one.
        g, U = map(tf.constant, eigh(G.numpy(), driver="evd", check_finite=False))
    else:
        g, U = tf.linalg.eigh(G)
    return tf.maximum(g, 0.0), U


@check_shapes("G: [M, M]", "s: [M, P]", "v: [P]", "return: []")
def spectral_log_evidence(G: tf.Tensor, s: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """:func:`whitened_log_evidence` for Λ_p = G/v_p and b_p = s_p/v_p, from one eigenbasis of G.

    In the basis G = U diag(g) Uᵀ every B_p is diagonal, so P outputs cost one decomposition
    instead of P factorisations. With s̃ = Uᵀ s and w_jp = 1/(v_p + g_j),

        value = Σ_p Σ_j ( −½ log(1 + g_j/v_p) + ½ s̃_jp² w_jp / v_p ),   β = U (w ∘ s̃),
        dG = −½ ( U diag(Σ_p w_jp) Uᵀ + Σ_p β_p β_pᵀ / v_p ),   ds_p = β_p / v_p.

    :param G: Σ a_n a_nᵀ.
    :param s: Σ a_n t_nᵀ.
    :param v: noise variance of each output.
    """

    @tf.custom_gradient
    def evidence(G: tf.Tensor, s: tf.Tensor, v: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        g, U = eigenbasis(G)
        g = g[:, None]
        w = 1.0 / (v + g)
        s_rotated = tf.matmul(U, s, transpose_a=True)
        explained = tf.square(s_rotated) * w / v

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            beta = tf.matmul(U, w * s_rotated)
            dG = tf.matmul(U * tf.reduce_sum(w, axis=1), U, transpose_b=True)
            dG += tf.matmul(beta / v, beta, transpose_b=True)
            dv = -0.5 * tf.reduce_sum((w - 1.0 / v) + explained * (1.0 / v + w), axis=0)
            return -0.5 * upstream * dG, upstream * beta / v, upstream * dv

        return 0.5 * tf.reduce_sum(explained - tf.math.log1p(g / v)), gradient

    return evidence(G, s, v)


def _columns_of_factor(rows: tf.Tensor, num_factors: tf.Tensor) -> tf.Tensor:
    """[P, M] → [U, M, P/U]: the right-hand sides that belong to each factor."""
    grouped = tf.reshape(rows, [num_factors, -1, tf.shape(rows)[1]])
    return tf.linalg.matrix_transpose(grouped)
