"""What the latent Gaussian says about the class probabilities, against sampling and exact quantiles."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy.linalg import helmert
from scipy.special import expit, softmax, xlogy
from scipy.stats import norm

from gpflow_ilr.expectations import MonteCarlo, Sobol
from gpflow_ilr.models import ILRSVGP, conjugate, probabilities
from tests.models.oracles import (
    MODELS,
    ONE_EACH,
    SMOOTHING,
    XNEW,
    K,
    X,
    Y,
    build,
    reference,
    scale_of,
)

DRAWS = 40_000
NODES = 4096
NORMAL = np.random.default_rng(0).standard_normal((DRAWS, len(XNEW), K))
SOME = [*ONE_EACH, ("ILRGPR", "per_output"), ("DirichletGPR", "per_class")]


def link_of(name: str, num_classes: int = K) -> Any:
    return helmert(num_classes).T if name.startswith("ILR") else np.eye(num_classes)


def draws_of_pi(model: Any, name: str, extra_variance: Any = 0.0) -> Any:
    """Draws of π = φ⁻¹(f*), [DRAWS, n, K], from the dense oracle's posterior."""
    expected = reference(model)
    variance = tf.transpose(tf.linalg.diag_part(expected.covariance)).numpy() + extra_variance
    f = expected.mean.numpy() + np.sqrt(variance) * NORMAL[..., : variance.shape[1]]
    return softmax(f @ link_of(name).T, axis=-1)


def assert_mean_of(values: Any, draws: Any, num_nodes: int) -> None:
    """Equal within four standard errors of both: nodes are no worse than as many random draws."""
    error = draws.std(axis=0) * np.sqrt(1 / len(draws) + 1 / num_nodes)
    assert np.all(np.abs(values - draws.mean(axis=0)) <= 4 * error + 1e-12)


@pytest.mark.parametrize(("name", "noise"), SOME)
def test_predict_y_is_the_mean_of_pi_and_the_variance_of_the_one_hot_label(name, noise):
    model = build(name, noise, nodes=Sobol(NODES))
    p, variance = model.predict_y(XNEW)
    assert np.all(p.numpy() > 0)
    np.testing.assert_allclose(np.sum(p, axis=-1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(variance, p * (1 - p), rtol=1e-12)
    draws = draws_of_pi(model, name)
    assert_mean_of(p, draws, NODES)
    default, _ = build(name, noise).predict_y(XNEW)
    assert_mean_of(default, draws, 64)


@pytest.mark.parametrize(("name", "noise"), ONE_EACH)
def test_variance_and_entropies_are_those_of_pi(name, noise):
    model = build(name, noise, nodes=Sobol(NODES))
    draws = draws_of_pi(model, name)
    squares = (draws - draws.mean(axis=0)) ** 2
    assert_mean_of(model.predict_probability_variance(XNEW), squares, NODES)
    entropies = model.predict_entropy(XNEW)
    p = model.predict_y(XNEW)[0].numpy()
    np.testing.assert_allclose(entropies.total, -np.sum(xlogy(p, p), axis=-1), rtol=1e-12)
    assert_mean_of(entropies.aleatoric, -np.sum(xlogy(draws, draws), axis=-1), NODES)
    assert np.all(entropies.epistemic.numpy() > 0)
    np.testing.assert_allclose(
        entropies.total, entropies.aleatoric + entropies.epistemic, rtol=1e-12
    )


def test_far_from_the_data_the_uncertainty_is_epistemic_and_more_data_remove_it():
    far = XNEW + 100.0
    few = build("ILRGPR", data=(X[:6], Y[:6])).predict_entropy(XNEW)
    for name in ("ILRGPR", "DirichletSGPR"):
        near, away = (build(name).predict_entropy(x) for x in (XNEW, far))
        assert np.all(away.epistemic > np.mean(near.epistemic))
    assert np.mean(build("ILRGPR").predict_entropy(XNEW).epistemic) < np.mean(few.epistemic)


@pytest.mark.parametrize(("name", "noise"), SOME)
def test_predictions_from_the_noisy_observation_are_those_of_sampling_it(name, noise):
    model = build(name, noise, nodes=Sobol(NODES))
    p, variance = model.predict_y(XNEW, observation_noise=True)
    scale = scale_of(model, SMOOTHING)
    V = np.broadcast_to(model.code.noise_variance, (K, model.num_latent_gps))
    # Where it depends on the class: averaged under the predicted probabilities of the classes.
    extra = scale**2 * model.predict_y(XNEW)[0].numpy() @ V
    assert_mean_of(p, draws_of_pi(model, name, extra), NODES)
    np.testing.assert_allclose(variance, p * (1 - p), rtol=1e-12)
    assert np.max(np.abs(p - model.predict_y(XNEW)[0])) > 1e-6


@pytest.mark.parametrize(("name", "noise"), ONE_EACH)
@pytest.mark.parametrize("cached", [False, True], ids=["model", "posterior"])
def test_samples_of_pi_have_its_moments(name, noise, cached):
    model = build(name, noise)
    tf.random.set_seed(1)
    samples = (model.posterior() if cached else model).predict_probability_samples(XNEW, 4000)
    assert samples.shape == (4000, len(XNEW), K)
    np.testing.assert_allclose(np.sum(samples, axis=-1), 1.0, rtol=1e-12)
    draws = draws_of_pi(model, name)
    assert_mean_of(np.mean(samples, axis=0), draws, 4000)
    squares = (draws - draws.mean(axis=0)) ** 2
    assert_mean_of(np.var(samples, axis=0), squares, 4000)


def test_samples_with_full_covariance_are_functions():
    model = build("ILRSGPR", "per_output")
    twice = np.concatenate([XNEW, XNEW])
    functions = model.predict_probability_samples(twice, 3, full_cov=True).numpy()
    # Equal up to the jitter that GPflow adds to the covariance before it draws.
    np.testing.assert_allclose(functions[:, :5], functions[:, 5:], atol=3e-2)
    rows = model.predict_probability_samples(twice, 3).numpy()
    assert np.max(np.abs(rows[:, :5] - rows[:, 5:])) > 0.05


@pytest.mark.parametrize("name", MODELS)
def test_credible_intervals_hold_pi_as_often_as_they_say(name):
    model = build(name)
    draws = draws_of_pi(model, name)
    previous = None
    for level in (0.5, 0.8, 0.95):
        lower, upper = model.predict_credible_interval(XNEW, level)
        held = np.mean((draws >= lower) & (draws <= upper), axis=0)
        # Four standard errors of quantiles from 512 independent nodes; Sobol's are better.
        assert np.all(np.abs(held - level) <= 4 * np.sqrt(level * (1 - level) / 512))
        if previous is not None:
            assert np.all(lower <= previous[0])
            assert np.all(upper >= previous[1])
        previous = lower, upper


def test_credible_intervals_of_two_classes_are_exact_quantiles():
    model = build("ILRGPR", data=(X, Y % 2), num_classes=2)
    mean, var = (x.numpy()[:, 0] for x in model.predict_f(XNEW))
    lower, upper = (x.numpy() for x in model.predict_credible_interval(XNEW, 0.9))
    # π₀ = 1/(1 + exp(−√2 f)), monotone in f; quantiles may be off by one of the 512 nodes.
    for bound, q in ((lower, 0.05), (upper, 0.95)):
        around = [
            expit(np.sqrt(2) * (mean + np.sqrt(var) * norm.ppf(q + s / 512))) for s in (-1, 1)
        ]
        assert np.all((around[0] <= bound[:, 0]) & (bound[:, 0] <= around[1]))
    np.testing.assert_allclose(lower[:, 0], 1 - upper[:, 1], atol=1e-12)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 95, np.nan])
def test_levels_that_are_no_probabilities_are_refused(level):
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        build("ILRGPR").predict_credible_interval(XNEW, level)


def everything(predictor: Any, Xnew: Any) -> list[Any]:
    """All that is predicted without drawing, each with leading dimensions as Xnew's."""
    return [
        *predictor.predict_y(Xnew),
        predictor.predict_y(Xnew, observation_noise=True)[0],
        predictor.predict_probability_variance(Xnew),
        *predictor.predict_entropy(Xnew),
        *predictor.predict_credible_interval(Xnew),
    ]


@pytest.mark.parametrize(("name", "noise"), ONE_EACH)
def test_predictions_do_not_depend_on_how_rows_are_batched(name, noise, monkeypatch):
    posterior = build(name, noise).posterior()
    rows = np.random.default_rng(2).standard_normal((8, 2))
    whole = everything(posterior, rows)
    pieces = [everything(posterior, part) for part in np.split(rows, [5])]
    stacked = everything(posterior, rows.reshape(2, 2, 2, 2))
    monkeypatch.setattr(conjugate, "_CHUNK_ELEMENTS", 1)  # row by row
    monkeypatch.setattr(probabilities, "_CHUNK_ELEMENTS", 1)
    blocked = everything(posterior, rows)
    for i, result in enumerate(whole):
        joined = np.concatenate([piece[i] for piece in pieces])
        np.testing.assert_allclose(joined, result, rtol=1e-10, atol=1e-13)
        flat = np.reshape(stacked[i], np.shape(result))
        np.testing.assert_allclose(flat, result, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(blocked[i], result, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("name", "noise"), ONE_EACH)
def test_predictions_are_deterministic_and_the_same_from_every_cache(name, noise):
    model = build(name, noise)
    first = everything(model, XNEW)
    for ours, again in zip(first, everything(model, XNEW), strict=True):
        np.testing.assert_array_equal(ours, again)
    for cache in ("tensor", "variable"):
        for ours, again in zip(first, everything(model.posterior(cache), XNEW), strict=True):
            np.testing.assert_allclose(again, ours, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("name", "noise"), ONE_EACH)
def test_no_rows_have_no_predictions(name, noise):
    model = build(name, noise)
    for result in everything(model.posterior(), XNEW[:0]):
        assert result.shape[0] == 0
    assert model.predict_f(XNEW[:0])[0].shape == (0, model.num_latent_gps)


@pytest.mark.parametrize(("name", "noise"), ONE_EACH)
def test_predictions_compile_for_any_number_of_rows(name, noise):
    model = build(name, noise)
    signature = [tf.TensorSpec([None, 2], tf.float64)]
    compiled = tf.function(model.posterior().predict_y, signature, autograph=False)
    live = tf.function(model.predict_y, signature, autograph=False)
    for rows in (XNEW, XNEW[:0]):
        expected = model.predict_y(rows)[0]
        np.testing.assert_allclose(compiled(rows)[0], expected, atol=1e-12)
        np.testing.assert_allclose(live(rows)[0], expected, atol=1e-12)
    model.kernel.lengthscales.assign([2.0, 0.5])
    np.testing.assert_allclose(live(XNEW)[0], model.predict_y(XNEW)[0], atol=1e-10)


@pytest.mark.parametrize("name", ["ILRGPR", "DirichletSGPR"])
def test_relabelling_the_classes_relabels_the_predictions(name):
    order = np.array([2, 0, 1])
    for noise in ("shared", "per_class"):
        model = build(name, noise, nodes=Sobol(NODES))
        renamed = build(name, noise, data=(X, order[Y]), nodes=Sobol(NODES))
        if noise == "per_class":
            factor = model.code.class_factor.numpy()
            renamed.code.class_factor.assign(factor[np.argsort(order)])
        np.testing.assert_allclose(model.training_loss(), renamed.training_loss(), rtol=1e-10)
        p, q = model.predict_y(XNEW)[0].numpy(), renamed.predict_y(XNEW)[0].numpy()
        sd = np.sqrt(model.predict_probability_variance(XNEW))
        assert np.all(np.abs(p - q[:, order]) <= 4 * sd * np.sqrt(2 / NODES))


def test_nodes_of_the_users_choice_are_used_and_others_refused():
    tf.random.set_seed(2)
    random = build("ILRGPR", nodes=MonteCarlo(20))
    assert np.max(np.abs(random.predict_y(XNEW)[0] - random.predict_y(XNEW)[0])) > 0
    few, many = (build("ILRGPR", nodes=Sobol(n)).predict_y(XNEW)[0] for n in (2, NODES))
    assert np.max(np.abs(few - many)) > 1e-4
    for name in MODELS:
        with pytest.raises(TypeError, match="nodes must be a node rule"):
            build(name, nodes=64)


def test_full_covariances_of_labels_do_not_exist():
    model = build("ILRGPR")
    for option in ("full_cov", "full_output_cov"):
        for predictor in (model, model.posterior()):
            with pytest.raises(NotImplementedError, match="predict_f"):
                predictor.predict_y(XNEW, **{option: True})


def test_log_density_is_the_log_of_the_predicted_probability():
    labels = np.array([0, 1, 2, 1, 0])
    for name, noise in ONE_EACH[:3:2]:
        model = build(name, noise)
        p = model.predict_y(XNEW)[0].numpy()
        expected = np.log(p[np.arange(5), labels])
        for form in (
            labels,
            labels[:, None],
            np.eye(K)[labels],
            labels.astype(float),
            list(labels),
        ):
            density = model.predict_log_density((XNEW, form))
            assert density.shape == (5,)
            np.testing.assert_allclose(density, expected, rtol=1e-9)
        soft = np.full((5, K), 1 / K)
        np.testing.assert_allclose(
            model.predict_log_density((XNEW.astype(np.float32), soft)),
            np.mean(np.log(p), axis=1),
            rtol=1e-5,
        )
        with pytest.raises(ValueError, match=r"0\.\.2"):
            model.predict_log_density((XNEW, labels + 1))


def test_probabilities_stay_finite_at_the_extremes():
    k = gpflow.kernels.SquaredExponential(variance=1e4)
    for name in MODELS:
        options = {"smoothing": 1 - 1e-12} if name.startswith("ILR") else {"alpha_epsilon": 1e-9}
        model = build(name, k=k, **options)
        for result in everything(model, np.concatenate([XNEW, X, 1e6 * XNEW])):
            assert np.all(np.isfinite(result))


@pytest.mark.parametrize("variance", [1e-12, 1.0])
def test_draws_of_a_posterior_far_wider_than_the_prior_have_its_variances(variance):
    X = np.random.default_rng(0).normal(size=(5, 2))
    kernel = gpflow.kernels.SquaredExponential(variance)
    # Where nothing has been trained, q(u) is N(0, I), in units that are not the kernel's.
    model = ILRSVGP(kernel, np.repeat(X[:3], 2, axis=0), num_classes=3, num_data=5, whiten=False)
    draws = model.predict_f_samples(X, 4000).numpy()
    _, expected = model.predict_f(X)
    # Of the variance of 4,000 draws the standard error is √(2/4000).
    np.testing.assert_allclose(np.var(draws, axis=0), expected, rtol=4 * np.sqrt(2 / 4000))
