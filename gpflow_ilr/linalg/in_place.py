"""What exact regression needs of A = K + V, in one matrix of the size of the data.

K is never there as a whole. Rows of its lower triangle are computed a few at a time, written to where
the factor will be, and LAPACK turns A into its Cholesky factor L, and L into W = L⁻¹, in place:

    α = A⁻¹ B from L,   (A⁻¹)_nn = |L⁻¹ e_n|² for some rows n, or the norms of W's columns for all.

That is one N × N matrix and about ⅔ N³ multiplications and additions, half of them for W, which
predictions do without; on all cores, where TensorFlow's own kernels hold seven and factorise on one.
They do it in graphs, on other devices, and where gradients are asked for, which LAPACK's results get
by computing everything again.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from gpflow_ilr.linalg.covariances import covariance
from gpflow_ilr.linalg.evidence import inverse_diagonal_and_solution
from gpflow_ilr.linalg.inverse_factors import (
    block_edges,
    cholesky_error,
    has_values_on_cpu,
    substitution_factor,
)

__all__ = ["factor_and_solution", "left_out_terms"]

_BLOCK_ELEMENTS = 2**22
_BLOCK_ROWS = 64
"""What is in memory beside the matrix has about so many numbers; a 32nd of it, or so many rows."""
_LARGEST_CALL = 8192
"""Rows of the largest matrix that LAPACK factorises by one call."""
_ALIGNMENT = 64
"""Bytes: TensorFlow takes memory over from NumPy where it begins at a multiple."""

Results = Sequence[tf.Tensor]


def factor_and_solution(
    kernel: Kernel, X: tf.Tensor, B: tf.Tensor, V: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """L of L Lᵀ = A = K + diag V, [N, N], for :mod:`.substitution`, and α = A⁻¹ B, [N, P].

    What predictions need. The diagonal blocks of L are inverted.

    Gradients flow into the arguments and the kernel's variables; other tensors that the kernel reads
    are constants in eager mode.

    :param kernel: any single-output kernel.
    :param X: [N, D].
    :param B: [N, P].
    :param V: noise variances, [N].
    """

    def by_tensorflow(X: tf.Tensor, B: tf.Tensor, V: tf.Tensor) -> Results:
        S, W = substitution_factor(_noisy(kernel, X, V), "K + V")
        return S, W.transposed_product(W.product(B))

    def by_lapack(X: tf.Tensor, B: tf.Tensor, V: tf.Tensor) -> Results:
        L = _cholesky(kernel, X, V)
        alpha = _solution(L, B)
        for i, j in pairwise(block_edges(len(L))):
            block = L[i:j, i:j].copy()
            _invert(block)
            L[i:j, i:j] = block
        # The tensor is the matrix: TensorFlow neither copies it nor lets NumPy free it.
        return tf.experimental.dlpack.from_dlpack(L.__dlpack__()), tf.constant(alpha)

    L, alpha = _either(by_lapack, by_tensorflow, [X, B, V])
    return L, alpha


def left_out_terms(
    kernel: Kernel, X: tf.Tensor, B: tf.Tensor, V: tf.Tensor, rows: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The diagonal of C = (K + diag V)⁻¹, [n], and C B, [n, P], at some rows: what leave-one-out needs.

    Gradients are as in :func:`factor_and_solution`.

    :param kernel: any single-output kernel.
    :param X: [N, D].
    :param B: [N, P].
    :param V: noise variances, [N].
    :param rows: their numbers, [n]; all of them if None.
    """

    def by_tensorflow(X: tf.Tensor, B: tf.Tensor, V: tf.Tensor) -> Results:
        results = inverse_diagonal_and_solution(_noisy(kernel, X, V), B)
        return results if rows is None else [tf.gather(x, rows) for x in results]

    def by_lapack(X: tf.Tensor, B: tf.Tensor, V: tf.Tensor) -> Results:
        L = _cholesky(kernel, X, V)
        wanted = np.arange(len(L)) if rows is None else np.asarray(rows)
        alpha = _solution(L, B)[wanted]
        if 3 * len(wanted) < len(L):  # N² n operations instead of N³/3
            diagonal = _inverse_diagonal_at(L, wanted)
        else:
            _invert(L)
            diagonal = _squared_column_norms(L)[wanted]
        return tf.constant(diagonal), tf.constant(alpha)

    diagonal, alpha = _either(by_lapack, by_tensorflow, [X, B, V])
    return diagonal, alpha


def _either(
    by_lapack: Callable[..., Results], by_tensorflow: Callable[..., Results], tensors: Results
) -> Results:
    """One of two functions with equal results: in memory of the CPU the first, else the second.

    The first has the gradient of the second, which is computed only where it is asked for.
    """

    @tf.custom_gradient
    def in_place(*tensors: tf.Tensor) -> tuple[Results, Callable[..., Any]]:
        def gradient(*upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            sources = [*tensors, *variables]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(sources)
                results = by_tensorflow(*tensors)
            found = tape.gradient(results, sources, upstream, unconnected_gradients="zero")
            return found[: len(tensors)], found[len(tensors) :]

        return by_lapack(*tensors), gradient

    return in_place(*tensors) if has_values_on_cpu(tensors[0]) else by_tensorflow(*tensors)


def _noisy(kernel: Kernel, X: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    K = covariance(kernel, X)
    return tf.linalg.set_diag(K, tf.linalg.diag_part(K) + V)


# LAPACK counts by columns. Its upper triangle is NumPy's lower one, of the same memory.


def _cholesky(kernel: Kernel, X: tf.Tensor, V: tf.Tensor) -> np.ndarray:
    """L of K + diag V, [N, N], with zeros above the diagonal."""
    size, dtype = X.shape[0], X.dtype.as_numpy_dtype
    bytes_of_L = size * size * np.dtype(dtype).itemsize
    memory = np.zeros(bytes_of_L + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    L = memory[start : start + bytes_of_L].view(dtype).reshape(size, size)
    for i, j in _blocks(size, size):
        L[i:j, :j] = covariance(kernel, X[i:j], X[:j])
        L[i:j, i:j] = np.tril(L[i:j, i:j])
    # Rows with themselves: a kernel between two sets of rows may know no white noise.
    np.fill_diagonal(L, kernel(X, full_cov=False) + V)
    _factorise(L)
    return L


def _factorise(L: np.ndarray) -> None:
    """The Cholesky factor, where the lower triangle of the matrix was.

    By one call of LAPACK, but for large matrices by blocks of columns, each less what those to its
    left explain: OpenBLAS 0.3.30 (SciPy 1.17) ends the process at 16,000 rows, with two threads.
    """
    if len(L) <= _LARGEST_CALL:
        _factorise_at_once(L)
        return
    (trsm,) = get_blas_funcs(("trsm",), dtype=L.dtype)
    step = len(L) // 16  # of which three are in memory beside the matrix
    for i in range(0, len(L), step):
        j = min(i + step, len(L))
        columns = L[i:, i:j] - L[i:, :i] @ L[i:j, :i].T
        corner, rest = np.tril(columns[: j - i]), columns[j - i :]
        _factorise_at_once(corner)
        if len(rest):
            trsm(1.0, corner.T, rest.T, lower=False, trans_a=True, overwrite_b=True)
        L[i:j, i:j], L[j:, i:j] = corner, rest


def _factorise_at_once(L: np.ndarray) -> None:
    (potrf,) = get_lapack_funcs(("potrf",), dtype=L.dtype)
    _, failed = potrf(L.T, lower=False, clean=False, overwrite_a=True)
    if failed or not np.all(np.isfinite(np.diagonal(L))):  # NaN may not count as a failure
        raise cholesky_error("K + V")


def _solution(L: np.ndarray, B: tf.Tensor) -> np.ndarray:
    (potrs,) = get_lapack_funcs(("potrs",), dtype=L.dtype)
    return potrs(L.T, B, lower=False)[0]


def _invert(L: np.ndarray) -> None:
    """L⁻¹, where L was."""
    (trtri,) = get_lapack_funcs(("trtri",), dtype=L.dtype)
    trtri(L.T, lower=False, overwrite_c=True)


def _squared_column_norms(W: np.ndarray) -> np.ndarray:
    norms = np.zeros(len(W), W.dtype)
    for i, j in _blocks(len(W), len(W)):
        norms[:j] += np.einsum("ij,ij->j", W[i:j, :j], W[i:j, :j])
    return norms


def _inverse_diagonal_at(L: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """|L⁻¹ e_n|² for some rows n."""
    (trsm,) = get_blas_funcs(("trsm",), dtype=L.dtype)
    diagonal = np.empty(len(rows), L.dtype)
    for i, j in _blocks(len(rows), len(L)):
        E = np.zeros((j - i, len(L)), L.dtype)
        E[np.arange(j - i), rows[i:j]] = 1.0
        trsm(1.0, L.T, E.T, lower=False, trans_a=True, overwrite_b=True)
        diagonal[i:j] = np.einsum("ij,ij->i", E, E)
    return diagonal


def _blocks(num_rows: int, size: int) -> Iterator[tuple[int, int]]:
    """Where blocks of rows begin and end that are small beside a matrix of some size."""
    step = max(1, min(_BLOCK_ELEMENTS // size, max(_BLOCK_ROWS, size // 32)))
    return ((i, min(i + step, num_rows)) for i in range(0, num_rows, step))
