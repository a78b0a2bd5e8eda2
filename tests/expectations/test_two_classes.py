"""Two classes: closed forms, against integrals on a grid a hundred times as fine."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.integrate
import tensorflow as tf
from gpflow.functions import Constant
from gpflow.kernels import SquaredExponential
from scipy.special import expit, log_expit, logsumexp

from gpflow_ilr.expectations import (
    MonteCarlo,
    Sobol,
    expected_entropy,
    expected_log_softmax,
    expected_softmax,
    softmax_variance,
    two_classes,
)
from gpflow_ilr.likelihoods import ILRLikelihood
from gpflow_ilr.models import ILRGPR

Expectation = Callable[..., tf.Tensor]
ALL = [expected_softmax, expected_log_softmax, softmax_variance, expected_entropy]
MEANS = [-300.0, -40.0, -7.0, -0.3, 0.0, 2.0, 14.0]
VARIANCES = [1e-6, 0.3, 4.0, 56.0, 392.0, 1e4]


class Exact:
    """Expectations for x ~ N(m, v) by the trapezium rule, whose error is that of rounding."""

    def __init__(self, m: float, v: float) -> None:
        sd = np.sqrt(v)
        step = 0.05 / max(1.0, sd)
        # Far enough for the tilted integrand eˣ, too, which is largest at m + v or m − v.
        number = int(np.ceil((40.0 + sd) / step))
        g = step * np.arange(-number, number + 1)
        x, log_weights = m + sd * g, -0.5 * g**2
        log_weights -= logsumexp(log_weights)
        self.log_p = np.stack([logsumexp(log_weights + log_expit(s * x)) for s in (-1.0, 1.0)])
        self.p, weights = np.exp(self.log_p), np.exp(log_weights)
        small, pi = np.min(self.p), expit(x if m < 0.0 else -x)
        self.variance = np.sum(weights * (pi - small) ** 2)
        size = np.abs(x)
        self.entropy = np.sum(weights * (np.logaddexp(0.0, -size) + size * expit(-size)))
        self.log_pi = np.stack([np.sum(weights * log_expit(s * x)) for s in (-1.0, 1.0)])


def closed(function: Expectation, m: float, v: float) -> np.ndarray:
    return function(tf.constant([m], tf.float64), tf.constant([v], tf.float64)).numpy()[0]


@pytest.mark.parametrize("m", [-3100.0, -4000.0, -5000.0])
def test_the_tail_is_right_where_its_normal_distribution_function_underflows(m: float) -> None:
    v, x = 1e4, np.arange(-400.0, 400.0, 0.01)
    log_density = -0.5 * (x - m) ** 2 / v - 0.5 * np.log(2.0 * np.pi * v)
    expected = logsumexp(log_density + log_expit(x)) + np.log(0.01)
    log_p = closed(two_classes.log_probabilities, m, v)
    np.testing.assert_allclose(np.min(log_p), expected, rtol=0, atol=4e-12)


@pytest.mark.parametrize("v", VARIANCES)
@pytest.mark.parametrize("m", MEANS)
def test_closed_forms_are_the_integrals_to_rounding(m: float, v: float) -> None:
    exact = Exact(m, v)
    log_p = closed(two_classes.log_probabilities, m, v)
    np.testing.assert_allclose(log_p, exact.log_p, rtol=1e-12, atol=1e-15)
    # Relative precision, also of a probability of 1e-130.
    p = closed(two_classes.expected_probabilities, m, v)
    np.testing.assert_allclose(p, exact.p, rtol=1e-11, atol=1e-300)
    assert p.sum() == 1.0
    variance = closed(two_classes.probability_variance, m, v)
    np.testing.assert_allclose(variance, exact.variance, rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        closed(two_classes.mean_entropy, m, v), exact.entropy, rtol=0, atol=1e-14
    )
    np.testing.assert_allclose(
        closed(two_classes.expected_log_probabilities, m, v), exact.log_pi, rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("m", [*MEANS, 40.0, 1e6])
def test_without_variance_they_are_values(m: float) -> None:
    log_pi, p = log_expit(np.array([-m, m])), expit(np.array([-m, m]))
    for log_form in (two_classes.log_probabilities, two_classes.expected_log_probabilities):
        np.testing.assert_allclose(closed(log_form, m, 0.0), log_pi, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(closed(two_classes.expected_probabilities, m, 0.0), p, rtol=1e-12)
    assert 0.0 <= closed(two_classes.probability_variance, m, 0.0).max() < 1e-15
    np.testing.assert_allclose(
        closed(two_classes.mean_entropy, m, 0.0), -np.sum(p * log_pi), atol=1e-14
    )


@pytest.mark.parametrize("v", [0.0, 1e-8, 1.0, 1e6, 1e12, 1e30])
@pytest.mark.parametrize("m", [0.0, -1.0, 1e3, -1e6, 1e12])
def test_values_and_gradients_are_finite_at_every_scale(m: float, v: float) -> None:
    functions = [
        two_classes.log_probabilities,
        two_classes.expected_probabilities,
        two_classes.probability_variance,
        two_classes.mean_entropy,
        two_classes.expected_log_probabilities,
    ]
    for function in functions:
        x = [tf.constant([m], tf.float64), tf.constant([v], tf.float64)]
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(*x)
        for found in [value, *tape.gradient(value, x)]:
            assert np.all(np.isfinite(found)), function.__name__


@pytest.mark.parametrize("m", [0.0, -0.3, 5.0, -50.0])
@pytest.mark.parametrize("v", [0.3, 100.0])
def test_gradients_are_those_of_the_value(m: float, v: float) -> None:
    def total(function: Expectation, m: float, v: float) -> float:
        return float(np.sum(closed(function, m, v) * np.array([0.7, -0.3])))

    for function in (
        two_classes.log_probabilities,
        two_classes.expected_probabilities,
        two_classes.expected_log_probabilities,
        two_classes.mean_entropy,
    ):
        x = [tf.constant([m], tf.float64), tf.constant([v], tf.float64)]
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tf.reduce_sum(function(*x) * np.array([0.7, -0.3]))
        dm, dv = (float(g[0]) for g in tape.gradient(value, x))
        h = 1e-4
        slopes = [
            (total(function, m + i, v + j) - total(function, m - i, v - j)) / (2 * h)
            for i, j in ((h, 0.0), (0.0, h))
        ]
        np.testing.assert_allclose([dm, dv], slopes, rtol=1e-6, atol=1e-9)


def test_the_odds_are_those_of_the_difference_of_the_logits(rng: np.random.Generator) -> None:
    mean, var, C = rng.normal(size=(5, 3)), rng.uniform(size=(5, 3)), rng.normal(size=(2, 3))
    m, v = two_classes.log_odds(*map(tf.constant, (mean, var, C)))
    np.testing.assert_allclose(m, mean @ (C[1] - C[0]), rtol=1e-13)
    np.testing.assert_allclose(v, var @ (C[1] - C[0]) ** 2, rtol=1e-13)
    _, once = two_classes.log_odds(*map(tf.constant, (mean, var[:, :1], C)))
    np.testing.assert_allclose(once, var[:, 0] * np.sum((C[1] - C[0]) ** 2), rtol=1e-13)


@pytest.mark.parametrize("expectation", ALL)
@pytest.mark.parametrize("latents", [1, 2, 3])
def test_expectations_of_two_classes_are_exact_whatever_the_rule_and_the_latents(
    expectation: Expectation, latents: int, rng: np.random.Generator
) -> None:
    mean, C = 3.0 * rng.normal(size=(4, latents)), rng.normal(size=(2, latents))
    var = rng.uniform(0.0, 300.0, size=(4, latents))
    c = C[1] - C[0]
    for rule in (Sobol(2), MonteCarlo(1)):
        found = expectation(mean, var, C, rule).numpy()
        for row, m, v in zip(found, mean @ c, var @ c**2, strict=True):
            exact = Exact(float(m), float(v))
            expected = {
                expected_softmax: exact.p,
                expected_log_softmax: exact.log_pi,
                softmax_variance: exact.variance,
                expected_entropy: exact.entropy,
            }[expectation]
            np.testing.assert_allclose(row, expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize("expectation", ALL)
def test_every_precision_and_compiler_gives_the_same(
    expectation: Expectation, dtype: tf.DType, jit_compile: bool, rng: np.random.Generator
) -> None:
    mean, var = 3.0 * rng.normal(size=(4, 1)), rng.uniform(0.0, 300.0, size=(4, 1))
    C = np.array([[0.6], [-0.8]])
    arguments = [tf.constant(x, dtype) for x in (mean, var, C)]
    compiled = tf.function(lambda *x: expectation(*x, Sobol(2)), jit_compile=jit_compile)
    value = compiled(*arguments)
    assert value.dtype == dtype
    tolerance = 1e-13 if dtype == tf.float64 else 1e-5
    np.testing.assert_allclose(value, expectation(mean, var, C, Sobol(2)), rtol=tolerance)


# From outside: SciPy's adaptive quadrature


def quadrature(m: float, sd: float) -> tuple[float, float]:
    """E[σ(x)] and Var[σ(x)] of x ~ N(m, sd²), the step of σ in an interval of its own."""
    step = np.clip((np.array([-40.0, 0.0, 40.0]) - m) / sd, -10.0, 10.0)

    def mean(function: Callable[[float], float]) -> float:
        def integrand(g: float) -> float:
            return function(expit(m + sd * g)) * np.exp(-0.5 * g**2) / np.sqrt(2.0 * np.pi)

        ends = zip([-10.0, *step], [*step, 10.0], strict=True)
        parts = [scipy.integrate.quad(integrand, *ab, epsabs=1e-13, limit=200)[0] for ab in ends]
        return float(sum(parts))

    p = mean(lambda pi: pi)
    return p, mean(lambda pi: (pi - p) ** 2)


@pytest.mark.parametrize("sd", [7.5, 14.0, 20.0, 30.0])
@pytest.mark.parametrize("m", [0.0, 10.0, -25.0])
def test_likelihoods_of_wide_latents_predict_their_integrals(m: float, sd: float) -> None:
    likelihood = ILRLikelihood(2)
    contrast = (likelihood.link[1] - likelihood.link[0]).numpy()
    mean, var = np.array([[m]]) / contrast, np.array([[sd]]) ** 2 / contrast**2
    p, variance = quadrature(m, sd)
    found = likelihood.predict_mean_and_var(np.zeros((1, 1)), mean, var)[0][0]
    np.testing.assert_allclose(found, [1.0 - p, p], rtol=0, atol=1e-10)
    found = softmax_variance(mean, var, likelihood.link, likelihood.nodes)[0]
    np.testing.assert_allclose(found, [variance, variance], rtol=0, atol=1e-10)


def test_the_example_that_was_wrong_by_a_twentieth_is_right() -> None:
    p, _ = ILRLikelihood(2).predict_mean_and_var(np.zeros((1, 1)), [[10.0]], [[196.0]])
    assert np.max(p) == pytest.approx(quadrature(10.0 * np.sqrt(2.0), 14.0 * np.sqrt(2.0))[0])
    assert np.max(p) == pytest.approx(0.762, abs=5e-4)


@pytest.mark.parametrize("sd", [7.5, 20.0, 30.0])
def test_models_far_from_their_data_predict_the_integrals_of_their_prior(sd: float) -> None:
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([0, 1, 1])
    model = ILRGPR((X, y), SquaredExponential(), num_classes=2, mean_function=Constant(0.3))
    L = model.code.scale * np.sqrt(2.0)  # from the latent of the unit code to log-odds
    model.kernel.variance.assign((sd / L) ** 2)
    far = np.array([[1e6]])
    p, variance = quadrature(0.3 * float(L), sd)
    np.testing.assert_allclose(np.max(model.predict_y(far)[0]), p, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        model.predict_probability_variance(far)[0], [variance, variance], rtol=0, atol=1e-10
    )
