"""Claims about which classes files may name, and how users add theirs."""

import inspect
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_ilr as gi
from gpflow_ilr.saving import load, register, save
from gpflow_ilr.saving.names import name_of, named
from tests.saving.models import X, Y
from tests.whole.test_guard import descendants, import_everything


class Wavy(gpflow.kernels.SquaredExponential):
    """A kernel of a user."""

    def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
        return super().K_r2(r2) * tf.exp(-r2)


@register
class Doubled(tfp.bijectors.AutoCompositeTensorBijector):
    """A transform of a user: y = 2x."""

    def __init__(self, name: str = "doubled") -> None:
        parameters = dict(locals())
        super().__init__(forward_min_event_ndims=0, parameters=parameters, name=name)

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        return 2 * x

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        return y / 2

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        return tf.math.log(tf.constant(2.0, x.dtype))


@register(name="tests.halved")
def halved(x: Any) -> Any:
    return x / 2


def test_classes_of_users_are_saved_once_they_are_registered(tmp_path: Path) -> None:
    model = gi.ILRGPR((X, Y), Wavy(), num_classes=3)
    with pytest.raises(ValueError, match=r"model.kernel cannot be saved.*saving.register\(Wavy\)"):
        save(model, tmp_path / "model")
    assert register(Wavy) is Wavy
    model.kernel.variance = gpflow.Parameter(1.3, transform=Doubled())
    model.kernel.function = halved
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert type(loaded.kernel) is Wavy
    assert loaded.kernel.function is halved
    np.testing.assert_array_equal(loaded.predict_y(X)[0], model.predict_y(X)[0])


def test_class_that_is_not_registered_where_it_is_loaded_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Moved(gpflow.kernels.SquaredExponential):
        """A class that is there when the model is saved, and not when it is loaded."""

    registered: dict[str, Any] = {}
    monkeypatch.setattr("gpflow_ilr.saving.names._registered", registered)
    register(Moved, name="mine.Moved")
    save(gi.ILRGPR((X, Y), Moved(), num_classes=3), tmp_path / "model")
    load(tmp_path / "model")
    registered.clear()
    with pytest.raises(ValueError, match=r"saved by gpflow_ilr .*'mine.Moved'.*saving.register\("):
        load(tmp_path / "model")


def test_a_name_is_of_one_class() -> None:
    with pytest.raises(ValueError, match=r"name 'tests.halved' is taken by"):
        register(Wavy, name="tests.halved")
    register(halved, name="tests.halved")
    with pytest.raises(ValueError, match="text of your own"):
        register(Wavy, name="gpflow.kernels.Linear")


def public_classes() -> list[type]:
    modules = (gpflow.kernels, gpflow.likelihoods, gpflow.functions, gpflow.inducing_variables)
    return [
        thing
        for module in modules
        for thing in vars(module).values()
        if inspect.isclass(thing) and thing.__module__.startswith("gpflow.")
    ]


@pytest.mark.parametrize("cls", public_classes(), ids=lambda cls: cls.__name__)
def test_classes_of_gpflow_have_names(cls: type) -> None:
    name = name_of(cls)
    assert name is not None
    assert named(name) is cls


def test_modules_of_this_package_have_names_of_their_own() -> None:
    import_everything()
    ours = {cls for cls in descendants(tf.Module) if cls.__module__.startswith("gpflow_ilr")}
    layers = {cls for cls in ours if hasattr(cls, "get_config")}  # which Keras saves
    for cls in ours - layers:
        assert named(name_of(cls)) is cls
