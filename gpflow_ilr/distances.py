"""Kernel matrices with few passes over their elements.

Kernel matrices are where a model spends its time beside the matrix products. GPflow sums
‖x‖² + ‖y‖² − 2xᵀy in several passes over [N, M], each with a gradient of its own. A matrix product
with two more columns has it in one, with the same rounding errors:

    c ‖x − y‖² + d = [−2c x, c ‖x‖² + d, c] · [y, 1, ‖y‖²].

This is the squared distance of any isotropic kernel (c = 1, d = 0), and the whole exponent of the
squared exponential σ² exp(−½ ‖x − y‖²) (c = −½, d = log σ²).
"""

import tensorflow as tf
from gpflow import covariances
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import IsotropicStationary, Kernel, SquaredExponential

__all__ = ["covariance", "inducing_covariance"]


def covariance(kernel: Kernel, X: TensorType, Y: TensorType | None = None) -> tf.Tensor:
    """``kernel(X, Y)``, faster for isotropic stationary kernels.

    :param kernel: any single-output kernel.
    :param X: [..., N, D].
    :param Y: [..., M, D]; None for X itself.
    """
    X, Y = tf.convert_to_tensor(X), None if Y is None else tf.convert_to_tensor(Y)
    if not (_is_plain(kernel) and X.shape.rank == 2 and (Y is None or Y.shape.rank == 2)):
        return kernel(X, Y)
    X, Y = kernel.slice(X, Y)
    left = kernel.scale(X)
    right = left if Y is None else kernel.scale(Y)
    if type(kernel) is SquaredExponential:
        return tf.exp(_squared_distances(left, right, -0.5, tf.math.log(kernel.variance)))
    return kernel.K_r2(_squared_distances(left, right))


def inducing_covariance(
    inducing_variable: InducingVariables, kernel: Kernel, X: TensorType
) -> tf.Tensor:
    """``gpflow.covariances.Kuf``, [M, ..., N], faster for isotropic stationary kernels.

    :param inducing_variable: M inducing variables of any kind.
    :param kernel: any single-output kernel.
    :param X: [..., N, D].
    """
    types = (type(inducing_variable), type(kernel)), (InducingPoints, Kernel)
    found, usual = (covariances.Kuf.dispatch(*pair, type(X)) for pair in types)
    if found is not usual:  # another kind of inducing variable, or a Kuf of the user's own
        return covariances.Kuf(inducing_variable, kernel, X)
    return covariance(kernel, inducing_variable.Z, X)


def _is_plain(kernel: Kernel) -> bool:
    """Whether the kernel is a function of the scaled distance as GPflow computes it."""
    return isinstance(kernel, IsotropicStationary) and all(
        getattr(type(kernel), name) is getattr(IsotropicStationary, name)
        for name in ("__call__", "K", "scale", "slice", "scaled_squared_euclid_dist")
    )


def _squared_distances(
    X: tf.Tensor, Y: tf.Tensor, c: float = 1.0, d: tf.Tensor | float = 0.0
) -> tf.Tensor:
    """The matrix of c ‖x − y‖² + d; rounding may turn a distance of 0 negative, as in GPflow."""
    X_squared, Y_squared = (tf.reduce_sum(tf.square(x), axis=1, keepdims=True) for x in (X, Y))
    left = tf.concat([-2.0 * c * X, c * X_squared + d, c * tf.ones_like(X_squared)], axis=1)
    right = tf.concat([Y, tf.ones_like(Y_squared), Y_squared], axis=1)
    return tf.matmul(left, right, transpose_b=True)
