"""Claims about layers of Keras 3 inside GPflow modules: found wherever they are, and refused."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tf_keras

import gpflow_ilr as gi
from gpflow_ilr.inputs.keras_layers import refuse_keras_layers
from tests.heads.stacks import STACKS, DeepKernel, X


class Holder(gpflow.mean_functions.MeanFunction):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held


LAYER = keras.layers.Dense(2)
KERNEL = gpflow.kernels.Matern32()
PLACES: dict[str, tuple[Any, str]] = {
    "itself": (LAYER, "mean is a Keras 3 layer (Dense)"),
    "the head": (STACKS["keras"].head(), "mean is a Keras 3 layer (GPHead)"),
    "an attribute": (Holder(LAYER), "mean.held is a Keras 3 layer (Dense)"),
    "a list": (Holder([1, LAYER]), "mean.held is a Keras 3 layer (Dense)"),
    "a tuple": (Holder((1, LAYER)), "mean.held is a Keras 3 layer (Dense)"),
    "a dictionary": (Holder({"a": LAYER}), "mean.held is a Keras 3 layer (Dense)"),
    "a nest": (Holder({"a": [1, (LAYER,)]}), "mean.held is a Keras 3 layer (Dense)"),
    "a part": (KERNEL + DeepKernel(LAYER), "DeepKernel.parts is a Keras 3 layer (Dense)"),
    "a part in a list": (
        Holder([DeepKernel(LAYER)]),
        "DeepKernel.parts is a Keras 3 layer (Dense)",
    ),
    "a model": (Holder(keras.Sequential([LAYER])), "mean.held is a Keras 3 layer (Sequential)"),
}


@pytest.mark.parametrize(("module", "sentence"), PLACES.values(), ids=PLACES)
def test_a_keras_3_layer_is_refused_wherever_it_is_held(module: Any, sentence: str) -> None:
    with pytest.raises(
        TypeError, match=re.escape(sentence) + ".* before a gpflow_ilr.keras.GPHead"
    ):
        refuse_keras_layers(module, "mean")


@pytest.mark.parametrize(
    "module",
    [
        KERNEL,
        DeepKernel(tf_keras.layers.Dense(2)),
        Holder([1, None, {"a": KERNEL}]),
        Holder(keras.Variable(1.0)),
        STACKS["tf_keras"].head(),
    ],
    ids=["a kernel", "a Keras 2 layer", "a nest", "a Keras 3 variable", "the Keras 2 head"],
)
def test_what_gpflow_trains_is_not_refused(module: Any) -> None:
    refuse_keras_layers(module, "module")


def test_nothing_is_searched_where_keras_was_never_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "keras")
    refuse_keras_layers(Holder(LAYER), "mean")


DATA = (X, np.arange(len(X)) % 3)
BUILDERS: dict[str, Callable[[Any], Any]] = {
    "ILRGPR": lambda kernel: gi.ILRGPR(DATA, kernel, num_classes=3),
    "ILRSGPR": lambda kernel: gi.ILRSGPR(DATA, kernel, X[:4], num_classes=3),
    "ILRSVGP": lambda kernel: gi.ILRSVGP(kernel, X[:4], num_classes=3),
}


@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
def test_models_refuse_a_keras_3_layer_in_their_kernel(build: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"DeepKernel\.parts is a Keras 3 layer"):
        build(DeepKernel(LAYER))
