"""Adding and removing rows of a fitted model; hyperparameters (and inducing inputs) stay.

The data enter a collapsed model as sums over rows, so its posterior follows by adding or subtracting
the sums of the changed rows, at their cost alone. A nearest-neighbour model looks among other rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, OutputData

from gpflow_ilr.inputs.rows import check_data

if TYPE_CHECKING:
    from gpflow_ilr.models.conjugate import ConjugateClassifier

__all__ = ["forget", "update"]


def update(self: ConjugateClassifier, X_new: InputData, y_new: OutputData) -> None:
    """Add rows. The posterior then equals that of a model built on all rows.

    Posteriors taken earlier keep the old rows; call ``posterior()`` again, or ``update_cache()`` on
    them.

    :param X_new: [n, D].
    :param y_new: labels, hard or soft as the model's own.
    """
    X, labels = _matching_rows(self, X_new, y_new)
    rows = tf.concat([self.data[0], X], 0), tf.concat([self.labels, labels], 0)
    self.change_rows(*rows, added=(X, labels), removed=None)


def forget(self: ConjugateClassifier, X_old: InputData, y_old: OutputData) -> None:
    """Remove rows. The posterior then equals that of a model built on the remaining rows.

    :param X_old: [n, D], rows of the training data; one that occurs several times is removed as
        often as it is listed.
    :param y_old: their labels, hard or soft as the model's own.
    :raises ValueError: if a row is not in the training data, or none would remain.
    """
    X, labels = _matching_rows(self, X_old, y_old)
    gone = _positions(_keys(self.data[0], self.labels), _keys(X, labels))
    if len(gone) == self.num_data:
        raise ValueError("forget would remove all rows, and a model needs at least one.")
    remaining = np.delete(np.arange(self.num_data), gone)
    rows = tf.gather(self.data[0], remaining), tf.gather(self.labels, remaining)
    self.change_rows(*rows, added=None, removed=(X, labels))


def _matching_rows(
    model: ConjugateClassifier, X: InputData, y: OutputData
) -> tuple[tf.Tensor, tf.Tensor]:
    """Rows with labels of the kind that the model has."""
    num_classes = model.code.num_classes
    X, _, labels = check_data((X, y), num_classes, model.num_columns)
    if model.has_soft_labels and labels.shape.rank == 1:  # one-hot rows among soft ones
        labels = tf.one_hot(labels, num_classes, dtype=model.labels.dtype)
    if labels.shape.rank != model.labels.shape.rank:
        raise ValueError(
            "Soft labels cannot join hard ones: build a new model with all labels as rows "
            f"[N, {num_classes}]."
        )
    return X, labels


def _keys(X: tf.Tensor, labels: tf.Tensor) -> np.ndarray:
    """Each row of inputs and labels as one value that can be compared and sorted, [N]."""
    columns = tf.reshape(tf.cast(labels, X.dtype), [X.shape[0], -1])
    # Adding zero turns -0.0 into 0.0, which is equal but has other bytes.
    rows = np.ascontiguousarray(tf.concat([X, columns], 1).numpy() + 0.0)
    return rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]


def _positions(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where the wanted rows are, a different place for each repetition."""
    order = np.argsort(keys, kind="stable")
    wanted_order = np.argsort(wanted, kind="stable")
    sorted_wanted = wanted[wanted_order]
    # The i-th repetition of a row takes the i-th of its places.
    first = np.searchsorted(sorted_wanted, sorted_wanted, side="left")
    place = np.searchsorted(keys[order], sorted_wanted, side="left")
    place += np.arange(len(wanted)) - first
    found = place < len(keys)
    found[found] = keys[order][place[found]] == sorted_wanted[found]
    if not np.all(found):
        row = int(np.min(wanted_order[~found]))
        raise ValueError(
            f"Row {row} of the rows to forget is not in the training data (or is listed more often "
            "than it occurs there). Pass rows exactly as they were given, with their labels."
        )
    return order[place]
