"""The one place that checks numbers: counts (of nodes, rows, draws, bins), seeds, and any others."""

from typing import Any

import numpy as np

__all__ = [
    "check_count",
    "check_row_numbers",
    "check_seed",
    "evenly_spaced",
    "number_or_nan",
]


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


def check_seed(value: Any, name: str = "seed") -> int:
    """``value`` as a seed of random numbers.

    :param value: an integer of any kind, not negative.
    :param name: what the argument is called, for the error.
    :raises ValueError: if it is something else.
    """
    integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not integer or value < 0:
        raise ValueError(
            f"{name} must be an integer that is not negative, but is {value!r}. Pass 0, for example."
        )
    return int(value)


def number_or_nan(value: Any) -> float:
    """``value`` as a float, or NaN, which fails every comparison, if it is no single number.

    :param value: anything; text is no number.
    """
    if isinstance(value, (str, bytes, bool)):
        return np.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan


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
