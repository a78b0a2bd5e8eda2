"""Inverse Cholesky factors, and products that leave out zeros and what symmetry knows.

TensorFlow's factorisations and triangular solves run on one core, its matrix products on all of them.
So the models keep W = L⁻¹ instead of the Cholesky factor L. What they need of a positive definite
A = L Lᵀ are then products, A⁻¹ = WᵀW and log|A| = −2 Σ log W_ii. L and W of a large A are mostly
products too, by blocks:

    L₂₁ᵀ = L₁⁻¹ A₂₁ᵀ,   L₂ L₂ᵀ = A₂₂ − L₂₁ L₂₁ᵀ,   W = [[W₁, 0], [−W₂ L₂₁ W₁, W₂]].

A large W stays in such blocks (:class:`InverseFactor`): products then leave out its zeros, and less
memory is filled. TensorFlow has no products for triangular matrices or with symmetric results either;
those of size M·N·M are done in strips (:func:`lower_product_strips`, :func:`gram_of_strips`), and
strips that are zero, or equal to others, are left out.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import tensorflow as tf

__all__ = [
    "InverseFactor",
    "cholesky_error",
    "cholesky_or_error",
    "finite_or_error",
    "gram_of_strips",
    "has_values_on_cpu",
    "block_edges",
    "inverse_cholesky",
    "lower_product_strips",
    "substitution_factor",
    "triangular_inverse",
]

LARGE_FACTOR = 512
"""Matrices of this size or more are worked on in blocks; smaller ones gain nothing."""

STRIP = 100
"""Least width of a strip: narrower ones cost the products more of their speed than they save."""

MAX_STRIPS = 4

WIDEST_STRIP = 600
"""Strips of large matrices are no wider, so that less is computed in vain; TensorFlow copies each."""

_FAILED = (
    "The Cholesky factor of {} is not finite: the matrix is not positive definite in this "
    "precision, or X or a kernel parameter is NaN. Remedies: standardise the columns of X, "
    "raise the jitter (gpflow.config.set_default_jitter), remove duplicated inducing inputs, "
    "shorten the kernel's lengthscales, raise the noise, or use float64."
)


def cholesky_or_error(A: tf.Tensor, name: str) -> tf.Tensor:
    """Cholesky factor of A, or an error that says what to do.

    ``tf.linalg.cholesky`` answers NaN where it fails, and optimisers then stop with "ABNORMAL"; the
    check turns that into an ``InvalidArgumentError`` with a remedy.

    :param A: [..., M, M], positive definite.
    :param name: what A is, for the error.
    """
    L = tf.linalg.cholesky(A)
    # What is not finite to the left of the diagonal is not finite on it.
    diagonal = tf.linalg.diag_part(L)
    check = tf.debugging.check_numerics(diagonal, f"{_FAILED.format(name)} Numerics")
    with tf.control_dependencies([check]):
        return tf.identity(L)


def finite_or_error(x: tf.Tensor, name: str) -> tf.Tensor:
    """What GPflow's own code made of a Cholesky factor, or the error of :func:`cholesky_or_error`.

    :param x: a tensor that is not finite where the factor is not.
    :param name: what was factorised, for the error.
    """
    return tf.debugging.check_numerics(x, f"{_FAILED.format(name)} Numerics")


def cholesky_error(name: str) -> tf.errors.InvalidArgumentError:
    """The error of :func:`cholesky_or_error`, for factors that TensorFlow has not computed.

    :param name: what has no factor.
    """
    return tf.errors.InvalidArgumentError(None, None, _FAILED.format(name))


class InverseFactor(abc.ABC):
    """W = L⁻¹, lower triangular, and what it says about A = L Lᵀ, [..., M, M]."""

    @abc.abstractmethod
    def product(self, B: tf.Tensor) -> tf.Tensor:
        """W B, for B [..., M, n]."""

    @abc.abstractmethod
    def transposed_product(self, B: tf.Tensor) -> tf.Tensor:
        """WᵀB, for B [..., M, n]."""

    @abc.abstractmethod
    def inverse(self) -> tf.Tensor:
        """A⁻¹ = WᵀW, [..., M, M]."""

    @abc.abstractmethod
    def inverse_diagonal(self) -> tf.Tensor:
        """The diagonal of A⁻¹, [..., M]."""

    @abc.abstractmethod
    def log_determinant(self) -> tf.Tensor:
        """log|A|, [...]."""

    @abc.abstractmethod
    def dense(self) -> tf.Tensor:
        """W, [..., M, M]."""

    def solve(self, B: tf.Tensor) -> tf.Tensor:
        """A⁻¹B, for B [..., M, n]."""
        return self.transposed_product(self.product(B))


@dataclass(frozen=True)
class _Matrix(InverseFactor):
    """A small W, as it is."""

    W: tf.Tensor

    def product(self, B: tf.Tensor) -> tf.Tensor:
        return tf.matmul(self.W, B)

    def transposed_product(self, B: tf.Tensor) -> tf.Tensor:
        return tf.matmul(self.W, B, transpose_a=True)

    def inverse(self) -> tf.Tensor:
        return tf.matmul(self.W, self.W, transpose_a=True)

    def inverse_diagonal(self) -> tf.Tensor:
        return tf.reduce_sum(tf.square(self.W), axis=-2)

    def log_determinant(self) -> tf.Tensor:
        return -2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(self.W)), axis=-1)

    def dense(self) -> tf.Tensor:
        return self.W


@dataclass(frozen=True)
class _Blocks(InverseFactor):
    """A large W, in blocks [[first, 0], [below, last]]."""

    first: InverseFactor
    below: tf.Tensor
    last: InverseFactor

    def product(self, B: tf.Tensor) -> tf.Tensor:
        top, bottom = self._split(B)
        lower = tf.matmul(self.below, top) + self.last.product(bottom)
        return tf.concat([self.first.product(top), lower], axis=-2)

    def transposed_product(self, B: tf.Tensor) -> tf.Tensor:
        top, bottom = self._split(B)
        upper = tf.matmul(self.below, bottom, transpose_a=True)
        upper += self.first.transposed_product(top)
        return tf.concat([upper, self.last.transposed_product(bottom)], axis=-2)

    def inverse(self) -> tf.Tensor:
        upper = self.first.inverse() + tf.matmul(self.below, self.below, transpose_a=True)
        corner = self.last.transposed_product(self.below)
        return _joined(upper, tf.linalg.matrix_transpose(corner), corner, self.last.inverse())

    def inverse_diagonal(self) -> tf.Tensor:
        upper = self.first.inverse_diagonal() + tf.reduce_sum(tf.square(self.below), axis=-2)
        return tf.concat([upper, self.last.inverse_diagonal()], axis=-1)

    def log_determinant(self) -> tf.Tensor:
        return self.first.log_determinant() + self.last.log_determinant()

    def dense(self) -> tf.Tensor:
        above = tf.zeros_like(tf.linalg.matrix_transpose(self.below))
        return _joined(self.first.dense(), above, self.below, self.last.dense())

    def _split(self, B: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        half = self.below.shape[-1]
        return B[..., :half, :], B[..., half:, :]


def inverse_cholesky(A: tf.Tensor, name: str) -> InverseFactor:
    """W = L⁻¹ for the Cholesky factor L of A, or the error of :func:`cholesky_or_error`.

    :param A: [..., M, M], positive definite; only its lower triangle is read.
    :param name: what A is, for the error.
    """
    return _factorised(A, name)[1]


def substitution_factor(A: tf.Tensor, name: str) -> tuple[tf.Tensor, InverseFactor]:
    """The Cholesky factor L of A with its diagonal blocks inverted (:mod:`.substitution`), and L⁻¹.

    :param A: [..., M, M], positive definite; only its lower triangle is read.
    :param name: what A is, for the error.
    """

    def with_inverse_blocks(L: tf.Tensor | _FactorBlocks, W: InverseFactor) -> tf.Tensor:
        if not (isinstance(L, _FactorBlocks) and isinstance(W, _Blocks)):
            return W.dense()
        first, last = (
            with_inverse_blocks(*pair) for pair in ((L.first, W.first), (L.last, W.last))
        )
        below = tf.linalg.matrix_transpose(L.upper)
        return _joined(first, tf.zeros_like(L.upper), below, last)

    L, W = _factorised(A, name)
    return with_inverse_blocks(L, W), W


def block_edges(size: int) -> list[int]:
    """Where the diagonal blocks of a factor of some size begin, and where the last one ends.

    :param size: M.
    """
    if size < LARGE_FACTOR:
        return [0, size]
    half = size // 2
    return [*block_edges(half)[:-1], *(half + edge for edge in block_edges(size - half))]


def triangular_inverse(factor: tf.Tensor) -> tf.Tensor:
    """L⁻¹ for a lower triangular L.

    :param factor: L, [..., M, M].
    """
    shape = tf.shape(factor)
    identity = tf.eye(shape[-1], batch_shape=shape[:-2], dtype=factor.dtype)
    return tf.linalg.triangular_solve(factor, identity, lower=True)


class _FactorBlocks(NamedTuple):
    """A Cholesky factor in blocks L₁, L₂₁ᵀ and L₂."""

    first: tf.Tensor | _FactorBlocks
    upper: tf.Tensor
    last: tf.Tensor | _FactorBlocks


def _factorised(A: tf.Tensor, name: str) -> tuple[tf.Tensor | _FactorBlocks, InverseFactor]:
    """The Cholesky factor L of A, and its inverse."""
    size = A.shape[-1]
    if size is None or size < LARGE_FACTOR:
        L = cholesky_or_error(A, name)
        return L, _Matrix(triangular_inverse(L))
    half = size // 2
    L1, W1 = _factorised(A[..., :half, :half], name)
    # W₁ A₂₁ᵀ would be faster, but loses digits: kernel matrices with noise 1e-10 then fail.
    upper = _solve(L1, tf.linalg.matrix_transpose(A[..., half:, :half]))
    complement = A[..., half:, half:] - tf.matmul(upper, upper, transpose_a=True)
    L2, W2 = _factorised(complement, name)
    below = -W2.product(tf.linalg.matrix_transpose(W1.transposed_product(upper)))
    return _FactorBlocks(L1, upper, L2), _Blocks(W1, below, W2)


def _solve(L: tf.Tensor | _FactorBlocks, B: tf.Tensor) -> tf.Tensor:
    """L⁻¹ B, by substitution."""
    if not isinstance(L, _FactorBlocks):
        return tf.linalg.triangular_solve(L, B)
    half = L.upper.shape[-2]
    first = _solve(L.first, B[..., :half, :])
    rest = B[..., half:, :] - tf.matmul(L.upper, first, transpose_a=True)
    return tf.concat([first, _solve(L.last, rest)], axis=-2)


def lower_product_strips(W: tf.Tensor, B: tf.Tensor) -> list[tf.Tensor]:
    """W B for a lower triangular W, as a list of strips of its rows.

    :param W: [..., M, M].
    :param B: [..., M, N].
    """
    size = W.shape[-1]
    if size is None:
        return [tf.matmul(W, B)]
    num_strips = max(1, min(MAX_STRIPS, size // STRIP), size // WIDEST_STRIP)
    edges = [size * i // num_strips for i in range(num_strips + 1)]
    return [
        tf.matmul(W[..., start:stop, :stop], B[..., :stop, :]) for start, stop in pairwise(edges)
    ]


def has_values_on_cpu(A: tf.Tensor) -> bool:
    """Whether NumPy and SciPy can work on a tensor: outside graphs, in the memory of the CPU.

    :param A: any tensor.
    """
    return tf.executing_eagerly() and tf.DeviceSpec.from_string(A.device).device_type == "CPU"


def gram_of_strips(strips: list[tf.Tensor]) -> tf.Tensor:
    """A Aᵀ for a matrix A given as strips of its rows.

    :param strips: [rows, N] each.
    """
    lower = [
        [tf.matmul(left, right, transpose_b=True) for right in strips[: i + 1]]
        for i, left in enumerate(strips)
    ]
    rows = [
        [*row, *(tf.transpose(lower[j][i]) for j in range(i + 1, len(strips)))]
        for i, row in enumerate(lower)
    ]
    return tf.concat([tf.concat(row, axis=1) for row in rows], axis=0)


def _joined(first: tf.Tensor, above: tf.Tensor, below: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
    top, bottom = tf.concat([first, above], axis=-1), tf.concat([below, last], axis=-1)
    return tf.concat([top, bottom], axis=-2)
