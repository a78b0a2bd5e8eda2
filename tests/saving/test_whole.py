"""Claims about saving, loading and resuming."""

import hashlib
import json
import os
import pickle
import stat
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.models import GPModel
from gpflow.models.training_mixins import ExternalDataTrainingLossMixin

import gpflow_ilr as gi
from gpflow_ilr.saving import load, save
from gpflow_ilr.saving.container import MAGIC
from tests.saving.models import MODELS, X, Y, Z


@pytest.fixture(name="model", params=MODELS)
def _model(request: pytest.FixtureRequest) -> GPModel:
    return MODELS[request.param]()


def test_loaded_model_predicts_and_trains_as_the_saved_one(model: GPModel, tmp_path: Path) -> None:
    size = save(model, tmp_path / "model")
    assert size == (tmp_path / "model").stat().st_size
    loaded = load(tmp_path / "model")
    assert type(loaded) is type(model)
    np.testing.assert_array_equal(loaded.predict_y(X)[0], model.predict_y(X)[0])
    external = isinstance(model, ExternalDataTrainingLossMixin)
    data = [(X, tf.constant(Y[:, None]))] if external else []
    np.testing.assert_array_equal(loaded.training_loss(*data), model.training_loss(*data))
    assert not {v.ref() for v in loaded.variables} & {v.ref() for v in model.variables}


def test_statistics_of_a_collapsed_model_are_saved_with_it(tmp_path: Path) -> None:
    model = MODELS["ILRSGPR"]()
    model.posterior()
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    loaded.update(X[:3] + 0.1, Y[:3])  # would visit all rows if the statistics were gone
    assert loaded.known_statistics() is not None
    model.update(X[:3] + 0.1, Y[:3])
    np.testing.assert_allclose(loaded.predict_y(X)[0], model.predict_y(X)[0], rtol=1e-12)


def test_sampled_model_goes_on_sampling_after_loading_as_if_it_had_not_stopped(
    tmp_path: Path,
) -> None:
    model = MODELS["BijectiveSoftmaxGP"]()
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of chains so short
        model.sample_more(3)
        loaded.sample_more(3)
    np.testing.assert_array_equal(loaded.chains.samples, model.chains.samples)


def test_model_saved_under_another_float_is_refused_with_the_remedy(tmp_path: Path) -> None:
    save(MODELS["ILRGPR"](), tmp_path / "model")
    with gpflow.config.as_context():
        gpflow.config.set_default_float(np.float32)
        with pytest.raises(ValueError, match=r"set_default_float\(tf.float64\)"):
            load(tmp_path / "model")


def test_model_of_another_float_is_not_saved_as_one_of_the_present_float(tmp_path: Path) -> None:
    model = MODELS["ILRGPR"]()
    single = gpflow.config.as_context(gpflow.config.Config(float=np.float32))
    with single, pytest.raises(ValueError, match=r"model was built in float64.*set_default_float"):
        save(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_pipe_is_not_replaced_by_a_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="a device or a pipe, which would be lost"):
        save(MODELS["ILRGPR"](), tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_failed_save_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "model"
    model = MODELS["ILRGPR"]()
    save(model, path)
    before = path.read_bytes()
    broken = MODELS["ILRGPR"]()
    broken.extra = lambda: None
    with pytest.raises(ValueError, match=r"model.extra cannot be saved"):
        save(broken, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_training_resumes_from_a_checkpoint_with_the_same_losses(tmp_path: Path) -> None:
    def start() -> tuple[tf.train.Checkpoint, Callable[[], float]]:
        model = gi.ILRSVGP(gpflow.kernels.Matern32(), Z, num_classes=3, num_data=len(X))
        data = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().shuffle(30, seed=3).batch(8)
        iterator = iter(data)
        optimizer = gpflow.keras.tf_keras.optimizers.Adam(0.05)
        optimizer.build(model.trainable_variables)
        loss = model.training_loss_closure(iterator, compile=False)

        def step() -> float:
            with tf.GradientTape() as tape:
                value = loss()
            gradients = tape.gradient(value, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return float(value)

        return tf.train.Checkpoint(model=model, optimizer=optimizer, data=iterator), step

    checkpoint, step = start()
    for _ in range(3):
        step()
    path = checkpoint.write(str(tmp_path / "checkpoint"))
    expected = [step() for _ in range(3)]
    again, resumed = start()
    again.read(path).assert_consumed()
    assert [resumed() for _ in range(3)] == expected


@pytest.mark.parametrize("name", ["ILRGPR", "DirichletGPR", "ILRSGPR", "DirichletSGPR", "ILRNNGPR"])
def test_loaded_model_is_calibrated_updated_and_fitted_as_the_saved_one(
    name: str, tmp_path: Path
) -> None:
    model = MODELS[name]()
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    for either in (model, loaded):
        gpflow.optimizers.Scipy().minimize(
            either.training_loss, either.trainable_variables, options={"maxiter": 2}
        )
        either.update(X[:3] + 0.1, Y[:3])
        if hasattr(either, "calibrate"):
            either.calibrate()
    np.testing.assert_array_equal(loaded.predict_y(X)[0], model.predict_y(X)[0])


def test_a_file_has_the_permissions_that_the_umask_gives_or_that_it_had(tmp_path: Path) -> None:
    model, path = MODELS["ILRGPR"](), tmp_path / "model"
    before = os.umask(0o027)
    try:
        save(model, path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        save(model, path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(before)


def test_a_symbolic_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    link, target = tmp_path / "link", tmp_path / "store" / "model"
    link.symlink_to(target)
    for _ in range(2):  # without what it points to, and with it
        save(MODELS["ILRGPR"](), link)
        assert link.is_symlink()
        assert not target.is_symlink()
        load(link)


class Explosive:
    """What executes something when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def write_pickle(thing: Any, path: Path) -> None:
    """A file as they were before format 1."""
    payload = pickle.dumps(thing)
    header = {
        "version": "0.1.0",
        "class": "ILRGPR",
        "float": "float64",
        "bytes": len(payload),
        "sha256": hashlib.sha256(payload).hexdigest(),
    }
    path.write_bytes(MAGIC + json.dumps(header).encode() + b"\n" + payload)


def test_pickles_of_before_are_read_if_they_are_trusted(tmp_path: Path) -> None:
    model, path = MODELS["ILRGPR"](), tmp_path / "model"
    write_pickle(gpflow.utilities.deepcopy(model), path)
    with pytest.raises(ValueError, match=r"is a pickle, which can execute anything.*trust=True"):
        load(path)
    loaded = load(path, trust=True)
    np.testing.assert_array_equal(loaded.predict_y(X)[0], model.predict_y(X)[0])
    save(loaded, path)
    load(path)


@pytest.mark.parametrize("trust", [False, None, 1, "yes"])
def test_pickles_are_not_executed_without_trust(trust: Any, tmp_path: Path) -> None:
    write_pickle(Explosive(tmp_path / "executed"), tmp_path / "model")
    with pytest.raises(ValueError, match="trust=True"):
        load(tmp_path / "model", trust=trust)
    assert not (tmp_path / "executed").exists()
