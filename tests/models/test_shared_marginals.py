"""Marginals of latents that share kernel and inducing inputs, against GPflow's conditional."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.conditionals import conditional

from gpflow_ilr.models import shared_marginals as module
from gpflow_ilr.models.shared_marginals import factor_of_inducing, shared_marginals

RNG = np.random.default_rng(0)
X = tf.constant(RNG.normal(size=(9, 2)))


@pytest.mark.parametrize("M", [1, 7, 8, 21])
@pytest.mark.parametrize("whiten", [True, False])
def test_marginals_and_gradients_are_those_of_gpflow(
    M: int, whiten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        module, "BLOCK_WIDTH", 8
    )  # less than a block, one, and several unequal ones
    kernel = gpflow.kernels.Matern32(lengthscales=0.7)
    Z = gpflow.inducing_variables.InducingPoints(RNG.normal(size=(M, 2)))
    q_mu = tf.Variable(RNG.normal(size=(M, 3)))
    root = np.tril(RNG.normal(size=(3, M, M)))
    q_sqrt = gpflow.Parameter(root, transform=gpflow.utilities.triangular())
    variables = [
        q_mu,
        q_sqrt.unconstrained_variable,
        *kernel.trainable_variables,
        *Z.trainable_variables,
    ]
    results = []
    # Our jitter follows the kernel's variance, GPflow's does not, nor has it a gradient.
    small = gpflow.config.Config(jitter=1e-13)
    for ours in (True, False):
        with gpflow.config.as_context(small), tf.GradientTape() as tape:
            if ours:
                mean, variance = shared_marginals(X, kernel, Z, q_mu, q_sqrt, whiten)
            else:
                mean, variance = conditional(X, Z, kernel, q_mu, q_sqrt=q_sqrt, white=whiten)
            loss = tf.reduce_sum(tf.sin(mean)) + tf.reduce_sum(tf.math.log(variance))
        results.append([mean, variance, *tape.gradient(loss, variables)])
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("variance", [1e-6, 1.0, 1e10, 1e20])
def test_duplicated_inducing_inputs_have_a_factor_at_every_variance(variance: float) -> None:
    Z = gpflow.inducing_variables.InducingPoints(np.repeat(RNG.normal(size=(5, 2)), 4, axis=0))
    L = factor_of_inducing(Z, gpflow.kernels.SquaredExponential(variance)).numpy()
    unit = factor_of_inducing(Z, gpflow.kernels.SquaredExponential(1.0)).numpy()
    np.testing.assert_allclose(L / np.sqrt(variance), unit, atol=1e-9)


def test_a_matrix_without_a_factor_is_an_error_that_says_what_to_do() -> None:
    Z = gpflow.inducing_variables.InducingPoints(RNG.normal(size=(3, 2)))
    words = "Cholesky factor of K_uu is not finite.*Remedies"
    refused = pytest.raises(tf.errors.InvalidArgumentError, match=words)
    with gpflow.config.as_context(gpflow.config.Config(jitter=-1.0)), refused:
        factor_of_inducing(Z, gpflow.kernels.SquaredExponential())
