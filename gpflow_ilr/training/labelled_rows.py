"""Rows that a model is trained or judged on, refused before a compiled function meets them.

Inside a graph a label that cannot be is an assertion among a hundred lines of traceback, and no rows at
all are a loss of zero. Arrays have their values here, so they are read here.
"""

from __future__ import annotations

from typing import Any

from gpflow_ilr.inputs.labels import as_labels
from gpflow_ilr.inputs.rows import LabelledData, as_inputs, as_rows
from gpflow_ilr.models.batches import as_batch

__all__ = ["labelled_rows"]


def labelled_rows(model: Any, rows: Any, name: str = "data") -> LabelledData:
    """X in the default float, labels with a last axis and weights, if given, of one or more rows.

    :param model: whose rows they are; where it knows its classes, labels must be such.
    :param rows: (X, y), or (X, y, weights), with values.
    :param name: what the argument is called, for the error.
    :raises TypeError: if X is no real numbers.
    :raises ValueError: if it is no such tuple, or X, y or weights make no sense.
    """
    if not isinstance(rows, (tuple, list)) or len(rows) not in (2, 3):
        raise ValueError(
            f"{name} must be rows (X, y), or (X, y, weights), but is of type {type(rows).__name__}. "
            "Pass arrays; of a dataset, take some batches."
        )
    X = as_inputs(rows[0], getattr(model, "num_columns", None))
    if X.shape[0] == 0:
        raise ValueError(
            f"{name} must be rows (X, y), but has none: X has shape {X.shape.as_list()}. Pass at least "
            "one row, or leave it out."
        )
    X = as_rows(X)
    num_classes = getattr(getattr(model, "likelihood", None), "num_classes", None)
    if isinstance(num_classes, int):
        as_labels(rows[1], num_classes, num_rows=len(X))
    return as_batch((X, *rows[1:]))
