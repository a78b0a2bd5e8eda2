"""The uncollapsed classifiers are GPflow's SVGP, set up right: priors, mixing, predictions."""

from functools import cache
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import LinearCoregionalization, SeparateIndependent, SharedIndependent
from scipy.linalg import helmert
from scipy.special import log_softmax, softmax

from gpflow_ilr.expectations import Sobol
from gpflow_ilr.likelihoods import ILRLikelihood
from gpflow_ilr.models import ILRSVGP, SoftmaxSVGP
from tests.models.uncollapsed import (
    MODELS,
    XNEW,
    K,
    M,
    N,
    X,
    Y,
    Z,
    assert_within_errors,
    gradients,
    ilr,
    kernel,
    with_random_q,
)

NUM_SAMPLES = 20_000


def separate_sets(shift: float = 0.0, count: int = K - 1) -> SeparateIndependentInducingVariables:
    sets = [InducingPoints(Z + shift * i) for i in range(count)]
    return SeparateIndependentInducingVariables(sets)


def evaluated(model: Any) -> list[Any]:
    """ELBO and predictions. Compiled, because GPflow's loops over outputs are slow eagerly."""

    @tf.function(autograph=False)
    def evaluate() -> list[Any]:
        elbo = model.elbo((X, Y[:, None]))
        return [elbo, *model.predict_f(XNEW), *model.predict_f(X), *model.predict_y(XNEW)]

    return [x.numpy() for x in evaluate()]


@cache
def plain_prediction() -> list[Any]:
    """Of one kernel and one set of inducing inputs."""
    return evaluated(ilr())


def assert_same(values: Any, others: Any) -> None:
    for ours, theirs in zip(values, others, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def latent_samples(model: Any, rng: Any) -> Any:
    mean, variance = (x.numpy() for x in model.predict_f(XNEW))
    return mean + np.sqrt(variance) * rng.standard_normal((NUM_SAMPLES, *mean.shape))


# The common case


@pytest.fixture
def small_jitter():
    """Ours is relative to the kernel's variance, GPflow's is not, nor has it a gradient."""
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-13)):
        yield


@pytest.mark.usefixtures("small_jitter")
@pytest.mark.parametrize(
    ("name", "options"),
    [("ILR", {}), ("softmax", {}), ("ILR", {"q_diag": True}), ("softmax", {"whiten": False})],
    ids=str,
)
def test_model_is_gpflows_svgp_with_our_likelihood(name, options):
    model_class, likelihood_class, L = MODELS[name]
    shape = {"num_classes": K, "num_data": 3 * N, "mixing": True}
    model = with_random_q(model_class(kernel(), Z, **shape, **options))
    svgp = with_random_q(
        gpflow.models.SVGP(
            kernel(),
            likelihood_class(K, mixing=True),
            Z,
            num_latent_gps=L,
            num_data=3 * N,
            **options,
        )
    )
    assert model.q_mu.shape == (M, L)
    assert_same(evaluated(model), evaluated(svgp))
    data = (X, Y[:, None])
    for a, b in zip(model.predict_f(XNEW, True), svgp.predict_f(XNEW, True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    np.testing.assert_allclose(model.predict_log_density(data), svgp.predict_log_density(data))
    assert len(model.trainable_variables) == len(svgp.trainable_variables) == 6
    ours, theirs = gradients(model, (X, Y)), gradients(svgp, data)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
        assert np.max(np.abs(a)) > 1e-6  # W among them


@pytest.mark.usefixtures("small_jitter")
def test_two_classes_are_gpflows_bernoulli():
    # H = (1, −1)/√2, so p(y = 1) = σ(−√2 f).
    model = with_random_q(ILRSVGP(kernel(), Z, num_classes=2, mixing=False))
    bernoulli = gpflow.likelihoods.Bernoulli(invlink=lambda f: tf.sigmoid(-np.sqrt(2.0) * f))
    svgp = with_random_q(gpflow.models.SVGP(kernel(), bernoulli, Z))
    y = Y % 2
    # GPflow has 20 Gauss–Hermite nodes.
    np.testing.assert_allclose(model.elbo((X, y)), svgp.elbo((X, y[:, None] + 0.0)), rtol=1e-6)
    p = model.predict_y(XNEW)[0]
    np.testing.assert_allclose(p[:, 1:], svgp.predict_y(XNEW)[0], rtol=1e-6)


def test_softmax_model_is_gpflows_softmax_with_many_samples():
    model = SoftmaxSVGP(kernel(), Z, num_classes=K, mixing=False, nodes=Sobol(4096))
    softmax_likelihood = gpflow.likelihoods.Softmax(K)
    softmax_likelihood.num_monte_carlo_points = NUM_SAMPLES
    svgp = with_random_q(gpflow.models.SVGP(kernel(), softmax_likelihood, Z, num_latent_gps=K))
    with_random_q(model)
    mean, variance = (x.numpy() for x in model.predict_f(X))
    f = mean + np.sqrt(variance) * np.random.default_rng(2).standard_normal((2000, N, K))
    spread = np.std(log_softmax(f, axis=-1)[:, np.arange(N), Y], axis=0)
    error = np.sqrt(np.sum(spread**2) / NUM_SAMPLES)
    assert abs(model.elbo((X, Y)) - svgp.elbo((X, Y[:, None]))) < 5.0 * error


# Kernels and inducing inputs


@pytest.mark.parametrize(
    ("k", "inducing"),
    [
        (lambda: SharedIndependent(kernel(), K - 1), lambda: Z),
        (lambda: SharedIndependent(kernel(), K - 1), lambda: InducingPoints(Z)),
        (kernel, lambda: SharedIndependentInducingVariables(InducingPoints(Z))),
        (kernel, separate_sets),
        (lambda: SeparateIndependent([kernel() for _ in range(K - 1)]), lambda: Z),
        (lambda: SeparateIndependent([kernel() for _ in range(K - 1)]), separate_sets),
    ],
    ids=["shared-array", "shared-points", "plain-shared", "plain-separate", "separate-array",
         "separate-separate"],
)  # fmt: skip
def test_every_way_to_say_the_same_prior_gives_the_same_model(k, inducing):
    assert_same(evaluated(ilr(inducing(), k())), plain_prediction())


@pytest.mark.usefixtures("small_jitter")
@pytest.mark.parametrize(("separate_inducing", "whiten"), [(True, False), (False, True)])
def test_separate_kernels_and_inducing_inputs_are_separate_gps(separate_inducing, whiten):
    kernels = [kernel(0.5 + i) for i in range(K - 1)]
    sets = [Z + 0.2 * i * separate_inducing for i in range(K - 1)]
    inducing = separate_sets(0.2) if separate_inducing else Z
    model = ilr(inducing, SeparateIndependent(kernels), whiten=whiten)
    parts = []
    for i, (k, points) in enumerate(zip(kernels, sets, strict=True)):
        part = gpflow.models.SVGP(k, ILRLikelihood(2), points, whiten=whiten)
        part.q_mu.assign(model.q_mu[:, i : i + 1])
        part.q_sqrt.assign(model.q_sqrt[i : i + 1])
        parts.append(part)
    elbo, *new, mean, variance, _, _ = evaluated(model)
    for j in range(2):
        together = tf.concat([part.predict_f(XNEW)[j] for part in parts], axis=1)
        np.testing.assert_allclose(new[j], together, rtol=1e-9, atol=1e-12)
    kl = sum(float(part.prior_kl()) for part in parts)
    expectations = model.likelihood.variational_expectations(X, mean, variance, Y[:, None])
    np.testing.assert_allclose(elbo, np.sum(expectations) - kl, rtol=1e-9)


def test_low_rank_model_has_fewer_latents_and_all_classes():
    model = ilr(num_latent_gps=2, nodes=Sobol(4096))
    W = model.likelihood.W.numpy()
    assert (model.q_mu.shape, W.shape) == ((M, 2), (K - 1, 2))
    pi = softmax(latent_samples(model, np.random.default_rng(4)) @ W.T @ helmert(K), axis=-1)
    assert_within_errors(model.predict_y(XNEW)[0], pi)


@pytest.mark.parametrize(
    ("k", "inducing", "error", "words"),
    [
        (
            SharedIndependent(kernel(), K),
            Z,
            ValueError,
            f"the model has {K - 1}",
        ),
        (SeparateIndependent([kernel()] * 2), Z, ValueError, "for 2 latent functions"),
        (kernel(), separate_sets(count=2), ValueError, "2 separate sets.*Pass a set for each"),
        (
            kernel(),
            SeparateIndependentInducingVariables([InducingPoints(Z[: M - i]) for i in range(3)]),
            ValueError,
            r"\[5, 4, 3\].*one size",
        ),
        (
            LinearCoregionalization([kernel() for _ in range(K - 1)], W=np.eye(K - 1)),
            Z,
            TypeError,
            "mixes the latent functions.*mixing=True",
        ),
    ],
    ids=["shared", "separate", "too-few-sets", "unequal-sets", "coregionalization"],
)
def test_kernels_and_inducing_inputs_that_do_not_fit_are_refused(k, inducing, error, words):
    with pytest.raises(error, match=words):
        ILRSVGP(k, inducing, num_classes=K)


# The mixing matrix


@pytest.mark.usefixtures("small_jitter")
def test_probabilities_with_mixing_are_exact_and_coregionalization_is_not():
    W = np.array([[1.5, 1.0, 0.5], [-1.0, 1.5, 0.5], [1.0, 0.0, -1.5]])
    model = ilr(nodes=Sobol(4096))
    model.likelihood.W.assign(W)
    pi = softmax(latent_samples(model, np.random.default_rng(3)) @ W.T @ helmert(K), axis=-1)
    assert_within_errors(model.predict_y(XNEW)[0], pi)
    mixed = gpflow.models.SVGP(
        LinearCoregionalization([kernel() for _ in range(K - 1)], W=W),
        ILRLikelihood(K, mixing=False, nodes=Sobol(4096)),
        SharedIndependentInducingVariables(InducingPoints(Z)),
        num_latent_gps=K - 1,
        q_mu=model.q_mu.numpy(),
        q_sqrt=model.q_sqrt.numpy(),
    )
    mean, variance = model.predict_f(XNEW)
    _, mixed_mean, mixed_variance, _, _, p, _ = evaluated(mixed)
    np.testing.assert_allclose(mixed_mean, mean @ W.T, rtol=1e-9)
    np.testing.assert_allclose(mixed_variance, variance @ W.T**2, rtol=1e-9)
    error = np.std(pi, axis=0) / np.sqrt(NUM_SAMPLES)
    assert np.max(np.abs(p - np.mean(pi, axis=0)) / error) > 20.0


# Predictions


@pytest.mark.parametrize("cache", ["tensor", "variable"])
def test_posterior_keeps_what_predictions_need(cache):
    model = ilr()
    expected = model.predict_f(XNEW, full_cov=True)
    posterior = model.posterior(cache)
    model.q_mu.assign(0.0 * model.q_mu)
    for a, b in zip(posterior.predict_f(XNEW, full_cov=True), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
    posterior.update_cache()
    np.testing.assert_allclose(posterior.predict_f(XNEW)[0], 0.0, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_predictions_on_the_simplex_equal_sampling(name):
    model_class = MODELS[name][0]
    model = with_random_q(model_class(kernel(), Z, num_classes=K, nodes=Sobol(4096)))
    f = latent_samples(model, np.random.default_rng(5))
    logits = f @ model.likelihood.link.numpy().T
    pi = softmax(logits, axis=-1)
    p, variance = model.predict_y(XNEW)
    assert_within_errors(p, pi)
    np.testing.assert_allclose(variance, p * (1 - p))
    assert_within_errors(model.predict_probability_variance(XNEW), (pi - pi.mean(0)) ** 2)
    entropies = model.predict_entropy(XNEW)
    assert_within_errors(entropies.aleatoric, -np.sum(pi * log_softmax(logits, axis=-1), axis=-1))
    np.testing.assert_allclose(entropies.total, -np.sum(p * np.log(p), axis=-1))
    np.testing.assert_allclose(entropies.total, entropies.aleatoric + entropies.epistemic)
    assert np.all(entropies.epistemic > 0)
    lower, upper = model.predict_credible_interval(XNEW, level=0.8)
    # 512 nodes stand for the distribution: quantiles are exact to about one node in each tail.
    np.testing.assert_allclose(np.mean((pi > lower) & (pi < upper), axis=0), 0.8, atol=0.03)
    draws = model.predict_probability_samples(XNEW, 500).numpy()
    assert_within_errors(p.numpy(), draws)
    np.testing.assert_allclose(np.sum(draws, axis=-1), 1.0)


def test_leading_dimensions_of_inputs_are_kept():
    model = ilr()
    stacked = np.stack([XNEW, X[:6]])
    np.testing.assert_allclose(model.predict_y(stacked)[0][1], model.predict_y(X[:6])[0])
    np.testing.assert_allclose(model.predict_entropy(stacked)[2][0], model.predict_entropy(XNEW)[2])


def test_a_copy_predicts_the_same_and_is_independent():
    model = ilr()
    copy = gpflow.utilities.deepcopy(model)
    np.testing.assert_array_equal(copy.predict_y(XNEW)[0], model.predict_y(XNEW)[0])
    before = model.predict_y(XNEW)[0]
    copy.likelihood.W.assign(0.0 * copy.likelihood.W)
    np.testing.assert_allclose(copy.predict_y(XNEW)[0], 1.0 / K)
    np.testing.assert_array_equal(model.predict_y(XNEW)[0], before)


# Matrices that have no factor


def of_one_or_separate(kind: str, k: Any, inducing: Any, separate: bool, whiten: bool) -> Any:
    cls, _, L = MODELS[kind]
    copies = [gpflow.utilities.deepcopy(k) for _ in range(L)]
    k = SeparateIndependent(copies) if separate else k
    return cls(k, inducing, num_classes=K, num_data=N, whiten=whiten)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("name", ["linear", "duplicates"])
def test_scales_and_duplicates_that_the_collapsed_model_stands_are_no_trouble(
    name, whiten, separate, kind
):
    inputs = np.random.default_rng(0).normal(size=(N, 2))
    if name == "linear":
        inputs *= 1e5
        k, inducing = gpflow.kernels.Linear(), inputs[:10]
    else:
        k, inducing = gpflow.kernels.SquaredExponential(1e12), np.tile(inputs[:8], (4, 1))
    model = of_one_or_separate(kind, k, inducing, separate, whiten)
    assert np.isfinite(model.training_loss((inputs, Y)))
    p = model.predict_y(inputs)[0].numpy()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("separate", [False, True])
def test_a_matrix_without_a_factor_is_an_error_in_every_model(separate, whiten, kind):
    model = of_one_or_separate(kind, kernel(), Z, separate, whiten)
    words = "Cholesky factor of K_uu is not finite.*Remedies"
    with gpflow.config.as_context(gpflow.config.Config(jitter=-1.0)):
        for call in (lambda: model.training_loss((X, Y)), lambda: model.predict_y(XNEW)):
            with pytest.raises(tf.errors.InvalidArgumentError, match=words):
                call()
