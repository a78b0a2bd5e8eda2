"""Claims about triangular systems that are solved with a kept factor."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.linalg import inverse_factors, substitution
from gpflow_ilr.linalg.inverse_factors import block_edges, substitution_factor
from gpflow_ilr.linalg.substitution import substituted

SIZES = [1, 7, 8, 20, 33]


@pytest.fixture(params=[1, 10**9], ids=["BLAS", "TensorFlow"], autouse=True)
def small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of four to seven rows, multiplied by NumPy or by TensorFlow."""
    monkeypatch.setattr(inverse_factors, "LARGE_FACTOR", 8)
    monkeypatch.setattr(substitution, "LARGE_SOLVE", request.param)


def positive_definite(rng: np.random.Generator, *shape: int) -> np.ndarray:
    root = rng.normal(size=[*shape, shape[-1]])
    return root @ np.swapaxes(root, -1, -2) + np.eye(shape[-1])


@pytest.mark.parametrize("size", SIZES)
def test_blocks_are_smaller_than_the_limit_and_cover_the_factor(size: int) -> None:
    edges = block_edges(size)
    assert edges[0] == 0
    assert edges[-1] == size
    assert all(0 < width < 8 for width in np.diff(edges))


@pytest.mark.parametrize("size", SIZES)
def test_solutions_are_those_of_the_cholesky_factor(size: int, rng: np.random.Generator) -> None:
    A, B = positive_definite(rng, size), rng.normal(size=(size, 3))
    S, W = substitution_factor(tf.constant(A), "A")
    expected = np.linalg.solve(np.linalg.cholesky(A), B)
    np.testing.assert_allclose(substituted(S, tf.constant(B)), expected, atol=1e-12)
    np.testing.assert_allclose(W.product(tf.constant(B)), expected, atol=1e-12)


def test_batches_of_factors_and_of_right_hand_sides_are_broadcast(rng: np.random.Generator) -> None:
    A, B = positive_definite(rng, 2, 20), rng.normal(size=(3, 1, 20, 4))
    S, _ = substitution_factor(tf.constant(A), "A")
    expected = np.linalg.solve(np.linalg.cholesky(A), B)
    np.testing.assert_allclose(substituted(S, tf.constant(B)), expected, atol=1e-12)


def test_gradients_are_those_of_a_triangular_solve(rng: np.random.Generator) -> None:
    A, B = tf.constant(positive_definite(rng, 20)), tf.constant(rng.normal(size=(20, 4)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([A, B])
        ours = substituted(substitution_factor(A, "A")[0], B)
        theirs = tf.linalg.triangular_solve(tf.linalg.cholesky(A), B)
        losses = [tf.reduce_sum(tf.sin(x)) for x in (ours, theirs)]
    (dA, dB), (dA_theirs, dB_theirs) = (tape.gradient(loss, [A, B]) for loss in losses)
    np.testing.assert_allclose(dB, dB_theirs, rtol=1e-9, atol=1e-12)
    # Ours reads the lower triangle alone.
    symmetric = [x + tf.transpose(x) for x in (dA, dA_theirs)]
    np.testing.assert_allclose(*symmetric, rtol=1e-9, atol=1e-12)


def test_the_factor_is_not_changed(rng: np.random.Generator) -> None:
    S, _ = substitution_factor(tf.constant(positive_definite(rng, 20)), "A")
    B = tf.constant(rng.normal(size=(20, 4)))
    before = [x.numpy().copy() for x in (S, B)]
    substituted(S, B)
    for tensor, values in zip((S, B), before, strict=True):
        np.testing.assert_array_equal(tensor, values)
