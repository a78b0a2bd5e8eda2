"""The nearest-neighbour classifiers that users build: what they are given, learn, save and export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.expectations import Sobol
from gpflow_ilr.models import ILRNNGPR, DirichletNNGPR
from gpflow_ilr.saving import export_saved_model, load, save
from gpflow_ilr.training import fit
from tests.models.oracles import XNEW, K, X, Y, gradients, kernel

BOTH = [ILRNNGPR, DirichletNNGPR]


@pytest.mark.parametrize("cls", BOTH)
def test_arguments_arrive_where_they_are_meant(cls) -> None:
    mean, nodes = gpflow.functions.Constant([0.5]), Sobol(64)
    strength = {"smoothing": 0.9} if cls is ILRNNGPR else {"alpha_epsilon": 0.03}
    model = cls(
        (X, Y),
        kernel(),
        num_classes=K,
        num_neighbours=7,
        noise="per_output",
        mean_function=mean,
        nodes=nodes,
        **strength,
    )
    assert model.num_neighbours == 7
    assert model.mean_function is mean
    assert model.likelihood.nodes is nodes
    assert model.code.noise == "per_output"
    assert model.num_latent_gps == (K - 1 if cls is ILRNNGPR else K)
    assert model.objective == "loo"
    if cls is ILRNNGPR:
        assert model.smoothing == pytest.approx(0.9)
    else:
        np.testing.assert_allclose(
            np.max(model.code.targets), np.log(1.03) - 0.5 * np.log1p(1 / 1.03)
        )
    assert cls((X, Y), kernel(), num_classes=K).num_neighbours == 64


def test_base_noise_is_proposition_one_or_what_is_given() -> None:
    base = ILRNNGPR((X, Y), kernel(), num_classes=K, tolerance=1e-3).code.noise_variance
    stricter = ILRNNGPR((X, Y), kernel(), num_classes=K).code.noise_variance
    assert np.all(stricter < base)
    given = ILRNNGPR((X, Y), kernel(), num_classes=K, noise_variance=0.003).code.noise_variance
    np.testing.assert_allclose(given, [[0.003]], rtol=1e-12)


def test_a_dirichlet_model_has_no_smoothing_to_calibrate() -> None:
    assert not hasattr(DirichletNNGPR, "calibrate")
    assert not hasattr(DirichletNNGPR, "smoothing")


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize(
    ("data", "message"),
    [((X, Y[:3]), "as many labels"), ((X[:, 0], Y), "shape"), ((X, Y + 1), "row")],
)
def test_data_that_make_no_sense_are_refused(cls, data, message) -> None:
    with pytest.raises(ValueError, match=message):
        cls(data, kernel(), num_classes=K)


# Learning

ROWS = np.random.default_rng(0).normal(size=(80, 2))
LABELS = (ROWS[:, 0] > 0).astype(int) + (ROWS[:, 1] > 0)
UNSEEN, THEIRS = ROWS[50:], LABELS[50:]


def short_sighted(cls: Any, **options: Any) -> Any:
    """Lengthscales so short that no row says anything about another."""
    k = gpflow.kernels.Matern32(0.5, lengthscales=[0.1, 0.1])
    return cls((ROWS[:50], LABELS[:50]), k, num_classes=K, num_neighbours=10, **options)


@pytest.mark.parametrize("cls", BOTH)
def test_minibatches_of_rows_train_kernel_noise_and_smoothing(cls) -> None:
    model = short_sighted(cls, noise="shared")
    before, variables = float(model.training_loss()), model.trainable_variables
    values = [variable.numpy() for variable in variables]
    loss = model.training_loss_closure(batch_size=16, compile=False)
    optimiser = gpflow.keras.tf_keras.optimizers.Adam(0.3)
    for _ in range(10):
        optimiser.apply_gradients(zip(gradients(loss, variables), variables, strict=True))
    assert float(model.training_loss()) < 0.5 * before
    for variable, value in zip(variables, values, strict=True):
        assert np.all(np.abs(variable - value) > 1e-3)
    p = model.predict_y(UNSEEN)[0].numpy()
    assert np.mean(np.argmax(p, axis=1) == THEIRS) > 0.85
    assert -np.mean(np.log(p[np.arange(len(p)), THEIRS])) < 0.4


@pytest.mark.parametrize("compile_", [False, True])
def test_fit_trains_on_all_rows(compile_) -> None:
    model = short_sighted(ILRNNGPR)
    before = float(model.training_loss())
    assert fit(model, max_iterations=4, compile=compile_).fun < 0.5 * before


def test_separated_classes_are_told_apart() -> None:
    y = np.arange(90) % K
    rows = 6.0 * np.eye(K)[y] + np.random.default_rng(0).normal(size=(90, K))
    k = gpflow.kernels.SquaredExponential(0.5, lengthscales=3.0)
    model = ILRNNGPR((rows[:60], y[:60]), k, num_classes=K, num_neighbours=8)
    p = model.predict_y(rows[60:])[0].numpy()
    np.testing.assert_array_equal(np.argmax(p, axis=1), y[60:])
    assert np.mean(p[np.arange(30), y[60:]]) > 0.9


# Saving


@pytest.fixture(name="model", params=BOTH, scope="module")
def _model(request: pytest.FixtureRequest) -> Any:
    """With an index built, which is not saved."""
    model = request.param((X, Y), kernel(), num_classes=K, num_neighbours=5, noise="shared")
    model.predict_y(XNEW)
    return model


def test_a_saved_model_predicts_and_trains_as_before(model, tmp_path: Path) -> None:
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert type(loaded) is type(model)
    assert loaded.num_neighbours == 5
    np.testing.assert_array_equal(loaded.predict_y(XNEW)[0], model.predict_y(XNEW)[0])
    np.testing.assert_array_equal(loaded.training_loss(), model.training_loss())


def test_a_copy_is_a_model_of_its_own(model) -> None:
    copied = gpflow.utilities.deepcopy(model)
    before = model.predict_y(XNEW)[0]
    copied.kernel.lengthscales.assign([0.1, 5.0])
    copied.num_neighbours = 2
    copied.predict_y(XNEW)
    np.testing.assert_array_equal(model.predict_y(XNEW)[0], before)


def test_an_exported_model_predicts_the_same_for_any_number_of_rows(model, tmp_path: Path) -> None:
    export_saved_model(model, tmp_path / "exported")
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    for Xnew in (XNEW, XNEW[:1]):
        mean, variance = model.predict_f(Xnew)
        found = exported.predict_f(tf.constant(Xnew))
        p = exported.predict_proba(tf.constant(Xnew))["probabilities"]
        for ours, theirs in (
            (p, model.predict_y(Xnew)[0]),
            (found["mean"], mean),
            (found["variance"], variance),
        ):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)
