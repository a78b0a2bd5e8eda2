"""CodeGaussian is the conjugate code for SVGP: closed-form densities, and the collapsed optimum."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy.linalg import helmert
from scipy.special import softmax
from scipy.stats import norm

from gpflow_ilr import (
    CodeGaussian,
    GaussHermite,
    ILRCode,
)
from tests.models.coded import (
    ALPHA_EPSILON,
    CODES,
    NOISES,
    SMOOTHING,
    SOFT,
    K,
    N,
    X,
    Y,
    Z,
    assert_at_collapsed_optimum,
    code,
    jitter,
    kernel,
    natural_step,
    pair,
)

SHARPNESS = np.log(1 + K * SMOOTHING / (1 - SMOOTHING))


def pseudo_observations(code: Any, rows: Any) -> tuple[Any, Any, float]:
    """Targets and noise variances in the paper's units, [N, P], for hard labels, and the scale."""
    if isinstance(code, ILRCode):
        scale = float(code.scale)
        targets = np.log(SMOOTHING * rows + (1 - SMOOTHING) / K) @ helmert(K).T
    else:
        alpha = rows + ALPHA_EPSILON
        scale, targets = 1.0, np.log(alpha) - 0.5 * np.log(1 / alpha + 1)
    V = np.broadcast_to(code.noise_variance, [K, targets.shape[-1]])
    return targets, scale**2 * rows @ V, scale


@pytest.mark.parametrize(("name", "noise"), CODES)
def test_expectations_are_those_of_gaussian_pseudo_observations_in_the_papers_units(
    name, noise, rng
):
    likelihood = CodeGaussian(code(name, noise))
    P = likelihood.latent_dim
    m, v = rng.standard_normal((N, P)), rng.uniform(0.05, 2.0, (N, P))
    t, V, scale = pseudo_observations(likelihood.code, np.eye(K)[Y])
    log_prob = np.sum(norm.logpdf(t, scale * m, np.sqrt(V)), axis=1)
    np.testing.assert_allclose(likelihood.log_prob(X, m, Y[:, None]), log_prob, rtol=1e-10)
    # Two Gauss–Hermite nodes, m ± √v, are exact for quadratics, output by output.
    nodes = m + np.sqrt(v) * np.array([-1.0, 1.0])[:, None, None]
    expected = np.sum(np.mean(norm.logpdf(t, scale * nodes, np.sqrt(V)), axis=0), axis=1)
    ours = likelihood.variational_expectations(X, m, v, Y[:, None])
    np.testing.assert_allclose(ours, expected, rtol=1e-10)


@pytest.mark.parametrize("noise", NOISES)
def test_soft_labels_have_soft_targets_or_are_averages_where_the_noise_depends_on_the_class(
    noise, rng
):
    likelihood = CodeGaussian(code("ILR", noise))
    m, v = rng.standard_normal((N, K - 1)), np.full((N, K - 1), 0.3)
    ours = likelihood.variational_expectations(X, m, v, SOFT)
    if noise == "per_class":
        labels = [np.full((N, 1), k) for k in range(K)]
        hard = [likelihood.variational_expectations(X, m, v, y) for y in labels]
        expected = np.sum(SOFT * np.stack(hard, axis=1), axis=1)
    else:
        t, V, scale = pseudo_observations(likelihood.code, SOFT)
        V = scale**2 * np.broadcast_to(likelihood.code.noise_variance, t.shape)
        squares = ((t - scale * m) ** 2 + scale**2 * v) / V
        expected = -0.5 * np.sum(np.log(2 * np.pi * V) + squares, axis=1)
    np.testing.assert_allclose(ours, expected, rtol=1e-10)


@pytest.mark.parametrize(("name", "noise"), CODES)
def test_leading_dimensions_inputs_and_label_forms_do_not_matter(name, noise, rng):
    likelihood = CodeGaussian(code(name, noise))
    F = rng.standard_normal((N, likelihood.latent_dim))
    V = F**2
    flat = likelihood.variational_expectations(X, F, V, Y[:, None])
    one_hot = np.eye(K)[Y]
    for labels in (Y[:, None] + 0.0, one_hot, one_hot.astype(np.uint8)):
        np.testing.assert_allclose(likelihood.variational_expectations(None, F, V, labels), flat)
        stacked = [np.reshape(x, (2, N // 2, -1)) for x in (F, V, labels)]
        ours = likelihood.variational_expectations(None, *stacked)
        np.testing.assert_allclose(ours, np.reshape(flat, (2, -1)))
        single = likelihood.log_prob(None, F[0], labels[0])
        np.testing.assert_allclose(single, likelihood.log_prob(X, F, Y[:, None])[0])


@pytest.mark.parametrize("name", ["ILR", "Dirichlet"])
def test_predictions_speak_of_the_label_not_of_its_target(name, rng):
    likelihood = CodeGaussian(code(name), nodes=GaussHermite(12))
    P, scale = likelihood.latent_dim, SHARPNESS if name == "ILR" else 1.0
    link = scale * (helmert(K).T if name == "ILR" else np.eye(K))
    m, v = 0.3 * rng.standard_normal((N, P)), np.full((N, P), 0.05)
    f = m + np.sqrt(v) * rng.standard_normal((20_000, N, P))
    pi = softmax(f @ link.T, axis=-1)
    p, variance = likelihood.predict_mean_and_var(X, m, v)
    error = np.std(pi, axis=0) / np.sqrt(len(pi))
    assert np.max(np.abs(p - np.mean(pi, axis=0)) / error) < 5.0
    np.testing.assert_allclose(variance, p * (1 - p))
    np.testing.assert_allclose(likelihood.conditional_mean(X, m), softmax(m @ link.T, axis=-1))
    density = likelihood.predict_log_density(X, m, v, Y[:, None])
    np.testing.assert_allclose(density, np.log(p.numpy()[np.arange(N), Y]))


def test_labels_and_codes_that_cannot_be_read_are_refused():
    likelihood = CodeGaussian(code("ILR"))
    F = np.zeros((N, K - 1))
    with pytest.raises(ValueError, match="subtract 1"):
        likelihood.log_prob(X, F, Y[:, None] + 1)
    compiled = tf.function(lambda Y: likelihood.log_prob(X, F, Y), autograph=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"integers 0..{K - 1}"):
        compiled(tf.constant(Y[:, None] + 1))
    with pytest.raises(TypeError, match="ILRCode"):
        CodeGaussian(K)


def test_a_plain_svgp_reaches_it_too():
    with jitter(1e-13):
        collapsed, _ = pair("Dirichlet", "per_class")
        model = gpflow.models.SVGP(
            kernel(), CodeGaussian(collapsed.code), Z, num_latent_gps=K, num_data=N
        )
        natural_step(model, (X, Y[:, None]))
        assert_at_collapsed_optimum(model, collapsed, (X, Y[:, None]))
