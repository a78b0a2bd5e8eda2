"""Marginals of an SVGP whose latents share one kernel and one set of inducing inputs.

The cost of a training step is that of |S_pᵀ a_n|² for all latents p and rows n, where S_p is the root
of latent p's covariance and a_n the whitened covariance of row n with the inducing values. GPflow
multiplies the full matrices, one copy of A for every latent; here one product serves all latents, and
the zeros above the diagonals of S_p are left out, block by block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from gpflow_ilr.linalg.inverse_factors import cholesky_or_error
from gpflow_ilr.linalg.jitter import absolute_jitter

__all__ = ["factor_of_inducing", "shared_marginals", "whitened_divergence"]

BLOCK_WIDTH = 16
"""Columns of S in one product: narrower blocks leave out more zeros, and have smaller products."""


@check_shapes(
    "X: [N, D]",
    "q_mu: [M, P]",
    "q_sqrt: [P, M, M]",
    "return[0]: [N, P]",
    "return[1]: [N, P]",
)
def shared_marginals(
    X: TensorType,
    kernel: Kernel,
    inducing_variable: InducingVariables,
    q_mu: TensorType,
    q_sqrt: TensorType,
    whiten: bool,
    factor: tf.Tensor | None = None,
) -> MeanAndVariance:
    """Means and variances of the latents at X, without the mean function.

    :param X: inputs.
    :param kernel: a single-output kernel, the same for all latents.
    :param inducing_variable: inducing variables, the same for all latents.
    :param q_mu: means of q(u), or of q(v), u = L v, if ``whiten``.
    :param q_sqrt: lower triangular roots of its covariances.
    :param whiten: whether q is in whitened coordinates.
    :param factor: :func:`factor_of_inducing`, where it is known.
    """
    L = factor_of_inducing(inducing_variable, kernel) if factor is None else factor
    A = tf.linalg.triangular_solve(L, Kuf(inducing_variable, kernel, X))
    residual = kernel(X, full_cov=False) - tf.reduce_sum(tf.square(A), axis=0)
    if not whiten:
        A = tf.linalg.triangular_solve(L, A, adjoint=True)
    mean = tf.matmul(A, q_mu, transpose_a=True)
    return mean, residual[:, None] + _root_products(A, q_sqrt)


def factor_of_inducing(inducing_variable: InducingVariables, kernel: Kernel) -> tf.Tensor:
    """The Cholesky factor of K_uu with the jitter of :mod:`gpflow_ilr.linalg.jitter`, [M, M].

    :param inducing_variable: inducing variables.
    :param kernel: a single-output kernel.
    """
    K_uu = Kuu(inducing_variable, kernel)
    diagonal = tf.linalg.diag_part(K_uu)
    jitter = absolute_jitter(tf.reduce_mean(diagonal))
    return cholesky_or_error(tf.linalg.set_diag(K_uu, diagonal + jitter), "K_uu")


@check_shapes("q_mu: [M, P]", "q_sqrt: [P, M, M]", "return: []")
def whitened_divergence(q_mu: TensorType, q_sqrt: TensorType) -> tf.Tensor:
    """KL[q ‖ N(0, I)] = ½ Σ_p (|m_p|² + |S_p|² − M) − Σ log |diag S_p|.

    :param q_mu: means m.
    :param q_sqrt: lower triangular roots S.
    """

    @tf.custom_gradient
    def of_roots(S: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        diagonal = tf.linalg.diag_part(S)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return upstream * tf.linalg.set_diag(S, diagonal - 1.0 / diagonal)

        logarithms = tf.reduce_sum(tf.math.log(tf.abs(diagonal)))
        return 0.5 * tf.reduce_sum(tf.square(S)) - logarithms, gradient

    m, S = tf.convert_to_tensor(q_mu), tf.convert_to_tensor(q_sqrt)
    constant = 0.5 * tf.cast(tf.size(m), m.dtype)
    return 0.5 * tf.reduce_sum(tf.square(m)) + of_roots(S) - constant


def _root_products(A: tf.Tensor, q_sqrt: tf.Tensor) -> tf.Tensor:
    """|S_pᵀ a_n|² for the lower triangular S_p of ``q_sqrt``, [N, P].

    The gradient, too, leaves out what is above the diagonals, and goes over the products once.
    """
    P, M, _ = q_sqrt.shape
    blocks = [(start, min(start + BLOCK_WIDTH, M)) for start in range(0, M, BLOCK_WIDTH)]

    @tf.custom_gradient
    def squares(A: tf.Tensor, S: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        roots, products = [], []
        for start, stop in blocks:
            below = tf.transpose(S[:, start:, start:stop], [1, 0, 2])  # [M − start, P, width]
            roots.append(tf.reshape(below, [M - start, P * (stop - start)]))
            product = tf.matmul(roots[-1], A[start:], transpose_a=True)
            products.append(tf.reshape(product, [P, stop - start, -1]))

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            twice = 2.0 * tf.transpose(upstream)[:, None, :]
            dS, dA = [], None
            for (start, stop), root, product in reversed(
                list(zip(blocks, roots, products, strict=True))
            ):
                width = stop - start
                d_product = tf.reshape(twice * product, [P * width, -1])
                below = tf.matmul(A[start:], d_product, transpose_b=True)
                below = tf.transpose(tf.reshape(below, [M - start, P, width]), [1, 0, 2])
                dS.append(tf.pad(below, [[0, 0], [start, 0], [0, 0]]) if start else below)
                rows = tf.matmul(root, d_product)
                dA = rows if dA is None else tf.concat([rows[:width], rows[width:] + dA], axis=0)
            return dA, tf.concat(dS[::-1], axis=2)

        sums = [tf.reduce_sum(tf.square(product), axis=1) for product in products]
        return tf.transpose(tf.add_n(sums)), gradient

    return squares(A, tf.convert_to_tensor(q_sqrt))
