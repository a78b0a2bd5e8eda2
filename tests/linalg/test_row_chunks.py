"""Claims about working through rows in chunks: results, gradients, and how much is in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.linalg.row_chunks import map_rows, stack_over, sum_rows

N, D = 11, 3
CHUNKS = [1, 3, 4, N - 1, N, 100]


@pytest.fixture
def X(rng: np.random.Generator) -> tf.Tensor:
    return tf.constant(rng.normal(size=(N, D)))


@pytest.fixture
def weights(rng: np.random.Generator) -> tf.Variable:
    return tf.Variable(rng.normal(size=(D, 2)))


MODES = ["eager", "graph", "unknown rows", "xla", "xla, unknown rows"]


def compile_as(mode: str, function: Callable[..., Any], *rows: tf.Tensor) -> Callable[..., Any]:
    """The function, eager or compiled, for as many rows as there are or for any number of them."""
    if mode == "eager":
        return function
    signature = None
    if "unknown rows" in mode:
        signature = [tf.TensorSpec([None, *r.shape[1:]], r.dtype) for r in rows]
    jit = "xla" in mode
    return tf.function(function, input_signature=signature, autograph=False, jit_compile=jit)


def all_nodes(graph: tf.Graph) -> list[Any]:
    definition = graph.as_graph_def()
    bodies = [definition.node, *(f.node_def for f in definition.library.function)]
    return [node for body in bodies for node in body]


def rowwise(X: tf.Tensor, y: tf.Tensor, weights: tf.Variable) -> list[tf.Tensor]:
    """Results of three ranks and two dtypes, each row a function of its row alone."""
    product = tf.sin(tf.matmul(X, weights))
    return [product, tf.reduce_sum(X**2, axis=1), product[:, :, None] * X[:, None, :], y + 1]


# --- map_rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("mode", MODES)
def test_mapped_rows_equal_the_function(
    chunk: int, mode: str, X: tf.Tensor, weights: tf.Variable
) -> None:
    y = tf.range(N)

    def mapped(X: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        results = map_rows(lambda X, y: rowwise(X, y, weights), [X, y], chunk)
        assert [r.shape[1:] for r in results] == [(2,), (), (2, D), ()]
        assert [r.shape[0] for r in results] == [X.shape[0]] * 4
        return results

    compiled = compile_as(mode, mapped, X, y)
    for ours, theirs in zip(compiled(X, y), rowwise(X, y, weights), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_rows", [0, 1, 4, 5, 23])
def test_any_number_of_rows_is_mapped_to_as_many(
    num_rows: int, mode: str, weights: tf.Variable, rng: np.random.Generator
) -> None:
    X = tf.constant(rng.normal(size=(num_rows, D)))
    mapped = compile_as(mode, lambda X: map_rows(lambda X: [tf.matmul(X, weights)], [X], 4), X)
    (result,) = mapped(X)
    assert result.shape == (num_rows, 2)
    np.testing.assert_allclose(result, tf.matmul(X, weights), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("chunk", [1, 4, 100])
@pytest.mark.parametrize("mode", MODES)
def test_mapped_rows_have_the_gradient_of_the_function(
    chunk: int, mode: str, recompute: bool, X: tf.Tensor, weights: tf.Variable
) -> None:
    def function(X: tf.Tensor, weights: tf.Tensor) -> list[tf.Tensor]:
        # The root has no gradient at rows of zeros, which must not be made up.
        return [*rowwise(X, X, weights)[:3], tf.norm(X, axis=1)]

    def gradients(X: tf.Tensor, chunk: int = chunk) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(X)
            mapped = tf.recompute_grad(function) if recompute else function
            # TensorFlow cannot recompute what reads a variable itself in a loop.
            W = tf.identity(weights) if recompute else weights
            results = map_rows(lambda X: mapped(X, W), [X], chunk)
            value = tf.add_n([tf.reduce_sum(tf.exp(r)) for r in results])
        return [tf.convert_to_tensor(g) for g in tape.gradient(value, [X, weights])]

    ours = compile_as(mode, lambda X: gradients(X), X)(X)
    for a, b in zip(ours, gradients(X, N), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("num_rows", [None, N])
def test_the_function_is_in_the_graph_once(num_rows: int | None) -> None:
    shapes: set[tuple[int | None, ...]] = set()

    def look(rows: tf.Tensor) -> list[tf.Tensor]:
        shapes.add(tuple(rows.shape))
        return [tf.sin(rows)]

    mapped = tf.function(lambda X: map_rows(look, [X], 4), autograph=False)
    graph = mapped.get_concrete_function(tf.TensorSpec([num_rows, D], tf.float64)).graph
    assert [node.op for node in all_nodes(graph)].count("Sin") == 1
    assert shapes == {(num_rows and 4, D)}  # chunks of 4, 4 and 3 rows


@pytest.mark.parametrize("chunk", CHUNKS)
def test_the_function_sees_each_row_once_and_a_chunk_at_most(chunk: int, X: tf.Tensor) -> None:
    seen: list[np.ndarray] = []

    def look(rows: tf.Tensor) -> list[tf.Tensor]:
        seen.append(rows.numpy())
        return [rows]

    map_rows(look, [X], chunk)
    assert max(len(rows) for rows in seen) <= chunk
    np.testing.assert_array_equal(np.concatenate(seen), X)


# --- stack_over ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_results_for_each_index_are_stacked(count: int, mode: str) -> None:
    table = tf.reshape(tf.range(12.0), [4, 3])

    def stacked(table: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(table)
            rows, squares = stack_over(lambda i: [table[i] ** 2, i * i], tf.shape(table)[0])
        return [rows, squares, tape.gradient(rows, table)]

    stacked = compile_as(mode if mode == "eager" else f"{mode}, unknown rows", stacked, table)
    rows, squares, gradient = stacked(table[:count])
    np.testing.assert_array_equal(rows, table[:count] ** 2)
    np.testing.assert_array_equal(squares, np.arange(count) ** 2)
    np.testing.assert_array_equal(gradient, 2 * table[:count])


def test_indices_are_visited_once_each_and_in_order() -> None:
    seen: list[int] = []

    def look(i: tf.Tensor) -> list[tf.Tensor]:
        seen.append(int(i))
        return [i]

    stack_over(look, 5)
    assert seen == [0, 1, 2, 3, 4]


# --- sum_rows -----------------------------------------------------------------------------------


class Summands:
    """A sum over rows of closed-over data that depends on two tensors and on two variables."""

    def __init__(self, X: tf.Tensor, weights: tf.Variable) -> None:
        self.X, self.weights, self.power = X, weights, tf.Variable(1.5, dtype=X.dtype)
        self.tensors = [tf.constant([0.3, -0.2, 1.1], X.dtype), tf.ones([2, 1], X.dtype)]
        self.rows: list[int] = []

    def __call__(
        self, tensors: Sequence[tf.Tensor], start: tf.Tensor, stop: tf.Tensor
    ) -> tf.Tensor:
        shift, mix = tensors
        rows = self.X[start:stop] + shift
        self.rows.append(rows.shape[0])
        score = tf.matmul(tf.tanh(tf.matmul(rows, self.weights)), mix)
        return tf.reduce_sum(tf.abs(score) ** self.power)

    def value_and_gradients(self, total: Callable[..., tf.Tensor]) -> list[tf.Tensor]:
        sources = [*self.tensors, self.weights, self.power]
        with tf.GradientTape() as tape:
            tape.watch(self.tensors)
            value = 3.0 * total(self.tensors)  # an upstream gradient that is not one
        return [value, *tape.gradient(value, sources)]


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_sum_and_gradient_equal_those_of_all_rows_at_once(
    chunk: int, mode: str, X: tf.Tensor, weights: tf.Variable
) -> None:
    terms = Summands(X, weights)

    def chunkwise() -> list[tf.Tensor]:
        return terms.value_and_gradients(lambda tensors: sum_rows(terms, tensors, N, chunk))

    ours = compile_as(mode, chunkwise)()
    expected = terms.value_and_gradients(lambda tensors: terms(tensors, 0, N))
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_gradient_visits_chunks_again_instead_of_keeping_them(
    X: tf.Tensor, weights: tf.Variable
) -> None:
    terms = Summands(X, weights)
    terms.value_and_gradients(lambda tensors: sum_rows(terms, tensors, N, 4))
    assert terms.rows == [4, 4, 3, 4, 4, 3]
    graph = tf.function(
        lambda: terms.value_and_gradients(lambda tensors: sum_rows(terms, tensors, N, 4)),
        autograph=False,
    ).get_concrete_function()
    ops = {node.op for node in all_nodes(graph.graph)}
    assert any("While" in op for op in ops)
    assert "TensorListPushBack" not in ops  # by which loops keep their past for autodiff


@pytest.mark.parametrize("graph", [False, True])
def test_sums_without_variables_or_with_unused_tensors_are_differentiable(
    graph: bool, X: tf.Tensor
) -> None:
    def gradients() -> list[tf.Tensor]:
        used, unused = tf.ones([], X.dtype), tf.ones([2], X.dtype)
        with tf.GradientTape() as tape:
            tape.watch([used, unused])
            value = sum_rows(
                lambda tensors, i, j: tf.reduce_sum(tensors[0] ** 2 * X[i:j]), [used, unused], N, 4
            )
        return tape.gradient(value, [used, unused])

    used, unused = (tf.function(gradients, autograph=False) if graph else gradients)()
    np.testing.assert_allclose(used, 2 * np.sum(X), rtol=1e-13)
    np.testing.assert_array_equal(unused, [0.0, 0.0])


def test_float32_sums_stay_float32(X: tf.Tensor) -> None:
    X32 = tf.cast(X, tf.float32)
    total = sum_rows(
        lambda tensors, i, j: tf.reduce_sum(tensors[0] * X32[i:j]), [tf.constant(2.0)], N, 4
    )
    assert total.dtype == tf.float32
    np.testing.assert_allclose(total, 2 * np.sum(X), rtol=1e-5)
