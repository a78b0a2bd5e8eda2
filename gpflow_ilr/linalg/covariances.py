"""Kernel matrices with few passes over their elements.

Kernel matrices are where a model spends its time beside the matrix products. GPflow sums
‖x‖² + ‖y‖² − 2xᵀy in several passes over [N, M], each with a gradient of its own. A matrix product
with two more columns has it in one, with the same rounding errors:

    c ‖x − y‖² + d = [−2c x, c ‖x‖² + d, c] · [y, 1, ‖y‖²].

This is the squared distance of any isotropic kernel (c = 1, d = 0), and the whole exponent of the
squared exponential σ² exp(−½ ‖x − y‖²) (c = −½, d = log σ²).

Line searches try absurd lengthscales. Rounding must not make a distance negative then, as it does in
GPflow, because exp of it may be infinite; and parameters that underflow are held where everything is
still finite. So kernel matrices, and gradients, are finite for every value of the parameters.
"""

from collections.abc import Callable

import numpy as np
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
    smallest = tf.constant(np.finfo(X.dtype.as_numpy_dtype).tiny ** 0.25, X.dtype)
    lengthscales = tf.maximum(kernel.lengthscales, smallest)
    left = X / lengthscales
    right = left if Y is None else Y / lengthscales
    if type(kernel) is SquaredExponential:
        largest = tf.math.log(tf.maximum(kernel.variance, smallest))
        return _bounded_exp(_squared_distances(left, right, -0.5, largest), largest)
    return kernel.K_r2(tf.maximum(_squared_distances(left, right), 0.0))


def inducing_covariance(
    inducing_variable: InducingVariables, kernel: Kernel, X: TensorType | None = None
) -> tf.Tensor:
    """``gpflow.covariances.Kuf``, [M, ..., N], or ``Kuu`` where there is no X.

    Faster, and finite, for inducing points with isotropic stationary kernels.

    :param inducing_variable: M inducing variables of any kind.
    :param kernel: any single-output kernel.
    :param X: [..., N, D]; None for the inducing variables themselves.
    """
    general, arguments = (covariances.Kuu, ()) if X is None else (covariances.Kuf, (X,))
    types = (type(inducing_variable), type(kernel)), (InducingPoints, Kernel)
    found, usual = (general.dispatch(*pair, *map(type, arguments)) for pair in types)
    if found is not usual:  # another kind of inducing variable, or a covariance of the user's own
        return general(inducing_variable, kernel, *arguments)
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
    """The matrix of c ‖x − y‖² + d; rounding may turn a distance of 0 negative."""
    X_squared, Y_squared = (tf.reduce_sum(tf.square(x), axis=1, keepdims=True) for x in (X, Y))
    left = tf.concat([-2.0 * c * X, c * X_squared + d, c * tf.ones_like(X_squared)], axis=1)
    right = tf.concat([Y, tf.ones_like(Y_squared), Y_squared], axis=1)
    return tf.matmul(left, right, transpose_b=True)


def _bounded_exp(exponent: tf.Tensor, largest: tf.Tensor) -> tf.Tensor:
    """exp(exponent), where only rounding makes an exponent larger than ``largest``.

    So the gradient is that of exp, in one pass: bounded elements have theirs too.
    """

    @tf.custom_gradient
    def bounded(exponent: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        K = tf.exp(tf.minimum(exponent, tf.stop_gradient(largest)))
        return K, lambda dK: dK * K

    return bounded(exponent)
