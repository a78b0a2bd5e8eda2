"""Kernel matrices are finite and positive semi-definite wherever a line search goes."""

from __future__ import annotations

from functools import partial

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels
from gpflow.kernels import Kernel, SquaredExponential

from gpflow_ilr.linalg.covariances import covariance
from gpflow_ilr.linalg.jitter import FLOAT32_JITTER
from tests.linalg.kernel_matrices import ISOTROPIC, D, M, Matrix, N, inputs

COLUMNS = 48
ABSURD = [(5e-22, 1.6e-14), (1e-6, 1e-7), (1e-9, 1e-3), (0.0, 1.0), (1e-300, 1e30), (3e-3, 2e-3)]


"""Lengthscales of two columns among others of ordinary size; the first pair ended a training."""


def rows_of(data: str, rng: np.random.Generator) -> np.ndarray:
    """80 rows: without structure, or of few integers, so that single columns coincide often."""
    if data == "random":
        return rng.normal(size=(80, COLUMNS))
    return np.repeat(rng.integers(0, 4, size=(80, COLUMNS // 4)), 4, axis=1) + 1000.0


def absurd_kernel(kind: type, pair: tuple[float, float]) -> Kernel:
    lengthscales = np.full(COLUMNS, 7.0)
    lengthscales[[3, 17]] = pair
    kernel = kind(7.8)
    kernel.lengthscales = tf.constant(lengthscales, gpflow.default_float())
    return kernel


@pytest.mark.parametrize("data", ["random", "integer"])
@pytest.mark.parametrize("kind", [*ISOTROPIC, kernels.Cosine])
def test_kernel_matrices_are_positive_semi_definite_for_any_lengthscales(
    kind: type, data: str, rng: np.random.Generator
) -> None:
    X = tf.constant(rows_of(data, rng))
    for pair in ABSURD:
        K = covariance(absurd_kernel(kind, pair), X).numpy()
        np.testing.assert_allclose(np.diag(K), 7.8, rtol=1e-6)
        assert np.linalg.eigvalsh((K + K.T) / 2)[0] > -1e-12 * np.trace(K), pair


@pytest.mark.parametrize("data", ["random", "integer"])
@pytest.mark.parametrize("kind", [*ISOTROPIC, kernels.Cosine])
def test_float32_matrices_are_so_up_to_their_jitter(
    kind: type, data: str, rng: np.random.Generator
) -> None:
    X = tf.constant(rows_of(data, rng), tf.float32)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        for pair in ABSURD:
            K = covariance(absurd_kernel(kind, pair), X).numpy().astype(float)
            lowest = np.linalg.eigvalsh((K + K.T) / 2)[0]
            assert lowest > -0.3 * FLOAT32_JITTER * np.mean(np.diag(K)), pair


def by_differences(kernel: Kernel, X: tf.Tensor, Y: tf.Tensor | None = None) -> tf.Tensor:
    difference = (X[:, None] - (X if Y is None else Y)) / kernel.lengthscales
    return kernel.K_r2(tf.reduce_sum(difference**2, axis=-1))


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *((kind, mode) for kind in ISOTROPIC for mode in ("eager", "graph")),
        *((SquaredExponential, mode) for mode in ("unknown rows", "xla")),
        *((kernels.Matern32, mode) for mode in ("unknown rows", "xla")),
    ],
)
def test_small_lengthscales_have_the_values_and_gradients_of_differences(
    kind: type, mode: str, rng: np.random.Generator
) -> None:
    # Columns of few values 1e-6 apart, so that distances of all sizes occur, far from the origin.
    kernel = kind(1.7, lengthscales=[1e-6, 2.0, 3e-6])
    X, Y = (
        tf.constant(np.array([1, 0, 1]) + rng.integers(0, 4, (n, D)) * np.array([1e-6, 0.7, 1e-6]))
        for n in (N, M)
    )
    X = tf.concat([X[:-1], Y[:1]], axis=0)

    def results(matrix: Matrix, X: tf.Tensor, Y: tf.Tensor | None) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([X] if Y is None else [X, Y])
            K = matrix(kernel, X, Y)
            # Coinciding rows: a root has no gradient there.
            weights = tf.where(tf.abs(K - kernel.variance) < 1e-9, tf.zeros_like(K), tf.sin(9 * K))
            total = tf.reduce_sum(tf.stop_gradient(weights) * K)
        return [
            K,
            *tape.gradient(total, [*kernel.trainable_variables, X, *([] if Y is None else [Y])]),
        ]

    for other in (Y, None):
        expected = results(by_differences, X, other)
        ours = partial(results, covariance)
        if mode == "graph":
            ours = tf.function(ours, autograph=False)
        elif mode == "unknown rows":
            spec = tf.TensorSpec([None, None], X.dtype)
            ours = tf.function(ours, autograph=False, reduce_retracing=True)
            ours = ours.get_concrete_function(spec, None if other is None else spec)
        elif mode == "xla":
            ours = tf.function(ours, autograph=False, jit_compile=True)
        found = ours(X, other) if mode != "unknown rows" or other is not None else ours(X)
        for a, b in zip(found, expected, strict=True):
            # The columns of 1 ± 1e-6 have been rounded in their tenth digit.
            np.testing.assert_allclose(a, b, rtol=0, atol=3e-9 * max(1.0, np.max(np.abs(b))))


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("kind", [SquaredExponential, kernels.RationalQuadratic, kernels.Matern52])
def test_second_derivatives_are_gpflows(
    kind: type, graph: bool, small: bool, rng: np.random.Generator
) -> None:
    kernel = kind(1.7, lengthscales=[0.6, 1e-4 if small else 0.9, 2.5])
    X, Y = (inputs(rng, n).numpy() * [1.0, 1e-4 if small else 1.0, 1.0] for n in (N, M))
    # One row far away makes the second column one of differences, and adds next to nothing.
    X = tf.constant(np.concatenate([X, [[0.0, 1.0, 0.0]]]) if small else X)
    sources = [*kernel.trainable_variables, X]
    weights = [rng.normal(size=source.shape) for source in sources]

    def second(matrix: Matrix) -> list[tf.Tensor]:
        with tf.GradientTape() as outer:
            outer.watch(X)
            with tf.GradientTape() as inner:
                inner.watch(X)
                total = tf.reduce_sum(tf.sin(matrix(kernel, X, tf.constant(Y))))
            gradients = inner.gradient(total, sources)
            value = tf.add_n(
                [tf.reduce_sum(w * g) for w, g in zip(weights, gradients, strict=True)]
            )
        return outer.gradient(value, sources)

    ours = partial(second, covariance)
    found = (tf.function(ours, autograph=False) if graph else ours)()
    for a, b in zip(found, second(by_differences), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * np.max(np.abs(b)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [*ISOTROPIC, kernels.Cosine])
@pytest.mark.parametrize("pair", ABSURD)
def test_gradients_are_finite_for_any_lengthscales(
    pair: tuple[float, float], kind: type, dtype: type, rng: np.random.Generator
) -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        X, kernel = tf.constant(rows_of("integer", rng), dtype), absurd_kernel(kind, pair)
        with tf.GradientTape() as tape:
            tape.watch([X, kernel.lengthscales])
            total = tf.reduce_sum(covariance(kernel, X))
        for gradient in tape.gradient(total, [X, kernel.lengthscales]):
            assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ISOTROPIC)
@pytest.mark.parametrize("lengthscale", [0.0, 1e-200, 1e-20, 1e-9, 1e-6, 1e30])
def test_no_lengthscale_makes_a_covariance_larger_than_the_variance(
    lengthscale: float, kind: type, dtype: type, rng: np.random.Generator
) -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        X, kernel = inputs(rng, N), kind(variance=2.0)
        value = tf.constant(lengthscale, dtype)
        kernel.lengthscales = value  # whatever a transform may give
        K = covariance(kernel, X).numpy()
    assert np.all(np.isfinite(K))
    assert np.max(K) <= 2.0 * (1 + 10 * np.finfo(dtype).eps)
