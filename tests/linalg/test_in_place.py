"""Claims about exact regression in one matrix: what it equals, its gradient, and its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Kernel, Linear, Matern12, SquaredExponential, White

from gpflow_ilr.linalg import in_place as module
from gpflow_ilr.linalg.in_place import factor_and_solution, left_out_terms
from gpflow_ilr.linalg.substitution import substituted
from tests.linalg.memory import peak_bytes

N, P = 23, 3
_RNG = np.random.default_rng(0)
X, B, V = _RNG.normal(size=(N, 2)), _RNG.normal(size=(N, P)), _RNG.uniform(0.05, 0.5, N)
KERNELS: dict[str, Callable[[], Kernel]] = {
    "squared exponential": lambda: SquaredExponential(0.7, [1.3, 0.8]),
    "with white noise": lambda: Matern12(0.5) + White(0.3),
    "not stationary": lambda: Linear(0.4) * SquaredExponential(active_dims=[1]) + Linear(0.1),
}
ROWS = {
    "all": None,
    "one": [0],
    "few": [20, 3, 7],
    "few, but more than a small block": [20, 3, 7, 11, 0, 15],
    "most": list(range(0, N, 2)),
}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of four rows, the last of fewer."""
    monkeypatch.setattr(module, "_BLOCK_ROWS", 4)


def tensors(dtype: Any = np.float64) -> list[tf.Tensor]:
    return [tf.constant(x, dtype) for x in (X, B, V)]


def dense(kernel: Kernel) -> np.ndarray:
    return kernel(X).numpy() + np.diag(V)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_factor_and_solution_are_those_of_dense_algebra(kernel: Callable[[], Kernel]) -> None:
    S, alpha = factor_and_solution(kernel(), *tensors())
    A = dense(kernel())
    np.testing.assert_allclose(substituted(S, A), np.linalg.cholesky(A).T, atol=1e-12)
    assert np.all(np.triu(S, 1) == 0)  # products read above the diagonal, too
    np.testing.assert_allclose(alpha, np.linalg.solve(A, B), atol=1e-11)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_left_out_terms_are_those_of_dense_algebra(
    kernel: Callable[[], Kernel], rows: list[int] | None
) -> None:
    wanted = slice(None) if rows is None else rows
    numbers = None if rows is None else tf.constant(rows)
    diagonal, alpha = left_out_terms(kernel(), *tensors(), numbers)
    C = np.linalg.inv(dense(kernel()))
    np.testing.assert_allclose(diagonal, np.diag(C)[wanted], rtol=1e-11)
    np.testing.assert_allclose(alpha, (C @ B)[wanted], atol=1e-11)


@pytest.mark.parametrize(("count", "spared"), [(7, "_invert"), (8, "_inverse_diagonal_at")])
def test_the_inverse_is_computed_for_a_third_of_the_rows_or_more(
    count: int, spared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(module, spared)
    diagonal, _ = left_out_terms(SquaredExponential(), *tensors(), tf.range(count))
    C = np.linalg.inv(dense(SquaredExponential()))
    np.testing.assert_allclose(diagonal, np.diag(C)[:count], rtol=1e-11)


def gradients(function: Callable[..., Any], kernel: Kernel, *arguments: Any) -> list[tf.Tensor]:
    """Of a weighted sum of all results, with respect to the arguments and the kernel."""
    inputs = tensors()
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        results = function(kernel, *inputs, *arguments)
        value = tf.add_n([tf.reduce_sum(tf.sin(r) * (i + 1)) for i, r in enumerate(results)])
    return tape.gradient(value, [*inputs, *kernel.trainable_variables])


@pytest.mark.parametrize("name", ["factor", "left out", "some left out"])
def test_eager_gradients_are_those_of_graphs(name: str) -> None:
    function = factor_and_solution if name == "factor" else left_out_terms
    arguments = [tf.constant([5, 2])] if name == "some left out" else []
    kernel = KERNELS["squared exponential"]()
    eager = gradients(function, kernel, *arguments)
    graph = tf.function(lambda: gradients(function, kernel, *arguments), autograph=False)()
    for ours, theirs in zip(eager, graph, strict=True):
        assert np.max(np.abs(theirs)) > 1e-3
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("function", [factor_and_solution, left_out_terms])
def test_a_failed_factorisation_says_what_to_do(function: Callable[..., Any]) -> None:
    inputs = tensors()
    for V_bad in (inputs[2] - 5.0, inputs[2] * np.nan):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"K \+ V.*Remedies: standardise"):
            function(SquaredExponential(), *inputs[:2], V_bad)


def test_float32_is_float64_to_its_precision() -> None:
    expected = factor_and_solution(SquaredExponential(), *tensors())
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        ours = factor_and_solution(SquaredExponential(), *tensors(np.float32))
    condition = np.linalg.cond(dense(SquaredExponential()))
    for single, double in zip(ours, expected, strict=True):
        assert single.dtype == tf.float32
        atol = np.finfo(np.float32).eps * condition * np.max(np.abs(double))
        np.testing.assert_allclose(single, double, rtol=0, atol=atol)


def test_the_factor_outlives_what_computed_it() -> None:
    first, _ = factor_and_solution(SquaredExponential(), *tensors())
    kept = first.numpy().copy()
    for _ in range(20):  # others would write where it is, were it free
        factor_and_solution(Matern12(), *tensors())
    np.testing.assert_array_equal(first, kept)


SIZE = 3000  # 72 MB a matrix


@pytest.mark.parametrize("function", [factor_and_solution, left_out_terms])
def test_one_matrix_is_all_the_memory(function: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    inputs = [tf.constant(rng.normal(size=shape)) for shape in ((SIZE, 3), (SIZE, 2))]
    V = tf.fill([SIZE], tf.constant(0.5, tf.float64))
    kernel = SquaredExponential()
    function(kernel, inputs[0][:200], inputs[1][:200], V[:200])  # whatever is loaded once
    peak = peak_bytes(lambda: function(kernel, *inputs, V))
    assert 0.4 < peak / (8 * SIZE**2) < 1.3


@pytest.mark.parametrize("size", [16, 40, 47])
def test_large_matrices_are_factorised_by_blocks(
    size: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, B = tf.constant(rng.normal(size=(size, 2))), tf.constant(rng.normal(size=(size, 3)))
    V = tf.constant(rng.uniform(0.1, 0.2, size))
    kernel = gpflow.kernels.Matern32()
    whole = factor_and_solution(kernel, X, B, V)
    monkeypatch.setattr(module, "_LARGEST_CALL", 8)
    blocked = factor_and_solution(kernel, X, B, V)
    for ours, expected in zip(blocked, whole, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-12)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"K \+ V is not finite"):
        factor_and_solution(kernel, X, B, -2.0 * tf.ones_like(V))
