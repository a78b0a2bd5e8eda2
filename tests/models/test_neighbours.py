"""Regression on neighbours: the exact model where all rows are neighbours, and of few rows else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels
from gpflow.kernels import SeparateIndependent, SharedIndependent

from gpflow_ilr.models import ILRNNGPR, neighbours
from tests.models.oracles import (
    NEIGHBOURS,
    NOISES,
    SMOOTHING,
    XNEW,
    K,
    X,
    Y,
    build,
    gradients,
    kernel,
    reference,
)

N, M = len(X), 5
EACH = [(name, noise) for name in NEIGHBOURS for noise in NOISES]
SOFT = np.random.default_rng(3).dirichlet(np.ones(K), size=N)
SOFT[:4] = np.eye(K)[[0, 1, 2, 0]]  # certain rows among uncertain ones
LINEAR = gpflow.functions.Linear(np.array([[0.1, 0.2], [-0.3, 0.4]]), np.array([0.5, -0.1]))


def pair(name: str, noise: str = "fixed", k: Any = None, **options: Any) -> tuple[Any, Any]:
    """A model with all rows as neighbours, and the exact model, with kernels of their own."""
    k = k or kernel
    exact = build(name.replace("NN", ""), noise, k=k(), objective="loo", **options)
    return build(name, noise, k=k(), **options), exact


def assert_equal(ours: Any, theirs: Any, atol: float = 1e-9) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


def assert_same_model(model: Any, exact: Any) -> None:
    """In predictions, leave-one-out, objective and gradient, to 1e-9."""
    Xnew = np.concatenate([XNEW, X[:2]])  # some rows are training rows
    assert_equal(model.predict_f(Xnew), exact.predict_f(Xnew))
    assert_equal(model.predict_y(Xnew), exact.predict_y(Xnew))
    assert_equal(model.predict_loo(), exact.predict_loo())
    np.testing.assert_allclose(model.training_loss(), exact.training_loss(), rtol=1e-9)
    variables, others = model.trainable_variables, exact.trainable_variables
    assert len(variables) == len(others) > 1
    ours, theirs = gradients(model.training_loss, variables), gradients(exact.training_loss, others)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


# All rows as neighbours: the exact model


@pytest.mark.parametrize(("name", "noise"), EACH)
def test_with_all_rows_as_neighbours_it_is_the_exact_model(name, noise) -> None:
    assert_same_model(*pair(name, noise))


@pytest.mark.parametrize("mean", [gpflow.functions.Constant([0.3]), LINEAR], ids=["one", "each"])
def test_mean_functions_are_those_of_the_exact_model(mean) -> None:
    assert_same_model(*pair("ILRNNGPR", "per_class", mean_function=mean))


@pytest.mark.parametrize("noise", ["fixed", "per_output"])
def test_soft_labels_are_those_of_the_exact_model(noise) -> None:
    assert_same_model(*pair("ILRNNGPR", noise, data=(X, SOFT), mean_function=LINEAR))


@pytest.mark.parametrize(
    ("name", "noise"), [("ILRNNGPR", "per_class"), ("DirichletNNGPR", "fixed")]
)
def test_soft_labels_are_refused_where_the_noise_depends_on_the_class(name, noise) -> None:
    with pytest.raises(ValueError, match="Soft labels need"):
        build(name, noise, data=(X, SOFT))


@pytest.mark.parametrize(("name", "noise"), [("ILRNNGPR", "shared"), ("DirichletNNGPR", "fixed")])
def test_each_output_may_have_a_kernel_of_its_own(name, noise) -> None:
    P = K - 1 if name == "ILRNNGPR" else K

    def separate() -> Any:
        return SeparateIndependent(
            [kernels.Matern32(0.3 + p, lengthscales=[1.0 + p, 2.0]) for p in range(P)]
        )

    assert_same_model(*pair(name, noise, k=separate, mean_function=gpflow.functions.Constant(0.2)))


KERNELS: dict[str, Callable[[], kernels.Kernel]] = {
    "RationalQuadratic": lambda: kernels.RationalQuadratic(0.7, 1.2, alpha=0.8),
    "Exponential": lambda: kernels.Exponential(0.7, [1.2, 0.6]),
    "Matern12": lambda: kernels.Matern12(0.7, active_dims=[1]),
    "Matern32": lambda: kernels.Matern32(0.7, 0.9),
    "Matern52": lambda: kernels.Matern52(0.7, [0.9, 3.0]),
    "Cosine": lambda: kernels.Cosine(0.7, 2.0),
    "Linear": lambda: kernels.Linear([0.5, 0.2]),
    "Polynomial": lambda: kernels.Polynomial(2, 0.3, offset=0.7),
    "ArcCosine 0": lambda: kernels.ArcCosine(order=0, variance=0.5),
    "ArcCosine 1": lambda: kernels.ArcCosine(order=1, weight_variances=[0.5, 1.5]),
    "ArcCosine 2": lambda: kernels.ArcCosine(order=2, variance=0.3),
    "Periodic": lambda: kernels.Periodic(kernels.Matern32(0.6, 0.8), period=2.0),
    "Constant": lambda: kernels.Constant(0.4) + kernels.Matern32(0.5),
    "White": lambda: kernels.Matern32(0.5) + kernels.White(0.1),
    "sum": lambda: kernels.Linear(0.5) + kernels.Matern12(0.4, active_dims=[1]),
    "product": lambda: (
        kernels.SquaredExponential(0.9, active_dims=[0])
        * kernels.Polynomial(2, 0.2, active_dims=[1])
    ),
    "SharedIndependent": lambda: SharedIndependent(kernels.Matern52(0.7), K - 1),
}


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_predicts_as_in_the_exact_model(name) -> None:
    model, exact = pair("ILRNNGPR", "shared", k=KERNELS[name])
    # An angle of zero is the arc cosine of one, of which rounding leaves half the digits.
    atol = 1e-6 if name == "ArcCosine 0" else 1e-9
    assert_equal(model.predict_f(XNEW), exact.predict_f(XNEW), atol)
    assert_equal(model.predict_loo(), exact.predict_loo(), atol)
    ours = gradients(model.training_loss, model.trainable_variables)
    theirs = gradients(exact.training_loss, exact.trainable_variables)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=10 * atol)


def test_kernels_that_want_one_column_predict_as_in_the_exact_model() -> None:
    def change() -> kernels.Kernel:
        parts = [kernels.Matern32(0.5), kernels.Matern32(0.3, 3.0)]
        return kernels.ChangePoints(parts, [0.2], steepness=2.0)

    model, exact = pair("ILRNNGPR", k=change, data=(X[:, :1], Y))
    assert_equal(model.predict_f(XNEW[:, :1]), exact.predict_f(XNEW[:, :1]))
    assert_equal(model.predict_loo(), exact.predict_loo())


# Few neighbours: the exact model of those


def nearest(k: Any, x: Any, rows: Any, count: int = M) -> Any:
    """Of some numbers of rows those nearest to x, once inputs are divided by lengthscales."""
    distances = np.sum(((X[rows] - x) / k.lengthscales.numpy()) ** 2, axis=1)
    return rows[np.argsort(distances)[:count]]


def assert_predicted_by_neighbours(model: Any, k: Any, labels: Any, p: Any = slice(None)) -> None:
    mean, var = (x.numpy()[:, p] for x in model.predict_f(XNEW))
    loo_mean, loo_var = (x.numpy()[:, p] for x in model.predict_loo())
    everything = np.arange(N)

    def exact(S: Any, x: Any) -> tuple[Any, Any]:
        found = reference(model, (X[S], labels[S]), x[None])
        return found.mean.numpy()[0, p], found.covariance.numpy()[p, 0, 0]

    for n, x in enumerate(XNEW):
        assert_equal((mean[n], var[n]), exact(nearest(k, x, everything), x))
    for n in range(0, N, 3):
        S = nearest(k, X[n], np.delete(everything, n))
        assert_equal((loo_mean[n], loo_var[n]), exact(S, X[n]))


@pytest.mark.parametrize(
    ("name", "noise", "labels"),
    [
        ("ILRNNGPR", "per_output", Y),
        ("ILRNNGPR", "per_class", Y),
        ("ILRNNGPR", "shared", SOFT),
        ("DirichletNNGPR", "fixed", Y),
    ],
)
def test_few_neighbours_are_the_exact_model_of_those(name, noise, labels) -> None:
    options = {"mean_function": LINEAR} if name == "ILRNNGPR" else {}
    model = build(name, noise, data=(X, labels), num_neighbours=M, **options)
    assert_predicted_by_neighbours(model, model.kernel, labels)


def test_each_output_has_the_neighbours_of_its_own_kernel() -> None:
    parts = [kernels.Matern32(0.5, [0.2, 4.0]), kernels.Matern32(0.8, [4.0, 0.2])]
    model = build("ILRNNGPR", k=SeparateIndependent(parts), num_neighbours=M)
    for p, part in enumerate(parts):
        assert_predicted_by_neighbours(model, part, Y, p)


def test_leading_dimensions_and_full_output_covariances_are_those_of_rows() -> None:
    model = build("ILRNNGPR", num_neighbours=M)
    stacked = np.stack([XNEW, XNEW[::-1]])
    mean, var = model.predict_f(stacked)
    assert_equal((mean[0], var[0]), model.predict_f(XNEW), 1e-12)
    assert_equal((mean[1], var[1]), model.predict_f(XNEW[::-1]), 1e-12)
    full = model.predict_f(XNEW, full_output_cov=True)[1]
    np.testing.assert_allclose(tf.linalg.diag_part(full), var[0], atol=1e-12)


def test_rows_in_chunks_are_rows_at_once(monkeypatch) -> None:
    model = build("ILRNNGPR", "per_output", num_neighbours=M)
    variables = model.trainable_variables
    at_once = [*model.predict_f(XNEW), *model.predict_loo()]
    slope = gradients(model.training_loss, variables)
    monkeypatch.setattr(neighbours, "_CHUNK_ELEMENTS", 200)
    assert_equal([*model.predict_f(XNEW), *model.predict_loo()], at_once, 1e-12)
    for a, b in zip(gradients(model.training_loss, variables), slope, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


# Rows that occur several times


@pytest.mark.parametrize("labels", [Y, SOFT], ids=["hard", "soft"])
def test_of_duplicated_rows_one_is_left_out(labels) -> None:
    data = np.concatenate([X, X, X]), np.concatenate([labels, labels, labels[::-1]])
    model, exact = pair("ILRNNGPR", data=data)
    assert_equal(model.predict_loo(), exact.predict_loo(), 1e-8)
    model.num_neighbours = 2  # a copy with its own label and one with another; ties are equals
    mean, _ = model.predict_loo()
    for n in (1, N + 1):
        S = np.array([{1: N + 1, N + 1: 1}[n], 2 * N + 1])
        expected = reference(model, (data[0][S], data[1][S]), data[0][[n]]).mean
        np.testing.assert_allclose(mean[n], expected[0], atol=1e-9)


def test_more_copies_than_neighbours_leave_one_of_them_out_too() -> None:
    data = np.repeat(X[:2], 6, axis=0), np.repeat([0, 1], 6)
    model = build("ILRNNGPR", data=data, num_neighbours=3)
    for n, S in ((0, [1, 2, 3]), (7, [8, 9, 10])):
        expected = reference(model, (data[0][S], data[1][S]), data[0][[n]])
        np.testing.assert_allclose(model.predict_loo()[0][n], expected.mean[0], atol=1e-9)


@pytest.fixture(name="model", scope="module")
def _model() -> Any:
    return build("ILRNNGPR", "shared", num_neighbours=M)


# Posteriors, streams and compiled predictions


@pytest.mark.parametrize("cache", ["tensor", "variable"])
def test_a_posterior_predicts_as_its_model_and_keeps_its_rows(cache) -> None:
    model = build("ILRNNGPR", "shared", data=(X[:12], Y[:12]), num_neighbours=M)
    posterior = model.posterior(cache)
    before = [*model.predict_f(XNEW), *model.predict_y(XNEW)]
    assert_equal([*posterior.predict_f(XNEW), *posterior.predict_y(XNEW)], before, 1e-12)
    model.update(X[12:], Y[12:])
    whole = [*model.predict_f(XNEW), *model.predict_y(XNEW)]
    assert np.max(np.abs(whole[0] - before[0])) > 0.01
    assert_equal([*posterior.predict_f(XNEW), *posterior.predict_y(XNEW)], before, 1e-12)
    if cache == "variable":  # which may not change its shape
        model.forget(X[6:12], Y[6:12])
        whole = [*model.predict_f(XNEW), *model.predict_y(XNEW)]
    posterior.update_cache()
    assert_equal([*posterior.predict_f(XNEW), *posterior.predict_y(XNEW)], whole, 1e-12)


def test_a_posterior_without_cache_predicts_from_the_present_rows() -> None:
    model = build("ILRNNGPR", data=(X[:12], Y[:12]), num_neighbours=M)
    posterior = model.posterior("nocache")
    assert_equal(posterior.fused_predict_f(XNEW), model.predict_f(XNEW), 1e-12)
    model.update(X[12:], Y[12:])
    assert_equal(posterior.fused_predict_f(XNEW), model.predict_f(XNEW), 1e-12)


@pytest.mark.parametrize("labels", [Y, SOFT], ids=["hard", "soft"])
def test_update_and_forget_equal_a_model_built_on_the_changed_data(labels) -> None:
    model = build("ILRNNGPR", data=(X[:12], labels[:12]), num_neighbours=M)
    model.training_loss()  # an index is kept from here on
    model.update(X[12:], labels[12:])
    for rest in (np.arange(N), np.r_[0:3, 9:N]):
        if len(rest) < N:
            model.forget(X[3:9], labels[3:9])
        built = build("ILRNNGPR", data=(X[rest], labels[rest]), num_neighbours=M)
        assert model.num_data == len(rest)
        assert_equal(model.predict_f(XNEW), built.predict_f(XNEW), 1e-12)
        assert_equal(model.predict_loo(), built.predict_loo(), 1e-12)
        np.testing.assert_allclose(model.training_loss(), built.training_loss(), rtol=1e-12)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", NEIGHBOURS)
def test_compiled_predictions_equal_eager_ones(name, jit) -> None:
    model = build(name, "shared", num_neighbours=M)

    def predict(Xnew: tf.Tensor) -> list[tf.Tensor]:
        return [*model.predict_f(Xnew), model.predict_y(Xnew)[0]]

    compiled = tf.function(predict, autograph=False, jit_compile=jit)
    assert_equal(compiled(tf.constant(XNEW)), predict(tf.constant(XNEW)), 1e-10)


@pytest.mark.parametrize("ask", ["predict_f", "predict_f_samples", "predict_probability_samples"])
def test_covariances_between_rows_are_refused_with_what_to_do(ask, model) -> None:
    for predictor in (model, model.posterior()):
        with pytest.raises(NotImplementedError, match="Pass full_cov=False, or use ILRGPR"):
            getattr(predictor, ask)(XNEW, full_cov=True)


def test_rows_may_be_drawn_each_by_itself(model) -> None:
    draws = model.predict_f_samples(XNEW, 4000, full_cov=False).numpy()
    mean, var = model.predict_f(XNEW)
    errors = (np.mean(draws, axis=0) - mean) / np.sqrt(var / 4000)
    assert np.max(np.abs(errors)) < 4.5
    np.testing.assert_allclose(np.var(draws, axis=0), var, rtol=0.15)


def test_there_is_no_evidence(model) -> None:
    with pytest.raises(NotImplementedError, match=r"ILRNNGPR has no evidence.*loo_log_density"):
        model.log_evidence()


# The ends of the range


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_one_training_row_predicts_others_and_leaves_the_prior_to_itself(name) -> None:
    model, exact = pair(name, "shared", data=(X[:1], Y[:1]))
    assert_equal(model.predict_f(XNEW), exact.predict_f(XNEW))
    assert_equal(model.predict_loo(), exact.predict_loo())
    np.testing.assert_allclose(model.training_loss(), exact.training_loss(), rtol=1e-9)
    for gradient in gradients(model.training_loss, model.trainable_variables):
        assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("value", [0, -1, 2.0, True, None, "5"])
def test_a_number_of_neighbours_that_makes_no_sense_is_refused(value, model) -> None:
    with pytest.raises(ValueError, match="num_neighbours must be an integer of at least 1"):
        ILRNNGPR((X, Y), kernel(), num_classes=K, num_neighbours=value)
    with pytest.raises(ValueError, match="num_neighbours must be an integer of at least 1"):
        model.num_neighbours = value
    assert model.num_neighbours == M


def test_the_number_of_neighbours_may_be_changed() -> None:
    model = build("ILRNNGPR", num_neighbours=2)
    closure = model.training_loss_closure()
    closure()
    model.num_neighbours = np.int64(M)
    other = build("ILRNNGPR", num_neighbours=M)
    assert_equal(model.predict_f(XNEW), other.predict_f(XNEW), 1e-12)
    np.testing.assert_allclose(model.training_loss(), other.training_loss(), rtol=1e-12)
    np.testing.assert_allclose(closure(), other.training_loss(), rtol=1e-12)


def test_leave_one_out_at_several_counts_and_noises_is_that_of_models_with_them() -> None:
    model = build("ILRNNGPR", data=(X, Y), num_neighbours=M)
    rows = tf.constant([0, 7, 3])
    for count, found in zip([1, 6, 3], model.loo_at_counts(rows, [1, 6, 3]), strict=True):
        other = build("ILRNNGPR", num_neighbours=count)
        assert_equal(found[:2], other.leave_one_out(rows), 1e-11)
        np.testing.assert_array_equal(found.labels, Y[[0, 7, 3]])
    noises = [0.07, 0.4]
    for noise, found in zip(noises, model.loo_at_noise(rows)(noises), strict=True):
        other = ILRNNGPR(
            (X, Y),
            kernel(),
            num_classes=K,
            num_neighbours=M,
            smoothing=SMOOTHING,
            noise_variance=noise,
        )
        assert_equal(found[:2], other.leave_one_out(rows), 1e-11)


@pytest.mark.parametrize(
    ("name", "noise"), [("ILRNNGPR", "per_output"), ("DirichletNNGPR", "shared")]
)
def test_float32_is_float64_up_to_rounding(name, noise) -> None:
    double = build(name, noise, num_neighbours=M)
    expected = [double.predict_y(XNEW)[0], double.predict_loo()[0], double.training_loss()]
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        single = build(name, noise, num_neighbours=M)
        found = [single.predict_y(XNEW)[0], single.predict_loo()[0], single.training_loss()]
        batch = single.training_loss_closure((X, Y))()
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == tf.float32
        # Rounding of 1e-7 times the condition number of K + V, at most 5 · 0.6 / 0.02 = 150.
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-4)
    np.testing.assert_allclose(batch, found[2], rtol=1e-6)
