"""The GP of objective="code" is CodeSVGP with one covariance for all latents."""

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_ilr import ILRSGPR, CodeSVGP, ILRCode, starting_kernel
from gpflow_ilr.heads.code_gp import SharedCodeGP
from gpflow_ilr.heads.fixed_posterior import FixedPosterior
from tests.heads.stacks import K, M, N, X, Y

TEST = np.random.default_rng(3).normal(size=(11, 4))


def gp_away_from_its_start() -> SharedCodeGP:
    rng = np.random.default_rng(2)
    # A variance of one, where the relative jitter is GPflow's absolute one.
    kernel = gpflow.kernels.SquaredExponential(variance=1.0, lengthscales=2.0)
    gp = SharedCodeGP(kernel, X[:M], ILRCode(K, 0.97))
    gp.q.assign(rng.normal(size=gp.q.shape))
    return gp


def code_svgp(gp: SharedCodeGP) -> CodeSVGP:
    root = np.repeat(gp.q_sqrt.numpy()[None], K - 1, axis=0)
    root *= np.sign(np.diagonal(root, axis1=1, axis2=2))[:, None, :]
    q = {"q_mu": gp.q_mu.numpy(), "q_sqrt": root}
    return CodeSVGP(gp.kernel, X[:M], gp.likelihood.code, num_data=N, **q)


def test_bound_and_gradient_are_those_of_code_svgp() -> None:
    gp = gp_away_from_its_start()
    svgp = code_svgp(gp)
    sources = [gp.inducing_variable.Z.unconstrained_variable, *gp.kernel.trainable_variables]
    svgp.inducing_variable = gp.inducing_variable
    with tf.GradientTape(persistent=True) as tape:
        rows, constant, kl = gp.bound(X)
        ours = tf.reduce_sum(tf.gather(rows, Y, batch_dims=1)) - N * constant - kl
        theirs = svgp.elbo((X, Y))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    for got, wanted in zip(*(tape.gradient(s, sources) for s in (ours, theirs)), strict=True):
        assert np.abs(wanted).max() > 1e-3
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)  # of the jitter's own


def test_predictions_are_those_of_code_svgp() -> None:
    gp = gp_away_from_its_start()
    svgp = code_svgp(gp)
    np.testing.assert_allclose(gp.predict_y(TEST)[0], svgp.predict_y(TEST)[0], rtol=1e-8)
    for ours, theirs in zip(gp.predict_f(TEST), svgp.predict_f(TEST), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)
    entropies = gp.predict_entropy(TEST), svgp.predict_entropy(TEST)
    np.testing.assert_allclose(entropies[0].epistemic, entropies[1].epistemic, atol=1e-9)


def test_collapsed_it_is_the_collapsed_model() -> None:
    gp = gp_away_from_its_start()
    model = ILRSGPR((X, Y), starting_kernel(X, K), X[:M], num_classes=K, noise_variance=0.03)
    gp.kernel = model.kernel
    gp.collapse(model)
    np.testing.assert_allclose(gp.predict_y(TEST)[0], model.predict_y(TEST)[0], rtol=1e-8)
    # And the bound is the collapsed one, which no other q exceeds.
    rows, constant, kl = gp.bound(X)
    bound = tf.reduce_sum(tf.gather(rows, Y, batch_dims=1)) - N * constant - kl
    np.testing.assert_allclose(bound, model.elbo(), rtol=1e-8)


def test_snapshot_predicts_the_same() -> None:
    gp = gp_away_from_its_start()
    taken = gp.snapshot()
    posterior = FixedPosterior(gpflow.kernels.SquaredExponential(), K, (M, 4, K - 1, 1))
    posterior.assign(taken)
    np.testing.assert_allclose(posterior.predict_y(TEST)[0], gp.predict_y(TEST)[0], rtol=1e-9)


def test_gradients_by_q_are_those_of_finite_differences() -> None:
    gp = gp_away_from_its_start()
    start = gp.q.numpy()
    step = 1e-5 * np.random.default_rng(4).normal(size=start.shape)

    def bound() -> tf.Tensor:
        rows, _, kl = gp.bound(X)
        return tf.reduce_mean(tf.gather(rows, Y, batch_dims=1)) - kl / N

    with tf.GradientTape() as tape:
        value = bound()
    gradient = tape.gradient(value, gp.q.unconstrained_variable)
    sides = []
    for sign in (1.0, -1.0):
        gp.q.assign(start + sign * step)
        sides.append(bound().numpy())
    np.testing.assert_allclose(np.sum(gradient * step), (sides[0] - sides[1]) / 2.0, rtol=1e-6)
