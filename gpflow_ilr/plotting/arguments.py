"""What the functions of this room are given, checked: probabilities, labels, names of classes.

The errors name the argument, what it is, and what to pass instead; what a label or a row of
probabilities may look like is decided in :mod:`gpflow_ilr.inputs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpflow_ilr.inputs.arrays import is_real
from gpflow_ilr.inputs.labels import as_labels, check_simplex_rows

__all__ = ["as_classes", "as_probabilities", "check_share", "names_of"]


def as_probabilities(probabilities: Any, name: str = "probabilities") -> np.ndarray:
    """Class probabilities [N, K] in float64.

    :param probabilities: what ``predict_y`` returns first.
    :param name: what the argument is called, for the error.
    :raises ValueError: if the shape is another, or a row is off the simplex.
    """
    if isinstance(probabilities, tuple):
        raise ValueError(
            f"{name} must be an array [N, K], but is a tuple of {len(probabilities)}. Of what "
            "predict_y returns pass the first."
        )
    P = np.asarray(probabilities)
    if not is_real(P.dtype):
        raise ValueError(f"{name} must be real numbers, but have dtype {P.dtype.name}.")
    if P.ndim != 2 or P.shape[0] < 1 or P.shape[1] < 2:
        raise ValueError(
            f"{name} must have shape [N, K] with N > 0 and K > 1, but have {list(P.shape)}. Pass a row "
            "for each input; for two classes pass both, np.stack([1 - p, p], axis=1)."
        )
    check_simplex_rows(P, name)
    return P.astype(np.float64)


def as_classes(labels: Any, num_classes: int, num_rows: int, of: str = "probabilities") -> Any:
    """Class indices [N].

    :param labels: in any form that ``as_labels`` accepts.
    :param num_classes: K.
    :param num_rows: N.
    :param of: what has so many rows, for the error.
    :raises ValueError: if there are more or fewer labels, or they are soft or no labels.
    """
    count = np.shape(labels)[0] if np.ndim(labels) else 0
    if count != num_rows:
        raise ValueError(
            f"labels must be as many as {of} has rows, {num_rows}, but have shape "
            f"{list(np.shape(labels))}. Pass the labels of the same rows."
        )
    y = as_labels(labels, num_classes).numpy()
    if y.ndim == 2:
        raise ValueError(
            f"labels must be one class for each row, but are soft rows {list(y.shape)}. Pass "
            "np.argmax(labels, axis=1) if the most probable class is meant."
        )
    return y


def names_of(class_names: Sequence[str] | None, num_classes: int, prefix: str = "") -> list[str]:
    """A name for each class: those that were given, or its number.

    :param class_names: K names, or None.
    :param num_classes: K.
    :param prefix: what stands before a number.
    :raises ValueError: if there are more or fewer names than classes.
    """
    if class_names is None:
        return [f"{prefix}{k}" for k in range(num_classes)]
    if isinstance(class_names, str) or len(class_names) != num_classes:
        raise ValueError(
            f"class_names must be {num_classes} names, one for each class in the order of the "
            f"columns, but is {class_names!r}."
        )
    return [str(name) for name in class_names]


def check_share(name: str, value: Any) -> float:
    """``value`` as a number strictly between 0 and 1.

    :param name: what the argument is called, for the error.
    :param value: the number.
    :raises ValueError: if it is not between them.
    """
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must lie strictly between 0 and 1, but is {value!r}. Try 0.9.")
    return float(value)
