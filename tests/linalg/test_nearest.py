"""Which rows are nearest: the metric of kernels, and comparison with all rows."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels
from gpflow.config import Config, as_context

from gpflow_ilr.linalg import nearest
from gpflow_ilr.linalg.nearest import kernel_metric, nearest_rows

D = 3
ISOTROPIC = [
    kernels.SquaredExponential,
    kernels.RationalQuadratic,
    kernels.Exponential,
    kernels.Matern12,
    kernels.Matern32,
    kernels.Matern52,
]


def scaled(*weights: float) -> np.ndarray:
    """Up to a common factor, as the metric is."""
    return np.array(weights) / max(weights)


# The metric


@pytest.mark.parametrize("kernel", ISOTROPIC)
def test_stationary_kernels_divide_by_their_lengthscales(kernel: Any) -> None:
    np.testing.assert_allclose(kernel_metric(kernel(lengthscales=0.3), D), np.ones(D))
    ard = kernel(lengthscales=[0.5, 2.0, 4.0])
    np.testing.assert_allclose(kernel_metric(ard, D), [1.0, 0.25, 0.125], rtol=1e-14)


@pytest.mark.parametrize(
    ("active", "expected"),
    [([2, 0], [0.5, 0.0, 1.0]), (slice(1, 3), [0.0, 1.0, 0.5]), (slice(0, 3, 2), [1.0, 0.0, 0.5])],
)
def test_columns_that_are_not_active_do_not_count(active: Any, expected: list[float]) -> None:
    kernel = kernels.Matern32(lengthscales=[2.0, 4.0], active_dims=active)
    np.testing.assert_allclose(kernel_metric(kernel, D), expected)


@pytest.mark.parametrize("combine", [lambda a, b: a + b, lambda a, b: a * b])
def test_squares_of_the_parts_are_added(combine: Any) -> None:
    kernel = combine(
        kernels.Matern32(lengthscales=[0.5, 1.0, 2.0]),
        kernels.SquaredExponential(lengthscales=0.25, active_dims=[1]),
    )
    expected = scaled(2.0, np.sqrt(1.0 + 16.0), 0.5)
    np.testing.assert_allclose(kernel_metric(kernel, D), expected, rtol=1e-14)
    nested = combine(kernels.Constant(), kernel) + kernels.White()
    np.testing.assert_allclose(kernel_metric(nested, D), expected, rtol=1e-14)


def test_a_product_of_squared_exponentials_falls_with_the_distance_in_its_metric(rng) -> None:
    kernel = kernels.SquaredExponential(lengthscales=[0.5, 1.0, 2.0]) * kernels.SquaredExponential(
        lengthscales=0.7, active_dims=[2]
    )
    X = rng.normal(size=(30, D))
    distance = np.linalg.norm((X - X[0]) * kernel_metric(kernel, D), axis=1)
    order = np.argsort(distance)
    assert np.all(np.diff(kernel(X[:1], X).numpy()[0, order]) <= 0)


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.Linear([1.0, 5.0, 2.0]),
        kernels.Polynomial(2),
        kernels.ArcCosine(weight_variances=[1.0, 9.0, 1.0]),
        kernels.Cosine(lengthscales=[1.0, 9.0, 1.0]),
        kernels.Periodic(kernels.SquaredExponential(lengthscales=[1.0, 9.0, 1.0])),
        kernels.Linear() + kernels.Matern32(lengthscales=[1.0, 9.0, 1.0]),
        kernels.White() + kernels.Constant(),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_kernels_without_lengthscales_are_euclidean(kernel: Any) -> None:
    np.testing.assert_array_equal(kernel_metric(kernel, D), np.ones(D))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lengthscales", [1e-300, 1e-30, 1e30, 1e300, [1e-30, 1.0, 1e30]])
def test_absurd_lengthscales_have_a_finite_metric(lengthscales: Any, dtype: Any) -> None:
    with as_context(Config(float=dtype)):
        kernel = kernels.Matern32()
        kernel.lengthscales = tf.constant(np.clip(lengthscales, 0, np.finfo(dtype).max), dtype)
        metric = kernel_metric(kernel * kernel, D)
    assert metric.dtype == dtype
    assert np.all(np.isfinite(metric))
    assert np.max(metric) == 1.0


def test_a_common_factor_of_the_lengthscales_changes_nothing() -> None:
    lengthscales = np.array([0.3, 1.1, 7.0])
    metrics = [
        kernel_metric(kernels.Matern52(variance, factor * lengthscales), D)
        for variance, factor in [(1.0, 1.0), (3.0, 1e-9), (0.2, 1e9)]
    ]
    np.testing.assert_allclose(metrics[1], metrics[0], rtol=1e-12)
    np.testing.assert_allclose(metrics[2], metrics[0], rtol=1e-12)


def test_the_metric_has_no_gradient() -> None:
    kernel = kernels.Matern52(lengthscales=[1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(kernel_metric(kernel, D))
    assert tape.gradient(value, kernel.lengthscales.unconstrained_variable) is None


# The rows

X = np.random.default_rng(0).normal(size=(17, D)) + 50.0  # far from the origin
XNEW = np.random.default_rng(1).normal(size=(11, D)) + 50.0


def by_sorting(X: np.ndarray, Xnew: np.ndarray, count: int) -> np.ndarray:
    distances = np.sum((Xnew[:, None] - X[None]) ** 2, axis=-1)
    return np.argsort(distances, axis=1)[:, :count]


@pytest.mark.parametrize("elements", [2**24, 4 * 17, 1])
@pytest.mark.parametrize("mode", ["eager", "graph", "unknown rows", "xla", "xla, unknown rows"])
def test_nearest_rows_are_those_that_sorting_finds(mode, elements, monkeypatch) -> None:
    monkeypatch.setattr(nearest, "_CHUNK_ELEMENTS", elements)

    def find(Xnew: tf.Tensor) -> tf.Tensor:
        return nearest_rows(tf.constant(X), Xnew, 5)

    rows = None if "unknown rows" in mode else len(XNEW)
    compiled = tf.function(
        find,
        autograph=False,
        jit_compile="xla" in mode,
        input_signature=[tf.TensorSpec([rows, D], tf.float64)],
    )
    found = (find if mode == "eager" else compiled)(tf.constant(XNEW))
    assert found.dtype == tf.int32
    np.testing.assert_array_equal(found, by_sorting(X, XNEW, 5))


@pytest.mark.parametrize("count", [1, len(X)])
def test_one_row_or_all_rows_may_be_asked_for(count: int) -> None:
    found = nearest_rows(tf.constant(X), tf.constant(XNEW), count)
    np.testing.assert_array_equal(found, by_sorting(X, XNEW, count))


def test_float32_far_from_the_origin_finds_the_same_rows() -> None:
    offset = 1000.0  # in float32 squares of such numbers are known to 0.06
    with gpflow.config.as_context(Config(float=np.float32)):
        rows, new = (tf.constant(x - 50.0 + offset, tf.float32) for x in (X, XNEW))
        found = nearest_rows(rows, new, 5)
    expected = by_sorting(rows.numpy().astype(float), new.numpy().astype(float), 5)
    np.testing.assert_array_equal(found, expected)


def test_a_training_row_is_nearest_to_itself() -> None:
    found = nearest_rows(tf.constant(X), tf.constant(X), 1)
    np.testing.assert_array_equal(found[:, 0], np.arange(len(X)))
