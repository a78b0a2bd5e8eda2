"""The one place that reads predicted class probabilities and the labels that belong to them.

Metrics and pictures take probabilities as ``predict_y`` returns them, and labels in any form. Both
leave as arrays of NumPy; the errors name the argument, what it is, and what to pass instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_ilr.inputs.arrays import is_real
from gpflow_ilr.inputs.labels import as_labels, check_simplex_rows

__all__ = ["as_classes", "as_probabilities", "check_num_labels"]


def as_probabilities(probabilities: Any, name: str = "probabilities") -> np.ndarray:
    """Class probabilities [N, K] in float64.

    :param probabilities: what ``predict_y`` returns first.
    :param name: what the argument is called, for the error.
    :raises TypeError: if they are symbolic.
    :raises ValueError: if the shape is another, or a row is off the simplex.
    """
    if tf.is_symbolic_tensor(probabilities):
        raise TypeError(
            f"{name} must have values, but is symbolic ({probabilities!r}). Pass it outside "
            "tf.function."
        )
    if isinstance(probabilities, tuple) and any(np.ndim(part) > 1 for part in probabilities):
        raise ValueError(
            f"{name} must be an array [N, K], but is a tuple of {len(probabilities)}. Of what "
            "predict_y returns pass the first."
        )
    if np.ma.is_masked(probabilities):
        row = int(np.argmax(np.ma.getmaskarray(probabilities).any(axis=-1)))
        raise ValueError(
            f"{name} must not be masked, but row {row} is. Drop such rows, and their labels."
        )
    try:
        P = np.asarray(probabilities)
    except ValueError as error:
        raise ValueError(
            f"{name} must be an array [N, K], but its rows have different lengths. Pass K "
            "probabilities in each row."
        ) from error
    if not is_real(P.dtype):
        found = f", the first is {P.flat[0]!r}" if P.size else ""
        raise ValueError(
            f"{name} must be real numbers, but have dtype {P.dtype.name}{found}. Pass what predict_y "
            "or predict_proba returns."
        )
    if P.ndim != 2 or P.shape[0] < 1 or P.shape[1] < 2:
        raise ValueError(
            f"{name} must have shape [N, K] with N > 0 and K > 1, but have {list(P.shape)}. Pass a row "
            "for each input, before the labels; for two classes pass both, "
            "np.stack([1 - p, p], axis=1)."
        )
    check_simplex_rows(P, name)
    return P.astype(np.float64)


def check_num_labels(labels: Any, num_rows: int, of: str = "probabilities") -> None:
    """Refuse labels that are more or fewer than rows.

    :param labels: in any form that ``as_labels`` accepts.
    :param num_rows: N.
    :param of: what has so many rows, for the error.
    :raises ValueError: if there are more or fewer labels.
    """
    if isinstance(labels, (list, tuple)):  # whose rows as_labels looks at, should they be ragged
        shape: tuple[int, ...] = (len(labels),)
    else:
        shape = tuple(np.shape(labels))
    if not shape or shape[0] != num_rows:
        what = f"have shape {list(shape)}" if shape else f"labels is {labels!r}"
        raise ValueError(
            f"labels must be as many as {of} has rows, {num_rows}, but {what}. Pass the labels of the "
            "same rows."
        )


def as_classes(labels: Any, num_classes: int, num_rows: int, of: str = "probabilities") -> Any:
    """Class indices [N].

    :param labels: in any form that ``as_labels`` accepts.
    :param num_classes: K.
    :param num_rows: N.
    :param of: what has so many rows, for the error.
    :raises ValueError: if there are more or fewer labels, or they are soft or no labels.
    """
    check_num_labels(labels, num_rows, of)
    y = as_labels(labels, num_classes).numpy()
    if y.ndim == 2:
        row = int(np.argmax(((y != 0) & (y != 1)).any(axis=1)))
        raise ValueError(
            f"labels must be one class for each row, but row {row} is soft: {y[row]}. Pass "
            "np.argmax(labels, axis=1) if the most probable class is meant."
        )
    return y
