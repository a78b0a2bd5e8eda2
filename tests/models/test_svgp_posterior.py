"""The posterior of an SVGP predicts what the model does, where what GPflow keeps would cancel."""

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
            model = gi.ILRSVGP(SquaredExponential(1.0, 10.0), Z, num_classes=K, q_sqrt=q_sqrt)
            kept = gpflow.models.SVGP.posterior(model).predict_f(tf.constant(X, dtype))[1]
            return model.posterior().predict_f(X)[1].numpy(), kept.numpy()

    expected, kept = variances(np.float64)
    np.testing.assert_allclose(kept, expected, rtol=1e-6)
    ours, kept = variances(np.float32)
    assert np.max(np.abs(ours - expected)) < 0.01 * np.max(expected)
    assert np.max(np.abs(kept - expected)) > 0.1 * np.max(expected)  # why ours is another


@pytest.mark.parametrize("q_diag", [False, True])
@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("variance", [1e-4, 1.0, 1e6, 1e10])
def test_posterior_equals_the_model_whatever_the_kernels_variance(
    variance: float, whiten: bool, q_diag: bool
) -> None:
    options = {"num_classes": K, "whiten": whiten, "q_diag": q_diag}
    model = gi.ILRSVGP(SquaredExponential(variance, 2.0), X_HARD, **options)
    rng = np.random.default_rng(0)
    model.q_mu.assign(np.sqrt(variance) * rng.normal(size=model.q_mu.shape))
    posterior, X_new = model.posterior(), tf.constant(XNEW, tf.float64)
    for full_cov in (False, True):
        ours, theirs = (x.predict_f(X_new, full_cov) for x in (posterior, model))
        size = variance + np.max(np.abs(model.kernel(X_new)))
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6, atol=1e-6 * np.sqrt(size))
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6, atol=1e-11 * size)
    p = model.likelihood.predict_mean_and_var(None, *posterior.predict_f(X_new))[0]
    np.testing.assert_allclose(p, model.predict_y(X_new)[0], atol=1e-7)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_variable_cache_is_seen_by_compiled_functions(jit_compile: bool) -> None:
    model = gi.ILRSVGP(SquaredExponential(), X, num_classes=K)
    posterior = model.posterior("variable")
    compiled = tf.function(lambda X: posterior.predict_f(X)[0], jit_compile=jit_compile)
    X_new = tf.constant(XNEW, tf.float64)
    np.testing.assert_allclose(compiled(X_new), 0.0, atol=1e-12)
    model.q_mu.assign(tf.ones_like(model.q_mu))
    np.testing.assert_allclose(compiled(X_new), 0.0, atol=1e-12)
    posterior.update_cache()
    np.testing.assert_allclose(compiled(X_new), model.predict_f(X_new)[0], rtol=1e-9)
