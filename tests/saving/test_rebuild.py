"""Claims about what a description can make: objects of known classes, and nothing that runs."""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr.saving import load, save
from tests.saving.hostile import tamper
from tests.saving.models import MODELS, X, Y


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    save(MODELS["ILRGPR"](), tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "builtins.eval",
        "subprocess.Popen",
        "gpflow.kernels.tf",
        "gpflow.base.Path",
        "gpflow.base.tf",
        "gpflow_ilr.saving.whole.load",
        "gpflow_ilr.load",
        "tensorflow_probability.bijectors.os",
        "../../etc/passwd",
        "",
        None,
        ["gpflow"],
    ],
)
@pytest.mark.parametrize("way", ["state", "parameters"])
def test_classes_outside_the_list_are_refused_by_name(name: Any, way: str, path: Path) -> None:
    def change(description: dict[str, Any]) -> None:
        description["objects"][0] = {"class": name, way: {}, "name": None}

    tamper(path, change)
    with pytest.raises(ValueError, match=r"which is not here. If it is yours") as refused:
        load(path)
    assert repr(name) in str(refused.value)


WRONG: dict[str, dict[str, Any]] = {
    "a list": {"root": []},
    "a number": {"root": 3},
    "no such object": {"root": {"object": 10**6}},
    "a negative number": {"root": {"object": -1}},
    "no object": {"root": {"object": True}},
    "an unknown kind": {"root": {"code": "import os"}},
    "deep": {"root": {"tuple": [[[[]]]]}},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_what_is_no_model_is_refused(wrong: dict[str, Any], path: Path) -> None:
    tamper(path, lambda description: description.update(wrong))
    with pytest.raises(ValueError, match=r"cannot be loaded|is not a model"):
        load(path)


def test_bottomless_description_is_refused(path: Path) -> None:
    def change(description: dict[str, Any]) -> None:
        for _ in range(900):  # as deep as the encoder of JSON goes
            description["root"] = [description["root"]]

    tamper(path, change)
    with pytest.raises(ValueError, match=r"cannot be loaded|is not a model"):
        load(path)


@pytest.mark.parametrize(
    "kind",
    [
        {"parameter": 0, "name": None, "shape": None, "prior": None, "prior_on": "constrained"},
        {"class": "gpflow.kernels.Linear", "parameters": {}},
        {"class": "gpflow.base.Parameter", "state": {}, "name": None},
        {"class": "gpflow.base.PriorOn", "state": {}, "name": None},
        {"class": "tensorflow_probability.bijectors.Exp", "state": {}, "name": None},
        {"class": "tensorflow_probability.bijectors.Exp", "parameters": {"a": 1}},
        {
            "class": "tensorflow_probability.bijectors.Chain",
            "parameters": {"bijectors": {"object": 1}},
        },
        {"class": "gpflow.kernels.Linear", "state": {"__class__": 1}, "name": None},
        {"class": "gpflow.kernels.Linear", "state": {"_self_setattr_tracking": 1}, "name": None},
        {"class": "gpflow.kernels.Linear", "state": {"a b": 1}, "name": None},
        {"class": "gpflow.kernels.Linear", "state": {}, "name": "../x"},
        {"class": "gpflow.kernels.Kernel", "state": {}, "name": None},
        {"class": "gpflow.kernels.Linear", "state": []},
        {"generator": {"dict": [["bit_generator", "MT19937"]]}},
        {"generator": 3},
        {},
    ],
    ids=str,
)
def test_objects_that_make_no_sense_are_refused(kind: dict[str, Any], path: Path) -> None:
    def change(description: dict[str, Any]) -> None:
        description["objects"] += [kind]
        description["root"] = {"object": len(description["objects"]) - 1}

    tamper(path, change)
    with pytest.raises(ValueError, match=r"cannot be loaded"):
        load(path)


def test_setters_of_properties_are_not_called(path: Path) -> None:
    called = []

    class Watched(gpflow.kernels.SquaredExponential):
        active_dims = property(lambda self: slice(None), lambda self, value: called.append(value))

    gi.saving.register(Watched, name="tests.Watched")

    def change(description: dict[str, Any]) -> None:
        (kernel,) = (t for t in description["objects"] if "kernels.Sum" in t.get("class", ""))
        kernel |= {"class": "tests.Watched", "state": {"active_dims": 3}}

    tamper(path, change)
    load(path)
    assert not called


def test_variables_tensors_and_lists_are_tracked_as_before(tmp_path: Path) -> None:
    model = MODELS["BijectiveSoftmaxGP"]()
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert [v.shape for v in loaded.trainable_variables] == [
        v.shape for v in model.trainable_variables
    ]
    checkpoint = tf.train.Checkpoint(model=loaded).write(str(tmp_path / "checkpoint"))
    again = load(tmp_path / "model")
    loaded_value = loaded.kernel.kernels[0].variance.numpy()
    again.kernel.kernels[0].variance.assign(7.0)
    tf.train.Checkpoint(model=again).read(checkpoint).assert_consumed()
    assert again.kernel.kernels[0].variance.numpy() == loaded_value


def test_dynamic_shapes_come_back(tmp_path: Path) -> None:
    model = gi.ILRGPR((X, Y), gpflow.kernels.Matern32(), num_classes=3)
    model.grows = tf.Variable(np.ones([3, 2]), shape=[None, 2], trainable=False)
    model.also_grows = gpflow.Parameter(np.ones([3, 2]), shape=[None, 2])
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    loaded.grows.assign(np.zeros([5, 2]))
    loaded.also_grows.assign(np.zeros([5, 2]))
    assert loaded.also_grows.shape.as_list() == [None, 2]
    assert not loaded.grows.trainable
