"""Predictions from samples of the latents."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_ilr.augmented.likelihoods import (
    BijectiveSoftmaxLikelihood,
    LogisticSoftmaxLikelihood,
)
from gpflow_ilr.augmented.sampled import SampledPosterior, SampledPredictions

LIKELIHOODS = {"LSM": LogisticSoftmaxLikelihood, "BSM": BijectiveSoftmaxLikelihood}


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
    expected = [np.log(np.finfo(float).tiny), np.log(p[1, 1]), np.log(p[2, 2])]
    assert_allclose(density, expected, rtol=1e-12)
    rest = p[:, 1:]
    total, aleatoric, epistemic = model.predict_entropy(model.X)
    assert_allclose(total, -np.sum(rest * np.log(rest), axis=1), rtol=1e-12)
    # Latents of 30 ± 1 are certain of the two classes left: as good as no epistemic part.
    assert_allclose(aleatoric, total, rtol=1e-9)
    assert np.all(tf.math.is_finite(epistemic))
