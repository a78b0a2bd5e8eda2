"""Claims about log evidences, their closed-form gradients and the errors of their factorisations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import multivariate_normal

from gpflow_ilr.linalg import evidence as module
from gpflow_ilr.linalg.evidence import (
    dense_log_evidence,
    eigenbasis,
    inverse_diagonal_and_solution,
    relative_inverse_cholesky,
    spd_inverse,
    spectral_log_evidence,
    whitened_log_evidence,
    whitened_solution,
)

EPS = np.finfo(np.float64).eps
N, P, M = 9, 3, 5


def spd(rng: np.random.Generator, size: int, *batch: int) -> np.ndarray:
    """A positive definite matrix with a condition number below about 1e3."""
    root = rng.normal(size=(*batch, size, size))
    return root @ np.swapaxes(root, -1, -2) / size + 0.1 * np.eye(size)


def dense_case(rng: np.random.Generator, columns: int) -> list[np.ndarray]:
    K = spd(rng, N) - 0.1 * np.eye(N)
    return [K, rng.normal(size=(N, P)), rng.uniform(0.3, 2.0, size=(N, columns))]


def whitened_case(rng: np.random.Generator, factors: int) -> list[np.ndarray]:
    return [spd(rng, M, factors) - 0.1 * np.eye(M), rng.normal(size=(P, M))]


def spectral_case(rng: np.random.Generator, _: int = 1) -> list[np.ndarray]:
    G = spd(rng, M) - 0.1 * np.eye(M)
    return [G, rng.normal(size=(M, P)), rng.uniform(0.05, 2.0, size=P)]


def log_det(A: tf.Tensor) -> tf.Tensor:
    return tf.linalg.slogdet(A).log_abs_determinant


def naive_dense(K: tf.Tensor, Y: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    """Σ_p log N(y_p | 0, K + diag V_p), from inverses and determinants."""
    total = tf.zeros([], K.dtype)
    for p in range(Y.shape[1]):
        S = K + tf.linalg.diag(V[:, p if V.shape[1] > 1 else 0])
        y = Y[:, p, None]
        quadratic = tf.reduce_sum(y * tf.matmul(tf.linalg.inv(S), y))
        total -= 0.5 * (quadratic + log_det(S) + Y.shape[0] * np.log(2 * np.pi))
    return total


def naive_whitened(Lambda: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Σ_p (−½ log|I + Λ_p| + ½ b_pᵀ (I + Λ_p)⁻¹ b_p), from inverses and determinants."""
    total = tf.zeros([], b.dtype)
    for p in range(b.shape[0]):
        B = tf.eye(b.shape[1], dtype=b.dtype) + Lambda[p if Lambda.shape[0] > 1 else 0]
        quadratic = tf.reduce_sum(b[p, :, None] * tf.matmul(tf.linalg.inv(B), b[p, :, None]))
        total += 0.5 * (quadratic - log_det(B))
    return total


def naive_spectral(G: tf.Tensor, s: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    return naive_whitened(G[None] / v[:, None, None], tf.transpose(s) / v[:, None])


CASES = [
    pytest.param(dense_log_evidence, naive_dense, dense_case, 1, id="dense-shared"),
    pytest.param(dense_log_evidence, naive_dense, dense_case, P, id="dense-per-output"),
    pytest.param(whitened_log_evidence, naive_whitened, whitened_case, 1, id="whitened-shared"),
    pytest.param(whitened_log_evidence, naive_whitened, whitened_case, P, id="whitened-per-output"),
    pytest.param(spectral_log_evidence, naive_spectral, spectral_case, 1, id="spectral"),
]
Evidence = Callable[..., tf.Tensor]
Case = Callable[[np.random.Generator, int], list[np.ndarray]]


def value_and_gradients(function: Evidence, arguments: Sequence) -> list[np.ndarray]:
    tensors = [tf.convert_to_tensor(a) for a in arguments]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = 3.0 * function(*tensors)  # an upstream gradient that is not one
    return [value, *tape.gradient(value, tensors)]


def assert_equal_results(ours: Sequence, theirs: Sequence, rtol: float) -> None:
    """Each tensor is right relative to its largest entry."""
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * (1e-12 + np.max(np.abs(b))))


# --- Values and gradients -----------------------------------------------------------------------


@pytest.mark.parametrize(("function", "naive", "case", "columns"), CASES)
def test_value_and_gradient_equal_autodiff_of_the_naive_formula(
    function: Evidence, naive: Evidence, case: Case, columns: int, rng: np.random.Generator
) -> None:
    arguments = case(rng, columns)
    expected = value_and_gradients(naive, arguments)
    assert_equal_results(value_and_gradients(function, arguments), expected, 1e-12)


@pytest.mark.parametrize("columns", [1, P])
def test_dense_evidence_is_the_sum_of_gaussian_log_densities(
    columns: int, rng: np.random.Generator
) -> None:
    K, Y, V = dense_case(rng, columns)
    V_all = np.broadcast_to(V, Y.shape)
    expected = sum(
        multivariate_normal.logpdf(Y[:, p], cov=K + np.diag(V_all[:, p])) for p in range(P)
    )
    np.testing.assert_allclose(dense_log_evidence(K, Y, V), expected, rtol=1e-12)


@pytest.mark.parametrize(("function", "naive", "case", "columns"), CASES)
def test_gradient_equals_finite_differences(
    function: Evidence, naive: Evidence, case: Case, columns: int, rng: np.random.Generator
) -> None:
    del naive
    arguments = case(rng, columns)
    _, *gradients = value_and_gradients(function, arguments)
    for i, gradient in enumerate(gradients):
        direction = rng.normal(size=arguments[i].shape)
        if i == 0:  # covariances are symmetric
            direction = direction + np.swapaxes(direction, -1, -2)
        step = 1e-5
        ends = []
        for sign in (1.0, -1.0):
            moved = list(arguments)
            moved[i] = arguments[i] + sign * step * direction
            ends.append(3.0 * function(*moved))
        # Error: third derivatives times step², and rounding over the step.
        difference = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(np.sum(direction * gradient), difference, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("function", "naive", "case", "columns"), CASES)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_graphs_equal_eager(
    function: Evidence,
    naive: Evidence,
    case: Case,
    columns: int,
    jit_compile: bool,
    rng: np.random.Generator,
) -> None:
    del naive
    arguments = case(rng, columns)
    expected = value_and_gradients(function, arguments)
    compiled = tf.function(value_and_gradients, autograph=False, jit_compile=jit_compile)
    # XLA's eigh is a Jacobi iteration that stops far above rounding.
    rtol = 1e-7 if jit_compile and function is spectral_log_evidence else 1e-12
    assert_equal_results(compiled(function, arguments), expected, rtol)


@pytest.mark.parametrize("columns", [1, P])
def test_the_number_of_rows_may_be_known_only_when_run(
    columns: int, rng: np.random.Generator
) -> None:
    arguments = dense_case(rng, columns)
    signature = [tf.TensorSpec(s, tf.float64) for s in ([None, None], [None, P], [None, columns])]
    compiled = tf.function(
        lambda *a: value_and_gradients(dense_log_evidence, a),
        input_signature=signature,
        autograph=False,
    )
    expected = value_and_gradients(dense_log_evidence, arguments)
    assert_equal_results(compiled(*arguments), expected, 1e-13)


@pytest.mark.parametrize(("function", "naive", "case", "columns"), CASES)
def test_float32_is_right_to_its_own_precision(
    function: Evidence, naive: Evidence, case: Case, columns: int, rng: np.random.Generator
) -> None:
    arguments = [a.astype(np.float32) for a in case(rng, columns)]
    ours = value_and_gradients(function, arguments)
    assert all(o.dtype == tf.float32 for o in ours)
    exact = value_and_gradients(naive, [a.astype(np.float64) for a in arguments])
    # Condition numbers of the covariances are below 100.
    assert_equal_results(ours, exact, 100 * np.finfo(np.float32).eps)


# --- Degenerate spectra -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "eigenvalues",
    [[2, 2, 2, 2, 2], [3, 3, 1, 1, 0], [5, 0, 0, 0, 0], [0, 0, 0, 0, 0], [1e8, 1e8, 1, 1e-8, 0]],
)
@pytest.mark.parametrize("rotated", [False, True])
def test_spectral_gradient_is_right_where_eigenvalues_coincide(
    eigenvalues: list[float], rotated: bool, rng: np.random.Generator
) -> None:
    U = np.linalg.qr(rng.normal(size=(M, M)))[0] if rotated else np.eye(M)
    G = (U * np.array(eigenvalues, float)) @ U.T
    G = (G + G.T) / 2
    _, s, v = spectral_case(rng)
    ours = value_and_gradients(spectral_log_evidence, [G, s, v])
    assert all(np.all(np.isfinite(o)) for o in ours)
    expected = value_and_gradients(naive_spectral, [G, s, v])
    # The naive inverse of I + G/v is as accurate as its condition number allows.
    condition = 1 + max(eigenvalues) / v.min()
    assert_equal_results(ours, expected, max(1e-12, 4 * EPS * condition))


def test_spectral_evidence_survives_eigenvalues_that_rounding_made_negative(
    rng: np.random.Generator,
) -> None:
    A = rng.normal(size=(M, 2))
    _, s, v = spectral_case(rng)
    G = A @ A.T
    assert np.linalg.eigvalsh(G)[0] < EPS * np.trace(G)
    exact = value_and_gradients(naive_spectral, [G, s, v])
    nudged = value_and_gradients(spectral_log_evidence, [G - 1e-14 * np.eye(M), s, v])
    assert_equal_results(nudged, exact, 1e-11)


def test_a_column_of_noise_for_each_output_may_repeat_the_shared_one(
    rng: np.random.Generator,
) -> None:
    K, Y, V = dense_case(rng, 1)
    shared = value_and_gradients(dense_log_evidence, [K, Y, V])
    repeated = value_and_gradients(dense_log_evidence, [K, Y, np.repeat(V, P, axis=1)])
    repeated[3] = tf.reduce_sum(repeated[3], axis=1, keepdims=True)
    assert_equal_results(repeated, shared, 1e-13)


# --- Factorisations -----------------------------------------------------------------------------


@pytest.mark.parametrize("factors", [1, P])
def test_whitened_solution_solves_for_each_output(factors: int, rng: np.random.Generator) -> None:
    Lambda, b = whitened_case(rng, factors)
    W, beta = whitened_solution(Lambda, b)
    B = np.eye(M) + Lambda
    L_inv = np.linalg.inv(np.linalg.cholesky(B))
    np.testing.assert_allclose(W.dense(), L_inv, rtol=0, atol=1e-13)
    expected = np.linalg.solve(np.broadcast_to(B, (P, M, M)), b[..., None])[..., 0]
    np.testing.assert_allclose(beta, expected, atol=1e-12)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_inverse_and_its_gradient_are_tensorflows(
    batch: tuple[int, ...], rng: np.random.Generator
) -> None:
    A = spd(rng, M, *batch)

    def weighted(inverse: Evidence, A: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.constant(weights) * inverse(A))

    weights = rng.normal(size=A.shape)
    ours = value_and_gradients(lambda A: weighted(spd_inverse, A), [A])
    theirs = value_and_gradients(lambda A: weighted(tf.linalg.inv, A), [A])
    assert_equal_results(ours, theirs, 1e-12)


# --- What leave-one-out needs -------------------------------------------------------------------


def naive_inverse_diagonal_and_solution(A: tf.Tensor, B: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    C = tf.linalg.inv(A)
    return tf.linalg.diag_part(C), tf.matmul(C, B)


def as_graph(function: Callable) -> Callable:
    return tf.function(function, autograph=False)


@pytest.mark.parametrize("mode", [lambda function: function, as_graph], ids=["eager", "graph"])
def test_diagonal_and_solution_have_values_gradients_and_second_derivatives_of_the_inverse(
    mode: Callable, rng: np.random.Generator
) -> None:
    A, B = spd(rng, N), rng.normal(size=(N, P))
    weights = rng.normal(size=N), rng.normal(size=(N, P))
    directions = [tf.constant(spd(rng, N)), tf.constant(rng.normal(size=(N, P)))]

    def results(function: Callable, A: tf.Tensor, B: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as outer:
            outer.watch([A, B])
            with tf.GradientTape() as tape:
                tape.watch([A, B])
                diagonal, alpha = function(A, B)
                # Not linear, so that the second derivative has all its terms.
                value = tf.reduce_sum(weights[0] * diagonal**2)
                value += tf.reduce_sum(weights[1] * alpha**2)
            first = tape.gradient(value, [A, B])
            slope = sum(tf.reduce_sum(g * d) for g, d in zip(first, directions, strict=True))
        second = outer.gradient(slope, [A, B])
        # A is symmetric: only the sum of the gradients of A_ij and A_ji means something.
        dA, ddA = (g + tf.transpose(g) for g in (first[0], second[0]))
        return [diagonal, alpha, value, dA, first[1], ddA, second[1]]

    run = mode(lambda A, B: results(inverse_diagonal_and_solution, A, B))
    ours = run(tf.constant(A), tf.constant(B))
    theirs = results(naive_inverse_diagonal_and_solution, tf.constant(A), tf.constant(B))
    assert_equal_results(ours, theirs, 1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_diagonal_and_solution_in_eager_mode_are_those_of_a_graph(
    dtype: type, rng: np.random.Generator
) -> None:
    A = tf.constant(spd(rng, N), dtype)
    before, B = A.numpy(), tf.constant(rng.normal(size=(N, P)), dtype)
    soiled = tf.where(np.triu(np.ones([N, N], bool), 1), tf.constant(np.nan, dtype), A)
    for ours, theirs, unread in zip(
        inverse_diagonal_and_solution(A, B),
        as_graph(inverse_diagonal_and_solution)(A, B),
        inverse_diagonal_and_solution(soiled, B),
        strict=True,
    ):
        assert ours.dtype == theirs.dtype == dtype
        np.testing.assert_allclose(ours, theirs, rtol=300 * np.finfo(dtype).eps)
        np.testing.assert_array_equal(ours, unread)
    np.testing.assert_array_equal(A, before)


@pytest.mark.parametrize("mode", [lambda function: function, as_graph], ids=["eager", "graph"])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, 50.0])
@pytest.mark.parametrize("position", [(0, 0), (5, 2), (8, 8)])
def test_diagonal_and_solution_pass_the_remedy_on(
    position: tuple[int, int], wrong: float, mode: Callable, rng: np.random.Generator
) -> None:
    A, B = spd(rng, N), rng.normal(size=(N, P))
    i, j = position
    A[i, j] = A[j, i] = -wrong if i == j else wrong
    with pytest.raises(tf.errors.InvalidArgumentError, match="Remedies"):
        mode(inverse_diagonal_and_solution)(tf.constant(A), tf.constant(B))


# --- Errors -------------------------------------------------------------------------------------

INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]])


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("columns", [1, 2])
def test_evidences_pass_the_remedy_on(graph: bool, columns: int) -> None:
    def evidences() -> list[Callable[[], tf.Tensor]]:
        V = tf.fill([2, columns], tf.constant(1e-3, tf.float64))
        Y = tf.ones([2, 2], tf.float64)
        Lambda = tf.tile(tf.constant(-2 * INDEFINITE)[None], [columns, 1, 1])
        return [
            lambda: dense_log_evidence(tf.constant(INDEFINITE), Y, V),
            lambda: whitened_log_evidence(Lambda, Y),
        ]

    for evidence in evidences():
        run = tf.function(evidence, autograph=False) if graph else evidence
        with pytest.raises(tf.errors.InvalidArgumentError, match="Remedies"):
            run()


@pytest.mark.parametrize("variance", [1e-8, 1e-3, 1.0, 1e3, 1e8])
def test_jitter_is_relative_to_the_kernels_variance(variance: float) -> None:
    X = np.linspace(0, 1, 12)[:, None]
    K = gpflow.kernels.SquaredExponential(lengthscales=3.0)(X)  # numerically singular
    W = relative_inverse_cholesky(variance * K, "K")
    np.testing.assert_array_equal(W, np.tril(W))
    jitter = gpflow.config.default_jitter()
    # The inverse of a singular matrix amplifies the rounding of variance · K by 1/jitter.
    atol = 100 * EPS / jitter
    identity = W @ (variance * (K + jitter * np.eye(12))) @ tf.transpose(W)
    np.testing.assert_allclose(identity, np.eye(12), rtol=0, atol=atol)
    reference = relative_inverse_cholesky(K, "K")
    np.testing.assert_allclose(
        np.sqrt(variance) * W, reference, rtol=0, atol=atol * np.max(np.abs(reference))
    )


def test_jitter_is_read_when_called() -> None:
    with gpflow.config.as_context(gpflow.config.Config(jitter=0.5)):
        W = relative_inverse_cholesky(4 * tf.eye(2), "K")
    np.testing.assert_allclose(W, np.eye(2) / np.sqrt(6))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cholesky factor of K_uu"):
        relative_inverse_cholesky(tf.constant(INDEFINITE), "K_uu")


def test_lapacks_eigenbasis_has_no_negative_eigenvalue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE_EIGENBASIS", M)
    A = np.random.default_rng(0).normal(size=(M, 3))  # of rank 3: two eigenvalues are rounding
    g, U = eigenbasis(tf.constant(A @ A.T))
    assert np.min(g) >= 0.0
    np.testing.assert_allclose(tf.matmul(U * g, U, transpose_b=True), A @ A.T, atol=1e-13)
