"""In float32 the posterior of an SVGP keeps nothing, because what GPflow keeps would cancel."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import SeparateIndependent, SquaredExponential

import gpflow_ilr as gi
from tests.whole.two_precisions import (
    JITTER,
    X_HARD,
    XNEW,
    Y_HARD,
    K,
    X,
    Z,
    hard_kernel,
    loss_and_gradient,
    precision,
    q,
)


@pytest.mark.parametrize("whiten", [True, False])
def test_posterior_of_separate_kernels_predicts_as_the_model(whiten: bool) -> None:
    with precision(np.float32):
        kernels = [hard_kernel(), SquaredExponential(0.01, 10.0)]
        options = {"num_classes": K, "whiten": whiten} | q(X_HARD, K - 1)
        model = gi.ILRSVGP(SeparateIndependent(kernels), X_HARD, **options)
        loss, gradient = loss_and_gradient(model, (X_HARD, Y_HARD))
        predicted = model.posterior().predict_f(XNEW)
        expected = model.predict_f(XNEW)
    assert np.all(np.isfinite(loss))
    assert np.all(np.isfinite(gradient))
    for a, b in zip(predicted, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_variances_of_the_posterior_are_those_of_float64() -> None:
    def variances(dtype: type) -> tuple[np.ndarray, np.ndarray]:
        """Of our posterior, and of what GPflow would keep."""
        with precision(dtype, JITTER):
            q_sqrt = np.tile(0.05 * np.eye(len(Z)), (K - 1, 1, 1))
            model = gi.ILRSVGP(SquaredExponential(2.0, 10.0), Z, num_classes=K, q_sqrt=q_sqrt)
            kept = gpflow.models.SVGP.posterior(model).predict_f(tf.constant(X, dtype))[1]
            return model.posterior().predict_f(X)[1].numpy(), kept.numpy()

    expected, kept = variances(np.float64)
    np.testing.assert_allclose(kept, expected, rtol=1e-6)
    ours, kept = variances(np.float32)
    assert np.max(np.abs(ours - expected)) < 0.01 * np.max(expected)
    assert np.max(np.abs(kept - expected)) > 0.1 * np.max(expected)  # why nothing is kept
