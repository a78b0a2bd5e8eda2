"""Whitened features with gradients of their own: those of the plain formulas."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.heads.whitening import covariance_with_points, whitened_features
from gpflow_ilr.linalg.jitter import relative_jitter

RNG = np.random.default_rng(0)
Z, X = (tf.Variable(RNG.normal(size=(n, 3))) for n in (5, 8))
WEIGHTS = RNG.normal(size=(5, 8))


def plainly(kernel: gpflow.kernels.Kernel) -> tf.Tensor:
    K_uu = kernel(Z)
    jitter = relative_jitter() * tf.reduce_mean(tf.linalg.diag_part(K_uu))
    L = tf.linalg.cholesky(K_uu + jitter * tf.eye(5, dtype=K_uu.dtype))
    return tf.linalg.triangular_solve(L, kernel(Z, X))


@pytest.mark.parametrize(
    "kernel",
    [
        gpflow.kernels.SquaredExponential(variance=2.0, lengthscales=1.3),
        gpflow.kernels.SquaredExponential(lengthscales=[0.5, 1.0, 2.0]),
        gpflow.kernels.SquaredExponential(active_dims=[0, 2]),
        gpflow.kernels.Matern52() + gpflow.kernels.Linear(),
    ],
)
def test_values_and_gradients_are_those_of_the_plain_formulas(
    kernel: gpflow.kernels.Kernel,
) -> None:
    sources = [Z, X, *kernel.trainable_variables]
    with tf.GradientTape(persistent=True) as tape:
        ours = whitened_features(covariance_with_points(kernel, Z, X))
        theirs = plainly(kernel)
        sums = [tf.reduce_sum(WEIGHTS * tf.square(A)) for A in (ours, theirs)]
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    for got, wanted in zip(*(tape.gradient(s, sources) for s in sums), strict=True):
        assert np.abs(wanted).max() > 1e-3
        np.testing.assert_allclose(got, wanted, rtol=1e-7, atol=1e-10)
