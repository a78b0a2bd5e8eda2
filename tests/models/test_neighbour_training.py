"""Nearest-neighbour models are trained on leave-one-out: gradients, batches and their neighbours."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels

from gpflow_ilr.calibration.criterion import Marginals, label_nll
from gpflow_ilr.inputs import LabelledRows
from gpflow_ilr.models.neighbours import STALE_METRIC
from tests.models.oracles import (
    XNEW,
    K,
    X,
    Y,
    build,
    gradients,
)
from tests.models.test_neighbours import SOFT, M, N, assert_equal


@pytest.mark.parametrize(
    ("name", "noise"), [("ILRNNGPR", "per_output"), ("DirichletNNGPR", "per_class")]
)
def test_gradients_of_the_loss_are_those_of_finite_differences(name, noise) -> None:
    model = build(name, noise, num_neighbours=M, mean_function=gpflow.functions.Constant([0.2]))
    loss = model.training_loss_closure((X[:3], Y[:3]), compile=False)
    variables = model.trainable_variables
    step = 1e-5
    for variable, ours in zip(variables, gradients(loss, variables), strict=True):
        flat, start = np.ravel(ours), variable.numpy()
        for i in range(min(len(flat), 2)):
            move = step * np.reshape(np.eye(len(flat))[i], start.shape)
            ends = []
            for sign in (-1, 1):
                variable.assign(start + sign * move)
                ends.append(float(loss()))
            variable.assign(start)
            theirs = (ends[1] - ends[0]) / (2 * step)
            np.testing.assert_allclose(flat[i], theirs, rtol=1e-5, atol=1e-6)


@pytest.fixture(name="model", scope="module")
def _model() -> Any:
    return build("ILRNNGPR", "shared", num_neighbours=M)


@pytest.fixture(name="full", scope="module")
def _full(model: Any) -> float:
    return float(model.training_loss())


def test_the_loss_is_the_leave_one_out_nll(model, full) -> None:
    held_out = Marginals(*model.leave_one_out(), model.labels)
    nll = label_nll(held_out, model.code.link, model.code.scale)
    np.testing.assert_allclose(full, np.sum(nll), rtol=1e-12)
    for compile_ in (False, True):
        closure = model.training_loss_closure(compile=compile_)
        np.testing.assert_allclose(closure(), full, rtol=1e-12)


def test_the_mean_over_batches_of_each_row_is_the_full_loss(model, full) -> None:
    rows = iter([(X[[n]], Y[[n]]) for n in range(N)])
    closure = model.training_loss_closure(rows)
    np.testing.assert_allclose(np.mean([closure() for _ in range(N)]), full, rtol=1e-12)
    with pytest.raises(StopIteration):
        closure()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("labels", [Y, SOFT], ids=["hard", "soft"])
def test_training_rows_that_are_given_as_data_are_left_out(labels, dtype) -> None:
    model = build("ILRNNGPR", data=(X, labels), num_neighbours=M)
    given = labels.astype(dtype) if labels.ndim == 2 else labels
    loss = model.training_loss_closure((X.astype(dtype), given))()
    # What is predicted is a row that is off by its rounding.
    np.testing.assert_allclose(loss, model.training_loss(), rtol=10 * np.finfo(dtype).eps)


@pytest.mark.parametrize("labels", [Y, SOFT], ids=["hard", "soft"])
def test_unseen_rows_are_predicted_as_they_are(labels) -> None:
    model = build("ILRNNGPR", data=(X, labels), num_neighbours=M)
    y = np.array([0, 2, 1, 0, 2])
    mean, _ = model.predict_marginals(XNEW)
    held_out = model.held_out(LabelledRows(tf.constant(XNEW), tf.constant(y, tf.int32)))
    np.testing.assert_allclose(held_out.mean, mean / model.code.scale, rtol=1e-12)
    expected = -float(model.label_log_density(held_out)) * N / len(XNEW)
    for given in (y, np.eye(K)[y]):
        loss = model.training_loss_closure((XNEW, given), compile=False)()
        np.testing.assert_allclose(loss, expected, rtol=1e-10)


def test_a_row_with_the_inputs_of_another_but_not_its_label_is_unseen(model) -> None:
    other = (Y[:3] + 1) % K
    held_out = model.held_out(LabelledRows(tf.constant(X[:3]), tf.constant(other, tf.int32)))
    expected = -float(model.label_log_density(held_out)) * N / 3
    loss = model.training_loss_closure((X[:3], other), compile=False)()
    np.testing.assert_allclose(loss, expected, rtol=1e-10)


def test_certain_and_soft_batches_may_be_given_to_either_model() -> None:
    soft = build("ILRNNGPR", data=(X, SOFT), num_neighbours=M)
    whole = float(soft.training_loss())
    certain = soft.training_loss_closure((X[:4], SOFT[:4]), compile=False)() * 4 / N
    others = soft.training_loss_closure((X[4:], SOFT[4:]), compile=False)() * (N - 4) / N
    np.testing.assert_allclose(certain + others, whole, rtol=1e-10)
    hard = build("ILRNNGPR", num_neighbours=M)
    none_is_a_training_row = LabelledRows(tf.constant(X[4:]), tf.constant(SOFT[4:]))
    held_out = hard.held_out(none_is_a_training_row)
    expected = -float(hard.label_log_density(held_out)) * N / (N - 4)
    loss = hard.training_loss_closure((X[4:], SOFT[4:]), compile=False)()
    np.testing.assert_allclose(loss, expected, rtol=1e-10)


def pipeline(labels: Any, batch: int, **options: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices((X, labels)).batch(batch, **options).repeat()


@pytest.mark.parametrize("labels", [Y, Y[:, None], np.eye(K)[Y]], ids=["[N]", "[N, 1]", "[N, K]"])
def test_a_pipeline_gives_batches(labels, model, full) -> None:
    closure = model.training_loss_closure(iter(pipeline(labels, 9)), compile=labels is Y)
    losses = [float(closure()) for _ in range(4)]
    np.testing.assert_allclose(np.mean(losses[:2]), full, rtol=1e-12)
    np.testing.assert_allclose(losses[2:], losses[:2], rtol=1e-12)


@pytest.mark.parametrize(("labels", "static"), [(Y, False), (SOFT, True)], ids=["hard", "soft"])
def test_a_users_function_may_compile_the_loss_and_its_gradient(labels, static) -> None:
    model = build("ILRNNGPR", data=(X, labels), num_neighbours=M)
    closure = model.training_loss_closure(iter(pipeline(labels, 9, drop_remainder=static)))
    variables = model.trainable_variables

    @tf.function(autograph=False)
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = closure()
        return loss, tape.gradient(loss, variables)

    (first, slope), (second, other) = step(), step()
    np.testing.assert_allclose((first + second) / 2, model.training_loss(), rtol=1e-10)
    expected = gradients(model.training_loss, variables)
    for a, b, c in zip(slope, other, expected, strict=True):
        np.testing.assert_allclose((a + b) / 2, c, rtol=1e-8, atol=1e-9)


def test_drawn_batches_are_unbiased(model, full) -> None:
    closure = model.training_loss_closure(batch_size=6)
    losses = [float(closure()) for _ in range(60)]
    assert np.std(losses) > 0
    assert abs(np.mean(losses) - full) < 4 * np.std(losses) / np.sqrt(60)


def test_batches_that_make_no_sense_are_refused(model) -> None:
    for size in (0, -3, 2.5, True):
        with pytest.raises(ValueError, match="batch_size must be an integer of at least 1"):
            model.training_loss_closure(batch_size=size)
    with pytest.raises(ValueError, match="batch_size=3 draws from the model's own rows"):
        model.training_loss_closure((X, Y), batch_size=3)
    with pytest.raises(ValueError, match="X has 1 columns"):
        model.training_loss_closure((X[:, :1], Y))()
    with pytest.raises(ValueError, match="as many labels as rows"):
        model.training_loss_closure((X, Y[:3]))()


@pytest.mark.parametrize("compile_", [False, True])
def test_neighbours_are_sought_again_once_the_metric_has_changed(compile_, monkeypatch) -> None:
    model = build("ILRNNGPR", k=kernels.Matern32(0.6, [1.0, 1.0]), num_neighbours=M)
    closure = model.training_loss_closure(compile=compile_)
    closure()
    fixed = model._others(model.labelled_rows, M, STALE_METRIC)
    model.kernel.lengthscales.assign([1.0, 1.0 + 0.9 * STALE_METRIC])
    assert not model.has_stale_neighbours()
    a_little = -float(model._log_density(model.labelled_rows, fixed))
    np.testing.assert_allclose(closure(), a_little, rtol=1e-12)
    model.kernel.lengthscales.assign([30.0, 31.0])  # a common factor changes nothing
    assert not model.has_stale_neighbours()
    model.kernel.lengthscales.assign([0.1, 9.0])
    assert model.has_stale_neighbours()
    kept = -float(model._log_density(model.labelled_rows, fixed))
    fresh = build("ILRNNGPR", k=kernels.Matern32(0.6, [0.1, 9.0]), num_neighbours=M)
    expected = float(fresh.training_loss())
    assert abs(kept - expected) > 0.01  # other neighbours are another loss
    np.testing.assert_allclose(closure(), expected, rtol=1e-10)
    assert not model.has_stale_neighbours()


def test_inside_a_users_function_all_rows_keep_their_neighbours() -> None:
    model = build("ILRNNGPR", k=kernels.Matern32(0.6, [1.0, 1.0]), num_neighbours=M)
    compiled = tf.function(model.training_loss_closure(compile=False), autograph=False)
    np.testing.assert_allclose(compiled(), model.training_loss(), rtol=1e-12)
    fixed = model._others(model.labelled_rows, M)
    model.kernel.lengthscales.assign([0.1, 9.0])
    kept = -float(model._log_density(model.labelled_rows, fixed))
    np.testing.assert_allclose(compiled(), kept, rtol=1e-12)
    assert model.has_stale_neighbours()  # which tells the user to compile again


def test_predictions_have_the_neighbours_of_the_present_metric() -> None:
    model = build("ILRNNGPR", k=kernels.Matern32(0.6, [1.0, 1.0]), num_neighbours=M)
    model.predict_f(XNEW)
    for lengthscales in ([1.0, 1.05], [0.2, 5.0]):
        model.kernel.lengthscales.assign(lengthscales)
        k = kernels.Matern32(0.6, lengthscales)
        fresh = build("ILRNNGPR", k=k, num_neighbours=M)
        assert_equal(model.predict_f(XNEW), fresh.predict_f(XNEW), 1e-12)
        assert_equal(model.predict_loo(), fresh.predict_loo(), 1e-12)
