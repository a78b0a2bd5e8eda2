"""Covariances for batches of new inputs have one layout, with and without full covariances."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.linalg.conditionals import cross_covariance, prior_covariance, squared_norms

RNG = np.random.default_rng(0)
KERNEL = gpflow.kernels.SquaredExponential(0.7)
Z = RNG.normal(size=(4, 2))


@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_covariances_of_a_batch_are_those_of_its_members(leading: tuple[int, ...]) -> None:
    X = RNG.normal(size=(*leading, 5, 2))
    cross = cross_covariance(KERNEL(Z, X)).numpy()
    diagonal, full = (prior_covariance(KERNEL, X, full).numpy() for full in (False, True))
    assert cross.shape == (*leading, 4, 5)
    assert diagonal.shape == (*leading, 5, 1)
    assert full.shape == (*leading, 1, 5, 5)
    for index in np.ndindex(*leading):
        np.testing.assert_allclose(cross[index], KERNEL(Z, X[index]), rtol=1e-13)
        np.testing.assert_allclose(full[index][0], KERNEL(X[index]), rtol=1e-13)
    np.testing.assert_allclose(diagonal, 0.7)


@pytest.mark.parametrize("leading", [(), (3,)])
def test_squared_norms_are_the_diagonal_of_the_products(leading: tuple[int, ...]) -> None:
    W = tf.constant(RNG.normal(size=(*leading, 2, 4, 5)))
    norms, products = (squared_norms(W, full).numpy() for full in (False, True))
    assert norms.shape == (*leading, 5, 2)
    np.testing.assert_allclose(products, np.swapaxes(W, -1, -2) @ W, rtol=1e-13)
    diagonals = np.diagonal(products, axis1=-2, axis2=-1)
    np.testing.assert_allclose(np.swapaxes(norms, -1, -2), diagonals, rtol=1e-13)
