"""Claims about working through rows in blocks: results, gradients, and how much is in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.linalg.row_chunks import map_rows, stack_over, sum_rows

N, D = 11, 3
BLOCKS = [1, 3, 4, N - 1, N, 100]


@pytest.fixture
def X(rng: np.random.Generator) -> tf.Tensor:
    return tf.constant(rng.normal(size=(N, D)))


@pytest.fixture
def weights(rng: np.random.Generator) -> tf.Variable:
    return tf.Variable(rng.normal(size=(D, 2)))


def rowwise(X: tf.Tensor, y: tf.Tensor, weights: tf.Variable) -> list[tf.Tensor]:
    """Results of three ranks and two dtypes, each row a function of its row alone."""
    product = tf.sin(tf.matmul(X, weights))
    return [product, tf.reduce_sum(X**2, axis=1), product[:, :, None] * X[:, None, :], y + 1]


# --- map_rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("mode", ["eager", "graph", "unknown rows"])
def test_mapped_rows_equal_the_function(
    block: int, mode: str, X: tf.Tensor, weights: tf.Variable
) -> None:
    y = tf.range(N)

    def mapped(X: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        results = map_rows(lambda X, y: rowwise(X, y, weights), [X, y], block)
        assert [r.shape[1:] for r in results] == [(2,), (), (2, D), ()]
        assert [r.shape[0] for r in results] == [X.shape[0]] * 4
        return results

    if mode == "unknown rows":
        signature = [tf.TensorSpec([None, D], X.dtype), tf.TensorSpec([None], y.dtype)]
        mapped = tf.function(mapped, input_signature=signature, autograph=False)
    elif mode == "graph":
        mapped = tf.function(mapped, autograph=False)
    for ours, theirs in zip(mapped(X, y), rowwise(X, y, weights), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("block", [1, 4])
def test_no_rows_are_mapped_to_no_rows(block: int, weights: tf.Variable) -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, D], tf.float64)], autograph=False)
    def mapped(X: tf.Tensor) -> list[tf.Tensor]:
        return map_rows(lambda X: [tf.matmul(X, weights)], [X], block)

    assert mapped(tf.zeros([0, D], tf.float64))[0].shape == (0, 2)
    assert map_rows(lambda X: [X @ weights], [tf.zeros([0, D], tf.float64)], block)[0].shape == (
        0,
        2,
    )


@pytest.mark.parametrize("block", [1, 4, 100])
@pytest.mark.parametrize("graph", [False, True])
def test_mapped_rows_have_the_gradient_of_the_function(
    block: int, graph: bool, X: tf.Tensor, weights: tf.Variable
) -> None:
    def gradients(X: tf.Tensor, block: int) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(X)
            results = map_rows(lambda X: rowwise(X, X, weights)[:3], [X], block)
            value = tf.add_n([tf.reduce_sum(tf.exp(r)) for r in results])
        return tape.gradient(value, [X, weights])

    signature = [tf.TensorSpec([None, D], X.dtype), tf.TensorSpec([], tf.int32)]
    compiled = tf.function(gradients, input_signature=signature, autograph=False)
    ours = compiled(X, block) if graph else gradients(X, block)
    for a, b in zip(ours, gradients(X, N), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_function_sees_each_row_once_and_a_block_at_most(block: int, X: tf.Tensor) -> None:
    seen: list[np.ndarray] = []

    def look(rows: tf.Tensor) -> list[tf.Tensor]:
        seen.append(rows.numpy())
        return [rows]

    map_rows(look, [X], block)
    assert max(len(rows) for rows in seen) <= block
    np.testing.assert_array_equal(np.concatenate(seen), X)


# --- stack_over ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("graph", [False, True])
def test_results_for_each_index_are_stacked(count: int, graph: bool) -> None:
    table = tf.reshape(tf.range(12.0), [4, 3])

    def stacked(count: tf.Tensor) -> list[tf.Tensor]:
        return stack_over(lambda i: [table[i], i * i], count)

    if graph:
        stacked = tf.function(
            stacked, input_signature=[tf.TensorSpec([], tf.int32)], autograph=False
        )
    rows, squares = stacked(tf.constant(count))
    np.testing.assert_array_equal(rows, table[:count])
    np.testing.assert_array_equal(squares, np.arange(count) ** 2)


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


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("graph", [False, True])
def test_sum_and_gradient_equal_those_of_all_rows_at_once(
    block: int, graph: bool, X: tf.Tensor, weights: tf.Variable
) -> None:
    terms = Summands(X, weights)

    def blockwise() -> list[tf.Tensor]:
        return terms.value_and_gradients(lambda tensors: sum_rows(terms, tensors, N, block))

    ours = (tf.function(blockwise, autograph=False) if graph else blockwise)()
    expected = terms.value_and_gradients(lambda tensors: terms(tensors, 0, N))
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_gradient_visits_blocks_again_instead_of_keeping_them(
    X: tf.Tensor, weights: tf.Variable
) -> None:
    terms = Summands(X, weights)
    terms.value_and_gradients(lambda tensors: sum_rows(terms, tensors, N, 4))
    assert terms.rows == [4, 4, 3, 4, 4, 3]
    graph = tf.function(
        lambda: terms.value_and_gradients(lambda tensors: sum_rows(terms, tensors, N, 4)),
        autograph=False,
    ).get_concrete_function()
    definition = graph.graph.as_graph_def()
    bodies = [definition.node, *(f.node_def for f in definition.library.function)]
    ops = {node.op for body in bodies for node in body}
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
