"""The rows of a dataset as a network sees them: features, labels and weights, batch by batch.

The network is a Keras model, or any function from a batch of inputs to features [n, D], of whatever
library; or there is none, and the dataset has the features already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_ilr.heads.networks import check_one_output, refuse_softmax
from gpflow_ilr.inputs.counts import evenly_spaced
from gpflow_ilr.inputs.shards import batches_of
from gpflow_ilr.inputs.weights import as_weights

__all__ = ["FeatureReader", "has_weights"]

_BATCH_ROWS = 256
_WANTED = (
    "dataset must be arrays (X, y), or (X, y, weights), or a tf.data.Dataset of batches of them"
)
_NO_ROWS = (
    "dataset must have at least one row that counts, but has none. Pass rows of positive weight."
)

Batch = tuple[np.ndarray, ...]
"""Features [n, D], labels and, where rows do not count alike, weights [n]."""


class FeatureReader:
    """Reads features, labels and weights of a dataset.

    A dataset is arrays (X, y), or (X, y, weights), or a ``tf.data.Dataset`` of batches of them. X of a
    network with several inputs is a dictionary or tuple of arrays.

    :param network: a Keras model (or layer) that ends with features [n, D]; any other function of a
        batch; or None, where datasets have features already.
    :param keras: the Keras that knows the network, if it is one of its models.
    :raises TypeError: if the network is no function.
    :raises ValueError: if the network ends with a softmax, or has several outputs.
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
            check_one_output(network)
            refuse_softmax(network, keras)
            # Compiled once; and in evaluation mode, or dropout would disturb the features.
            self._forward = tf.function(
                lambda batch: network(batch, training=False), reduce_retracing=True
            )

    def features(self, batch: Any) -> np.ndarray:
        """Features [n, D] of a batch of inputs.

        :param batch: what the network takes.
        :raises ValueError: if the network returns something else.
        """
        found = batch if self.network is None else self._forward(batch)
        if self.network is not None and isinstance(found, (dict, list, tuple)):
            raise ValueError(
                f"network must return features [n, D], but returned a {type(found).__name__} of "
                f"{len(found)}. Pass a function that returns the features alone."
            )
        values = np.asarray(found)
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

        :param X: an array of what the network takes, or a dictionary or tuple of them.
        """
        starts = range(0, max(_num_rows(X), 1), _BATCH_ROWS)
        return np.concatenate([self.features(_some(X, slice(i, i + _BATCH_ROWS))) for i in starts])

    def batches(self, dataset: Any) -> Iterator[Batch]:
        """Features, labels and weights of each batch.

        :param dataset: what is read.
        :raises ValueError: if it has no labels, or not one label and weight for each row.
        :raises TypeError: if it is something else.
        """
        for X, *others in self._pieces(dataset):
            batch = (self.features(X), *(np.asarray(array) for array in others))
            for name, array in zip(("label", "weight"), batch[1:], strict=False):
                if array.shape[:1] != batch[0].shape[:1]:
                    raise ValueError(
                        f"Every row needs one {name}, but a batch of {len(batch[0])} rows has {name}s "
                        f"of shape {list(array.shape)}. Batch the dataset: dataset.batch(256)."
                    )
            yield batch

    def rows(self, dataset: Any) -> Batch:
        """Features, labels and weights of all rows, in memory.

        :param dataset: what is read.
        :raises ValueError: if it has no row.
        """
        parts = list(self.batches(dataset))
        if not parts:
            raise ValueError(_NO_ROWS)
        return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    def sample(self, dataset: Any, size: int) -> tuple[Batch, bool]:
        """Some of the rows that count, and whether there are no others.

        Of arrays they are spread evenly; of a ``tf.data.Dataset`` they are the first.

        :param dataset: what is read.
        :param size: at most so many.
        :raises ValueError: if there is no row of positive weight.
        """
        if isinstance(dataset, tf.data.Dataset):
            batches = batches_of(map(_that_count, self.batches(dataset)), size)
            first = next(batches, None)
            if first is None:
                raise ValueError(_NO_ROWS)
            return first, len(first[0]) < size
        X, *others = _arrays(dataset)
        counting = _positive(others[1]) if len(others) > 1 else np.arange(len(others[0]))
        some = counting[evenly_spaced(len(counting), size)]
        if len(some) < len(others[0]):
            X, others = _some(X, some), [array[some] for array in others]
        return self.rows((X, *others)), len(some) == len(counting)

    def _pieces(self, dataset: Any) -> Iterator[tuple[Any, ...]]:
        if isinstance(dataset, tf.data.Dataset):
            spec = dataset.element_spec
            if not isinstance(spec, tuple) or len(spec) not in (2, 3):
                raise ValueError(
                    f"{_WANTED}, but its elements are {spec}. Add labels with dataset.map."
                )
            yield from dataset
            return
        arrays = _arrays(dataset)
        for start in range(0, len(arrays[1]), _BATCH_ROWS):
            yield tuple(_some(array, slice(start, start + _BATCH_ROWS)) for array in arrays)


def has_weights(dataset: Any) -> bool:
    """Whether a dataset that :class:`FeatureReader` reads has weights of rows.

    :param dataset: arrays, or a ``tf.data.Dataset``.
    """
    if isinstance(dataset, tf.data.Dataset):
        return len(dataset.element_spec) == 3
    return len(_arrays(dataset)) == 3


def _arrays(dataset: Any) -> tuple[Any, ...]:
    """X as it is, labels and, unless they are None, weights as arrays of as many rows."""
    if not isinstance(dataset, (tuple, list)):
        raise TypeError(f"{_WANTED}, but is a {type(dataset).__name__}.")
    if len(dataset) not in (2, 3):
        raise ValueError(f"{_WANTED}, but has {len(dataset)} parts.")
    X, y = dataset[0], np.asarray(dataset[1])
    num_rows = _num_rows(X)
    if y.ndim == 0:
        raise ValueError(f"Every row of X needs one label, but y is {dataset[1]!r}. Pass a list.")
    if num_rows != len(y):
        several = isinstance(X, list) and num_rows > 0 and np.ndim(X[0]) > 1
        raise ValueError(
            f"Every row of X needs one label, but X has {num_rows} rows and y has {len(y)}."
            + (" Pass the inputs of a network that has several as a tuple." if several else "")
        )
    if len(dataset) == 2 or dataset[2] is None:
        return X, y
    return X, y, as_weights(dataset[2], num_rows).numpy()


def _num_rows(X: Any) -> int:
    """Rows of an array, or of a dictionary or tuple of arrays, the inputs of one network.

    :raises ValueError: if these differ.
    """
    if not isinstance(X, (dict, tuple)):
        return _length(X)
    counts = {_length(array) for array in tf.nest.flatten(X)}
    if len(counts) != 1:
        raise ValueError(
            "X has several inputs, which need as many rows each, at least one input, but they have "
            f"{sorted(counts)} rows."
        )
    return counts.pop()


def _length(array: Any) -> int:
    try:
        return len(array)
    except TypeError:
        raise ValueError(
            f"X must be an array of rows, or a dictionary or tuple of such arrays, but has {array!r}. "
            "Pass what the network takes."
        ) from None


def _some(X: Any, rows: Any) -> Any:
    """Some rows of what :func:`_num_rows` counts: a slice, or their numbers [n]."""
    if isinstance(X, (dict, tuple)):
        return tf.nest.map_structure(lambda array: _some(array, rows), X)
    return X[rows] if isinstance(rows, slice) else np.asarray(X)[rows]


def _that_count(batch: Batch) -> Batch:
    """The rows of a batch whose weight is not zero."""
    if len(batch) == 2:
        return batch
    counting = _positive(batch[2])
    return tuple(array[counting] for array in batch)


def _positive(weights: np.ndarray) -> np.ndarray:
    """Numbers of the rows whose weight is not zero: what is no weight is refused elsewhere."""
    return np.flatnonzero(weights.reshape(len(weights), -1).any(axis=1))
