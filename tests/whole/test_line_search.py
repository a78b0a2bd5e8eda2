"""Line searches try absurd parameters: models must answer, so that the search can turn back."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels

from gpflow_ilr.models import ILRGPR, ILRSGPR
from tests.models.oracles import K, X, Y

KERNELS = [kernels.SquaredExponential, kernels.RationalQuadratic, kernels.Matern12]
ABSURD = [-1e4, -700.0, -50.0, 1.0, 1e5, 1e9]
"""Unconstrained values: softplus of the first is exactly zero."""


def build(name: str, kernel: Any, **options: Any) -> Any:
    if name == "ILRGPR":
        return ILRGPR((X, Y), kernel, num_classes=K, **options)
    return ILRSGPR((X, Y), kernel, X[:5].copy(), num_classes=K, **options)


def value_and_gradients(model: Any) -> Any:
    @tf.function(autograph=False)
    def evaluate() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        return [loss, *tape.gradient(loss, model.trainable_variables)]

    return evaluate


@pytest.mark.parametrize("objective", ["evidence", "loo"])
@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("name", ["ILRGPR", "ILRSGPR"])
def test_objectives_and_gradients_are_finite_for_absurd_kernels(
    name: str, kind: Any, objective: str
) -> None:
    kernel = kind()
    evaluate = value_and_gradients(build(name, kernel, objective=objective))
    for lengthscale in ABSURD:
        for variance in ABSURD:
            kernel.lengthscales.unconstrained_variable.assign(lengthscale)
            kernel.variance.unconstrained_variable.assign(variance)
            for result in evaluate():
                assert np.all(np.isfinite(result)), (lengthscale, variance)


@pytest.mark.parametrize("kind", [*KERNELS, kernels.Matern32, kernels.Cosine])
@pytest.mark.parametrize("name", ["ILRGPR", "ILRSGPR"])
def test_objectives_and_gradients_are_finite_for_single_absurd_columns(
    name: str, kind: Any
) -> None:
    kernel = kind(7.8, lengthscales=np.ones(X.shape[1]))
    evaluate = value_and_gradients(build(name, kernel))
    # The cosine kernel has no transform: its lengthscales may have either sign.
    ordinary = kernel.lengthscales.unconstrained_variable.numpy()
    for column in range(X.shape[1]):
        for value in [*ABSURD, -49.0, -32.0, -16.0, 1e-200]:
            absurd = ordinary.copy()
            absurd[column] = value
            kernel.lengthscales.unconstrained_variable.assign(absurd)
            for result in evaluate():
                assert np.all(np.isfinite(result)), (column, value)


@pytest.mark.parametrize("name", ["ILRGPR", "ILRSGPR"])
def test_objectives_and_gradients_are_finite_for_absurd_powers(name: str) -> None:
    kernel = kernels.RationalQuadratic()
    evaluate = value_and_gradients(build(name, kernel))
    for alpha in ABSURD:
        for lengthscale in (-700.0, 1.0):
            kernel.alpha.unconstrained_variable.assign(alpha)
            kernel.lengthscales.unconstrained_variable.assign(lengthscale)
            for result in evaluate():
                assert np.all(np.isfinite(result)), (alpha, lengthscale)


@pytest.mark.parametrize("noise", ["shared", "per_output", "per_class"])
@pytest.mark.parametrize("name", ["ILRGPR", "ILRSGPR"])
def test_objectives_and_gradients_are_finite_for_absurd_codes(name: str, noise: Any) -> None:
    model = build(name, kernels.SquaredExponential(), objective="loo", noise=noise)
    evaluate = value_and_gradients(model)
    for variable in model.code.trainable_variables:
        start = variable.numpy()
        for value in [-1e9, *ABSURD]:
            variable.assign(tf.fill(variable.shape, tf.constant(value, tf.float64)))
            for result in evaluate():
                assert np.all(np.isfinite(result)), (variable.name, value)
        variable.assign(start)


def test_training_goes_on_where_the_line_search_tries_a_lengthscale_of_zero() -> None:
    # 120 rows of three overlapping classes: leave-one-out is flat towards a linear kernel, and a
    # step along the ridge ends far outside of it.
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    rows = 1.05 * rng.normal(size=(3, 2))[y] + rng.normal(size=(120, 2))
    kernel = kernels.SquaredExponential(1 / 3, 1.9)
    model = ILRGPR((rows, y), kernel, num_classes=3, objective="loo")
    before = float(model.training_loss())
    gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
    assert float(model.training_loss()) < before - 20


def test_training_goes_on_where_the_lengthscale_of_a_single_column_vanishes() -> None:
    # Twelve noisy copies of each of four latent features, rounded to three values: each column
    # coincides in many rows, and the search sends the lengthscale of one of the 48 to zero.
    rng = np.random.default_rng(0)
    features = rng.normal(size=(80, 4))
    copies = np.repeat(features, 12, axis=1) + 0.3 * rng.normal(size=(80, 48))
    rows = np.clip(np.round(2 * copies), 0, 2)
    kernel = kernels.Matern32(lengthscales=np.ones(48))
    model = ILRGPR((rows, np.argmax(features, axis=1)), kernel, num_classes=4)
    before = float(model.training_loss())
    gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
    assert float(model.training_loss()) < before - 20
