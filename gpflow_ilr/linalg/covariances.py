"""Kernel matrices with few passes over their elements.

Kernel matrices are where a model spends its time beside the matrix products. GPflow sums
‖x‖² + ‖y‖² − 2xᵀy in several passes over [N, M], each with a gradient of its own. A matrix product
with two more columns has it in one, with the same rounding errors:

    c ‖x − y‖² + d = [−2c x, c ‖x‖² + d, c] · [y, 1, ‖y‖²].

This is the squared distance of any isotropic kernel (c = 1, d = 0), and the whole exponent of the
squared exponential σ² exp(−½ ‖x − y‖²) (c = −½, d = log σ²).

Line searches try absurd lengthscales, for all columns or for one of many. Kernel matrices are
finite, and positive semi-definite up to rounding, for every value of the lengthscales and of the
variance, and gradients are finite:

- The expansion errs by about ε max ‖x‖². So columns whose scaled inputs are too large for it are
  left out of the product, and their squared differences are added one column after the other: the
  distances are then those of rounded inputs, with a small relative error. Usually no column is so.
- Rounding must not make a distance negative, as it does in GPflow, because exp of it may be
  infinite; and parameters that underflow are held where everything is still finite.
- The cosine kernel is cos a cos b + sin a sin b, a product of two columns with themselves, and so
  positive semi-definite whatever rounding does to the phases a and b.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import covariances
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import (
    Cosine,
    Exponential,
    IsotropicStationary,
    Kernel,
    Matern12,
    Product,
    RationalQuadratic,
    SquaredExponential,
    Sum,
)

__all__ = ["covariance", "inducing_covariance"]

_USED: dict[type, tuple[str, ...]] = {
    IsotropicStationary: ("__call__", "K", "scale", "slice", "scaled_squared_euclid_dist"),
    Cosine: ("__call__", "K", "scale", "slice", "scaled_difference_matrix", "K_d"),
}
"""What a kernel must have as GPflow has it, if its matrix is to be computed here."""


def covariance(kernel: Kernel, X: TensorType, Y: TensorType | None = None) -> tf.Tensor:
    """``kernel(X, Y)``, faster and safer for stationary kernels, their sums and their products.

    :param kernel: any single-output kernel.
    :param X: [..., N, D].
    :param Y: [..., M, D]; None for X itself, for each batch on its own.
    """
    X, Y = tf.convert_to_tensor(X), None if Y is None else tf.convert_to_tensor(Y)
    if type(kernel) is Sum:
        return tf.add_n([covariance(k, X, Y) for k in kernel.kernels])
    if type(kernel) is Product:
        return functools.reduce(tf.multiply, [covariance(k, X, Y) for k in kernel.kernels])
    # Of two batches GPflow means the covariances between all rows of both.
    known = X.shape.rank if Y is None else X.shape.rank == Y.shape.rank == 2
    if not (known and _is_plain(kernel)):
        return kernel(X, Y)
    X, Y = _centred(*kernel.slice(X, Y))
    smallest = tf.constant(np.finfo(X.dtype.as_numpy_dtype).tiny ** 0.25, X.dtype)
    if isinstance(kernel, Cosine):
        return kernel.variance * _cosines(X, Y, _away_from_zero(kernel.lengthscales, smallest))
    lengthscales = tf.maximum(kernel.lengthscales, smallest)
    limit = _largest_norm(kernel, X.dtype)
    if type(kernel) is SquaredExponential:
        largest = tf.math.log(tf.maximum(kernel.variance, smallest))
        return _bounded_exp(_squared_distances(X, Y, lengthscales, limit, -0.5, largest), largest)
    r2 = tf.maximum(_squared_distances(X, Y, lengthscales, limit), 0.0)
    if type(kernel) is RationalQuadratic:  # (1 + r²/2α)^−α, whose slope GPflow loses as α → 0
        alpha = tf.maximum(kernel.alpha, smallest)
        return kernel.variance * tf.exp(-alpha * tf.math.log1p(0.5 * r2 / alpha))
    return kernel.K_r2(r2)


def inducing_covariance(
    inducing_variable: InducingVariables, kernel: Kernel, X: TensorType | None = None
) -> tf.Tensor:
    """``gpflow.covariances.Kuf``, [M, ..., N], or ``Kuu`` where there is no X.

    Faster and safer for inducing points with stationary kernels: see :func:`covariance`.

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
    """Whether the kernel is a function of the scaled distance, or a cosine, as GPflow has it."""
    return any(
        isinstance(kernel, base)
        and all(getattr(type(kernel), name) is getattr(base, name) for name in _USED[base])
        for base in _USED
    )


def _largest_norm(kernel: Kernel, dtype: tf.DType) -> float:
    """The largest ‖x/ℓ‖² that is expanded: squared distances err by about ε times as much.

    So do kernels, which then are indefinite by as much where rows coincide. 2e-10 in float64 is far
    below any jitter. In float32 1e-4 is the jitter itself, and eigenvalues of −3e-5 were measured, of
    −3e-4 with ten times as much. Kernels that fall with the distance, not with its square, err by
    the root: in float64 equal rows had equal errors, which do no harm, but in float32 eigenvalues of
    −1e-3 were measured at a norm of 10 already, so that nothing is expanded.
    """
    if dtype == tf.float64:
        return 1e6
    return 0.0 if isinstance(kernel, Exponential | Matern12) else 1e3


def _centred(X: tf.Tensor, Y: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Both less the mean of X, which stationary kernels do not see, but rounding does."""
    num_rows = tf.maximum(tf.shape(X)[-2], 1)  # the mean of no rows is zero
    total = tf.reduce_sum(X, axis=-2, keepdims=True)
    mean = tf.stop_gradient(total / tf.cast(num_rows, X.dtype))
    return X - mean, None if Y is None else Y - mean


def _away_from_zero(x: tf.Tensor, smallest: tf.Tensor) -> tf.Tensor:
    """x, or ± smallest: lengthscales of the cosine kernel may be negative."""
    return tf.where(x < 0.0, tf.minimum(x, -smallest), tf.maximum(x, smallest))


def _cosines(X: tf.Tensor, Y: tf.Tensor | None, lengthscales: tf.Tensor) -> tf.Tensor:
    """The matrix of cos 2π Σ_d (x_d − y_d)/ℓ_d."""

    def on_circle(X: tf.Tensor) -> tf.Tensor:
        turns = tf.reduce_sum(X / lengthscales, axis=-1, keepdims=True)
        phase = 2 * np.pi * (turns - tf.stop_gradient(tf.floor(turns)))
        return tf.concat([tf.cos(phase), tf.sin(phase)], axis=-1)

    left = on_circle(X)
    return tf.matmul(left, left if Y is None else on_circle(Y), transpose_b=True)


def _squared_distances(
    X: tf.Tensor,
    Y: tf.Tensor | None,
    lengthscales: tf.Tensor,
    limit: float,
    c: float = 1.0,
    d: tf.Tensor | float = 0.0,
) -> tf.Tensor:
    """The matrix of c ‖(x − y)/ℓ‖² + d; rounding may turn a distance of 0 negative.

    :param X: [..., N, D].
    :param Y: [..., M, D]; None for X itself.
    :param lengthscales: ℓ, [] or [D].
    :param limit: the largest ‖x/ℓ‖² that is expanded; beyond it, columns are subtracted.
    :param c: a factor.
    :param d: a summand.
    """
    dtype, all_rows = X.dtype, list(range(X.shape.rank - 1))

    @tf.custom_gradient
    def distances(
        lengthscales: tf.Tensor, d: tf.Tensor, X: tf.Tensor, *Ys: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[..., Any]]:
        scaled = [x / lengthscales for x in (X, *Ys)]
        squares = [tf.square(x) for x in scaled]
        largest = functools.reduce(tf.maximum, [tf.reduce_max(x, axis=all_rows) for x in squares])
        num_columns = tf.size(largest) if largest.shape[0] is None else largest.shape[0]
        near = largest * tf.cast(num_columns, dtype) <= limit
        far = tf.cast(tf.logical_not(near), dtype)

        def add_far_columns(
            term: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, ...]], *start: tf.Tensor
        ) -> list[tf.Tensor]:
            """Add ``term(differences, indicator)``, [..., N, M] and [D], of each far column."""

            def step(far: tf.Tensor, *sums: tf.Tensor) -> tuple[tf.Tensor, ...]:
                column = tf.argmax(far)
                left, right = (tf.gather(x, column, axis=-1) for x in (scaled[0], scaled[-1]))
                indicator = tf.one_hot(column, num_columns, dtype=dtype)
                terms = term(left[..., :, None] - right[..., None, :], indicator)
                return far - indicator, *(a + b for a, b in zip(sums, terms, strict=True))

            return tf.while_loop(
                lambda far, *_: tf.reduce_any(far > 0.0),
                step,
                (far, *start),
                maximum_iterations=far.shape[0],
                parallel_iterations=1,
            )[1:]

        expanded = [tf.where(near, x, tf.zeros([], dtype)) for x in scaled]
        norms = [tf.reduce_sum(tf.square(x), axis=-1, keepdims=True) for x in expanded]
        ones = [tf.ones_like(x) for x in norms]
        left = tf.concat([-2.0 * c * expanded[0], c * norms[0] + d, c * ones[0]], axis=-1)
        right = tf.concat([expanded[-1], ones[-1], norms[-1]], axis=-1)
        (r2,) = add_far_columns(
            lambda difference, _: (c * tf.square(difference),),
            tf.matmul(left, right, transpose_b=True),
        )

        def gradient(G: tf.Tensor) -> tuple[tf.Tensor, ...]:
            # Σ_j G_ij [y_j, 1, ‖y_j‖²] and Σ_i G_ij [−2c x_i, c ‖x_i‖² + d, c].
            GY, rows, _ = tf.split(tf.matmul(G, right), [-1, 1, 1], axis=-1)
            GX, _, columns = tf.split(tf.matmul(G, left, transpose_a=True), [-1, 1, 1], axis=-1)
            dX = 2.0 * c * (rows * expanded[0] - GY)
            dY = 2.0 * columns * expanded[-1] + GX
            # ℓ ∂/∂ℓ = − x ∂/∂x − y ∂/∂y.
            d_log = -tf.reduce_sum(dX * expanded[0], axis=all_rows)
            d_log -= tf.reduce_sum(dY * expanded[-1], axis=all_rows)

            def far_terms(difference: tf.Tensor, indicator: tf.Tensor) -> tuple[tf.Tensor, ...]:
                # By differences too: x Σ_j G_ij − Σ_j G_ij y_j would cancel.
                slope = 2.0 * c * G * difference
                return (
                    tf.reduce_sum(slope, axis=-1, keepdims=True) * indicator,
                    -tf.reduce_sum(slope, axis=-2)[..., None] * indicator,
                    -tf.reduce_sum(slope * difference) * indicator,
                )

            dX, dY, d_log = add_far_columns(far_terms, dX, dY, d_log)
            d_lengthscales = d_log / lengthscales
            if lengthscales.shape.num_elements() == 1:
                d_lengthscales = tf.reshape(tf.reduce_sum(d_lengthscales), lengthscales.shape)
            dXs = (dX, dY) if Ys else (dX + dY,)
            return d_lengthscales, tf.reduce_sum(rows), *(dx / lengthscales for dx in dXs)

        return r2, gradient

    return distances(lengthscales, tf.convert_to_tensor(d, dtype), X, *(() if Y is None else (Y,)))


def _bounded_exp(exponent: tf.Tensor, largest: tf.Tensor) -> tf.Tensor:
    """exp(exponent), where only rounding makes an exponent larger than ``largest``.

    So the gradient is that of exp, in one pass: bounded elements have theirs too.
    """

    @tf.custom_gradient
    def bounded(exponent: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        K = tf.exp(tf.minimum(exponent, tf.stop_gradient(largest)))
        return K, lambda dK: dK * K

    return bounded(exponent)
