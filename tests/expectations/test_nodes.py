"""Node rules: moments, determinism, refusals."""

import itertools
from functools import cache

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy.linalg import helmert
from scipy.special import logsumexp, ndtri, roots_hermitenorm, softmax
from scipy.stats import qmc

from gpflow_ilr.expectations import expected_log_softmax, expected_softmax
from gpflow_ilr.expectations.nodes import (
    GaussHermite,
    MonteCarlo,
    NodeRule,
    Sobol,
    average,
    default_rule,
    log_average,
    rule_or_default,
)
from tests.expectations.gumbel_oracle import expectations as oracle


def nodes_of(rule: NodeRule, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = rule(dimension, tf.float64)
    return nodes.numpy(), weights.numpy()


@pytest.mark.parametrize("dimension", [1, 2, 9, 25, 99])
def test_default_nodes_have_the_first_two_moments_of_the_standard_normal(dimension: int) -> None:
    nodes, weights = nodes_of(default_rule(dimension), dimension)
    assert weights.sum() == pytest.approx(1.0, abs=1e-14)
    np.testing.assert_allclose(weights @ nodes, 0.0, atol=1e-13)
    covariance = (weights[:, None] * nodes).T @ nodes
    np.testing.assert_allclose(covariance, np.eye(dimension), atol=1e-12)


@pytest.mark.parametrize(
    ("dimension", "plain", "controlled"),
    [(2, 256, 64), (32, 256, 128), (65, 512, 256), (999, 512, 512)],
)
def test_the_default_has_the_nodes_that_its_docstring_states(
    dimension: int, plain: int, controlled: int
) -> None:
    assert default_rule(dimension) == Sobol(plain)
    assert default_rule(dimension, controlled=True) == Sobol(controlled)


def test_monte_carlo_has_draws_of_its_own_for_every_row() -> None:
    p = expected_softmax(np.zeros((2, 3)), np.ones((2, 3)), np.eye(3), MonteCarlo(10, seed=1))
    assert np.all(p[0] != p[1])


def test_fewer_sobol_pairs_than_latents_have_the_right_mean_squared_radius() -> None:
    nodes, _ = nodes_of(Sobol(num_nodes=16), 25)
    np.testing.assert_array_equal(nodes[:8], -nodes[8:])
    assert np.mean(np.sum(nodes**2, axis=1)) == pytest.approx(25.0, rel=1e-12)


def test_sobol_nodes_depend_on_nothing_but_their_parameters() -> None:
    first, _ = nodes_of(Sobol(num_nodes=32, seed=3), 5)
    second, _ = nodes_of(Sobol(num_nodes=32, seed=3), 5)
    other, _ = nodes_of(Sobol(num_nodes=32, seed=4), 5)
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - other).max() > 0.1
    assert hash(Sobol(num_nodes=32, seed=3)) == hash(Sobol(num_nodes=32, seed=3))


def test_sobol_nodes_are_finite_in_ten_thousand_dimensions() -> None:
    nodes, _ = nodes_of(Sobol(num_nodes=8), 9999)
    assert np.all(np.isfinite(nodes))


def test_a_number_of_sobol_nodes_need_not_be_a_power_of_two() -> None:
    nodes, _ = nodes_of(Sobol(num_nodes=26), 3)
    assert nodes.shape == (26, 3)
    np.testing.assert_allclose(nodes.T @ nodes / 26, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("degree", range(9))
def test_gauss_hermite_is_exact_for_polynomials(degree: int) -> None:
    nodes, weights = nodes_of(GaussHermite(num_nodes=5), 1)
    moment = 0.0 if degree % 2 else float(np.prod(np.arange(1, degree, 2)))
    assert weights @ nodes[:, 0] ** degree == pytest.approx(moment, abs=1e-11)


@pytest.mark.parametrize("num_nodes", [1, 2, 7, 32, 100, 370])
def test_gauss_hermite_nodes_are_those_of_scipy(num_nodes: int) -> None:
    nodes, weights = nodes_of(GaussHermite(num_nodes), 1)
    exact, unnormalised = roots_hermitenorm(num_nodes)
    np.testing.assert_allclose(nodes[:, 0], exact, rtol=0, atol=1e-13)
    np.testing.assert_allclose(weights, unnormalised / unnormalised.sum(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("dimension", [2, 3])
def test_gauss_hermite_nodes_of_more_latents_are_all_products(dimension: int) -> None:
    nodes, weights = nodes_of(GaussHermite(4), dimension)
    x, w = roots_hermitenorm(4)
    expected = {
        tuple(x[list(index)].round(9)): np.prod(w[list(index)] / w.sum())
        for index in itertools.product(range(4), repeat=dimension)
    }
    assert len(nodes) == len(expected) == 4**dimension
    for node, weight in zip(nodes, weights, strict=True):
        assert weight == pytest.approx(expected[tuple(node.round(9))], abs=1e-13)


def test_gauss_hermite_nodes_are_double_precision_whatever_the_default_float() -> None:
    rule = GaussHermite(29)  # that no other test has asked for
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        nodes = tf.function(lambda: rule(1, tf.float64)[0])()
    np.testing.assert_allclose(nodes[:, 0], roots_hermitenorm(29)[0], rtol=0, atol=1e-13)


def test_gauss_hermite_product_rule_integrates_products() -> None:
    nodes, weights = nodes_of(GaussHermite(num_nodes=4), 3)
    assert nodes.shape == (64, 3)
    assert weights @ np.prod(nodes**2, axis=1) == pytest.approx(1.0, rel=1e-12)


def test_a_large_product_rule_is_refused_with_advice() -> None:
    with pytest.raises(ValueError, match=r"32\*\*3 nodes for 3 latents.*use Sobol"):
        GaussHermite(num_nodes=32)(3, tf.float64)


def test_monte_carlo_draws_afresh() -> None:
    rule = MonteCarlo(num_samples=500)
    first, weights = nodes_of(rule, 40)
    second, _ = nodes_of(rule, 40)
    assert np.abs(first - second).max() > 0.1
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    # 20,000 draws: standard errors 0.007 of the mean and 0.01 of the variance.
    assert abs(first.mean()) < 0.035
    assert abs(first.var() - 1.0) < 0.05


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize("rule", [GaussHermite(), Sobol(), MonteCarlo()])
def test_nodes_have_the_dtype_asked_for(rule: NodeRule, dtype: tf.DType) -> None:
    nodes, weights = rule(1, dtype)
    assert nodes.dtype == weights.dtype == dtype


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Sobol(num_nodes=7), "num_nodes must be even.*it is 7: use 8"),
        (lambda: Sobol(num_nodes=0), "num_nodes must be an integer of at least 2.*0"),
        (lambda: Sobol(num_nodes=8.0), "num_nodes must be an integer.*8.0"),  # type: ignore[arg-type]
        (lambda: GaussHermite(num_nodes=371), "at most 370, but it is 371.*overflow.*Use 370"),
        (lambda: GaussHermite(num_nodes=0), "num_nodes must be an integer of at least 1.*0"),
        (lambda: MonteCarlo(num_samples=True), "num_samples must be an integer.*True"),
    ],
)
def test_impossible_numbers_of_nodes_are_refused(make: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("v", [0.1, 1.0, 9.0, 25.0])
@pytest.mark.parametrize("K", [3, 6, 10, 26])
def test_probabilities_by_the_default_rule_are_better_than_by_768_draws(K: int, v: float) -> None:
    num_rows, rng = 8, np.random.default_rng(K)
    m, var = rng.normal(size=(num_rows, K)), v * rng.uniform(0.5, 1.5, size=(num_rows, K))
    draws = softmax(m + np.sqrt(var) * rng.normal(size=(1000, num_rows, K)), axis=-1)
    error = np.sqrt(np.mean(draws.var(axis=0)) / 768)
    size = default_rule(K).num_nodes  # type: ignore[attr-defined]
    ours = [expected_softmax(m, var, np.eye(K), Sobol(size, seed)).numpy() for seed in range(3)]
    assert np.sqrt(np.mean((np.stack(ours) - oracle(m, var)[0]) ** 2)) < error


@cache
def many_nodes(dimension: int) -> np.ndarray:
    g = ndtri(qmc.Sobol(dimension, seed=99).random_base2(14) + 2.0**-31)
    return np.concatenate([g, -g])


def brute_force(mean: np.ndarray, var: np.ndarray, C: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[π] and E[log π] by 2¹⁵ nodes."""
    logits = (mean[:, None] + np.sqrt(var)[:, None] * many_nodes(mean.shape[1])) @ C.T
    total = logsumexp(logits, axis=-1, keepdims=True)
    return np.exp(logits - total).mean(axis=1), mean @ C.T - total.mean(axis=1)


def random_problem(
    rng: np.random.Generator, K: int, kind: str, sd: float, num_rows: int = 4
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, variances up to sd², equal or not, and a link, mostly with a random mixing matrix."""
    columns = {"mixed": K - 1, "two latents": 2, "one latent": 1}.get(kind)
    C = np.eye(K) if kind == "softmax" else helmert(K).T
    C = C if columns is None else C @ rng.normal(size=(K - 1, columns))
    L = C.shape[1]
    mean = sd * rng.uniform(0.0, 1.5, size=(num_rows, 1)) * rng.normal(size=(num_rows, L))
    mean[0] = 0.0  # as far from the data
    return mean, sd**2 * rng.uniform(0.0, 1.0, size=(num_rows, L)) ** rng.integers(2), C


@pytest.mark.parametrize("sd", [1.0, 5.0, 30.0])
@pytest.mark.parametrize("kind", ["ILR", "mixed", "softmax", "two latents", "one latent"])
@pytest.mark.parametrize("K", [3, 10, 26])
def test_nodes_keep_the_bounds_that_their_docstring_states(K: int, kind: str, sd: float) -> None:
    for draw in range(3):
        mean, var, C = random_problem(np.random.default_rng([K, int(sd), draw]), K, kind, sd)
        L = C.shape[1]
        pi, log_pi = brute_force(mean, var, C)
        s = np.sqrt(np.max(var @ np.square(C - C.mean(axis=0)).T, axis=1))
        bound = np.select([s <= 3.0, s <= 10.0], [0.02, 0.05], 0.08)
        own = np.where(s <= 10.0, 0.001, 0.03) if L == 1 else bound
        for rule, allowed in ((default_rule(L), own), (Sobol(2048), bound / 3)):
            error = np.max(np.abs(expected_softmax(mean, var, C, rule) - pi), axis=1)
            assert np.all(error < allowed)
        for rule, part in ((default_rule(L, controlled=True), 1.0), (Sobol(512), 1 / 3)):
            error = np.max(np.abs(expected_log_softmax(mean, var, C, rule) - log_pi), axis=1)
            assert np.all(error < part * 0.12 * s)
            assert np.all(error < part * 0.08 * np.mean(-log_pi, axis=1))


def test_a_rule_is_taken_as_it_is_and_replaced_by_the_default_where_there_is_none() -> None:
    assert rule_or_default(Sobol(6), 3) == Sobol(6)
    assert rule_or_default(None, 3) == default_rule(3) == Sobol(256)
    assert rule_or_default(None, 3, controlled=True) == default_rule(3, controlled=True)
    with pytest.raises(TypeError, match=r"nodes must be a node rule such as Sobol.*it is 64"):
        rule_or_default(64, 3)  # type: ignore[arg-type]


def test_an_average_weighs_the_nodes(rng: np.random.Generator) -> None:
    weights, values = rng.dirichlet(np.ones(5)), rng.normal(size=(5, 2, 3))
    np.testing.assert_allclose(
        average(tf.constant(weights), tf.constant(values)), np.einsum("s,srk->rk", weights, values)
    )


def test_a_log_average_is_the_logarithm_of_the_average_and_does_not_underflow(
    rng: np.random.Generator,
) -> None:
    values = rng.normal(size=(5, 2, 3))
    for weights in (rng.dirichlet(np.ones(5)), np.array([0.5, 0.0, 0.7, 0.3, -0.1])):
        expected = np.einsum("s,srk->rk", weights, np.exp(values))
        for shift in (0.0, -3000.0):
            found = log_average(tf.constant(weights), tf.constant(values + shift))
            np.testing.assert_allclose(found, np.log(expected) + shift, rtol=1e-12)
