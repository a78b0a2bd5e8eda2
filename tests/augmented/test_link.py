"""The link, its augmentation and its two bounds, against sums, quadrature and autodiff."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy.optimize import brentq
from scipy.special import digamma, expit, gammaln, softmax

from gpflow_ilr.augmented.link import LogisticSoftmaxLink

THETA = (1.7, 0.4, 1.1)
LINKS = {
    "LSM": LogisticSoftmaxLink.logistic(3),
    "LSM scaled": LogisticSoftmaxLink.logistic(3, THETA),
    "BSM": LogisticSoftmaxLink.bijective(3),
    "BSM scaled": LogisticSoftmaxLink.bijective(3, THETA),
    "BSM binary": LogisticSoftmaxLink.bijective(2),
}


@pytest.fixture(params=LINKS)
def link(request):
    return LINKS[request.param]


def moments(link, rng, num_rows=7, scale=3.0):
    m = rng.normal(0, scale, (num_rows, link.num_latent_gps))
    v = rng.gamma(1.0, 2.0, (num_rows, link.num_latent_gps))
    Y = np.eye(link.num_classes)[np.arange(num_rows) % link.num_classes]
    return m, v, Y


def counts(num_latent_gps, largest):
    """All vectors of counts up to `largest`, [S, L]."""
    return np.array(list(itertools.product(range(largest), repeat=num_latent_gps)))


def test_probabilities_are_the_models_own_formula(link, rng):
    F = rng.normal(0, 3, (5, link.num_latent_gps))
    weights = np.array(link.weights) * expit(F)
    if link.offset > 0:
        weights = np.concatenate([weights, np.full((5, 1), link.offset)], axis=1)
    expected = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(link.log_probabilities(F)), expected, rtol=1e-13)


def test_constants_of_the_two_models():
    assert LINKS["LSM"].total == 3.0
    assert LINKS["BSM"].total == 2.5
    assert LINKS["BSM scaled"].class_weights == (1.7, 0.4, 0.55)
    assert [(k.num_classes, k.num_latent_gps) for k in LINKS.values()] == [(3, 3)] * 2 + [
        (3, 2)
    ] * 2 + [(2, 1)]


def test_no_free_class_of_the_bijective_softmax_exceeds_two_thirds(rng):
    link = LogisticSoftmaxLink.bijective(4)
    F = np.concatenate([rng.normal(0, 30, (500, 3)), [[1e3, -1e3, -1e3], [-1e3] * 3]])
    p = np.exp(link.log_probabilities(F))
    assert np.max(p[:, :-1]) <= 2 / 3 * (1 + 1e-12)
    np.testing.assert_allclose(p[-2], [2 / 3, 0, 0, 1 / 3], atol=1e-15)
    np.testing.assert_allclose(p[-1], [0, 0, 0, 1], atol=1e-15)


def test_summing_the_counts_out_of_the_augmented_likelihood_gives_the_likelihood(link, rng):
    """Σ_n Γ(1 + Σn) R^−(1+Σn) ∏_j (r_j σ(−f_j))^n_j / n_j! = 1 / (d + Σ_j r_j σ(f_j))."""
    f = rng.normal(1.0, 0.5, link.num_latent_gps)
    n = counts(link.num_latent_gps, 60)
    total = n.sum(axis=1)
    log_terms = (
        gammaln(1 + total)
        - (1 + total) * np.log(link.total)
        + np.sum(n * np.log(np.array(link.weights) * expit(-f)) - gammaln(1 + n), axis=1)
    )
    expected = 1 / (link.offset + np.sum(np.array(link.weights) * expit(f)))
    np.testing.assert_allclose(np.sum(np.exp(log_terms)), expected, rtol=1e-12)


def explicit_bound(link, m, v, y, p):
    """The bound before maximisation, for q(n) = NM(1, p) and q(ω | n) = PG(Y + n, c), term by term."""
    n = counts(link.num_latent_gps, 40)
    total = n.sum(axis=1)
    log_q = gammaln(1 + total) + np.log1p(-p.sum()) + np.sum(n * np.log(p) - gammaln(1 + n), axis=1)
    c = np.sqrt(m**2 + v)
    Y = np.eye(link.num_classes, link.num_latent_gps)[y]
    log_joint = (
        np.log(link.class_weights[y])
        + gammaln(1 + total)
        - (1 + total) * np.log(link.total)
        + np.sum(n * np.log(link.weights) - gammaln(1 + n), axis=1)
        + np.sum((Y - n) * m / 2 - (Y + n) * np.log(2 * np.cosh(c / 2)), axis=1)
    )
    q = np.exp(log_q)
    np.testing.assert_allclose(q.sum(), 1, atol=1e-11)
    return np.sum(q * (log_joint - log_q))


def test_marginal_bound_is_the_maximum_over_the_auxiliary_variables(link, rng):
    m, v = rng.normal(1.0, 0.5, link.num_latent_gps), rng.gamma(1.0, 0.5, link.num_latent_gps)
    psi = np.exp(-m / 2) / (2 * np.cosh(np.sqrt(m**2 + v) / 2))
    p = np.array(link.weights) * psi / link.total
    for y in range(link.num_classes):
        Y = np.eye(link.num_classes)[y]
        collapsed = link.marginal_bound(m[None], v[None], Y[None]).numpy()[0]
        np.testing.assert_allclose(collapsed, explicit_bound(link, m, v, y, p), rtol=1e-9)
        for factor in (0.9, 1.1):
            assert explicit_bound(link, m, v, y, factor * p) < collapsed


def test_bounds_are_ordered_and_below_the_expectation(link, rng):
    m, v, Y = moments(link, rng, num_rows=12)
    x, w = np.polynomial.hermite_e.hermegauss(40)
    grid = np.stack(np.meshgrid(*[x] * link.num_latent_gps, indexing="ij"), -1)
    grid = grid.reshape(-1, link.num_latent_gps)
    weights = np.prod(np.stack(np.meshgrid(*[w] * link.num_latent_gps), -1), -1).reshape(-1)
    F = m[:, None] + np.sqrt(v)[:, None] * grid
    log_p = np.sum(link.log_probabilities(F) * Y[:, None], axis=-1)
    expected = log_p @ weights / weights.sum()
    marginal = link.marginal_bound(m, v, Y).numpy()
    factorised = link.factorised_bound(m, v, Y).numpy()
    assert np.all(marginal < expected)
    assert np.all(factorised < marginal)


@pytest.mark.parametrize("bound", ["marginal_bound", "factorised_bound"])
def test_slopes_are_those_of_gaussian_factors(link, bound, rng):
    """∂/∂m = (Y − γ)/2 − ω m and ∂/∂v = −ω/2, with ω = (Y + γ) tanh(c/2)/(2c)."""
    m, v, Y = map(tf.constant, moments(link, rng))
    with tf.GradientTape() as tape:
        tape.watch([m, v])
        value = getattr(link, bound)(m, v, Y)
    slopes = tape.gradient(value, [m, v])
    if bound == "marginal_bound":
        kappa, omega = link.pseudo_observations(m, v, Y)
    else:
        c = np.sqrt(m**2 + v)
        share = np.array(link.weights) * np.exp(-m / 2) / (2 * np.cosh(c / 2)) / link.total
        s = share.sum(axis=1)
        alpha = [
            brentq(lambda a, s=s: a - 1 - s * np.exp(digamma(a)), 1, 1 / (1 - s), xtol=1e-14)
            for s in s
        ]
        gamma = np.exp(digamma(alpha))[:, None] * share
        labels = Y.numpy()[:, : link.num_latent_gps]
        kappa, omega = (labels - gamma) / 2, (labels + gamma) * np.tanh(c / 2) / (2 * c)
    np.testing.assert_allclose(slopes[0], kappa - omega * m, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(slopes[1], -0.5 * omega, rtol=1e-8, atol=1e-11)


def test_marginal_bound_without_variance_is_the_log_likelihood(link, rng):
    m, _, Y = moments(link, rng, scale=20.0)
    expected = np.sum(link.log_probabilities(m) * Y, axis=-1)
    # Differences of terms of size 50: 1e-13 is their rounding.
    np.testing.assert_allclose(link.marginal_bound(m, 0 * m, Y), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("bound", ["marginal_bound", "factorised_bound"])
def test_bounds_are_linear_in_soft_labels(link, bound, rng):
    m, v, _ = moments(link, rng)
    soft = rng.dirichlet(np.ones(link.num_classes), len(m))
    of_class = [
        getattr(link, bound)(m, v, np.tile(Y, (len(m), 1))).numpy()
        for Y in np.eye(link.num_classes)
    ]
    mixed = np.sum(soft * np.stack(of_class, axis=-1), axis=-1)
    np.testing.assert_allclose(getattr(link, bound)(m, v, soft), mixed, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bound", ["marginal_bound", "factorised_bound"])
def test_bounds_and_slopes_stay_finite_at_extremes(link, bound, dtype):
    values = [(m, v) for m in (-1e3, -30.0, -1e-6, 0.0, 1.0, 1e3) for v in (0.0, 1e-12, 1.0, 1e4)]
    m = tf.constant([[m] * link.num_latent_gps for m, _ in values], dtype)
    v = tf.constant([[v] * link.num_latent_gps for _, v in values], dtype)
    for y in range(link.num_classes):
        Y = tf.one_hot([y] * len(values), link.num_classes, dtype=dtype)
        with tf.GradientTape() as tape:
            tape.watch([m, v])
            value = getattr(link, bound)(m, v, Y)
        for x in [value, *tape.gradient(value, [m, v])]:
            assert np.all(np.isfinite(x))


def test_slopes_keep_their_digits_at_zero(link):
    """At m = v = 0, ω = (Y + γ)/4, where √ has no slope: float32 must not notice."""
    m = tf.zeros([1, link.num_latent_gps], tf.float32)
    Y = tf.one_hot([0], link.num_classes)
    with tf.GradientTape() as tape:
        tape.watch(m_v := [m, tf.identity(m)])
        value = link.marginal_bound(*m_v, Y)
    kappa, omega = link.pseudo_observations(m, m, Y)
    slope_m, slope_v = tape.gradient(value, m_v)
    np.testing.assert_allclose(slope_m, kappa, rtol=1e-6)
    np.testing.assert_allclose(slope_v, -omega / 2, rtol=1e-6)
    np.testing.assert_allclose(omega, (Y[:, : link.num_latent_gps] - kappa) / 2, rtol=1e-6)


def test_pseudo_counts_are_the_mean_of_a_negative_multinomial(link, rng):
    """γ = p/(1 − Σp) with p = r ψ/R, whose mean over draws of λ ~ Exp, n ~ Poisson it is."""
    m, v = rng.normal(0, 1, link.num_latent_gps), rng.gamma(1.0, 1.0, link.num_latent_gps)
    psi = np.exp(-m / 2) / (2 * np.cosh(np.sqrt(m**2 + v) / 2))
    r = np.array(link.weights)
    rate = link.offset + np.sum(r * (1 - psi))
    n = rng.poisson(rng.exponential(1 / rate, (40_000, 1)) * r * psi)
    Y = np.eye(link.num_classes)[[0]]
    kappa, _ = link.pseudo_observations(m[None], v[None], Y)
    gamma = Y[0, : link.num_latent_gps] - 2 * kappa.numpy()[0]
    assert np.all(np.abs(n.mean(0) - gamma) < 4 * n.std(0) / np.sqrt(len(n)))


def test_equal_latents_give_the_class_scaling_itself():
    p = np.exp(LogisticSoftmaxLink.logistic(3, THETA).log_probabilities(np.full((1, 3), -2.0)))
    np.testing.assert_allclose(p[0], softmax(np.log(THETA)), rtol=1e-13)


@pytest.mark.parametrize("scaling", [(1.0, 2.0), (1.0, 0.0, 1.0), (1.0, -1.0, 1.0), (1, np.nan, 1)])
def test_impossible_class_scaling_is_refused(scaling):
    with pytest.raises(ValueError, match="class_scaling must be 3 positive finite numbers"):
        LogisticSoftmaxLink.logistic(3, scaling)
