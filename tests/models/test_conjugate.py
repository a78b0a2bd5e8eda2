"""The conjugate classifiers are GPflow models: whatever works on GPR and SGPR works on them."""

from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.keras import tf_keras
from gpflow.kernels import LinearCoregionalization, SeparateIndependent
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from gpflow.utilities import deepcopy, freeze, multiple_assign, parameter_dict, read_values

from tests.models.moved import assert_same_predictions, each, move
from tests.models.oracles import (
    MODELS,
    ONE_EACH,
    XNEW,
    X,
    Y,
    Z,
    build,
    gradients,
    kernel,
    one_hot,
    reference,
)


@each
def test_losses_are_the_same_however_they_are_asked_for(name, noise):
    model = build(name, noise)
    assert isinstance(model, gpflow.models.GPModel)
    assert isinstance(model, InternalDataTrainingLossMixin)
    expected = float(model.training_loss())
    losses = [
        -model.maximum_log_likelihood_objective(),
        model.training_loss_closure(compile=False)(),
        model.training_loss_closure()(),
        gpflow.models.training_loss(model, model.data),
        gpflow.models.training_loss_closure(model, model.data, compile=False)(),
    ]
    np.testing.assert_allclose(losses, expected, rtol=1e-12)


def train(how: str, model: Any) -> None:
    loss = model.training_loss_closure()
    variables = model.trainable_variables
    if how == "Scipy":
        options = {"maxiter": 5}
        gpflow.optimizers.Scipy().minimize(loss, variables, options=options, compile=True)
    elif how == "tf_keras":
        optimizer = tf_keras.optimizers.Adam(0.05)
        for _ in range(5):
            optimizer.minimize(loss, variables)
    else:
        optimizer = keras.optimizers.Adam(0.05)
        for _ in range(5):
            with tf.GradientTape() as tape:
                value = loss()
            optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))


@pytest.mark.parametrize(
    ("how", "name", "noise"),
    [
        *(("Scipy", *pair) for pair in ONE_EACH),
        ("tf_keras", "ILRGPR", "per_class"),
        ("Keras 3", "ILRSGPR", "shared"),
    ],
)
def test_optimisers_of_every_kind_lower_the_loss_and_leave_what_is_fixed(how, name, noise):
    model = build(name, noise, mean_function=gpflow.functions.Constant([0.1]))
    gpflow.set_trainable(model.kernel.variance, False)
    before, start = float(model.training_loss()), read_values(model)
    train(how, model)
    assert float(model.training_loss()) < before - 0.1
    moved = {
        key for key, value in read_values(model).items() if not np.array_equal(value, start[key])
    }
    trained = {key for key, p in parameter_dict(model).items() if p.trainable}
    assert moved == trained
    assert ".kernel.variance" not in trained


def test_priors_enter_the_loss_and_samplers_find_the_posterior_density():
    model = build("ILRSGPR", "shared")
    before = float(model.training_loss())
    model.kernel.variance.prior = tfp.distributions.LogNormal(np.float64(0.0), np.float64(1.0))
    density = float(model.kernel.variance.prior.log_prob(model.kernel.variance))
    np.testing.assert_allclose(model.training_loss(), before - density, rtol=1e-12)
    np.testing.assert_allclose(model.log_posterior_density(), density - before, rtol=1e-12)
    for part in (model.kernel.lengthscales, model.inducing_variable, model.code):
        gpflow.set_trainable(part, False)
    helper = gpflow.optimizers.SamplingHelper(model.log_posterior_density, [model.kernel.variance])
    _, (slope,) = tf.function(
        lambda: tfp.math.value_and_gradient(helper.target_log_prob_fn, helper.current_state),
        autograph=False,
    )()
    x = model.kernel.variance.unconstrained_variable

    def unconstrained_density() -> tf.Tensor:
        jacobian = model.kernel.variance.transform.forward_log_det_jacobian(x, 0)
        return model.log_posterior_density() + jacobian

    np.testing.assert_allclose(slope, gradients(unconstrained_density, [x])[0], rtol=1e-9)


def run_with_monitor(model: Any, *tasks: Any) -> None:
    monitor = gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup(list(tasks)))
    variables, options = model.kernel.trainable_variables, {"maxiter": 2}
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, variables, options=options, compile=False, step_callback=monitor
    )


def test_monitors_watch_the_training():
    model = build("ILRSGPR", "per_class")
    seen: list[float] = []
    run_with_monitor(
        model, gpflow.monitor.ExecuteCallback(lambda: seen.append(float(model.training_loss())))
    )
    assert len(seen) == 2
    assert seen[1] < seen[0]


def test_monitors_write_parameters_to_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    model = build("DirichletSGPR", "per_output")
    run_with_monitor(
        model,
        gpflow.monitor.ModelToTensorBoard(str(tmp_path), model),
        gpflow.monitor.ScalarToTensorBoard(str(tmp_path), model.training_loss, "loss"),
    )
    assert any(tmp_path.rglob("events*"))


@each
def test_summaries_list_every_parameter_once(name, noise, capsys):
    model = build(name, noise)
    gpflow.utilities.print_summary(model)
    printed = capsys.readouterr().out
    for key in parameter_dict(model):
        assert printed.count(type(model).__name__ + key) == 1
    assert ("extra_noise" in printed) == (noise != "fixed")
    assert ("sharpness" in printed) == name.startswith("ILR")


@each
def test_predictions_leave_the_models_parameters_as_they_are(name, noise):
    model = build(name, noise)
    before = list(parameter_dict(model))
    model.predict_y(XNEW)
    model.predict_loo()
    assert list(parameter_dict(model)) == before
    assert len(model.trainable_variables) == len({id(v) for v in model.trainable_variables})


@each
def test_parameters_can_be_carried_to_another_model(name, noise, tmp_path):
    model, other = build(name, noise), build(name, noise)
    other.predict_f(XNEW)
    move(model)
    model.predict_f(XNEW)
    multiple_assign(other, parameter_dict(model))
    assert_same_predictions(other, model)
    restored = build(name, noise)
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "model"))
    tf.train.Checkpoint(model=restored).read(path).assert_existing_objects_matched()
    assert_same_predictions(restored, model)


@each
def test_deep_copies_predict_the_same_and_are_independent(name, noise):
    model = build(name, noise)
    before = model.predict_f(XNEW)[0]
    copy = deepcopy(model)
    assert_same_predictions(copy, model)
    np.testing.assert_allclose(copy.training_loss(), model.training_loss(), rtol=1e-12)
    move(copy)
    assert np.max(np.abs(copy.predict_f(XNEW)[0] - before)) > 1e-3
    np.testing.assert_array_equal(model.predict_f(XNEW)[0], before)


@each
def test_frozen_models_predict_the_same_and_have_nothing_to_train(name, noise):
    model = build(name, noise)
    frozen = freeze(model)
    assert not frozen.trainable_variables
    assert_same_predictions(frozen, model)
    np.testing.assert_allclose(frozen.training_loss(), model.training_loss(), rtol=1e-12)
    np.testing.assert_allclose(frozen.predict_y(XNEW)[0], model.predict_y(XNEW)[0])


@pytest.mark.parametrize(("name", "noise"), [*ONE_EACH, ("ILRGPR", "per_output")])
def test_covariances_have_gpflows_shapes_and_agree_with_each_other(name, noise):
    model = build(name, noise)
    P, n = model.num_latent_gps, len(XNEW)
    batch = np.stack([XNEW, XNEW[::-1] + 0.1])
    for predictor in (model, model.posterior()):
        mean, var = predictor.predict_f(XNEW)
        both = predictor.predict_f(XNEW, full_cov=True, full_output_cov=True)[1]
        rows = predictor.predict_f(XNEW, full_cov=True)[1]
        outputs = predictor.predict_f(XNEW, full_output_cov=True)[1]
        assert [x.shape for x in (mean, var, both, rows, outputs)] == [
            (n, P), (n, P), (n, P, n, P), (P, n, n), (n, P, P)
        ]  # fmt: skip
        assert np.all(var.numpy() > 0)
        np.testing.assert_allclose(np.einsum("pnn->np", rows), var, atol=1e-9)
        np.testing.assert_allclose(np.einsum("npp->np", outputs), var, atol=1e-9)
        np.testing.assert_allclose(np.einsum("npmp->pnm", both), rows, atol=1e-9)
        off_diagonal = outputs * (1 - np.eye(P))
        np.testing.assert_array_equal(off_diagonal, np.zeros((n, P, P)))
        for full_cov in (False, True):
            whole = predictor.predict_f(batch, full_cov=full_cov)
            part = predictor.predict_f(batch[1], full_cov=full_cov)
            for a, b in zip(whole, part, strict=True):
                np.testing.assert_allclose(a[1], b, atol=1e-9)


@each
def test_samples_of_the_latent_functions_have_the_posteriors_moments(name, noise):
    model = build(name, noise)
    tf.random.set_seed(0)
    S = 4000
    f = model.predict_f_samples(XNEW, num_samples=S).numpy()
    expected = reference(model)
    sd = np.sqrt(np.einsum("pnn->pn", expected.covariance))
    error = (np.mean(f, axis=0) - expected.mean.numpy()).T / (sd / np.sqrt(S))
    assert np.max(np.abs(error)) < 4.5
    for p in range(model.num_latent_gps):
        sampled = np.cov(f[:, :, p].T)
        # Var of a sample covariance: (Σ_ii Σ_jj + Σ_ij²)/S.
        se = np.sqrt((np.outer(sd[p], sd[p]) ** 2 + expected.covariance[p].numpy() ** 2) / S)
        assert np.max(np.abs(sampled - expected.covariance[p]) / se) < 4.5


@each
def test_inputs_of_every_dtype_and_labels_of_every_form_are_the_same_data(name, noise):
    integers = np.round(3 * X).astype(np.int64)
    expected = build(name, noise, data=(integers.astype(float), Y))
    new = np.round(3 * XNEW).astype(np.int32)
    p, loss = expected.predict_y(new.astype(float))[0], expected.training_loss()
    for inputs, labels in (
        (integers, Y),
        (integers.astype(np.int8), Y[:, None]),
        (integers.astype(np.float32), one_hot(Y)),
        (integers.tolist(), Y.tolist()),
        (tf.constant(integers), tf.constant(Y, tf.float32)),
    ):
        model = build(name, noise, data=(inputs, labels))
        np.testing.assert_allclose(model.training_loss(), loss, rtol=1e-12)
    for cast in (np.int32, np.float32):
        np.testing.assert_allclose(expected.predict_y(new.astype(cast))[0], p, atol=1e-12)
    assert expected.posterior().predict_f(new)[0].dtype == tf.float64


@each
def test_data_may_be_replaced(name, noise):
    model = build(name, noise)
    model.predict_f(XNEW)
    model.data = X[4:], one_hot(Y[4:])
    other = build(name, noise, data=(X[4:], Y[4:]))
    assert_same_predictions(model, other)
    np.testing.assert_allclose(model.training_loss(), other.training_loss(), rtol=1e-12)
    with pytest.raises(ValueError, match="X must be finite"):
        model.data = X * np.inf, Y
    assert_same_predictions(model, other)


NAN = np.where(np.arange(len(X))[:, None] == 3, np.nan, X)
ONE_SET = SeparateIndependentInducingVariables([InducingPoints(Z)])
ANY, ILR, GPD, SPARSE = (
    MODELS,
    ["ILRGPR", "ILRSGPR"],
    ["DirichletGPR"],
    ["ILRSGPR", "DirichletSGPR"],
)


@pytest.mark.parametrize(
    ("names", "options", "error", "sentence"),
    [
        (ANY, {"data": X}, ValueError, r"data must be a pair \(X, y\)"),
        (ANY, {"data": (X, Y, None, Y)}, ValueError, r"data must be a pair \(X, y\)"),
        (ANY, {"data": (X[:, 0], Y)}, ValueError, r"X must have shape \[N, D\].*X\[:, None\]"),
        (ANY, {"data": (NAN, Y)}, ValueError, "X must be finite, but row 3"),
        (ANY, {"data": (X.astype(str), Y)}, TypeError, "X must hold real numbers.*string"),
        (ANY, {"data": (X + 1j, Y)}, TypeError, "X must hold real numbers.*complex128"),
        (ANY, {"data": (X, Y[1:])}, ValueError, "17.*18|18.*17"),
        (ANY, {"data": (X, Y + 1)}, ValueError, r"0\.\.2.*row 2 has label 3"),
        (ANY, {"data": (X, Y - 0.5)}, ValueError, "label"),
        (ANY, {"data": (X[:0], Y[:0])}, ValueError, "at least one row"),
        (ANY, {"num_classes": 1}, ValueError, "num_classes"),
        (ANY, {"num_classes": 2.5}, (ValueError, TypeError), "num_classes"),
        (ANY, {"noise": "free"}, ValueError, "noise must be one of .*'per_class'.*'free'"),
        (ANY, {"k": "rbf"}, TypeError, "kernel must be a GPflow kernel.*'rbf'"),
        (
            ANY,
            {"k": SeparateIndependent([kernel()])},
            ValueError,
            "for 1 latent functions",
        ),
        (ANY, {"k": LinearCoregionalization([kernel()] * 2, np.eye(2))}, TypeError, "mixes"),
        (ILR, {"tolerance": 0.0}, ValueError, "tolerance .* but is 0"),
        (ILR, {"tolerance": 1.5}, ValueError, "tolerance .* but is 1.5"),
        (ILR, {"noise_variance": -1.0}, ValueError, "noise_variance .* but is -1"),
        (ILR, {"noise_variance": np.inf}, ValueError, "noise_variance .* but is inf"),
        (GPD, {"alpha_epsilon": 0.0}, ValueError, "alpha_epsilon .* but is 0"),
        (SPARSE, {"chunk_size": 0}, ValueError, "chunk_size must be .* but is 0"),
        (SPARSE, {"chunk_size": 2.5}, ValueError, "chunk_size must be .* but is 2.5"),
        (SPARSE, {"inducing_variable": np.ones((4, 3))}, ValueError, r"\[M, 2\].*\[4, 3\]"),
        (
            SPARSE,
            {"inducing_variable": Z[:0]},
            ValueError,
            r"at least one row .*\[0, 2\]",
        ),
        (
            SPARSE,
            {"inducing_variable": ONE_SET},
            ValueError,
            "has 1 separate sets, but the model has",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(names, options, error, sentence):
    for name in names:
        with pytest.raises(error, match=sentence):
            build(name, **options)
