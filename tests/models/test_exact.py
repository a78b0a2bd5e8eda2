"""The exact classifiers equal GPflow's GPR where GPR can express them, and dense algebra elsewhere."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.kernels import Constant, Matern32, SeparateIndependent, SharedIndependent
from scipy.linalg import helmert
from scipy.stats import norm

from gpflow_ilr.models import ILRGPR, DirichletGPR
from tests.models.oracles import (
    ALPHA_EPSILON,
    EXACT,
    SMOOTHING,
    XNEW,
    K,
    X,
    Y,
    blobs,
    build,
    gradients,
    kernel,
    one_hot,
    reference,
    reference_loo,
)

L = float(np.log(1 + K * SMOOTHING / (1 - SMOOTHING)))
SOFT = np.random.default_rng(3).dirichlet(np.ones(K), size=len(X))
SOFT[:4] = np.eye(K)[[0, 1, 2, 0]]  # certain rows among uncertain ones


def paper_targets(rows: Any, smoothing: float = SMOOTHING) -> Any:
    """φ(λ p + (1 − λ)/K)."""
    return np.log(smoothing * rows + (1 - smoothing) / rows.shape[1]) @ helmert(rows.shape[1]).T


def scaled(k: gpflow.kernels.Kernel, scale: float = L) -> gpflow.kernels.Kernel:
    """L² k, with k's own parameters, so that gradients with respect to them can be compared."""
    return Constant(scale**2) * k


def gpr_like(model: ILRGPR, targets: Any, p: slice | int = slice(None)) -> gpflow.models.GPR:
    """GPflow's GPR on the paper's targets (or one of them), noise and scaled kernel."""
    V = np.broadcast_to(model.code.noise_variance, [1, K - 1])[0, p]
    targets = targets[:, p] if isinstance(p, slice) else targets[:, [p]]
    return gpflow.models.GPR(
        (X, targets), scaled(model.kernel), noise_variance=L**2 * float(np.mean(V))
    )


@pytest.mark.parametrize("noise", ["fixed", "shared"])
def test_ilrgpr_is_gpflows_gpr_on_the_papers_targets_with_kernel_scaled_by_L_squared(noise):
    model = build("ILRGPR", noise)
    gpr = gpr_like(model, paper_targets(one_hot(Y)))
    np.testing.assert_allclose(
        model.log_marginal_likelihood(), gpr.log_marginal_likelihood(), rtol=1e-12
    )
    np.testing.assert_allclose(model.training_loss(), gpr.training_loss(), rtol=1e-12)
    for full_cov in (False, True):
        theirs = gpr.predict_f(XNEW, full_cov)
        np.testing.assert_allclose(model.predict_f(XNEW, full_cov)[0], theirs[0], atol=1e-9)
        np.testing.assert_allclose(model.predict_f(XNEW, full_cov)[1], theirs[1], atol=1e-9)
    variables = model.kernel.trainable_variables
    for ours, theirs in zip(
        gradients(model.training_loss, variables),
        gradients(gpr.training_loss, variables),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_gradient_of_the_shared_noise_is_gprs_through_the_chain_rule():
    model = build("ILRGPR", "shared")
    gpr = gpr_like(model, paper_targets(one_hot(Y)))
    # σ² = L² (base + s): d/ds = L² d/dσ², each through its own transform to the variable.
    (ours,) = gradients(model.training_loss, [model.code.extra_noise.unconstrained_variable])
    (theirs,) = gradients(gpr.training_loss, [gpr.likelihood.variance.unconstrained_variable])
    ours /= slope(model.code.extra_noise)
    theirs /= slope(gpr.likelihood.variance)
    np.testing.assert_allclose(ours.item(), L**2 * theirs.item(), rtol=1e-9)


def slope(parameter: gpflow.Parameter) -> Any:
    """Derivative of the parameter with respect to its unconstrained variable."""
    with tf.GradientTape() as tape:
        value = tf.convert_to_tensor(parameter)
    return tf.convert_to_tensor(tape.gradient(value, parameter.unconstrained_variable)).numpy()


def test_per_output_noise_is_one_gpr_for_each_output():
    model = build("ILRGPR", "per_output")
    gprs = [gpr_like(model, paper_targets(one_hot(Y)), p) for p in range(K - 1)]
    total = sum(float(gpr.log_marginal_likelihood()) for gpr in gprs)
    np.testing.assert_allclose(model.log_marginal_likelihood(), total, rtol=1e-12)
    mean, var = model.predict_f(XNEW)
    for p, gpr in enumerate(gprs):
        gpr_mean, gpr_var = gpr.predict_f(XNEW)
        np.testing.assert_allclose(mean[:, p], gpr_mean[:, 0], atol=1e-9)
        np.testing.assert_allclose(var[:, p], gpr_var[:, 0], atol=1e-9)


@pytest.mark.parametrize(("name", "noise"), EXACT)
def test_evidence_gradient_predictions_and_leave_one_out_are_those_of_dense_algebra(name, noise):
    model = build(name, noise)
    expected = reference(model)
    np.testing.assert_allclose(model.log_marginal_likelihood(), expected.evidence, rtol=1e-11)
    mean, covariance = model.predict_f(XNEW, full_cov=True)
    np.testing.assert_allclose(mean, expected.mean, atol=1e-9)
    np.testing.assert_allclose(covariance, expected.covariance, atol=1e-9)
    variables = model.trainable_variables
    for ours, theirs in zip(
        gradients(model.log_marginal_likelihood, variables),
        gradients(lambda: reference(model).evidence, variables),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-9)
    for ours, theirs in zip(model.predict_loo(), reference_loo(model), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


@pytest.mark.parametrize(("name", "noise"), EXACT)
def test_one_factorisation_serves_all_outputs_with_the_same_noise(name, noise, monkeypatch):
    model = build(name, noise)
    calls = []
    factorise = tf.linalg.cholesky
    monkeypatch.setattr(tf.linalg, "cholesky", lambda A: calls.append(A.shape) or factorise(A))
    model.log_marginal_likelihood()
    # Of Dirichlet's code one more: outputs differ on the rows of one class only.
    few, many = (1, K - 1) if name == "ILRGPR" else (2, K)
    distinct = many if noise == "per_output" else few
    assert calls == [(len(X), len(X))] * distinct


def test_fixed_noise_is_proposition_one():
    for num_classes, tolerance in ((2, 1e-6), (3, 1e-6), (10, 1e-3)):
        data = blobs(20, num_classes)
        model = ILRGPR(data, kernel(), num_classes=num_classes, tolerance=tolerance)
        z = norm.isf(tolerance / (num_classes - 1))
        np.testing.assert_allclose(model.code.noise_variance, [[1 / (2 * z**2)]], rtol=1e-12)
    explicit = ILRGPR((X, Y), kernel(), num_classes=K, noise_variance=0.003)
    np.testing.assert_allclose(explicit.code.noise_variance, [[0.003]], rtol=1e-12)


def test_dirichlet_targets_and_noise_are_gpytorchs_formula():
    model = DirichletGPR((X, Y), kernel(), num_classes=K, alpha_epsilon=ALPHA_EPSILON)
    alpha = np.full((K, K), ALPHA_EPSILON)
    alpha[np.arange(K), np.arange(K)] += 1.0
    variance = np.log(1.0 / alpha + 1.0)
    np.testing.assert_allclose(model.code.noise_variance, variance, rtol=1e-13)
    np.testing.assert_allclose(model.code.targets, np.log(alpha) - 0.5 * variance, rtol=1e-13)


def test_dirichlet_targets_and_noise_are_gpytorchs():
    torch = pytest.importorskip("torch")
    likelihoods = pytest.importorskip("gpytorch.likelihoods")
    theirs = likelihoods.DirichletClassificationLikelihood(
        torch.as_tensor(Y), alpha_epsilon=ALPHA_EPSILON, dtype=torch.double
    )
    model = DirichletGPR((X, Y), kernel(), num_classes=K, alpha_epsilon=ALPHA_EPSILON)
    np.testing.assert_allclose(
        model.code.targets.numpy()[Y], theirs.transformed_targets.numpy().T, rtol=1e-12
    )
    np.testing.assert_allclose(
        model.code.noise_variance.numpy()[Y], theirs.noise.numpy().T, rtol=1e-12
    )


@pytest.mark.parametrize("noise", ["fixed", "shared", "per_output"])
def test_soft_labels_are_regression_on_smoothed_log_ratios(noise):
    model = build("ILRGPR", noise, data=(X, SOFT))
    targets = paper_targets(SOFT)
    parts = [slice(None)] if noise != "per_output" else range(K - 1)
    gprs = [gpr_like(model, targets, p) for p in parts]
    total = sum(float(gpr.log_marginal_likelihood()) for gpr in gprs)
    np.testing.assert_allclose(model.log_marginal_likelihood(), total, rtol=1e-12)
    mean = np.concatenate([gpr.predict_f(XNEW)[0] for gpr in gprs], axis=1)
    np.testing.assert_allclose(model.predict_f(XNEW)[0], mean, atol=1e-9)
    for ours, theirs in zip(model.predict_loo(), reference_loo(model, (X, SOFT)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_soft_labels_that_are_certain_are_hard_labels():
    hard, soft = build("ILRGPR"), build("ILRGPR", data=(X, one_hot(Y)))
    np.testing.assert_allclose(hard.training_loss(), soft.training_loss(), rtol=1e-13)


@pytest.mark.parametrize(
    ("name", "noise"),
    [("ILRGPR", "per_class"), ("DirichletGPR", "fixed"), ("ILRSGPR", "per_class")],
)
def test_soft_labels_are_refused_where_the_noise_depends_on_the_class(name, noise):
    with pytest.raises(ValueError, match="Soft labels need"):
        build(name, noise, data=(X, SOFT))


MEANS = {
    "constant": lambda: gpflow.functions.Constant([0.3]),
    "constant of each output": lambda: gpflow.functions.Constant(np.array([0.3, -0.2])),
    "linear": lambda: gpflow.functions.Linear(np.array([[0.1, 0.2], [-0.3, 0.4]]), [0.5, -0.1]),
}


@pytest.mark.parametrize("mean", MEANS)
def test_mean_function_is_gprs_mean_function_scaled_by_L(mean):
    model = build("ILRGPR", "per_class", mean_function=MEANS[mean]())
    expected = reference(model)
    np.testing.assert_allclose(model.log_marginal_likelihood(), expected.evidence, rtol=1e-11)
    np.testing.assert_allclose(model.predict_f(XNEW)[0], expected.mean, atol=1e-9)
    for ours, theirs in zip(model.predict_loo(), reference_loo(model), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)
    variables = model.mean_function.trainable_variables
    for ours, theirs in zip(
        gradients(model.log_marginal_likelihood, variables),
        gradients(lambda: reference(model).evidence, variables),
        strict=True,
    ):
        assert np.any(theirs != 0)
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)


def test_mean_function_equals_gpflows_own_with_an_L_times_larger_mean():
    A, b = np.array([[0.1, 0.2], [-0.3, 0.4]]), np.array([0.5, -0.1])
    model = build("ILRGPR", mean_function=gpflow.functions.Linear(A, b))
    gpr = gpr_like(model, paper_targets(one_hot(Y)))
    gpr.mean_function = gpflow.functions.Linear(L * A, L * b)
    np.testing.assert_allclose(
        model.log_marginal_likelihood(), gpr.log_marginal_likelihood(), rtol=1e-12
    )
    np.testing.assert_allclose(model.predict_f(XNEW)[0], gpr.predict_f(XNEW)[0], atol=1e-9)


@pytest.mark.parametrize(("name", "noise"), [("ILRGPR", "per_class"), ("DirichletGPR", "fixed")])
def test_each_output_may_have_a_kernel_of_its_own(name, noise):
    P = K - 1 if name == "ILRGPR" else K
    kernels = [Matern32(variance=0.3 + p, lengthscales=1.0 + p) for p in range(P)]
    model = build(name, noise, k=SeparateIndependent(kernels))
    expected = reference(model)
    np.testing.assert_allclose(model.log_marginal_likelihood(), expected.evidence, rtol=1e-11)
    mean, covariance = model.predict_f(XNEW, full_cov=True)
    np.testing.assert_allclose(mean, expected.mean, atol=1e-9)
    np.testing.assert_allclose(covariance, expected.covariance, atol=1e-9)
    for ours, theirs in zip(model.predict_loo(), reference_loo(model), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_a_shared_independent_kernel_is_its_kernel():
    plain, wrapped = build("ILRGPR"), build("ILRGPR", k=SharedIndependent(kernel(), K - 1))
    np.testing.assert_allclose(plain.training_loss(), wrapped.training_loss(), rtol=1e-13)
    np.testing.assert_allclose(plain.predict_f(XNEW)[1], wrapped.predict_f(XNEW)[1], rtol=1e-12)


def test_kernels_of_many_kinds_equal_dense_algebra():
    k = gpflow.kernels
    for chosen in (
        k.Linear(0.5) + k.Matern12(active_dims=[1]),
        k.SquaredExponential(active_dims=[0]) * k.Polynomial(2, active_dims=[1]),
        k.Periodic(k.SquaredExponential(active_dims=[0]), period=2.0) + k.White(0.1),
        k.ArcCosine(order=1),
        k.SharedIndependent(k.RationalQuadratic(alpha=0.7), K - 1),
    ):
        model = build("ILRGPR", "shared", k=chosen)
        expected = reference(model)
        np.testing.assert_allclose(model.log_marginal_likelihood(), expected.evidence, rtol=1e-10)
        np.testing.assert_allclose(model.predict_f(XNEW)[0], expected.mean, atol=1e-8)


@pytest.mark.parametrize(("name", "noise"), EXACT)
def test_two_classes_and_a_class_without_rows(name, noise):
    for num_classes, labels in ((2, Y % 2), (4, Y)):
        model = build(name, noise, data=(X, labels), num_classes=num_classes)
        expected = reference(model, (X, labels))
        np.testing.assert_allclose(model.log_marginal_likelihood(), expected.evidence, rtol=1e-11)
        np.testing.assert_allclose(model.predict_f(XNEW)[0], expected.mean, atol=1e-9)


def test_a_single_row_left_out_leaves_the_prior():
    model = build("ILRGPR", data=(X[:1], Y[:1]))
    mean, var = model.predict_loo()
    np.testing.assert_allclose(mean, np.zeros((1, K - 1)), atol=1e-12)
    np.testing.assert_allclose(var, np.full((1, K - 1), L**2 * 0.6), rtol=1e-9)


def test_duplicated_rows_and_contradicting_labels_survive():
    data = np.concatenate([X, X, X]), np.concatenate([Y, Y, (Y + 1) % K])
    for name, noise in EXACT:
        model = build(name, noise, data=data)
        expected = reference(model, data)
        np.testing.assert_allclose(model.log_marginal_likelihood(), expected.evidence, rtol=1e-9)


@pytest.mark.parametrize(("name", "noise"), [("ILRGPR", "per_output"), ("DirichletGPR", "shared")])
def test_leave_one_out_of_float32_agrees_with_float64_to_its_precision(name, noise):
    loo = build(name, noise).predict_loo()[0]
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        # Rounding of 1e-7 times the condition number of K + V, at most 18 · 0.6 / 0.02 = 540.
        np.testing.assert_allclose(build(name, noise).predict_loo()[0], loo, atol=1e-3)


@pytest.mark.parametrize("name", ["ILRGPR", "DirichletGPR"])
def test_a_huge_amplitude_is_survived(name):
    k = gpflow.kernels.SquaredExponential(variance=1e9, lengthscales=30.0)
    model = build(name, "shared", k=k)
    for gradient in gradients(model.training_loss, model.trainable_variables):
        assert np.all(np.isfinite(gradient))
    assert np.all(np.isfinite(model.predict_y(XNEW)[0]))


@pytest.mark.parametrize(("name", "compiled"), [("ILRGPR", True), ("DirichletGPR", False)])
def test_a_failed_factorisation_says_what_to_do(name, compiled):
    model = build(name)
    model.kernel.lengthscales.unconstrained_variable.assign([np.nan, 1.0])
    loss = model.training_loss_closure(compile=compiled)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Remedies: standardise"):
        loss()


# Noise that is learned


@pytest.mark.parametrize("name", ["ILRGPR", "DirichletGPR"])
@pytest.mark.parametrize("noise", ["shared", "per_output", "per_class"])
def test_noise_is_learned_and_never_falls_below_its_base(name, noise):
    data = X, np.random.default_rng(5).permutation(Y)  # labels without any relation to X
    options = {"noise_variance": 1e-3} if name == "ILRGPR" else {"alpha_epsilon": 0.5}
    model = build(name, noise, data=data, **options)
    gpflow.set_trainable(model.kernel, False)
    base = build(name, "fixed", data=data, **options).code.noise_variance.numpy()
    start, before = model.code.noise_variance.numpy(), float(model.training_loss())
    variables, options = model.trainable_variables, {"maxiter": 8}
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, variables, options=options, compile=False
    )
    assert float(model.training_loss()) < before - 1e-3
    assert np.any(np.abs(model.code.noise_variance - start) > 1e-3 * start)
    assert np.all(model.code.noise_variance >= base)


def test_a_prior_on_the_learned_noise_enters_the_loss():
    for name, noise in EXACT:
        if noise == "fixed":
            continue
        model = build(name, noise)
        before = float(model.training_loss())
        model.code.extra_noise.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
        expected = tf.reduce_sum(model.code.extra_noise.prior.log_prob(model.code.extra_noise))
        np.testing.assert_allclose(float(model.training_loss()) - before, -expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["ILRGPR", "DirichletGPR"])
def test_noises_of_two_classes_cannot_drift_apart(name):
    model = build(name, "per_class")
    factor = model.code.class_factor.unconstrained_variable
    factor.assign([[1e3], [-1e3], [0.0]])
    model.code.extra_noise.assign([[1e3]])  # all noise that matters is learned
    learned = (model.code.noise_variance - build(name, "fixed").code.noise_variance).numpy()
    assert np.max(learned) / np.min(learned) <= 1.5 * (1 + 1e-12)
    assert np.all(np.isfinite(gradients(model.training_loss, [factor])[0]))


LARGE_KERNELS = {
    "linear, raw columns": (gpflow.kernels.Linear, 0.02),
    "cubic": (lambda: gpflow.kernels.Polynomial(degree=3, variance=20.0), 1e-4),
    "large amplitude": (lambda: gpflow.kernels.SquaredExponential(1e4, 2.0), 1e-5),
}


@pytest.mark.parametrize(("large", "noise"), LARGE_KERNELS.values(), ids=LARGE_KERNELS)
def test_the_noise_is_what_was_asked_for_however_large_the_kernel(large, noise):
    rows = X * [1.0, 300.0] if large is gpflow.kernels.Linear else X
    model = ILRGPR((rows, Y), large(), num_classes=K, smoothing=SMOOTHING, noise_variance=noise)
    theirs = gpflow.models.GPR(
        (rows, paper_targets(one_hot(Y))), scaled(large()), noise_variance=L**2 * noise
    )
    np.testing.assert_allclose(
        model.log_marginal_likelihood(), theirs.log_marginal_likelihood(), rtol=1e-6
    )
    for ours, expected in zip(model.predict_f(rows), theirs.predict_f(rows), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)
    result = model.calibrate(noise=True, max_rows=None)
    np.testing.assert_allclose(result.nll_after, -model.loo_log_density() / len(Y), rtol=1e-5)


@pytest.mark.parametrize("name", ["ILRGPR", "DirichletGPR", "ILRSGPR", "DirichletSGPR"])
def test_a_mean_function_with_other_columns_than_latents_is_refused(name):
    wrong = 4
    with pytest.raises(ValueError, match=r"mean_function must return one column, or \d.*returns 4"):
        build(name, mean_function=gpflow.functions.Constant(np.arange(float(wrong))))
    build(name, mean_function=gpflow.functions.Constant([0.5]))
