"""Latents with gradients of their own: those of the plain formulas."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kullback_leiblers import gauss_kl

from gpflow_ilr.heads.whitening import covariances, whitened_terms
from gpflow_ilr.linalg.jitter import relative_jitter

RNG = np.random.default_rng(0)
Z, X = (tf.Variable(RNG.normal(size=(n, 3))) for n in (5, 8))
Q = tf.Variable(RNG.normal(size=(5, 2 + 5)))
WEIGHTS = RNG.normal(size=(8, 2)), RNG.normal(size=(8, 1)), 0.7


def plainly(kernel: gpflow.kernels.Kernel) -> tuple[tf.Tensor, ...]:
    q_mu, S = Q[:, :2], tf.linalg.band_part(Q[:, 2:], -1, 0)
    K_uu = kernel(Z)
    jitter = relative_jitter() * tf.reduce_mean(tf.linalg.diag_part(K_uu))
    L = tf.linalg.cholesky(K_uu + jitter * tf.eye(5, dtype=K_uu.dtype))
    A = tf.linalg.triangular_solve(L, kernel(Z, X))
    spread = tf.matmul(S, A, transpose_a=True)
    explained = tf.reduce_sum(tf.square(A) - tf.square(spread), axis=0)
    kl = gauss_kl(q_mu, tf.stack(2 * [S * tf.sign(tf.linalg.diag_part(S))]))
    return tf.matmul(A, q_mu, transpose_a=True), explained[:, None], kl


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
    sources = [Z, X, Q, *kernel.trainable_variables]
    with tf.GradientTape(persistent=True) as tape:
        found = covariances(kernel, Z, X)
        ours = whitened_terms(found.uu, found.fu, Q)
        theirs = plainly(kernel)
        sums = [
            sum(tf.reduce_sum(w * x**2) for w, x in zip(WEIGHTS, terms, strict=True))
            for terms in (ours, theirs)
        ]
    ours = (*ours, found.ff + tf.zeros([8, 1], X.dtype))
    theirs = (*theirs, kernel(X, full_cov=False)[:, None])
    for got, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)
    for got, wanted in zip(*(tape.gradient(s, sources) for s in sums), strict=True):
        assert np.abs(wanted).max() > 1e-3
        np.testing.assert_allclose(got, wanted, rtol=1e-7, atol=1e-10)
