"""Regression of each row on rows of its own: what a dense solve of each says, and its gradient."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gpflow.config import Config, as_context
from gpflow.kernels import Linear, Matern32

from gpflow_ilr.linalg.local_regression import LocalPrediction, local_weights, nested_weights

ROWS, NEIGHBOURS = 4, 3


@pytest.fixture(name="K")
def _K(rng: np.random.Generator) -> np.ndarray:
    """Joint covariances of each row and its neighbours."""
    return Matern32(0.8)(tf.constant(rng.normal(size=(ROWS, 1 + NEIGHBOURS, 2)))).numpy()


@pytest.fixture(name="V", params=[1, 2])
def _V(request: pytest.FixtureRequest, rng: np.random.Generator) -> np.ndarray:
    """One noise for all outputs, or one for each of two; another for each neighbour."""
    return rng.uniform(0.05, 0.4, size=(ROWS, request.param, NEIGHBOURS))


def assert_solves(predicted: LocalPrediction, K: np.ndarray, V: np.ndarray) -> None:
    """Each row and output by itself."""
    for n, row in enumerate(V):
        for u, noise in enumerate(row):
            k = K[n, 1 : 1 + len(noise), 0]
            C = K[n, 1 : 1 + len(noise), 1 : 1 + len(noise)] + np.diag(noise)
            w = np.linalg.solve(C, k)
            np.testing.assert_allclose(predicted.weights[n, u], w, rtol=1e-11)
            np.testing.assert_allclose(predicted.variance[n, u], K[n, 0, 0] - w @ k, rtol=1e-11)


def test_weights_and_variances_are_those_of_a_dense_solve_of_each_row(K, V) -> None:
    predicted = local_weights(K, V)
    assert predicted.weights.shape == V.shape
    assert predicted.variance.shape == V.shape[:2]
    assert_solves(predicted, K, V)


def test_gradients_are_those_of_finite_differences(K, V) -> None:
    def scalar(K: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        # K is symmetric, so a difference in one element is one in its mirror image too.
        weights, variance = local_weights(0.5 * (K + tf.linalg.matrix_transpose(K)), V)
        return tf.reduce_sum(tf.sin(3.0 * weights)) + tf.reduce_sum(variance**2)

    analytic, numeric = tf.test.compute_gradient(scalar, [K[:2], V[:2]], delta=1e-5)
    for ours, theirs in zip(analytic, numeric, strict=True):
        assert np.max(np.abs(theirs)) > 0.01
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)


def test_nested_weights_are_those_of_each_leading_block(K, V) -> None:
    counts = [1, NEIGHBOURS, 2]
    nested = nested_weights(K, V, counts)
    assert len(nested) == 3
    for c, predicted in zip(counts, nested, strict=True):
        alone = local_weights(K[:, : 1 + c, : 1 + c], V[..., :c])
        for ours, theirs in zip(predicted, alone, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11)


def test_without_neighbours_the_prior_is_left(K) -> None:
    weights, variance = local_weights(K[:, :1, :1], np.zeros((ROWS, 2, 0)))
    assert weights.shape == (ROWS, 2, 0)
    np.testing.assert_array_equal(variance, np.broadcast_to(K[:, :1, 0], (ROWS, 2)))


def test_a_variance_is_never_negative() -> None:
    # The row is its own neighbour, without noise: rounding may make of nothing less than that.
    X = tf.constant(np.linspace(0, 1, 7)[:, None] * [[1.0, 1e-4]])
    K = Matern32(3.0)(tf.stack([tf.stack([x, x, x + 1.0]) for x in X]))
    assert np.all(local_weights(K, tf.zeros([7, 1, 2], K.dtype)).variance >= 0.0)


def test_the_gradient_factorises_nothing(K, V) -> None:
    def gradient(K: tf.Tensor, V: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([K, V])
            weights, variance = local_weights(K, V)
            value = tf.reduce_sum(weights) + tf.reduce_sum(variance)
        return tape.gradient(value, [K, V])

    graph = tf.function(gradient, autograph=False).get_concrete_function(K, V).graph
    ops = [op.type for op in graph.get_operations()]
    assert ops.count("Cholesky") == 1
    assert ops.count("MatrixTriangularSolve") == 4


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_does_not_depend_on_which_others_are_predicted_with_it(dtype) -> None:
    # A linear kernel far from the origin has a variance against which the noise is nothing.
    near, far = np.random.default_rng(1).normal(size=(2, 1 + NEIGHBOURS, 2))
    with as_context(Config(float=dtype)):
        K = Linear()(tf.constant(np.stack([near, 1e7 * far]), dtype))
        V = tf.fill([2, 1, NEIGHBOURS], tf.constant(0.02, dtype))
        for together, alone in zip(local_weights(K, V), local_weights(K[:1], V[:1]), strict=True):
            np.testing.assert_allclose(together[:1], alone, rtol=100 * np.finfo(dtype).eps)


@pytest.mark.parametrize("weigh", [local_weights, lambda K, V: nested_weights(K, V, [1])])
def test_an_indefinite_system_is_named_with_what_to_do(weigh) -> None:
    K = np.eye(4)[None] - 3.0 * np.eye(4)[::-1][None]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"K \+ V of a row's.*Remedies"):
        weigh(K, np.full((1, 1, 3), 0.1))
