"""The one place that checks counts (of nodes, rows, draws, bins, inducing inputs) and spreads rows."""

from typing import Any

import numpy as np

__all__ = ["check_count", "check_row_numbers", "evenly_spaced"]


def check_count(name: str, value: Any, smallest: int = 1) -> int:
    """``value`` as a Python integer.

    :param name: what the argument is called, for the error.
    :param value: an integer of any kind.
    :param smallest: the least that makes sense.
    :raises ValueError: if it is not an integer, or smaller.
    """
    integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not integer or value < smallest:
        raise ValueError(f"{name} must be an integer of at least {smallest}, but is {value!r}.")
    return int(value)


def check_row_numbers(name: str, rows: Any, num_rows: int) -> np.ndarray:
    """Numbers of one or more rows, as int32.

    :param name: what the argument is called, for the error.
    :param rows: the numbers.
    :param num_rows: how many rows there are.
    :raises ValueError: if they are not integers in one dimension, or no row has one of them.
    """
    numbers = np.asarray(rows)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not len(numbers):
        raise ValueError(
            f"{name} must be the numbers of one or more rows, in one dimension, but has shape "
            f"{list(numbers.shape)} and dtype {numbers.dtype}."
        )
    if not 0 <= numbers.min() <= numbers.max() < num_rows:
        raise ValueError(
            f"{name} must be between 0 and {num_rows - 1}, but they reach from {numbers.min()} to "
            f"{numbers.max()}."
        )
    return numbers.astype(np.int32)


def evenly_spaced(num_rows: int, count: int) -> np.ndarray:
    """Numbers of ``count`` rows from the first to the last, or of all rows if there are no more.

    :param num_rows: number of all rows, at least one.
    :param count: how many, at least one.
    """
    rows = np.linspace(0, num_rows - 1, min(count, num_rows)).round()
    return np.asarray(rows, np.int32)
