"""Keras 3 layers inside GPflow modules, which would never be trained.

GPflow finds what it trains as ``tf.Module`` does. Layers of Keras 3 are no ``tf.Module``: a network
held by a kernel or a mean function contributes no variable, and training leaves it as it was, silently.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

__all__ = ["refuse_keras_layers"]


def refuse_keras_layers(module: Any, name: str) -> None:
    """Refuse a GPflow module that is, or holds, a layer of Keras 3.

    :param module: a kernel, a mean function or a model.
    :param name: what the module is, to begin the sentence with.
    :raises TypeError: naming the layer and what to do instead.
    """
    keras = sys.modules.get("keras")
    if keras is None:  # nobody can have made a layer
        return
    for path, value in _attributes(module, name):
        # Layers of Keras 2 are modules, which GPflow does train.
        if isinstance(value, keras.layers.Layer) and not isinstance(value, tf.Module):
            raise TypeError(
                f"{path} is a Keras 3 layer ({type(value).__name__}), but GPflow does not see its "
                "variables and would not train them. Put the network before a "
                "gpflow_ilr.keras.GPHead, or build it with tf_keras, whose layers GPflow trains."
            )


def _attributes(module: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The module and what its attributes hold, at any depth, with their paths."""
    yield name, module
    if not isinstance(module, tf.Module):
        return
    for owner in (module, *module.submodules):
        place = name if owner is module else type(owner).__name__
        for attribute, value in vars(owner).items():
            if not attribute.startswith("_self_"):  # TensorFlow's notes of the other attributes
                yield from ((f"{place}.{attribute}", leaf) for leaf in _leaves(value))


def _leaves(value: Any) -> Iterator[Any]:
    """What lists, tuples and dictionaries hold, also within each other; or the value itself."""
    if isinstance(value, (dict, list, tuple)):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _leaves(entry)
    else:
        yield value
