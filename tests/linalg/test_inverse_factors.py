"""Claims about inverse Cholesky factors, whole and in blocks, and about products in strips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.linalg import inverse_factors as module
from gpflow_ilr.linalg.inverse_factors import (
    InverseFactor,
    cholesky_or_error,
    gram_of_strips,
    inverse_cholesky,
    lower_product_strips,
    triangular_inverse,
)

WHOLE = 10**9
"""A LARGE_FACTOR that nothing reaches."""
BLOCK = 4
"""A LARGE_FACTOR for which matrices of a few rows are in blocks: those of 7 in 3 and (2, 2)."""
LEVELS = {1: 0, 3: 0, 4: 1, 7: 2, 16: 3, 37: 4}
"""How many times a matrix of some size is then divided."""


def spd(rng: np.random.Generator, size: int, *batch: int) -> np.ndarray:
    """A positive definite matrix with a condition number below about 1e3."""
    root = rng.normal(size=(*batch, size, size))
    return root @ np.swapaxes(root, -1, -2) / size + 0.1 * np.eye(size)


def transposed(A: np.ndarray) -> np.ndarray:
    return np.swapaxes(A, -1, -2)


def assert_close(ours: tf.Tensor, theirs: np.ndarray, rtol: float = 1e-12) -> None:
    """Each tensor is right relative to its largest entry."""
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=rtol * np.max(np.abs(theirs)))


def depth(W: InverseFactor) -> int:
    """How many times W is divided into blocks."""
    if isinstance(W, module._Blocks):
        return 1 + max(depth(W.first), depth(W.last))
    return 0


# --- Inverse factors ----------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [(), (1,), (3,)])
@pytest.mark.parametrize("size", LEVELS)
@pytest.mark.parametrize("large", [BLOCK, WHOLE])
def test_inverse_factor_says_what_numpy_says(
    large: int,
    size: int,
    batch: tuple[int, ...],
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LARGE_FACTOR", large)
    A, B = spd(rng, size, *batch), rng.normal(size=(*batch, size, 2))
    W_exact = np.linalg.inv(np.linalg.cholesky(A))
    inverse = np.linalg.inv(A)

    W = inverse_cholesky(tf.constant(A), "A")

    assert depth(W) == (LEVELS[size] if large == BLOCK else 0)
    assert_close(W.dense(), W_exact)
    np.testing.assert_array_equal(W.dense(), np.tril(W.dense()))
    assert_close(W.product(tf.constant(B)), W_exact @ B)
    assert_close(W.transposed_product(tf.constant(B)), transposed(W_exact) @ B)
    assert_close(W.solve(tf.constant(B)), np.linalg.solve(A, B))
    assert_close(W.inverse(), inverse)
    assert_close(W.inverse_diagonal(), np.diagonal(inverse, axis1=-2, axis2=-1))
    # Small where eigenvalues above and below one cancel.
    assert W.log_determinant().shape == batch
    np.testing.assert_allclose(W.log_determinant(), np.linalg.slogdet(A)[1], rtol=0, atol=1e-11)


@pytest.mark.parametrize("size", [7, 18])
def test_the_corners_of_an_inverse_are_exactly_each_others_transposes(
    size: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGE_FACTOR", BLOCK)
    C = inverse_cholesky(tf.constant(spd(rng, size)), "A").inverse().numpy()
    half = size // 2
    np.testing.assert_array_equal(C[half:, :half], C[:half, half:].T)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_graphs_and_xla_equal_eager_in_blocks(
    jit_compile: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGE_FACTOR", BLOCK)
    A, B = spd(rng, 11, 2), rng.normal(size=(2, 11, 3))

    def results(A: tf.Tensor, B: tf.Tensor) -> list[tf.Tensor]:
        W = inverse_cholesky(A, "A")
        return [W.dense(), W.inverse(), W.solve(B), W.inverse_diagonal(), W.log_determinant()]

    compiled = tf.function(results, autograph=False, jit_compile=jit_compile)(A, B)
    for ours, eager in zip(compiled, results(tf.constant(A), tf.constant(B)), strict=True):
        assert_close(ours, eager.numpy())


def test_a_size_known_only_when_run_is_one_matrix(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGE_FACTOR", BLOCK)
    spec = tf.TensorSpec([None, None], tf.float64)
    dense = tf.function(lambda A: inverse_cholesky(A, "A").dense(), input_signature=[spec])
    for size in (2, 9):
        A = spd(rng, size)
        assert_close(dense(A), np.linalg.inv(np.linalg.cholesky(A)))


Result = Callable[[InverseFactor, tf.Tensor], tf.Tensor]
RESULTS: dict[str, Result] = {
    "dense": lambda W, _: W.dense(),
    "inverse": lambda W, _: W.inverse(),
    "inverse_diagonal": lambda W, _: W.inverse_diagonal(),
    "log_determinant": lambda W, _: W.log_determinant(),
    "product": lambda W, B: W.product(B),
    "solve": lambda W, B: W.solve(B),
    "transposed_product": lambda W, B: W.transposed_product(B),
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS.keys())
@pytest.mark.parametrize(("size", "batch"), [(7, ()), (13, (2,))])
def test_gradients_are_the_same_whole_and_in_blocks(
    result: Result,
    size: int,
    batch: tuple[int, ...],
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    A, B = tf.constant(spd(rng, size, *batch)), tf.constant(rng.normal(size=(*batch, size, 3)))
    weights = rng.normal(size=result(inverse_cholesky(A, "A"), B).shape)

    def value_and_gradients(large: int) -> list[np.ndarray]:
        monkeypatch.setattr(module, "LARGE_FACTOR", large)
        with tf.GradientTape() as tape:
            tape.watch([A, B])
            value = tf.reduce_sum(weights * result(inverse_cholesky(A, "A"), B))
        dA, dB = tape.gradient(value, [A, B], unconnected_gradients="zero")
        # A is symmetric: only the sum of the gradients of A_ij and A_ji means something.
        return [value.numpy(), dA.numpy() + transposed(dA.numpy()), dB.numpy()]

    whole, blocks = value_and_gradients(WHOLE), value_and_gradients(BLOCK)
    assert np.any(whole[1])
    for ours, theirs in zip(blocks, whole, strict=True):
        assert_close(ours, theirs, 1e-11)


def test_gradient_of_a_solution_in_blocks_is_that_of_the_inverse(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGE_FACTOR", BLOCK)
    A, b, w = tf.constant(spd(rng, 9)), tf.constant(rng.normal(size=(9, 1))), rng.normal(size=9)
    with tf.GradientTape() as tape:
        tape.watch([A, b])
        value = tf.reduce_sum(w[:, None] * inverse_cholesky(A, "A").solve(b))
    dA, db = tape.gradient(value, [A, b])
    # d(wᵀA⁻¹b) = −(A⁻¹w)ᵀ dA (A⁻¹b)
    left, right = np.linalg.solve(A, w), np.linalg.solve(A, b[:, 0])
    assert_close(db, left[:, None])
    assert_close(dA + tf.transpose(dA), -np.outer(left, right) - np.outer(right, left))


# --- Accuracy -----------------------------------------------------------------------------------


def inverse_cholesky_by_columns(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L⁻¹ and log|A| in any precision NumPy has, by elimination column by column."""
    A, W = A.copy(), np.eye(len(A), dtype=A.dtype)
    for i in range(len(A)):
        pivot = np.sqrt(A[i, i])
        column = A[i + 1 :, i] / pivot
        W[i, : i + 1] /= pivot
        A[i + 1 :, i + 1 :] -= column[:, None] * column
        W[i + 1 :, : i + 1] -= column[:, None] * W[i, : i + 1]
    return W, -2 * np.sum(np.log(np.diag(W)))


def noisy_kernel(num_rows: int, noise: float, dtype: type, rng: np.random.Generator) -> np.ndarray:
    """A smooth kernel on a line, of which all but a few eigenvalues are the noise."""
    X = np.sort(rng.uniform(size=(num_rows, 1)), axis=0)
    K = np.exp(-0.5 * np.square((X - X.T) / 0.2))
    return (K + noise * np.eye(num_rows)).astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "longer", "noise"),
    [(np.float64, np.longdouble, 1e-6), (np.float32, np.float64, 1e-2)],
)
def test_blocks_are_as_exact_as_the_whole_for_a_nearly_singular_matrix(
    dtype: type,
    longer: type,
    noise: float,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    num_rows = 600
    A = noisy_kernel(num_rows, noise, dtype, rng)
    B = rng.normal(size=(num_rows, 3)).astype(dtype)
    W_exact, log_determinant = inverse_cholesky_by_columns(A.astype(longer))
    C_exact = W_exact.T @ W_exact
    exact = [W_exact, C_exact, np.diag(C_exact), C_exact @ B, log_determinant]

    def errors(large: int, levels: int) -> np.ndarray:
        monkeypatch.setattr(module, "LARGE_FACTOR", large)
        W = inverse_cholesky(tf.constant(A), "A")
        assert depth(W) == levels
        results = [W.dense(), W.inverse(), W.inverse_diagonal(), W.solve(tf.constant(B))]
        results.append(W.log_determinant())
        assert all(result.dtype == dtype for result in results)
        return np.array(
            [
                np.linalg.norm(ours.numpy() - truth.astype(float))
                / np.linalg.norm(truth.astype(float))
                for ours, truth in zip(results, exact, strict=True)
            ]
        )

    whole = errors(WHOLE, 0)
    for order in [rng.permutation(num_rows) for _ in range(5)]:  # one number may be right by luck
        other = inverse_cholesky(tf.constant(A[order][:, order]), "A").log_determinant()
        whole[-1] = max(whole[-1], abs(float(other / float(log_determinant)) - 1))
    for large, levels in [(400, 1), (50, 4)]:
        assert np.all(errors(large, levels) < 4 * whole + np.finfo(dtype).eps)


@pytest.mark.parametrize(("dtype", "noise"), [(np.float64, 1e-11), (np.float32, 1e-4)])
def test_blocks_factorise_what_the_whole_factorises(
    dtype: type, noise: float, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    A = tf.constant(noisy_kernel(1500, noise, dtype, rng))
    assert np.all(np.isfinite(tf.linalg.cholesky(A)))
    for large in (800, 200):
        monkeypatch.setattr(module, "LARGE_FACTOR", large)
        assert np.all(np.isfinite(inverse_cholesky(A, "A").dense()))


# --- Errors -------------------------------------------------------------------------------------

SENTENCE = r"Cholesky factor of K_uu is not finite.*Remedies: .*jitter.*duplicated.*float64"
INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]])


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("matrix", [INDEFINITE, np.full((2, 2), np.nan)])
def test_a_matrix_without_cholesky_factor_raises_a_remedy(graph: bool, matrix: np.ndarray) -> None:
    factorise = tf.function(cholesky_or_error, autograph=False) if graph else cholesky_or_error
    with pytest.raises(tf.errors.InvalidArgumentError, match=SENTENCE):
        factorise(tf.constant(matrix), "K_uu")
    np.testing.assert_array_equal(factorise(tf.eye(2), "K_uu"), np.eye(2))


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("large", [BLOCK, WHOLE])
@pytest.mark.parametrize("wrong", [np.nan, 50.0])
@pytest.mark.parametrize("position", [(0, 0), (1, 0), (8, 0), (8, 7), (8, 8)])
def test_one_wrong_element_raises_the_remedy_in_whichever_block_it_is(
    position: tuple[int, int],
    wrong: float,
    large: int,
    graph: bool,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LARGE_FACTOR", large)
    right = spd(rng, 9, 2)
    A = right.copy()
    i, j = position
    # A large covariance, or a negative variance, makes the matrix indefinite.
    A[1, i, j] = A[1, j, i] = -wrong if i == j else wrong

    def inverse(A: tf.Tensor) -> tf.Tensor:
        return inverse_cholesky(A, "K_uu").dense()

    run = tf.function(inverse, autograph=False) if graph else inverse
    with pytest.raises(tf.errors.InvalidArgumentError, match=SENTENCE):
        run(tf.constant(A))
    assert np.all(np.isfinite(run(tf.constant(right))))


def test_a_block_is_judged_given_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    # Both halves are positive definite for themselves; together they are not.
    monkeypatch.setattr(module, "LARGE_FACTOR", BLOCK)
    half = np.eye(4)
    A = np.block([[half, 1.1 * half], [1.1 * half, half]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=SENTENCE):
        inverse_cholesky(tf.constant(A), "K_uu")


# --- Triangular matrices ------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [(), (2,)])
def test_triangular_inverse_is_the_inverse(
    batch: tuple[int, ...], rng: np.random.Generator
) -> None:
    L = np.linalg.cholesky(spd(rng, 5, *batch))
    ours = triangular_inverse(tf.constant(L))
    assert_close(ours, np.linalg.inv(L))
    np.testing.assert_array_equal(ours, np.tril(ours))


# With strips of at least 10 rows: their number, for sizes on and off its multiples.
STRIPS = [
    (1, 1),
    (10, 1),
    (19, 1),
    (20, 2),
    (25, 2),
    (30, 3),
    (32, 3),
    (40, 4),
    (43, 4),
    (97, 4),
    (150, 5),
]


@pytest.mark.parametrize(("size", "num_strips"), STRIPS)
def test_products_in_strips_equal_numpy(
    size: int, num_strips: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STRIP", 10)
    monkeypatch.setattr(module, "WIDEST_STRIP", 30)
    W, B = np.tril(rng.normal(size=(size, size))), rng.normal(size=(size, 6))
    strips = lower_product_strips(tf.constant(W), tf.constant(B))
    assert len(strips) == num_strips
    rows = [strip.shape[0] for strip in strips]
    assert max(rows) - min(rows) <= 1
    assert_close(tf.concat(strips, axis=0), W @ B, 1e-14)
    gram = gram_of_strips(strips)
    assert_close(gram, W @ B @ B.T @ W.T, 1e-14)
    edges = np.cumsum([0, *rows])
    blocks = [slice(a, b) for a, b in pairwise(edges)]
    for i, left in enumerate(blocks):
        for right in blocks[:i]:
            np.testing.assert_array_equal(gram[left, right], np.transpose(gram[right, left]))


def test_the_upper_triangle_beyond_a_strip_is_not_read(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STRIP", 10)
    W, B = np.tril(rng.normal(size=(43, 43))), rng.normal(size=(43, 6))
    soiled = W.copy()
    soiled[:10, 10:] = np.nan
    strips = lower_product_strips(tf.constant(soiled), tf.constant(B))
    assert_close(tf.concat(strips, axis=0), W @ B, 1e-14)


@pytest.mark.parametrize(("size", "num_strips"), [(19, 1), (25, 2), (43, 4)])
def test_gradients_of_products_in_strips_equal_those_of_whole_products(
    size: int, num_strips: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STRIP", 10)
    arguments = [
        tf.constant(np.tril(rng.normal(size=(size, size)))),
        tf.constant(rng.normal(size=(size, 6))),
    ]
    weights = rng.normal(size=(size, size))

    def gradients(
        product: Callable[[tf.Tensor, tf.Tensor], Sequence[tf.Tensor]],
    ) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            strips = product(*arguments)
            value = tf.reduce_sum(weights * gram_of_strips(strips))
        return [*tape.gradient(value, arguments), len(strips)]

    dW, dB, count = gradients(lower_product_strips)
    dW_whole, dB_whole, _ = gradients(lambda W, B: [tf.matmul(W, B)])
    assert count == num_strips
    assert_close(np.tril(dW), np.tril(dW_whole), 1e-13)  # the rest of W is zero for good
    assert_close(dB, dB_whole.numpy(), 1e-13)


def test_a_product_of_a_size_known_only_when_run_has_one_strip(rng: np.random.Generator) -> None:
    W, B = np.tril(rng.normal(size=(7, 7))), rng.normal(size=(7, 3))
    shapes = [tf.TensorSpec([None, None], tf.float64)] * 2
    strips = tf.function(lower_product_strips, shapes, autograph=False)(W, B)
    assert len(strips) == 1
    assert_close(strips[0], W @ B)
