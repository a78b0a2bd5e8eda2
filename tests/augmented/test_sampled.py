"""Predictions from samples of the latents, against their mixture written out in NumPy."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

from gpflow_ilr.augmented import sampled
from gpflow_ilr.augmented.likelihoods import (
    BijectiveSoftmaxLikelihood,
    LogisticSoftmaxLikelihood,
)
from gpflow_ilr.augmented.sampled import SampledPosterior, SampledPredictions
from tests.augmented.reference import squared_exponential
from tests.augmented.small_models import LENGTHSCALE, VARIANCE, XNEW, build

LIKELIHOODS = {"LSM": LogisticSoftmaxLikelihood, "BSM": BijectiveSoftmaxLikelihood}


def conditional_in_numpy(model, Xnew):
    """Means [S, n, L] and variances [n] of f* given each sample."""
    X = model.data[0].numpy()
    K = squared_exponential(X, X, VARIANCE, LENGTHSCALE) + 1e-6 * VARIANCE * np.eye(len(X))
    k = squared_exponential(X, Xnew, VARIANCE, LENGTHSCALE)
    A = np.linalg.solve(K, k).T
    samples = model.chains.samples.reshape(-1, len(X), model.num_latent_gps)
    return np.einsum("nm,sml->snl", A, samples), VARIANCE - np.sum(A * k.T, axis=1)


def class_probabilities(name, F):
    shares = expit(F)
    if name == "BSM":
        shares = np.concatenate([shares, np.full((*F.shape[:-1], 1), 0.5)], axis=-1)
    return shares / shares.sum(axis=-1, keepdims=True)


def test_predicted_latents_are_the_mixture_over_samples(fitted):
    model, _, _ = fitted
    means, variance = conditional_in_numpy(model, XNEW)
    mean, var = model.predict_f(XNEW)
    assert_allclose(mean, means.mean(axis=0), rtol=1e-6, atol=1e-7)
    assert_allclose(var, variance[:, None] + means.var(axis=0), rtol=1e-6)


def test_full_covariances_are_those_of_the_mixture(fitted):
    model, _, _ = fitted
    means, _ = conditional_in_numpy(model, XNEW)
    d = means - means.mean(axis=0)
    between = np.einsum("snp,smq->npmq", d, d) / len(d)
    _, var = model.predict_f(XNEW)
    _, over_rows = model.predict_f(XNEW, full_cov=True)
    _, over_latents = model.predict_f(XNEW, full_output_cov=True)
    _, everything = model.predict_f(XNEW, full_cov=True, full_output_cov=True)
    L = model.num_latent_gps
    assert_allclose(np.einsum("pnn->np", over_rows), var, rtol=1e-8)
    assert_allclose(np.einsum("npp->np", over_latents), var, rtol=1e-8)
    assert_allclose(np.einsum("npmp->pnm", everything), over_rows, rtol=1e-8, atol=1e-10)
    assert_allclose(np.einsum("npnq->npq", everything), over_latents, rtol=1e-8, atol=1e-10)
    off_diagonal = ~np.eye(L, dtype=bool)
    expected = np.einsum("npnq->npq", between)[:, off_diagonal]
    assert_allclose(over_latents.numpy()[:, off_diagonal], expected, rtol=1e-5, atol=1e-6)


def test_probabilities_average_the_link_over_samples_and_conditionals(fitted, rng):
    model, name, _ = fitted
    means, variance = conditional_in_numpy(model, XNEW)
    # Many independent draws of f* for each retained sample.
    noise = rng.standard_normal((100, *means.shape))
    p_sample = class_probabilities(name, means + np.sqrt(variance)[:, None] * noise)
    error = p_sample.std(axis=(0, 1)) / np.sqrt(p_sample.shape[0] * p_sample.shape[1])
    p, var = model.predict_y(XNEW)
    # 800 samples have one node each, or two: their own error is that of so many draws at most.
    own = p_sample.std(axis=0).mean(axis=0) / np.sqrt(len(means))
    assert np.max(np.abs(p - p_sample.mean(axis=(0, 1))) / np.hypot(error, own)) < 4
    assert_allclose(np.sum(p, axis=1), 1, rtol=1e-12)
    assert_allclose(var, p * (1 - p), rtol=1e-12)


def test_predictions_are_deterministic_and_do_not_depend_on_batches(fitted, monkeypatch):
    model, _, _ = fitted
    p, _ = model.predict_y(XNEW)
    assert_array_equal(model.predict_y(XNEW)[0], p)
    parts = [model.predict_y(XNEW[i])[0] for i in (slice(0, 1), slice(1, 9))]
    assert_allclose(np.concatenate(parts), p, rtol=1e-10)
    leading = model.predict_y(XNEW.reshape(3, 3, 2))[0]
    assert_allclose(tf.reshape(leading, [9, 3]), p, rtol=1e-10)
    mean, var = model.predict_f(XNEW)
    monkeypatch.setattr(sampled, "_CHUNK_ELEMENTS", 4 * 1024 * 3)
    assert_allclose(model.predict_y(XNEW)[0], p, rtol=1e-10)
    assert_allclose(model.predict_f(XNEW)[0], mean, rtol=1e-10)
    assert_allclose(model.predict_f(XNEW)[1], var, rtol=1e-10)


def test_predictions_compile(fitted):
    model, _, _ = fitted
    compiled = tf.function(
        model.predict_y, input_signature=[tf.TensorSpec([None, 2], tf.float64)], autograph=False
    )
    assert_allclose(compiled(XNEW)[0], model.predict_y(XNEW)[0], rtol=1e-10)


def test_log_density_is_the_log_of_the_predicted_probability(fitted):
    model, _, _ = fitted
    y = np.arange(9) % 3
    expected = np.log(model.predict_y(XNEW)[0].numpy()[np.arange(9), y])
    for labels in (y, y[:, None], y.astype(float), np.eye(3)[y]):
        assert_allclose(model.predict_log_density((XNEW, labels)), expected, rtol=1e-12)


@pytest.mark.parametrize("full_cov", [True, False])
def test_drawn_latents_have_the_moments_of_the_mixture(fitted, full_cov):
    model, _, _ = fitted
    draws = model.predict_f_samples(XNEW, 4000, full_cov=full_cov).numpy()
    mean, var = model.predict_f(XNEW)
    assert_allclose(draws.mean(axis=0), mean, atol=4 * np.sqrt(np.max(var) / 4000))
    centred = draws - mean
    cov = np.einsum("snp,smp->pnm", centred, centred) / 4000
    _, expected = model.predict_f(XNEW, full_cov=True)
    if not full_cov:
        expected = tf.linalg.diag(tf.linalg.diag_part(expected))
        # Rows share the posterior sample, so that only the conditional part is independent.
        means, _ = conditional_in_numpy(model, XNEW)
        d = means - means.mean(axis=0)
        between = np.einsum("snp,smp->pnm", d, d) / len(d)
        expected = np.where(np.eye(9, dtype=bool), expected, between)
    # Fourth moments of f* are at most a few times those of a Gaussian.
    assert_allclose(cov, expected, atol=4 * 2 * np.max(var) / np.sqrt(4000))
    assert model.predict_f_samples(XNEW).shape == (9, model.num_latent_gps)


def test_uncertainty_about_the_probabilities_is_that_of_their_draws(fitted):
    model, _, _ = fitted
    draws = model.predict_probability_samples(XNEW, 4000).numpy()
    p, _ = model.predict_y(XNEW)
    # A variable in [0, 1] has a standard deviation of at most ½, its square of ¼ at most.
    assert_allclose(draws.mean(axis=0), p, atol=4 * 0.5 / np.sqrt(4000) + 0.01)
    variance = model.predict_probability_variance(XNEW)
    assert_allclose(draws.var(axis=0), variance, atol=4 * 0.25 / np.sqrt(4000))
    total, aleatoric, epistemic = model.predict_entropy(XNEW)
    assert_allclose(total, -np.sum(p * np.log(p), axis=1), rtol=1e-10)
    expected = -np.sum(draws * np.log(draws), axis=2).mean(axis=0)
    assert_allclose(aleatoric, expected, atol=4 * np.log(3) / 2 / np.sqrt(4000) + 0.01)
    assert_allclose(total - aleatoric, epistemic, atol=1e-12)


@pytest.mark.filterwarnings("ignore:The chains disagree")
def test_no_free_class_of_the_bijective_softmax_is_predicted_above_two_thirds():
    model = build("BSM", kernel=gpflow.kernels.SquaredExponential(100.0, 2.0))
    model.sample(num_samples=100, num_burnin=100)
    p = model.predict_y(np.concatenate([model.data[0], XNEW]))[0].numpy()
    assert np.max(p[:, :2]) < 2 / 3
    assert np.max(p[:, 2]) > 0.75


def test_full_covariances_of_labels_are_refused(fitted):
    with pytest.raises(NotImplementedError):
        fitted[0].predict_y(XNEW, full_cov=True)


class GivenSamples(SampledPredictions):
    """Predictions from samples made up for a test, one for all rows."""

    def __init__(self, likelihood, sample, variance=1e6):
        self.likelihood = likelihood
        X = np.arange(3.0)[:, None]
        kernel = gpflow.kernels.SquaredExponential(variance)
        cholesky = np.linalg.cholesky(kernel(X) + 1e-6 * variance * np.eye(3))[None]
        samples = np.broadcast_to(sample, (1, 3, len(sample)))
        mean = np.zeros(samples.shape[1:])
        self.X = X
        self._posterior = SampledPosterior(
            likelihood.link, [kernel], gpflow.functions.Zero(), X, cholesky, mean, samples
        )

    def posterior(self):
        return self._posterior


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_a_class_whose_probability_underflows_has_a_finite_log_density_and_no_entropy(name):
    likelihood = LIKELIHOODS[name](num_classes=3)
    model = GivenSamples(likelihood, [-2000.0, 30.0, 30.0][: likelihood.latent_dim])
    p = model.predict_y(model.X)[0].numpy()
    assert np.all(p[:, 0] == 0)
    density = model.predict_log_density((model.X, np.arange(3)))
    # log σ(f) is f down there, and f ~ N(−2000, 1); the other classes share what there is.
    assert_allclose(density[0], -2000.0 + 0.5 + np.log(p[0, 1]), atol=0.1)
    assert_allclose(density[1:], [np.log(p[1, 1]), np.log(p[2, 2])], rtol=1e-12)
    rest = p[:, 1:]
    total, aleatoric, epistemic = model.predict_entropy(model.X)
    assert_allclose(total, -np.sum(rest * np.log(rest), axis=1), rtol=1e-12)
    # Latents of 30 ± 1 are certain of the two classes left: as good as no epistemic part.
    assert_allclose(aleatoric, total, rtol=1e-9)
    assert np.all(tf.math.is_finite(epistemic))
