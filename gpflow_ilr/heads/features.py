"""The rows of a dataset as a network sees them: features and labels, batch by batch.

The network is a Keras model, or any function from a batch of inputs to features [n, D], of whatever
library; or there is none, and the dataset has the features already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_ilr.inputs.shards import batches_of

__all__ = ["FeatureReader", "before_layer", "model_inputs"]

_BATCH_ROWS = 256
_PAIR = "dataset must be a pair of arrays (X, y) or a tf.data.Dataset of batches (X, y)"


class FeatureReader:
    """Reads features and labels of a dataset.

    :param network: a Keras model (or layer) that ends with features [n, D]; any other function of a
        batch; or None, where datasets have features already.
    :param keras: the Keras that knows the network, if it is one of its models.
    :raises TypeError: if the network is no function.
    :raises ValueError: if the network ends with a softmax.
    """

    def __init__(self, network: Any, keras: Any) -> None:
        if network is not None and not callable(network):
            raise TypeError(
                f"network must be a Keras model, a function of a batch, or None, but is {network!r}. "
                "Pass None where X are features already."
            )
        self.is_keras = isinstance(network, keras.layers.Layer)
        self.network = network
        self._forward: Callable[[Any], Any] = network
        if self.is_keras:
            _refuse_softmax(network, keras)
            # Compiled once; and in evaluation mode, or dropout would disturb the features.
            self._forward = tf.function(
                lambda batch: network(batch, training=False), reduce_retracing=True
            )

    def features(self, batch: Any) -> np.ndarray:
        """Features [n, D] of a batch of inputs.

        :param batch: what the network takes.
        :raises ValueError: if the network returns something else.
        """
        values = np.asarray(batch if self.network is None else self._forward(batch))
        if values.ndim != 2:
            raise ValueError(
                f"network must return features [n, D], but returned shape {list(values.shape)}. End it "
                "with a Flatten or a GlobalAveragePooling layer."
                if self.network is not None
                else f"X must be features [n, D], but has shape {list(values.shape)}. Pass the network "
                "that computes features from it: ClosedFormHead(num_classes, network=network)."
            )
        return values

    def all_features(self, X: Any) -> np.ndarray:
        """Features [N, D] of any number of inputs, computed in batches.

        :param X: an array of what the network takes.
        """
        starts = range(0, max(len(X), 1), _BATCH_ROWS)
        return np.concatenate([self.features(X[i : i + _BATCH_ROWS]) for i in starts])

    def batches(self, dataset: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Features and labels of each batch.

        :param dataset: a pair (X, y) of arrays, or a ``tf.data.Dataset`` of batches of pairs.
        :raises ValueError: if it has no labels.
        :raises TypeError: if it is something else.
        """
        for X, y in self._pieces(dataset):
            F, labels = self.features(X), np.asarray(y)
            if len(F) != len(labels):
                raise ValueError(
                    f"Every row needs one label, but a batch of {len(F)} rows has labels of shape "
                    f"{list(labels.shape)}. Batch the dataset: dataset.batch(256)."
                )
            yield F, labels

    def rebatched(self, dataset: Any, batch_size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Features and labels in batches of one size; the last may be shorter.

        :param dataset: as of :meth:`batches`.
        :param batch_size: rows of a batch.
        """
        yield from batches_of(self.batches(dataset), batch_size)

    def rows(self, dataset: Any) -> tuple[np.ndarray, np.ndarray]:
        """Features and labels of all rows, in memory.

        :param dataset: as of :meth:`batches`.
        """
        parts = list(self.batches(dataset))
        if not parts:
            raise ValueError("dataset must have at least one row, but has none.")
        F, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return F, y

    def _pieces(self, dataset: Any) -> Iterator[tuple[Any, Any]]:
        if isinstance(dataset, tf.data.Dataset):
            spec = dataset.element_spec
            if not isinstance(spec, tuple) or len(spec) != 2:
                raise ValueError(f"{_PAIR}, but its elements have no labels: they are {spec}.")
            yield from dataset
            return
        if not isinstance(dataset, (tuple, list)):
            raise TypeError(f"{_PAIR}, but is a {type(dataset).__name__}.")
        if len(dataset) != 2:
            raise ValueError(f"{_PAIR}, but has {len(dataset)} parts.")
        X, y = dataset[0], np.asarray(dataset[1])
        if len(X) != len(y):
            raise ValueError(
                f"Every row of X needs one label, but X has {len(X)} rows and y has {len(y)}."
            )
        for start in range(0, len(X), _BATCH_ROWS):
            yield X[start : start + _BATCH_ROWS], y[start : start + _BATCH_ROWS]


def before_layer(network: Any, layer: int | str, keras: Any) -> Any:
    """The part of a network that computes the input of one of its layers.

    :param network: a Sequential or functional Keras model.
    :param layer: the layer's number or name.
    :param keras: the network's Keras.
    :raises TypeError: if it is no Keras model.
    :raises ValueError: if the network has no such layer, or it is not known what goes into it.
    """
    if not hasattr(network, "layers"):
        raise TypeError(
            f"network must be a model of {keras.__name__}, but is {network!r}. Pass one that is "
            "trained."
        )
    try:
        found = network.get_layer(layer) if isinstance(layer, str) else network.layers[layer]
        features = found.input
    except (AttributeError, IndexError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"network has no layer={layer!r} whose input is known ({error}). Pass the name or the "
            "number of a layer of a Sequential or functional model that has been built; of other "
            "models, pass a function that computes features."
        ) from error
    if not network.inputs or found is network.layers[0] or len(features.shape) != 2:
        raise ValueError(
            f"The input of layer {found.name!r} has shape {tuple(features.shape)} and is no row of "
            "features that the network computes. Name a layer behind a Flatten or a pooling layer."
        )
    return keras.Model(model_inputs(network), features)


def model_inputs(network: Any) -> Any:
    """The one input of a model, or the list of them: an exported model asks for what it was given.

    :param network: a Sequential or functional Keras model.
    """
    return network.inputs[0] if len(network.inputs) == 1 else network.inputs


def _refuse_softmax(network: Any, keras: Any) -> None:
    """Probabilities are no features: what is before them has far more to say."""
    last = (getattr(network, "layers", None) or [network])[-1]
    activation = getattr(last, "activation", None)
    if isinstance(last, keras.layers.Softmax) or activation is keras.activations.softmax:
        raise ValueError(
            f"network must end with features, but its last layer {last.name!r} is a softmax. Pass "
            "feature_network(network), the part before its last layer."
        )
