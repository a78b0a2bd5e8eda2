"""A fixed posterior predicts what the model did from which it was taken."""

from typing import Any

import gpflow
import numpy as np
import pytest

from gpflow_ilr import ILRSGPR, ILRSVGP, starting_kernel
from gpflow_ilr.heads.fixed_posterior import FixedPosterior, snapshot
from tests.heads.stacks import K, X, Y

TEST = np.random.default_rng(3).normal(size=(11, 4))


def fixed(model: Any, kernel: gpflow.kernels.Kernel, scale: float = 1.0) -> FixedPosterior:
    taken = snapshot(model, scale)
    shape = (*taken.Z.shape, taken.mean.shape[1], taken.root.shape[0])
    posterior = FixedPosterior(kernel, K, shape, taken.mixing is not None)
    posterior.assign(taken)
    return posterior


def compare(posterior: FixedPosterior, model: Any) -> None:
    for ours, theirs in zip(posterior.predict_f(TEST), model.predict_f(TEST), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(posterior.predict_y(TEST)[0], model.predict_y(TEST)[0], rtol=1e-10)
    np.testing.assert_allclose(
        posterior.predict_entropy(TEST).epistemic, model.predict_entropy(TEST).epistemic, atol=1e-12
    )


def test_of_a_collapsed_model_one_root_serves_all_latents() -> None:
    kernel = starting_kernel(X, K)
    model = ILRSGPR((X, Y), kernel, X[:5], num_classes=K, smoothing=0.97)
    posterior = fixed(model, gpflow.kernels.SquaredExponential())
    assert posterior.root.shape == [1, 5, 5]
    compare(posterior, model)


@pytest.mark.parametrize("mixing", [None, np.array([[1.0], [2.0]])])
def test_of_a_variational_model_each_latent_has_its_own(mixing: Any) -> None:
    rng = np.random.default_rng(0)
    model = ILRSVGP(starting_kernel(X, K), X[:5], num_classes=K, mixing=mixing)
    model.q_mu.assign(rng.normal(size=model.q_mu.shape))
    model.q_sqrt.assign(0.3 * np.tril(rng.normal(size=model.q_sqrt.shape)))
    posterior = fixed(model, gpflow.kernels.SquaredExponential())
    assert posterior.root.shape[0] == model.num_latent_gps
    compare(posterior, model)


def test_scale_multiplies_the_latents() -> None:
    model = ILRSGPR((X, Y), starting_kernel(X, K), X[:5], num_classes=K)
    once, twice = (fixed(model, gpflow.kernels.SquaredExponential(), s) for s in (1.0, 2.0))
    np.testing.assert_allclose(twice.predict_f(TEST)[0], 2.0 * once.predict_f(TEST)[0])
    np.testing.assert_allclose(twice.predict_f(TEST)[1], 4.0 * once.predict_f(TEST)[1])
    np.testing.assert_allclose(twice.prior_variance(TEST), 4.0 * once.prior_variance(TEST))


def test_nothing_is_trained_and_other_features_are_refused() -> None:
    model = ILRSGPR((X, Y), starting_kernel(X, K), X[:5], num_classes=K)
    posterior = fixed(model, gpflow.kernels.SquaredExponential())
    assert posterior.trainable_variables == ()
    with pytest.raises(ValueError, match="features has 3 columns, but the training data have 4"):
        posterior.predict_y(TEST[:, :3])
