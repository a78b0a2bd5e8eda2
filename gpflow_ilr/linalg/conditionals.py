"""Shapes of Gaussian conditionals for batches of new inputs, with and without full covariances."""

import tensorflow as tf
from gpflow.kernels import Kernel

__all__ = ["cross_covariance", "prior_covariance", "squared_norms"]


def cross_covariance(K: tf.Tensor) -> tf.Tensor:
    """[M, ..., n], as GPflow's kernels answer it, to [..., M, n].

    :param K: covariance between M basis points and batches of n new ones.
    """
    rank = K.shape.rank
    return K if rank == 2 else tf.transpose(K, [*range(1, rank - 1), 0, rank - 1])


def prior_covariance(kernel: Kernel, Xnew: tf.Tensor, full_cov: bool) -> tf.Tensor:
    """k** as [..., n, 1], or as [..., 1, n, n] with ``full_cov``: one column for all outputs.

    :param kernel: the kernel.
    :param Xnew: [..., n, D].
    :param full_cov: whether to keep covariances between rows.
    """
    K = kernel(Xnew, full_cov=full_cov)
    return K[..., None, :, :] if full_cov else K[..., None]


def squared_norms(W: tf.Tensor, full_cov: bool) -> tf.Tensor:
    """Wᵀ W for W [..., U, M, n]: its diagonal as [..., n, U], or [..., U, n, n] with ``full_cov``.

    :param W: features of new rows, for each of U factors.
    :param full_cov: whether to keep products between rows.
    """
    if full_cov:
        return tf.matmul(W, W, transpose_a=True)
    return tf.linalg.matrix_transpose(tf.reduce_sum(tf.square(W), axis=-2))
