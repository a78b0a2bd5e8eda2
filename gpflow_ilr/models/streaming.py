"""Adding and removing rows and classes of a fitted model; hyperparameters (and inducing inputs) stay.

The data enter a collapsed model as sums over rows, so its posterior follows by adding or subtracting
the sums of the changed rows, at their cost alone. A nearest-neighbour model looks among other rows; an
exact one factorises its matrix again, at the next prediction.

Neither kernel nor rows know how many classes there are: the code enters when sums, or targets, are
combined. So a class that appears later, or one that is joined to another, costs nothing by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, OutputData

from gpflow_ilr.expectations import default_rule
from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.inputs.model_parts import check_float
from gpflow_ilr.inputs.rows import LabelledRows, check_data
from gpflow_ilr.likelihoods import CodeSoftmax

if TYPE_CHECKING:
    from gpflow_ilr.models.conjugate import ConjugateClassifier

__all__ = ["change_classes", "change_rows", "forget", "merge_classes", "remove_class", "update"]


def update(
    self: ConjugateClassifier,
    X_new: InputData,
    y_new: OutputData,
    *,
    sample_weight: Any = None,
    num_classes: int | None = None,
) -> None:
    """Add rows. The posterior then equals that of a model built on all rows.

    Posteriors taken earlier keep the old rows; call ``posterior()`` again, or ``update_cache()`` on
    them. Functions compiled earlier (``tf.function``, a ``training_loss_closure``) keep them too, and
    do not say so: compile them again. Of a collapsed model, predictions compiled from its
    ``posterior("variable")`` follow that posterior's ``update_cache()``.

    After new classes earlier posteriors are of no use, and the smoothing λ is another: the sharpness L
    stays, as the noise does. ``calibrate`` then; train where many rows are new.

    :param X_new: [n, D].
    :param y_new: labels, hard or soft as the model's own.
    :param sample_weight: [n], how often each row counts; None for once.
    :param num_classes: the number of classes K' ≥ K from now on; the new ones are K, …, K' − 1. None
        for as many as before.
    :raises ValueError: if rows or labels make no sense, or the model has a kernel, a noise or a mean
        function for each latent function and classes are to be added.
    """
    K = self.code.num_classes
    if num_classes is None or num_classes == K:
        rows = _matching_rows(self, (X_new, y_new, sample_weight), K)
    else:
        if check_count("num_classes", num_classes) < K:
            raise ValueError(
                f"num_classes must be at least {K}, the number of classes that there are, but is "
                f"{num_classes}. Use remove_class or merge_classes to have fewer."
            )
        rows = _matching_rows(self, (X_new, y_new, sample_weight), num_classes)
        self.change_classes(range(K), num_classes)
    self.change_rows(self.labelled_rows.joined(rows), added=rows, removed=None)


def forget(
    self: ConjugateClassifier, X_old: InputData, y_old: OutputData, *, sample_weight: Any = None
) -> None:
    """Remove rows. The posterior then equals that of a model built on the remaining rows.

    Posteriors taken and functions compiled earlier keep the removed rows, as for :func:`update`: where
    they must be gone, drop those as well.

    :param X_old: [n, D], rows of the training data; one that occurs several times is removed as
        often as it is listed.
    :param y_old: their labels, hard or soft as the model's own.
    :param sample_weight: their weights, as they were given; None for one.
    :raises ValueError: if a row is not in the training data, or none would remain.
    """
    rows = _matching_rows(self, (X_old, y_old, sample_weight), self.code.num_classes)
    _remove(self, _positions(_keys(self.labelled_rows), _keys(rows)))


def remove_class(self: ConjugateClassifier, label: int) -> list[int | None]:
    """Remove a class and its rows, at their cost; the classes above it move down by one.

    :param label: which class.
    :returns: for each class the number that it has now, None for the removed one.
    :raises ValueError: if there is no such class, or too little would remain.
    """
    check_float(self)
    _check_labels(self, [label])
    _check_rows_are_here(self, "remove_class")
    if self.has_soft_labels:
        raise ValueError(
            "remove_class needs hard labels: a row of soft ones may belong to several classes. Set "
            "model.data to what should remain."
        )
    K = self.code.num_classes
    _check_remaining(K - 1)
    _check_classes_can_change(self)
    gone = np.flatnonzero(self.labels == label)
    places = [-1 if k == label else k - (k > label) for k in range(K)]
    if len(gone):
        _remove(self, gone)
    self.change_classes(places, K - 1)
    return [None if place < 0 else place for place in places]


def merge_classes(self: ConjugateClassifier, labels: Sequence[int]) -> list[int]:
    """Join classes to the first of them; those above the others move down.

    :param labels: two or more classes.
    :returns: for each class the number that it has now.
    :raises ValueError: if there is no such class, or only one would remain.
    """
    check_float(self)
    several = isinstance(labels, (Sequence, np.ndarray)) and np.ndim(labels) == 1
    merged = sorted(set(_check_labels(self, labels))) if several else []
    K = self.code.num_classes
    if len(merged) < 2:
        raise ValueError(f"labels must be two classes or more, but is {labels!r}. Pass a list.")
    _check_remaining(K - len(merged) + 1)
    kept = [k for k in range(K) if k not in merged[1:]]
    places = [kept.index(merged[0] if k in merged else k) for k in range(K)]
    self.change_classes(places, len(kept))
    return places


def change_rows(
    self: ConjugateClassifier,
    rows: LabelledRows,
    added: LabelledRows | None,
    removed: LabelledRows | None,
) -> None:
    """Go on with other rows, of which most are the present ones.

    :param rows: all rows.
    :param added: those that are new; None if there are none.
    :param removed: those that are gone; None if there are none.
    """
    del added, removed  # of use to models that keep sums over rows
    self.labelled_rows = rows


def change_classes(self: ConjugateClassifier, places: Sequence[int], num_classes: int) -> None:
    """Go on with other classes, whose rows are the present ones.

    :param places: for each present class, the number that it gets; −1 for one that has no rows.
    :param num_classes: how many classes there are then.
    :raises ValueError: if the model has parts that are made for the present number of latent functions.
    """
    _check_classes_can_change(self)
    likelihood, code, rows = self.likelihood, self.code, self.labelled_rows
    kernel = self.output_spans[0].kernel  # without a wrapper that says for how many
    nodes = None if likelihood.nodes == default_rule(code.num_outputs) else likelihood.nodes
    code.change_classes(places, num_classes)
    if self.has_soft_labels:
        labels = tf.matmul(rows.labels, tf.one_hot(places, num_classes, dtype=rows.labels.dtype))
    else:
        labels = tf.gather(tf.constant(places, rows.labels.dtype), rows.labels)
    self.num_latent_gps, self.kernel = code.num_outputs, kernel
    self.likelihood = CodeSoftmax(code, nodes)
    self.labelled_rows = LabelledRows(rows.X, labels, rows.weights)


def _check_classes_can_change(model: ConjugateClassifier) -> None:
    """Refuse parts that are made for the present latent functions, before anything has changed."""
    model.code.check_classes_can_change()
    columns = model.mean_function(model.data[0][:1]).shape[-1]
    if columns > 1:
        raise ValueError(
            f"The mean_function returns {columns} columns, one for each latent function, and other "
            "classes have other latent functions. Build a new model, or use a mean of one column."
        )
    if len(model.output_spans) > 1:
        raise ValueError(
            f"The model has {len(model.output_spans)} kernels or sets of inducing inputs, one for each "
            "latent function, and other classes have other latent functions. Build a new model."
        )


def _check_labels(model: ConjugateClassifier, labels: Sequence[int]) -> list[int]:
    K = model.code.num_classes
    for label in labels:
        if check_count("label", label, smallest=0) >= K:
            raise ValueError(f"label must be a class 0..{K - 1}, but is {label}.")
    return [int(label) for label in labels]


def _check_remaining(num_classes: int) -> None:
    if num_classes < 2:
        raise ValueError("Two classes must remain, but there would be one.")


def _check_rows_are_here(model: Any, name: str) -> None:
    if getattr(model, "elsewhere", None):
        raise ValueError(
            f"{name} needs the rows of the class, but some rows of this model are not here (it "
            "absorbed them, or other workers have them). Leave them out of the dataset, and absorb it "
            "again."
        )


def _remove(model: ConjugateClassifier, gone: np.ndarray) -> None:
    """Remove the rows of these numbers."""
    rows = model.labelled_rows
    if len(gone) == len(rows):
        raise ValueError("forget would remove all rows, and a model needs at least one.")
    remaining = rows.take(np.delete(np.arange(len(rows)), gone))
    model.change_rows(remaining, added=None, removed=rows.take(gone))


def _matching_rows(model: ConjugateClassifier, data: Any, num_classes: int) -> LabelledRows:
    """Rows with labels of the kind that the model has."""
    check_float(model)
    rows = check_data(data, num_classes, model.num_columns)
    labels = rows.labels
    if model.has_soft_labels and labels.shape.rank == 1:  # one-hot rows among soft ones
        labels = tf.one_hot(labels, num_classes, dtype=model.labels.dtype)
    if labels.shape.rank != model.labels.shape.rank:
        raise ValueError(
            "Soft labels cannot join hard ones: build a new model with all labels as rows "
            f"[N, {num_classes}]."
        )
    return LabelledRows(rows.X, labels, rows.weights)


def _keys(rows: LabelledRows) -> np.ndarray:
    """Each row, with its label and weight, as one value that can be compared and sorted, [N]."""
    parts = (rows.X, rows.labels, rows.known_weights)
    columns = [tf.reshape(tf.cast(part, rows.X.dtype), [len(rows), -1]) for part in parts]
    # Adding zero turns -0.0 into 0.0, which is equal but has other bytes.
    values = np.ascontiguousarray(tf.concat(columns, 1).numpy() + 0.0)
    return values.view(np.dtype((np.void, values.dtype.itemsize * values.shape[1])))[:, 0]


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
            "than it occurs there). Pass rows exactly as they were given, with labels and weights."
        )
    return order[place]
