"""Latents with roots of their own: values and gradients are those of the model."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr import ILRSVGP
from gpflow_ilr.heads.own_roots import latent_terms

RNG = np.random.default_rng(0)
M, D, K, N = 5, 3, 4, 8
X = tf.Variable(RNG.normal(size=(N, D)))
WEIGHTS = RNG.normal(size=(N, K - 1)), RNG.normal(size=(N, K - 1)), 0.7

KERNELS = {
    "isotropic": gpflow.kernels.SquaredExponential(variance=2.0, lengthscales=1.3),
    "sum": gpflow.kernels.Matern52() + gpflow.kernels.Linear(),
    "of several outputs": gpflow.kernels.SharedIndependent(
        gpflow.kernels.SquaredExponential(lengthscales=0.5), K - 1
    ),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_values_and_gradients_are_those_of_predict_f_and_prior_kl(
    kernel: gpflow.kernels.Kernel,
) -> None:
    gp = ILRSVGP(kernel, RNG.normal(size=(M, D)), num_classes=K)
    gp.q_mu.assign(RNG.normal(size=(M, K - 1)))
    gp.q_sqrt.assign(np.tril(RNG.normal(size=(K - 1, M, M))))  # diagonals of either sign
    sources = [X, *gp.trainable_variables]
    with tf.GradientTape(persistent=True) as tape:
        ours, theirs = latent_terms(gp, tf.convert_to_tensor(X)), (*gp.predict_f(X), gp.prior_kl())
        sums = [
            sum(tf.reduce_sum(w * x**2) for w, x in zip(WEIGHTS, terms, strict=True))
            for terms in (ours, theirs)
        ]
    for got, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)
    for got, wanted in zip(*(tape.gradient(s, sources) for s in sums), strict=True):
        assert np.abs(wanted).max() > 1e-3
        np.testing.assert_allclose(got, wanted, rtol=1e-7, atol=1e-10)


def test_inducing_inputs_without_a_factor_are_refused_with_a_remedy() -> None:
    gp = ILRSVGP(gpflow.kernels.SquaredExponential(), np.zeros([M, D]), num_classes=K)
    gp.inducing_variable.Z.unconstrained_variable.assign(np.full([M, D], np.nan))  # a lost training
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"K_uu is not finite.*Remedies"):
        latent_terms(gp, tf.convert_to_tensor(X))
