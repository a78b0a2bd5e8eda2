"""The geometry of class probabilities: Helmert's matrix, the ILR bijection, Aitchison's distance.

Probabilities of K classes are points of the open simplex. Aitchison's geometry makes it a
Euclidean space of K - 1 dimensions, and the isometric log-ratio (ILR) φ(y) = H log y, with
Helmert's matrix H [K-1, K], gives coordinates in which its distance is the ordinary one. The rows
of H are orthonormal and orthogonal to the constants, H Hᵀ = I and H 1 = 0, so that
φ⁻¹(z) = softmax(Hᵀ z). Both directions are cumulative sums, O(K) a row; :func:`helmert` is for
those who need the matrix itself.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.config import default_float
from scipy.linalg import helmert as scipy_helmert

__all__ = [
    "check_num_classes",
    "helmert",
    "ILR",
    "aitchison_inner_product",
    "aitchison_norm",
    "aitchison_distance",
]


def check_num_classes(num_classes: Any) -> int:
    """The number of classes K as a Python integer.

    :param num_classes: an integer of any kind, at least 2.
    :raises ValueError: if it is not an integer, or smaller than 2.
    """
    try:
        if isinstance(num_classes, (bool, np.bool_)):
            raise TypeError
        K = operator.index(num_classes)
    except TypeError:
        raise ValueError(
            f"num_classes must be an integer, but is {num_classes!r}. Pass the number of classes."
        ) from None
    if K < 2:
        raise ValueError(
            f"num_classes must be at least 2, but is {K}. A binary problem has num_classes=2."
        )
    return K


def helmert(num_classes: int, dtype: Any = None) -> tf.Tensor:
    """Helmert's matrix H [K-1, K], which is :func:`scipy.linalg.helmert`.

    Row i = 1..K-1 is (1, ..., 1, -i, 0, ..., 0) / √(i(i+1)) with i leading ones.

    :param num_classes: the number of classes K.
    :param dtype: of the result; GPflow's default float if None.
    :raises ValueError: if ``num_classes`` is not an integer of at least 2.
    """
    return tf.constant(scipy_helmert(check_num_classes(num_classes)), dtype or default_float())


class ILR(tfp.bijectors.AutoCompositeTensorBijector):
    """The bijection from R^(K-1) (``forward``) to the open simplex, y = φ⁻¹(z) = softmax(Hᵀ z).

    The log-det-Jacobians are with respect to the K - 1 free coordinates y_1..y_{K-1} of the
    simplex, the measure in which ``tfp.distributions.Dirichlet`` has its density:

        log |det ∂y_{1..K-1} / ∂z| = Σ_k log y_k + ½ log K = ½ log K - K log Σ_k exp(Hᵀ z)_k.

    (With respect to the simplex' surface in R^K, as in ``tfp.bijectors.SoftmaxCentered``, it is
    larger by another ½ log K.) Proof: the log-ratios (Hᵀ z)_k - (Hᵀ z)_K, k < K, have the Jacobian
    √K in z, and y_{1..K-1} has the Jacobian Π_k y_k in the log-ratios.

    ``forward``, :meth:`log_forward` and the forward log-det-Jacobian are finite for every finite z
    of moderate size (|z| ≤ 700 with room to spare), although a probability below the smallest
    normal number (2e-308, or 1e-38 in float32) comes out as 0, which ``inverse`` cannot map back.
    In float32 with K = 10,000 the largest relative error ‖Δz‖/‖z‖ that we found for ``inverse`` is
    1e-5, and 2e-6 for Hᵀ z.

    :param num_classes: the number of classes K.
    :param validate_args: whether ``inverse`` asserts that its argument is on the open simplex.
    :raises ValueError: if ``num_classes`` is not an integer of at least 2.
    """

    def __init__(self, num_classes: int, validate_args: bool = False, name: str = "ilr") -> None:
        parameters = dict(locals())
        with tf.name_scope(name) as scope:
            self._num_classes = check_num_classes(num_classes)
            super().__init__(
                forward_min_event_ndims=1,
                inverse_min_event_ndims=1,
                validate_args=validate_args,
                parameters=parameters,
                name=scope,
            )

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return self._num_classes

    def log_forward(self, z: TensorType) -> tf.Tensor:
        """Logarithm of ``forward``: log-probabilities [..., K], finite where probabilities vanish.

        :param z: coordinates [..., K-1].
        """
        z = tf.convert_to_tensor(z, dtype_hint=default_float())
        return tf.nn.log_softmax(self._transposed_helmert_product(z))

    @classmethod
    def _parameter_properties(cls, dtype: Any, num_classes: int | None = None) -> dict[str, Any]:
        return {}

    def _forward(self, z: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(self._transposed_helmert_product(z))

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies(self._open_simplex_assertions(y)):
            return self._helmert_product(tf.math.log(y))

    def _forward_log_det_jacobian(self, z: tf.Tensor) -> tf.Tensor:
        K = self.num_classes
        # Σ_k log y_k = -K lse(Hᵀ z), because the entries of Hᵀ z sum to zero.
        return 0.5 * np.log(K) - K * tf.reduce_logsumexp(self._transposed_helmert_product(z), -1)

    def _inverse_log_det_jacobian(self, y: tf.Tensor) -> tf.Tensor:
        return -0.5 * np.log(self.num_classes) - tf.reduce_sum(tf.math.log(y), -1)

    def _helmert_product(self, v: tf.Tensor) -> tf.Tensor:
        """H v for v [..., K]: z_i = (Σ_{j≤i} v_j - i v_{i+1}) / √(i(i+1))."""
        v = self._with_last_dimension(v, self.num_classes)
        # H 1 = 0, so the mean may go. Without it the sums grow with K: 3e-4 instead of 1e-5 was
        # lost in float32 with K = 10,000.
        v -= tf.reduce_mean(v, axis=-1, keepdims=True)
        scale, entry = self._helmert_entries(v.dtype)
        return scale * tf.cumsum(v[..., :-1], axis=-1) - entry * v[..., 1:]

    def _transposed_helmert_product(self, z: tf.Tensor) -> tf.Tensor:
        """Hᵀ z for z [..., K-1]: v_k = Σ_{i≥k} z_i / √(i(i+1)) - (k-1) z_{k-1} / √((k-1)k)."""
        z = self._with_last_dimension(z, self.num_classes - 1)
        scale, entry = self._helmert_entries(z.dtype)
        zero = tf.zeros_like(z[..., :1])
        above = tf.concat([tf.cumsum(scale * z, axis=-1, reverse=True), zero], axis=-1)
        return above - tf.concat([zero, entry * z], axis=-1)

    def _helmert_entries(self, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
        """The entries of H: 1/√(i(i+1)) left of the sub-diagonal and i/√(i(i+1)) on it."""
        i = np.arange(1.0, self.num_classes)
        scale, entry = 1.0 / np.sqrt(i * (i + 1.0)), np.sqrt(i / (i + 1.0))
        return tf.constant(scale, dtype), tf.constant(entry, dtype)

    def _with_last_dimension(self, x: tf.Tensor, size: int) -> tf.Tensor:
        """``x``, after making sure that its last dimension is ``size`` and nothing is broadcast."""
        if not x.dtype.is_floating:
            raise TypeError(
                f"ILR(num_classes={self.num_classes}) maps floats, but met dtype {x.dtype.name}. Pass "
                "tf.cast(x, tf.float64)."
            )
        if x.shape.rank is None or (x.shape.rank > 0 and x.shape[-1] is None):
            return tf.reshape(x, tf.concat([tf.shape(x)[:-1], [size]], axis=0))
        self._check_event_shape(x.shape, size)
        return x

    def _check_event_shape(self, shape: tf.TensorShape, size: int) -> None:
        if shape.rank == 0 or shape[-1] not in (None, size):
            raise ValueError(
                f"ILR(num_classes={self.num_classes}) maps [..., {self.num_classes - 1}] to "
                f"[..., {self.num_classes}], but met shape {shape} where the last dimension must "
                f"be {size}. Check num_classes."
            )

    def _open_simplex_assertions(self, y: tf.Tensor) -> list[tf.Operation]:
        if not self.validate_args:
            return []
        # Round-off of K probabilities and of their sum.
        epsilon = np.finfo(y.dtype.as_numpy_dtype).eps
        tolerance = tf.constant(4.0 * self.num_classes * epsilon, y.dtype)
        distance = abs(tf.reduce_sum(y, axis=-1) - 1.0)
        return [
            tf.debugging.assert_positive(y, "ILR.inverse needs positive probabilities."),
            tf.debugging.assert_less_equal(
                distance, tolerance, "ILR.inverse needs probabilities that sum to one."
            ),
        ]

    def _forward_event_shape(self, input_shape: tf.TensorShape) -> tf.TensorShape:
        self._check_event_shape(input_shape, self.num_classes - 1)
        return input_shape[:-1].concatenate(self.num_classes)

    def _inverse_event_shape(self, output_shape: tf.TensorShape) -> tf.TensorShape:
        self._check_event_shape(output_shape, self.num_classes)
        return output_shape[:-1].concatenate(self.num_classes - 1)

    def _forward_event_shape_tensor(self, input_shape: tf.Tensor) -> tf.Tensor:
        return tf.concat([input_shape[:-1], [self.num_classes]], axis=0)

    def _inverse_event_shape_tensor(self, output_shape: tf.Tensor) -> tf.Tensor:
        return tf.concat([output_shape[:-1], [self.num_classes - 1]], axis=0)


def aitchison_inner_product(x: TensorType, y: TensorType) -> tf.Tensor:
    """Aitchison's inner product, 1/(2K) Σ_{ij} log(x_i/x_j) log(y_i/y_j) = ⟨φ(x), φ(y)⟩, in O(K).

    Only ratios of entries matter: rows need not sum to one, but must be positive.

    :param x: positive entries [..., K].
    :param y: positive entries [..., K].
    :raises ValueError: for entries that are known and not positive, or shapes that do not fit.
    """
    return _inner_product(*_centred_logs(x, y))


def aitchison_norm(x: TensorType) -> tf.Tensor:
    """Aitchison's norm, the root of ⟨x, x⟩_A; zero for the uniform distribution.

    :param x: positive entries [..., K].
    :raises ValueError: for entries that are known and not positive, or a number alone.
    """
    return tf.norm(_centred_log(x, "x"), axis=-1)


def aitchison_distance(x: TensorType, y: TensorType) -> tf.Tensor:
    """Aitchison's distance, √(1/(2K) Σ_{ij} (log(x_i/x_j) - log(y_i/y_j))²) = ‖φ(x) - φ(y)‖.

    :param x: positive entries [..., K].
    :param y: positive entries [..., K].
    :raises ValueError: for entries that are known and not positive, or shapes that do not fit.
    """
    return _distance(*_centred_logs(x, y))


@check_shapes(
    "x: [broadcast batch..., K]",
    "y: [broadcast batch..., K]",
    "return: [batch...]",
)
def _inner_product(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(x * y, axis=-1)


@check_shapes(
    "x: [broadcast batch..., K]",
    "y: [broadcast batch..., K]",
    "return: [batch...]",
)
def _distance(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.norm(x - y, axis=-1)


def _centred_logs(x: TensorType, y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
    """Of both, which have as many columns."""
    X, Y = _centred_log(x, "x"), _centred_log(y, "y")
    if not X.shape[-1:].is_compatible_with(Y.shape[-1:]):
        raise ValueError(
            f"x and y must have as many columns as each other, but have shapes {X.shape.as_list()} and "
            f"{Y.shape.as_list()}. Pass probabilities of the same classes."
        )
    try:
        tf.broadcast_static_shape(X.shape, Y.shape)
    except ValueError:
        raise ValueError(
            f"x and y must have as many rows as each other, or one of them one, but have shapes "
            f"{X.shape.as_list()} and {Y.shape.as_list()}. Pass pairs of rows."
        ) from None
    return X, Y


def _centred_log(x: TensorType, name: str) -> tf.Tensor:
    """The logarithm minus its mean, (I - 11ᵀ/K) log x = HᵀH log x."""
    try:
        entries = tf.convert_to_tensor(x, dtype_hint=default_float())
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} must be positive numbers [..., K], but is {x!r}. Pass class probabilities."
        ) from None
    if entries.dtype.is_integer:
        entries = tf.cast(entries, default_float())
    if not entries.dtype.is_floating or entries.shape.rank == 0:
        raise TypeError(
            f"{name} must be positive numbers [..., K], but has shape {entries.shape.as_list()} and "
            f"dtype {entries.dtype.name}. Pass class probabilities."
        )
    if not tf.is_symbolic_tensor(entries):
        wrong = ~(entries.numpy() > 0)  # NaN, too
        if wrong.any():
            index = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise ValueError(
                f"{name} must have positive entries, but {name}[{', '.join(map(str, index))}] is "
                f"{entries.numpy()[index]}: ratios with it are not finite. Add a little to all "
                "entries, or drop such rows."
            )
    logarithm = tf.math.log(entries)
    return logarithm - tf.reduce_mean(logarithm, axis=-1, keepdims=True)
