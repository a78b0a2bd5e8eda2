"""Saving networks with a GPHead: whole, weights alone, and as SavedModels."""

from pathlib import Path
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from gpflow_ilr import Sobol
from tests.heads.stacks import STACKS, K, Stack, X, Y


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest) -> Stack:
    return STACKS[request.param]


@keras.saving.register_keras_serializable(package="tests")
@tf_keras.saving.register_keras_serializable(package="tests")
def two_kernels() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern32() + gpflow.kernels.Linear()


OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "all": {
        "kernel": two_kernels,
        "num_latent_gps": 1,
        "objective": "draw",
        "frozen": ("kernel", "q"),
        "nodes": Sobol(32, seed=3),
        "gp_dtype": "float32",
        "jitter": 1e-3,
        "name": "gp",
    },
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_loaded_model_predicts_and_trains_as_the_saved_one(
    stack: Stack, options: dict[str, Any], tmp_path: Path
) -> None:
    head = stack.head(**options)
    loss = stack.ELBOLoss() if head.objective == "elbo" else "sparse_categorical_crossentropy"
    model = stack.compiled(stack.model(head), loss, run_eagerly=True)
    model.fit(X, Y, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = stack.keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].get_config() == head.get_config()
    assert len(loaded.trainable_variables) == len(model.trainable_variables)
    np.testing.assert_array_equal(loaded(X), model(X))
    assert loaded.evaluate(X, Y, verbose=0) == model.evaluate(X, Y, verbose=0)
    if head.objective == "elbo":  # and its optimiser goes on where it was; draws are random
        continued = [m.fit(X, Y, verbose=0, shuffle=False).history["loss"] for m in (model, loaded)]
        np.testing.assert_allclose(continued[1], continued[0], rtol=1e-6)


def test_weights_go_to_a_fresh_model_and_back(stack: Stack, tmp_path: Path) -> None:
    model, fresh = stack.model(), stack.model(stack.head(seed=7))
    path = tmp_path / "head.weights.h5"
    assert not np.allclose(fresh(X), model(X))
    model.save_weights(path)
    fresh.load_weights(path)
    np.testing.assert_array_equal(fresh(X), model(X))


def test_weights_of_another_head_are_refused(stack: Stack) -> None:
    store: dict[str, np.ndarray] = {}
    stack.model().layers[-1].save_own_variables(store)
    other = stack.model(stack.head(num_inducing=4)).layers[-1]
    before = other.gp.q_mu.numpy()
    with pytest.raises(ValueError, match="another GPHead"):
        other.load_own_variables(store)
    np.testing.assert_array_equal(other.gp.q_mu.numpy(), before)


def test_a_checkpoint_callback_restores_the_best_weights(stack: Stack, tmp_path: Path) -> None:
    path = tmp_path / "best.weights.h5"
    model = stack.compiled(stack.model(), run_eagerly=True)
    callback = stack.keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
    model.fit(X, Y, epochs=1, verbose=0, callbacks=[callback])
    saved = model(X)
    model.fit(X, Y, epochs=1, verbose=0)
    assert not np.allclose(model(X), saved)
    model.load_weights(path)
    np.testing.assert_array_equal(model(X), saved)


def test_a_tensorflow_checkpoint_holds_the_gp(stack: Stack, tmp_path: Path) -> None:
    model = stack.model()
    path = tf.train.Checkpoint(model=model).save(tmp_path / "checkpoint")
    expected = np.asarray(model(X))
    model.layers[-1].gp.q_mu.assign(tf.zeros_like(model.layers[-1].gp.q_mu))
    assert not np.allclose(model(X), expected)
    tf.train.Checkpoint(model=model).restore(path)
    np.testing.assert_array_equal(model(X), expected)


def test_an_exported_model_serves_the_probabilities(stack: Stack, tmp_path: Path) -> None:
    model = stack.model()
    options = {"verbose": False} if stack.keras is keras else {}
    model.export(str(tmp_path / "served"), **options)
    served = tf.saved_model.load(str(tmp_path / "served"))
    rows = X[:5].astype("float32")
    probabilities = served.serve(rows)
    assert probabilities.shape == (5, K)
    np.testing.assert_allclose(probabilities, model(rows), atol=1e-6)
