"""What only the functions of this room are given, checked: names of classes, levels of bands.

The errors name the argument, what it is, and what to pass instead; probabilities and labels are read by
:mod:`gpflow_ilr.inputs.probabilities`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpflow_ilr.inputs.counts import number_or_nan

__all__ = ["check_share", "names_of"]


def names_of(class_names: Sequence[str] | None, num_classes: int, prefix: str = "") -> list[str]:
    """A name for each class: those that were given, or its number.

    :param class_names: K names, or None.
    :param num_classes: K.
    :param prefix: what stands before a number.
    :raises ValueError: if there are more or fewer names than classes.
    """
    if class_names is None:
        return [f"{prefix}{k}" for k in range(num_classes)]
    named = hasattr(class_names, "__len__") and not isinstance(class_names, str)
    if not named or len(class_names) != num_classes:
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
    if not 0.0 < number_or_nan(value) < 1.0:
        raise ValueError(f"{name} must lie strictly between 0 and 1, but is {value!r}. Try 0.9.")
    return float(value)
