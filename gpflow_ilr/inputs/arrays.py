"""What reading inputs and reading labels have in common: which dtypes are numbers, which row is odd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["encoding", "first", "is_real", "odd_row", "row_name"]

_ENCODINGS = {
    "c": "Pass real and imaginary parts as columns.",
    "M": "Pass times as numbers, for example days since a start.",
    "m": "Pass durations as numbers, for example in days.",
}


def is_real(dtype: np.dtype) -> bool:
    """Whether a dtype of NumPy holds booleans, integers or floats."""
    # TensorFlow's bfloat16 is a stranger to NumPy, which files it under raw bytes.
    return dtype.kind in "biuf" or dtype.name == "bfloat16"


def encoding(kind: str, name: str) -> str:
    """What to do with inputs that are no real numbers.

    :param kind: NumPy's letter for what they are.
    :param name: what they are called.
    """
    categories = (
        "Encode categories as numbers, for example one-hot, and convert numbers that are text with "
        f"{name}.astype(float)."
    )
    return _ENCODINGS.get(kind, categories)


def first(bad: np.ndarray) -> tuple[int, ...]:
    """The position of the first entry that is True."""
    return tuple(int(i) for i in np.unravel_index(np.argmax(bad), bad.shape))


def row_name(index: tuple[int, ...]) -> str:
    """How sentences call a position among the leading dimensions."""
    return f"row {index[0] if len(index) == 1 else index}"


def odd_row(rows: Sequence[Any]) -> int | None:
    """The first row whose shape is not that of row 0, if there is one."""
    # As objects, for which NumPy accepts every nesting.
    shapes = [np.array(row, dtype=object).shape for row in rows]
    return next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
