"""The model of features before training: where its kernel and its inducing inputs start."""

import gpflow
import numpy as np
import pytest

from gpflow_ilr import starting_kernel
from gpflow_ilr.heads.feature_model import feature_model
from gpflow_ilr.inputs.rows import check_data
from tests.heads.stacks import K, N, X, Y

ROWS = check_data((X, Y), K)
COUNTS = 1.0 + np.arange(N) % 3
REPEATED = np.repeat(np.arange(N), COUNTS.astype(int))


def test_inducing_inputs_are_rows_and_the_kernel_fits_their_distances() -> None:
    model = feature_model(ROWS, K, "Matern32", 5)
    usual = starting_kernel(X, K)
    assert isinstance(model.kernel, gpflow.kernels.Matern32)
    assert model.kernel.lengthscales.numpy() == usual.lengthscales.numpy()
    assert model.kernel.variance.numpy() == usual.variance.numpy()
    Z = model.inducing_variable.Z.numpy()
    assert len(np.unique(Z, axis=0)) == 5
    assert all((z == X).all(axis=1).any() for z in Z)
    assert feature_model(ROWS, K, "Matern32", 2 * N).inducing_variable.num_inducing == N


def test_linear_has_as_many_points_as_features_and_a_bias_and_keeps_them() -> None:
    model = feature_model(ROWS, K, "Linear", 3)
    assert model.inducing_variable.Z.shape == [5, 4]
    assert not model.inducing_variable.trainable_parameters
    mean_square = np.mean(np.sum(np.square(X), axis=1))
    linear, bias = (float(k.variance.numpy()) for k in model.kernel.kernels)
    assert linear * mean_square == pytest.approx(bias)


def test_weighted_rows_are_repeated_ones_to_the_linear_kernel() -> None:
    weighted = feature_model(check_data((X, Y, COUNTS), K), K, "Linear", 3)
    repeated = feature_model(check_data((X[REPEATED], Y[REPEATED]), K), K, "Linear", 3)
    np.testing.assert_allclose(weighted.elbo(), repeated.elbo(), rtol=1e-10)
    np.testing.assert_allclose(weighted.predict_y(X)[0], repeated.predict_y(X)[0], rtol=1e-8)
