"""Data frames, told by their attributes: pandas and polars are read, but never imported.

A frame knows what each column is, so a column that holds no numbers is refused by its name, before
NumPy makes objects of the whole frame.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from gpflow_ilr.inputs.arrays import encoding

__all__ = ["is_frame", "read_frame"]


def is_frame(X: Any) -> bool:
    """Whether ``X`` has the columns of a data frame."""
    return all(hasattr(X, attribute) for attribute in ("columns", "dtypes", "to_numpy"))


def read_frame(frame: Any, name: str) -> tuple[np.ndarray, list[Any]]:
    """The values of a frame [N, D], where what is missing is NaN, and the names of its columns.

    :param frame: a data frame of boolean, integer or float columns, also pandas' nullable ones.
    :param name: what the argument is called, for the error.
    :raises TypeError: if a column holds something else, with its name and its first such value.
    """
    columns, dtypes = list(frame.columns), list(frame.dtypes)
    for position, (column, dtype) in enumerate(zip(columns, dtypes, strict=True)):
        if not _is_real_column(dtype):
            raise TypeError(
                f"{name} must hold real numbers, but column {column!r} has dtype {dtype}"
                f"{_first_stranger(frame, position)}. "
                + encoding(getattr(dtype, "kind", "O"), f"{name}[{column!r}]")
            )
    if not dtypes or not all(hasattr(dtype, "kind") for dtype in dtypes):
        return np.asarray(frame.to_numpy()), columns
    if all(isinstance(dtype, np.dtype) for dtype in dtypes):
        # By name, because pandas makes objects of booleans beside numbers.
        return frame.to_numpy(np.result_type(*dtypes)), columns
    return frame.to_numpy(np.float64, na_value=np.nan), columns


def _is_real_column(dtype: Any) -> bool:
    """Whether a dtype of pandas or of polars is one of booleans, integers or floats."""
    if hasattr(dtype, "kind"):  # NumPy's letter, which pandas' own dtypes have too
        return dtype.kind in "biuf"
    return str(dtype) == "Boolean" or (hasattr(dtype, "is_numeric") and bool(dtype.is_numeric()))


def _first_stranger(frame: Any, position: int) -> str:
    """Where in a column the first value is that is no number, for the error."""
    column = frame.iloc[:, position] if hasattr(frame, "iloc") else frame[:, position]
    values = list(column)
    strangers = (i for i, value in enumerate(values) if not isinstance(value, numbers.Real))
    row = next(strangers, 0)
    return f" (row {row} is {values[row]!r})" if values else ""
