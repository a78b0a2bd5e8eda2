"""The maximised evidence bound against plain coordinate ascent, quadrature and finite differences."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.special import expit

from gpflow_ilr.augmented.coordinate_ascent import gaussian_posterior, maximised_bound
from gpflow_ilr.augmented.link import LogisticSoftmaxLink
from tests.augmented.reference import (
    SETTINGS,
    coordinate_ascent,
    squared_exponential,
    three_blobs,
)

LINKS = {"LSM": LogisticSoftmaxLink.logistic(3), "BSM": LogisticSoftmaxLink.bijective(3)}


def problem(name, variance=4.0, num_rows=45):
    """X, K [1, N, N], prior mean, one-hot rows over classes, and over latents."""
    X, y = three_blobs(num_rows)
    K = squared_exponential(X, X, variance, 1.0) + 1e-6 * variance * np.eye(len(X))
    num_latent_gps, _ = SETTINGS[name]
    return (
        X,
        K[None],
        np.zeros((len(X), num_latent_gps)),
        np.eye(3)[y],
        np.eye(3, num_latent_gps)[y],
    )


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("variance", [1.0, 30.0])
def test_bound_is_the_limit_of_plain_coordinate_ascent(name, variance):
    _, K, mu, Y, over_latents = problem(name, variance, num_rows=30)
    diagonal = np.diag(K[0])
    plain = coordinate_ascent(
        K[0], K[0], diagonal, over_latents, SETTINGS[name][1], 400, variance=0.1
    )
    # Plain sweeps rise without exception, up to the rounding of the inverses that they use.
    assert np.min(np.diff(plain)) > -1e-6
    assert_allclose(maximised_bound(LINKS[name], K, mu, Y), plain[-1], rtol=1e-6)


@pytest.mark.parametrize("name", LINKS)
def test_extrapolation_is_tight_at_loose_tolerance(name):
    _, K, mu, Y, _ = problem(name, 30.0)
    tight = maximised_bound(LINKS[name], K, mu, Y, tolerance=1e-11)
    assert_allclose(maximised_bound(LINKS[name], K, mu, Y), tight, rtol=1e-8)


def test_a_broad_start_would_find_a_worse_optimum():
    """Why coordinate ascent does not start from the prior, the usual choice."""
    _, K, mu, Y, over_latents = problem("LSM", 300.0, num_rows=30)
    diagonal = np.diag(K[0])
    from_prior = coordinate_ascent(K[0], K[0], diagonal, over_latents, 0.0, 300)
    assert maximised_bound(LINKS["LSM"], K, mu, Y) > from_prior[-1] + 1.0


@pytest.mark.parametrize(("name", "labels"), [("LSM", [1]), ("BSM", [1]), ("BSM", [0, 2])])
def test_bound_is_below_the_exact_evidence(name, labels):
    link = LINKS[name]
    K = 2.0 * np.array([[1.0, 0.6], [0.6, 1.0]])[: len(labels), : len(labels)]
    size = len(labels) * link.num_latent_gps
    x, w = np.polynomial.hermite_e.hermegauss(16)
    nodes = np.stack(np.meshgrid(*[x] * size, indexing="ij"), -1)
    white = nodes.reshape(-1, len(labels), link.num_latent_gps)
    weights = np.prod(np.stack(np.meshgrid(*[w / w.sum()] * size, indexing="ij"), -1), -1)
    s = expit(np.einsum("nm,sml->snl", np.linalg.cholesky(K), white))
    shares = np.concatenate([s, np.full((*s.shape[:-1], 1), 0.5)], -1) if name == "BSM" else s
    p = shares / shares.sum(axis=-1, keepdims=True)
    likelihood = np.prod(p[:, np.arange(len(labels)), labels], axis=1)
    evidence = np.log(weights.reshape(-1) @ likelihood)
    mu = np.zeros((len(labels), link.num_latent_gps))
    bound = maximised_bound(link, K[None], mu, np.eye(3)[labels])
    assert evidence - 0.6 * len(labels) < bound < evidence


@pytest.mark.parametrize("name", LINKS)
def test_gradient_equals_finite_differences(name):
    X, _, mu, Y, _ = problem(name, num_rows=20)
    squared = np.sum((X[:, None] - X) ** 2, axis=-1)

    @tf.function(autograph=False)
    def bound_and_slopes(parameters):
        with tf.GradientTape() as tape:
            tape.watch(parameters)
            variance, lengthscale, offset = tf.unstack(parameters)
            K = variance * tf.exp(-0.5 * squared / lengthscale**2) + 1e-6 * np.eye(len(X))
            value = maximised_bound(LINKS[name], K[None], mu + offset, Y, tolerance=1e-12)
        return value, tape.gradient(value, parameters)

    h, point = 1e-5, np.array([6.0, 0.9, 0.3])
    _, slopes = bound_and_slopes(tf.constant(point))
    for step, slope in zip(h * np.eye(3), slopes, strict=True):
        above, below = (bound_and_slopes(tf.constant(x))[0] for x in (point + step, point - step))
        assert_allclose(slope, (above - below) / (2 * h), rtol=1e-5)


def test_gaussian_posterior_equals_dense_algebra(rng):
    _, K, _, _, _ = problem("LSM", num_rows=6)
    K = np.concatenate([K, 2.0 * K])
    mu, kappa = rng.normal(size=(2, 6, 2))
    omega = rng.gamma(1.0, 1.0, (6, 2))
    omega[2] = 0.0
    mean, variance = gaussian_posterior(K, mu, kappa, omega)
    for j in range(2):
        S = np.linalg.inv(np.linalg.inv(K[j]) + np.diag(omega[:, j]))
        expected = S @ (kappa[:, j] + np.linalg.solve(K[j], mu[:, j]))
        assert_allclose(mean[:, j], expected, rtol=1e-7, atol=1e-8)
        assert_allclose(variance[:, j], np.diag(S), rtol=1e-7)


def test_one_kernel_for_all_latents_equals_one_each():
    _, K, mu, Y, _ = problem("LSM")
    shared = maximised_bound(LINKS["LSM"], K, mu, Y, max_sweeps=10)
    separate = maximised_bound(LINKS["LSM"], np.repeat(K, 3, axis=0), mu, Y, max_sweeps=10)
    assert_allclose(shared, separate, rtol=1e-10)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_graph_and_xla_equal_eager(jit_compile):
    _, K, mu, Y, _ = problem("BSM", num_rows=15)
    eager = maximised_bound(LINKS["BSM"], K, mu, Y)
    compiled = tf.function(maximised_bound, jit_compile=jit_compile, autograph=False)
    assert_allclose(compiled(LINKS["BSM"], *map(tf.constant, (K, mu, Y))), eager, rtol=1e-9)


def test_float32_is_close():
    _, K, mu, Y, _ = problem("LSM")
    K32, mu32, Y32 = (tf.constant(x, tf.float32) for x in (K, mu, Y))
    bound = maximised_bound(LINKS["LSM"], K32, mu32, Y32)
    assert bound.dtype == tf.float32
    assert_allclose(bound, maximised_bound(LINKS["LSM"], K, mu, Y), rtol=1e-4)
