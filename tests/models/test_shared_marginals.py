"""Marginals of latents that share kernel and inducing inputs, against GPflow's conditional."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.conditionals import conditional

from gpflow_ilr.models import shared_marginals as module
from gpflow_ilr.models.shared_marginals import shared_marginals

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
    for ours in (True, False):
        with tf.GradientTape() as tape:
            if ours:
                mean, variance = shared_marginals(X, kernel, Z, q_mu, q_sqrt, whiten)
            else:
                mean, variance = conditional(X, Z, kernel, q_mu, q_sqrt=q_sqrt, white=whiten)
            loss = tf.reduce_sum(tf.sin(mean)) + tf.reduce_sum(tf.math.log(variance))
        results.append([mean, variance, *tape.gradient(loss, variables)])
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-11)
