"""Marginals of an SVGP whose latents share one kernel and one set of inducing inputs.

The cost of a training step is that of |S_pᵀ a_n|² for all latents p and rows n, where S_p is the root
of latent p's covariance and a_n the whitened covariance of row n with the inducing values. GPflow
multiplies the full matrices, one copy of A for every latent; here one product serves all latents, and
the zeros above the diagonals of S_p are left out, block by block.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from gpflow_ilr.linalg.inverse_factors import cholesky_or_error
from gpflow_ilr.linalg.jitter import absolute_jitter

__all__ = ["factor_of_inducing", "shared_marginals"]

BLOCK_WIDTH = 32
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


def _root_products(A: tf.Tensor, q_sqrt: tf.Tensor) -> tf.Tensor:
    """|S_pᵀ a_n|² for the lower triangular S_p of ``q_sqrt``, [N, P]."""
    P, M, _ = q_sqrt.shape
    total = tf.zeros([P, tf.shape(A)[1]], A.dtype)
    widths = [min(BLOCK_WIDTH, M - start) for start in range(0, M, BLOCK_WIDTH)]
    start = 0
    for columns in tf.split(q_sqrt, widths, axis=2):
        width = columns.shape[2]
        below = tf.transpose(columns[:, start:], [1, 0, 2])  # [M − start, P, width]
        flat = tf.reshape(below, [M - start, P * width])
        product = tf.reshape(tf.matmul(flat, A[start:], transpose_a=True), [P, width, -1])
        total += _sums_of_squares(product)
        start += width
    return tf.transpose(total)


@tf.custom_gradient
def _sums_of_squares(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Σ_j x_pjn², whose own gradient goes over the large x once, where TensorFlow's does thrice."""

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return (2.0 * upstream)[:, None, :] * x

    return tf.reduce_sum(tf.square(x), axis=1), gradient
