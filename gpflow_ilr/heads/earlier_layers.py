"""What earlier layers of a network say about an input, beside the features that classify it.

A network forgets what does not tell its classes apart, and may map an input that is like nothing it
has seen among the features of its training rows: shuffled images, for example. No kernel of the
features notices that. The averages of earlier layers over an image still differ. So they join the
features, with a spread of the same size: a squared exponential of both is one of the features times
one of the averages, and unlike averages make rows unlike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpflow_ilr.heads.features import FeatureReader
from gpflow_ilr.heads.networks import (
    find_layer,
    model_inputs,
    refuse_softmax,
    single_layers,
    with_layer_outputs,
)
from gpflow_ilr.inputs.counts import number_or_nan

__all__ = ["join_earlier_layers"]

_LEAST_SPREAD = 0.1
"""Of the usual one: a column that hardly varies must not outweigh all others once it does."""


def join_earlier_layers(
    network: Any, X: Any, layers: Sequence[int | str] | None, share: float, keras: Any
) -> Any:
    """The network with the averages of earlier layers beside its features.

    :param network: a Sequential or functional Keras model that ends with features [n, D].
    :param X: inputs that say how far features and averages spread.
    :param layers: names or numbers of its layers, by name also of models inside; all with weights but
        the last of them if None.
    :param share: spread of all averages together, as a share of that of the features.
    :param keras: the network's Keras.
    :raises TypeError: if the network is no model of that kind.
    :raises ValueError: if it does not end with features, ends with a softmax, has no such layers, or
        the share is no number above 0.
    """
    if len(getattr(network, "outputs", None) or ()) != 1 or not getattr(network, "layers", None):
        raise TypeError(
            f"network must be a Sequential or functional model of {keras.__name__} with one output, "
            f"but is {network!r}. Pass one that ends with features, such as "
            "feature_network(classifier)."
        )
    refuse_softmax(network, keras)  # which is not the last layer of what is returned
    (features,) = network.outputs
    if len(features.shape) != 2:
        raise ValueError(
            f"network must end with features [n, D], but ends with shape {tuple(features.shape)}. Pass "
            "the part of it that ends with a Flatten or a GlobalAveragePooling layer."
        )
    if not 0.0 < number_or_nan(share) < np.inf:
        raise ValueError(
            f"share must be a number above 0, but it is {share!r}. Pass 1.0, or less for averages "
            "that say less."
        )
    *outputs, features = _with_layers(network, layers, keras).outputs
    parts = [features, *(_averages(x, keras) for x in outputs)]
    inputs = model_inputs(network)
    unscaled = keras.Model(inputs, keras.layers.Concatenate()(parts))
    values = FeatureReader(unscaled, keras).all_features(X)
    ends = np.cumsum([part.shape[-1] for part in parts])
    spread, *spreads = np.split(np.std(values, axis=0, dtype=np.float64), ends[:-1])
    unit = share * np.linalg.norm(spread) / np.sqrt(ends[-1] - ends[0])
    scaled = [
        keras.layers.Rescaling(_scales(unit, s).tolist(), dtype=part.dtype)(part)
        for s, part in zip(spreads, parts[1:], strict=True)
    ]
    return keras.Model(inputs, keras.layers.Concatenate()([features, *scaled]))


def _with_layers(network: Any, layers: Sequence[int | str] | None, keras: Any) -> Any:
    """The network with the outputs of layers before its own."""
    if isinstance(layers, (int, str)):
        layers = [layers]
    try:
        if layers is None:
            found = [layer for layer in single_layers(network) if layer.weights][:-1]
        else:
            found = list(dict.fromkeys(find_layer(network, layer)[-1] for layer in layers))
        whole = with_layer_outputs(network, found, keras)
    except (AttributeError, IndexError, ValueError, TypeError, RuntimeError) as error:
        raise ValueError(
            f"network has no layers={layers!r} whose outputs are known ({error}). Pass names or "
            "numbers of layers of a Sequential or functional model."
        ) from error
    shapes = [output.shape for output in whole.outputs[:-1]]
    if not shapes or any(not 2 <= len(shape) <= 5 or shape[-1] is None for shape in shapes):
        raise ValueError(
            f"layers={layers!r} of network give no numbers to average. Pass the names of layers, such "
            "as convolutions, that come before its features."
        )
    return whole


def _averages(output: Any, keras: Any) -> Any:
    """Averages over all places of an image, a sequence or a volume, [n, channels]."""
    places = len(output.shape) - 2
    if places == 0:
        return output
    return getattr(keras.layers, f"GlobalAveragePooling{places}D")()(output)


def _scales(unit: float, spread: np.ndarray) -> np.ndarray:
    """What makes the spread of each column one unit; of one that hardly varies, less."""
    usual = float(np.sqrt(np.mean(np.square(spread)))) or 1.0
    return unit / np.maximum(spread, _LEAST_SPREAD * usual)
