"""λ after training, calibration by leave-one-out, and training on leave-one-out."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.kernels import SquaredExponential
from scipy.linalg import helmert
from scipy.special import softmax
from sklearn.datasets import load_iris, load_wine

from gpflow_ilr.calibration.criterion import Marginals, MeanNLL, search_nodes
from gpflow_ilr.calibration.search import choose_sharpness
from gpflow_ilr.codes import MAX_SMOOTHING
from gpflow_ilr.expectations import GaussHermite
from gpflow_ilr.models import ILRGPR, ILRSGPR
from tests.models.oracles import (
    ONE_EACH,
    SMOOTHING,
    XNEW,
    K,
    X,
    Y,
    Z,
    blobs,
    build,
    gradients,
    kernel,
    one_hot,
    reference_loo,
)

ILR = ["ILRGPR", "ILRSGPR"]
SOFT = np.random.default_rng(3).dirichlet(np.ones(K), size=len(X))
GRID = np.exp(np.linspace(np.log(0.05), np.log(21.0), 100))  # sharpness L
VALIDATION = blobs(40)


def sharpness(smoothing: Any, num_classes: int = K) -> Any:
    return np.log(1 + num_classes * smoothing / (1 - smoothing))


def nll(mean: Any, var: Any, rows: Any, L: float, fine: bool = False) -> float:
    """−mean log E[softmax(L Hᵀ f)]_y over the nodes of the search, or 2500 of Gauss–Hermite."""
    D = mean.shape[1]
    nodes, weights = (GaussHermite(50) if fine else search_nodes(D, len(mean)))(D, tf.float64)
    f = L * (mean[None] + np.sqrt(var)[None] * nodes.numpy()[:, None, :])
    p = np.einsum("s,snk->nk", weights, softmax(f @ helmert(D + 1), axis=-1))
    return -np.mean(np.sum(rows * np.log(p), axis=-1))


def assert_best_sharpness(mean: Any, var: Any, rows: Any, result: Any) -> None:
    """The chosen λ is the best of a dense grid, and NLL_after is what it says."""
    L = sharpness(result.smoothing)
    chosen = nll(mean, var, rows, L)
    np.testing.assert_allclose(result.nll_after, chosen, rtol=1e-8)
    # Within 2e-3 in log L of a minimum where the second derivative is at most 1.
    assert chosen <= min(nll(mean, var, rows, x) for x in GRID) + 4e-6
    # With many nodes the choice loses a hundredth of the criterion's own standard error, 0.2.
    fine = min(nll(mean, var, rows, x, fine=True) for x in GRID[::4])
    assert nll(mean, var, rows, L, fine=True) <= fine + 2e-3


def unit_loo(model: Any, data: Any = (X, Y)) -> tuple[Any, Any]:
    mean, var = reference_loo(model, data, model.smoothing)
    L = sharpness(model.smoothing, model.code.num_classes)
    return mean / L, var / L**2


def standardised(load: Any, every: int = 2) -> tuple[Any, Any]:
    data = load()
    X = (data.data - data.data.mean(0)) / data.data.std(0)
    return X[::every], data.target[::every]


# λ after training


@pytest.mark.parametrize("name", ILR)
def test_smoothing_after_training_equals_a_model_built_with_it(name):
    for noise in ("per_output", "per_class"):
        model = build(name, noise, smoothing=0.9)
        for smoothing in (0.5, 1 - 1e-9):
            model.smoothing = smoothing
            other = build(name, noise, smoothing=smoothing)
            np.testing.assert_allclose(model.smoothing, smoothing, rtol=1e-13)
            np.testing.assert_allclose(1 - model.smoothing, 1 - smoothing, rtol=1e-6)
            np.testing.assert_allclose(model.training_loss(), other.training_loss(), rtol=1e-11)
            for a, b in zip(model.predict_f(XNEW), other.predict_f(XNEW), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-10)


@pytest.mark.parametrize("name", ILR)
def test_smoothing_moves_the_objective_by_a_constant_and_scales_the_latent(name):
    model = build(name, "per_output")
    losses, means, variances = [], [], []
    for smoothing in (0.6, 0.95, 0.9999):
        model.smoothing = smoothing
        L = sharpness(smoothing)
        losses.append(float(model.training_loss()) - len(X) * (K - 1) * np.log(L))
        mean, var = model.predict_f(XNEW)
        means.append(mean / L)
        variances.append(var / L**2)
    for values in (losses, means, variances):
        np.testing.assert_allclose(values[1], values[0], rtol=1e-10)
        np.testing.assert_allclose(values[2], values[0], rtol=1e-10)


def test_smoothing_after_training_equals_retraining_gpflows_gpr_on_wine():
    """One fit of ours at λ = 0.9, moved to λ' = 0.9999, is GPflow's own fit to the targets of λ'."""
    X, y = standardised(load_wine)
    Xtest = standardised(load_wine, 3)[0]
    model = ILRGPR((X, y), SquaredExponential(0.5, 3.0), num_classes=K, smoothing=0.9)
    fit(model)
    model.smoothing = 0.9999
    L = sharpness(0.9999)
    targets = np.log(0.9999 * one_hot(y) + 0.0001 / K) @ helmert(K).T
    noise = float(L**2 * model.code.noise_variance[0, 0])
    gpr = gpflow.models.GPR((X, targets), SquaredExponential(0.5 * L**2, 3.0), noise_variance=noise)
    gpflow.set_trainable(gpr.likelihood, False)
    fit(gpr)
    np.testing.assert_allclose(model.kernel.lengthscales, gpr.kernel.lengthscales, rtol=1e-4)
    np.testing.assert_allclose(L**2 * model.kernel.variance, gpr.kernel.variance, rtol=1e-3)
    np.testing.assert_allclose(model.training_loss(), gpr.training_loss(), rtol=1e-8)
    mean, var = gpr.predict_f(Xtest)
    p = model.likelihood.predict_mean_and_var(None, mean, var)[0]
    np.testing.assert_allclose(model.predict_y(Xtest)[0], p, atol=1e-4)


def fit(model: Any, maxiter: int = 200) -> Any:
    return gpflow.optimizers.Scipy().minimize(
        model.training_loss,
        model.trainable_variables,
        options={"maxiter": maxiter, "gtol": 1e-8, "ftol": 1e-15},
    )


@pytest.mark.parametrize("smoothing", [0.0, 1.0, -0.1, 1.5, np.nan])
def test_smoothing_outside_the_unit_interval_is_refused_and_changes_nothing(smoothing):
    model = build("ILRGPR")
    with pytest.raises(ValueError, match=r"smoothing .* strictly between 0 and 1"):
        model.smoothing = smoothing
    with pytest.raises(ValueError, match=r"smoothing .* strictly between 0 and 1"):
        build("ILRSGPR", smoothing=smoothing)
    np.testing.assert_allclose(model.smoothing, SMOOTHING)


def test_compiled_predictions_and_cached_posteriors_follow_the_smoothing():
    model = build("ILRSGPR")
    posterior = model.posterior()
    compiled = tf.function(posterior.predict_y, autograph=False)
    before = compiled(XNEW)[0]
    model.smoothing = 0.5
    np.testing.assert_allclose(compiled(XNEW)[0], model.predict_y(XNEW)[0], atol=1e-12)
    assert np.max(np.abs(compiled(XNEW)[0] - before)) > 0.01


# Calibration


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        ("ILRGPR", "per_output"),
        ("ILRGPR", "per_class"),
        ("ILRSGPR", "shared"),
        ("ILRSGPR", "per_class"),
    ],
)
def test_calibrate_finds_the_smallest_leave_one_out_nll(name, noise):
    model = build(name, noise, mean_function=gpflow.functions.Constant([0.1, -0.2]))
    mean, var = unit_loo(model)
    before = nll(mean, var, one_hot(Y), sharpness(SMOOTHING))
    result = model.calibrate()
    assert_best_sharpness(mean, var, one_hot(Y), result)
    np.testing.assert_allclose(result.nll_before, before, rtol=1e-8)
    assert result.smoothing == model.smoothing
    assert result.nll_after < result.nll_before


@pytest.mark.parametrize("name", ILR)
def test_calibrate_on_validation_data_finds_their_smallest_nll(name):
    model = build(name)
    L = sharpness(SMOOTHING)
    mean, var = (x.numpy() for x in model.predict_f(VALIDATION[0]))
    result = model.calibrate(VALIDATION)
    assert_best_sharpness(mean / L, var / L**2, one_hot(VALIDATION[1]), result)
    assert result.nll_after < result.nll_before


@pytest.mark.parametrize("name", ILR)
def test_calibrate_is_deterministic_and_does_not_depend_on_where_it_starts(name):
    models = [build(name, smoothing=start) for start in (0.02, SMOOTHING, SMOOTHING, 1 - 1e-13)]
    results = [model.calibrate() for model in models]
    for model, result in zip(models, results, strict=True):
        assert result.smoothing == model.smoothing
        assert result.nll_after <= result.nll_before
        np.testing.assert_allclose(result.smoothing, results[0].smoothing, rtol=1e-9)
    assert results[1] == results[2]
    again = models[0].calibrate()
    np.testing.assert_allclose(again.smoothing, results[0].smoothing, rtol=1e-12)
    np.testing.assert_allclose(again.nll_before, results[0].nll_after, rtol=1e-12)
    assert again.nll_after <= again.nll_before


def test_calibrate_never_makes_the_criterion_worse():
    model = build("ILRGPR")
    best = model.calibrate().smoothing
    for smoothing in best + (1 - best) * np.linspace(-0.02, 0.02, 3):
        model.smoothing = float(smoothing)
        result = model.calibrate()
        assert result.nll_after <= result.nll_before


def test_calibrate_is_bounded_on_separable_data():
    rng = np.random.default_rng(0)
    y = np.arange(30) % K
    X = 20.0 * np.eye(K)[y, :2] + 0.1 * rng.standard_normal((30, 2))
    model = ILRGPR((X, y), SquaredExponential(1.0, 10.0), num_classes=K)
    result = model.calibrate()
    assert 0.999 < result.smoothing < 1
    assert np.all(np.isfinite(model.predict_y(X)[0]))


@pytest.mark.parametrize(("name", "noise"), [("ILRGPR", "shared"), ("ILRSGPR", "fixed")])
def test_calibrate_chooses_the_noise_by_the_same_criterion(name, noise):
    alone, model = (
        build(name, noise, mean_function=gpflow.functions.Constant([0.1, -0.2])) for _ in range(2)
    )
    old = model.code.noise_variance.numpy()
    without, result = alone.calibrate(), model.calibrate(noise=True)
    assert result.nll_after <= without.nll_after + 1e-9 <= result.nll_before + 1e-9
    new = model.code.noise_variance.numpy()
    np.testing.assert_allclose(result.noise_variance, new.item())
    assert 0.009 <= (new / old).item() <= 101
    # What it says is what a brute-force leave-one-out at the new noise and λ gives.
    chosen = nll(*unit_loo(model), one_hot(Y), sharpness(model.smoothing))
    np.testing.assert_allclose(result.nll_after, chosen, rtol=1e-7)
    np.testing.assert_allclose(model.calibrate().nll_before, result.nll_after, atol=1e-9)
    for factor in (0.7, 1.4):  # no neighbour is better
        model.code.rescale_noise(factor)
        mean, var = unit_loo(model)
        assert min(nll(mean, var, one_hot(Y), x) for x in GRID) >= result.nll_after - 1e-4
        model.code.rescale_noise(1 / factor)


@pytest.mark.parametrize("name", ILR)
def test_calibrate_with_soft_labels_says_what_it_did(name):
    model = build(name, "shared", data=(X, SOFT))
    before = nll(*unit_loo(model, (X, SOFT)), SOFT, sharpness(model.smoothing))
    result = model.calibrate()
    after = nll(*unit_loo(model, (X, SOFT)), SOFT, sharpness(model.smoothing))
    np.testing.assert_allclose([result.nll_before, result.nll_after], [before, after], rtol=1e-8)
    assert after < before
    for factor in (0.9, 1.1):  # no neighbour is better, its own targets considered
        model.code.sharpness.assign(factor * sharpness(result.smoothing))
        other = nll(*unit_loo(model, (X, SOFT)), SOFT, sharpness(model.smoothing))
        assert other >= after - 1e-4


def test_calibrate_uses_at_most_max_rows_and_refuses_nonsense():
    model = build("ILRSGPR")
    whole = model.calibrate(max_rows=None)
    assert model.calibrate(max_rows=10**6).smoothing == whole.smoothing
    assert model.calibrate(max_rows=6).smoothing != whole.smoothing
    for max_rows in (0, -3, 10.5, True):
        with pytest.raises(ValueError, match="max_rows must be an integer of at least 1"):
            model.calibrate(max_rows=max_rows)
    with pytest.raises(ValueError, match="takes no data"):
        model.calibrate(VALIDATION, noise=True)
    for noise in ("per_output", "per_class"):
        for name in ILR:
            with pytest.raises(ValueError, match="one noise for all outputs"):
                build(name, noise).calibrate(noise=True)
    sets = SeparateIndependentInducingVariables([InducingPoints(Z), InducingPoints(Z + 0.1)])
    with pytest.raises(ValueError, match="one set of inducing inputs"):
        build("ILRSGPR", inducing_variable=sets).calibrate(noise=True)
    for bad in ((VALIDATION[0], VALIDATION[1] + 1), (VALIDATION[0], VALIDATION[1][:-1])):
        before = model.smoothing
        with pytest.raises(ValueError, match=r"[Ll]abels|rows"):
            model.calibrate(bad)
        assert model.smoothing == before


def test_calibration_leaves_out_the_rows_that_were_set_until_rows_change():
    model = build("ILRGPR")
    rows = np.arange(0, model.num_data, 3)
    model.criterion_rows = rows
    found = model.calibrate()
    assert found.num_rows == len(rows)
    held_out = Marginals(*model.leave_one_out(rows), tf.gather(model.labels, rows))
    sharpness, _ = choose_sharpness(MeanNLL(held_out, model.code.link))
    np.testing.assert_allclose(model.code.sharpness, sharpness, rtol=1e-9)
    with pytest.raises(ValueError, match="criterion_rows must be between 0"):
        model.criterion_rows = [model.num_data]
    model.data = (X, Y)
    assert model.calibrate().num_rows == model.num_data


# Training on leave-one-out


@pytest.mark.parametrize("name", ILR)
@pytest.mark.parametrize("labels", [Y, SOFT], ids=["hard", "soft"])
def test_loo_objective_is_the_log_probability_of_the_labels_left_out(name, labels):
    model = build(name, "shared", data=(X, labels), objective="loo")
    mean, var = unit_loo(model, (X, labels))
    L = sharpness(model.smoothing)
    objective = -model.maximum_log_likelihood_objective() / len(X)
    np.testing.assert_allclose(objective, nll(mean, var, one_hot(labels), L), rtol=1e-8)
    fine = nll(mean, var, one_hot(labels), L, fine=True)
    np.testing.assert_allclose(objective, fine, rtol=0.02)  # 32 nodes against 2500
    np.testing.assert_allclose(-model.training_loss(), model.loo_log_density(), rtol=1e-12)


@pytest.mark.parametrize("name", ILR)
def test_loo_objective_of_two_classes_is_exact(name):
    model = build(name, "per_class", data=(X, Y % 2), num_classes=2, objective="loo")
    mean, var = unit_loo(model, (X, Y % 2))
    expected = -len(X) * nll(mean, var, one_hot(Y % 2, 2), sharpness(SMOOTHING, 2))
    np.testing.assert_allclose(model.maximum_log_likelihood_objective(), expected, rtol=1e-4)


@pytest.mark.parametrize(("name", "noise"), ONE_EACH)
def test_gradient_of_the_loo_objective_is_that_of_finite_differences(name, noise):
    constant = gpflow.functions.Constant(np.full(K if "Dirichlet" in name else K - 1, 0.1))
    model = build(name, noise, objective="loo", mean_function=constant)
    variables = model.trainable_variables
    starts = [variable.numpy() for variable in variables]
    slopes = gradients(model.training_loss, variables)
    rng = np.random.default_rng(0)
    step = 1e-5
    for _ in range(3):  # in directions that move every entry of every variable
        direction = [rng.standard_normal(start.shape) for start in starts]
        ends = []
        for sign in (1, -1):
            for variable, start, d in zip(variables, starts, direction, strict=True):
                variable.assign(start + sign * step * d)
            ends.append(float(model.training_loss()))
        expected = (ends[0] - ends[1]) / (2 * step)
        slope = sum(np.sum(g * d) for g, d in zip(slopes, direction, strict=True))
        np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("load", [load_wine, load_iris])
@pytest.mark.parametrize("name", ILR)
def test_training_on_leave_one_out_stays_finite_on_separable_data(load, name):
    X, y = standardised(load, 3)
    options: dict[str, Any] = {"num_classes": K, "objective": "loo", "noise": "shared"}
    k = SquaredExponential(0.3, np.sqrt(X.shape[1]))
    model = (
        ILRGPR((X, y), k, **options)
        if name == "ILRGPR"
        else ILRSGPR((X, y), k, X[::8].copy(), **options)
    )
    before = float(model.training_loss())
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure(), model.trainable_variables, options={"maxiter": 40}
    )
    assert np.isfinite(model.training_loss())
    assert float(model.training_loss()) < before
    for variable in model.trainable_variables:
        assert np.all(np.isfinite(variable))
    p = model.predict_y(X)[0].numpy()
    assert np.mean(np.argmax(p, axis=1) == y) > 0.9
    assert 0 < model.smoothing <= MAX_SMOOTHING + 1e-15
    assert model.calibrate().nll_after <= before / len(y)


def test_the_evidence_does_not_train_the_smoothing_even_where_it_is_made_trainable():
    for name in ILR:
        model = build(name, "shared", k=kernel())
        assert not model.code.sharpness.trainable
        gpflow.set_trainable(model, True)
        (slope,) = gradients(model.training_loss, [model.code.sharpness.unconstrained_variable])
        assert slope == 0
        assert build(name, objective="loo").code.sharpness.trainable


def test_objectives_that_do_not_exist_are_refused():
    for name, noise in ONE_EACH:
        with pytest.raises(ValueError, match="objective must be 'evidence' or 'loo'"):
            build(name, noise, objective="elbo")
