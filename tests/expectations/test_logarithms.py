"""The one rule for log 0: finite densities and entropies, and finite gradients, where p vanishes."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import entropy as scipy_entropy

from gpflow_ilr.expectations import Sobol, expected_entropy
from gpflow_ilr.expectations.logarithms import entropy, label_log_density

DTYPES = [tf.float32, tf.float64]
COMPILED = [False, True]


def tiny(dtype: tf.DType) -> float:
    return float(np.finfo(dtype.as_numpy_dtype).tiny)


def value_and_gradient(
    function: object, p: tf.Tensor, jit_compile: bool
) -> tuple[np.ndarray, np.ndarray]:
    @tf.function(jit_compile=jit_compile)
    def both(p: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(p)
            value = function(p)  # type: ignore[operator]
        return value, tape.gradient(value, p)

    value, gradient = both(p)
    return value.numpy(), gradient.numpy()


# Labels


def test_a_density_is_the_logarithm_of_the_labels_probability(rng: np.random.Generator) -> None:
    p = rng.dirichlet(np.ones(4), size=6)
    y = np.arange(6) % 4
    value = label_log_density(tf.constant(p), tf.constant(np.eye(4)[y]))
    np.testing.assert_allclose(value, np.log(p[np.arange(6), y]), rtol=1e-14)


def test_the_density_of_a_soft_label_is_the_average_over_its_labels(
    rng: np.random.Generator,
) -> None:
    p, soft = rng.dirichlet(np.ones(4), size=6), rng.dirichlet(np.ones(4), size=6)
    value = label_log_density(tf.constant(p), tf.constant(soft))
    np.testing.assert_allclose(value, np.sum(soft * np.log(p), axis=-1), rtol=1e-14)


@pytest.mark.parametrize("jit_compile", COMPILED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_class_that_does_not_occur_contributes_nothing_whatever_its_probability(
    dtype: tf.DType, jit_compile: bool
) -> None:
    p = tf.constant([[0.0, 0.75, 0.25], [tiny(dtype), 1.0, 0.0]], dtype)
    rows = tf.constant([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]], dtype)
    value, gradient = value_and_gradient(lambda p: label_log_density(p, rows), p, jit_compile)
    np.testing.assert_allclose(value, [np.log(0.75), 0.0], rtol=1e-6)
    np.testing.assert_allclose(gradient, [[0.0, 1 / 0.75, 0.0], [0.0, 1.0, 0.0]], rtol=1e-6)


@pytest.mark.parametrize("jit_compile", COMPILED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_label_that_was_impossible_has_the_density_of_the_smallest_normal_number(
    dtype: tf.DType, jit_compile: bool
) -> None:
    p, rows = tf.constant([[0.0, 1.0]], dtype), tf.constant([[1.0, 0.0]], dtype)
    value, gradient = value_and_gradient(lambda p: label_log_density(p, rows), p, jit_compile)
    np.testing.assert_allclose(value, np.log(tiny(dtype)), rtol=1e-6)
    assert np.all(np.isfinite(gradient))
    # At the smallest normal number itself training goes on: the gradient is that of log p.
    p = tf.constant([[tiny(dtype), 1.0]], dtype)
    _, gradient = value_and_gradient(lambda p: label_log_density(p, rows), p, jit_compile)
    np.testing.assert_allclose(gradient, [[1.0 / tiny(dtype), 0.0]], rtol=1e-6)


def test_one_label_broadcasts_over_draws_of_the_probabilities(rng: np.random.Generator) -> None:
    p, rows = rng.dirichlet(np.ones(3), size=(5, 4)), np.eye(3)[[0, 1, 2, 0]]
    value = label_log_density(tf.constant(p), tf.constant(rows))
    assert value.shape == (5, 4)
    np.testing.assert_allclose(value, np.sum(rows * np.log(p), axis=-1), rtol=1e-14)


# Entropies


def test_an_entropy_is_that_of_scipy(rng: np.random.Generator) -> None:
    p = rng.dirichlet(np.ones(5), size=(2, 3))
    np.testing.assert_allclose(entropy(tf.constant(p)), scipy_entropy(p, axis=-1), rtol=1e-13)


@pytest.mark.parametrize("jit_compile", COMPILED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_entropy_of_a_certain_label_is_zero_and_has_a_finite_gradient(
    dtype: tf.DType, jit_compile: bool
) -> None:
    p = tf.constant([[0.0, 1.0, 0.0], [0.0, 0.5, 0.5]], dtype)
    value, gradient = value_and_gradient(entropy, p, jit_compile)
    np.testing.assert_allclose(value, [0.0, np.log(2.0)], rtol=1e-6)
    np.testing.assert_allclose(gradient[:, 0], 0.0)
    np.testing.assert_allclose(gradient[1, 1:], np.log(2.0) - 1.0, rtol=1e-6)


@pytest.mark.parametrize("size", [2e3, 1e30, 3e38])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_expected_entropy_of_extreme_logits_is_zero_and_has_a_finite_gradient(
    dtype: tf.DType, size: float
) -> None:
    # The difference of logits ±3e38 is infinite in float32.
    m = tf.constant([[size, -size, 0.0]], dtype)
    with tf.GradientTape() as tape:
        tape.watch(m)
        value = expected_entropy(m, tf.ones_like(m), tf.eye(3, dtype=dtype), Sobol(16))
    np.testing.assert_array_equal(value, 0.0)
    np.testing.assert_array_equal(tape.gradient(value, m), 0.0)
