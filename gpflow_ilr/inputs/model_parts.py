"""What a model is made of beside data and kernel, as users pass it: checked before GPflow sees it.

GPflow takes anything for a mean function or for the number of rows, and fails where it is first used,
far from the user's line.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.models import GPModel

from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.inputs.rows import as_rows

__all__ = [
    "as_inducing_variable",
    "check_float",
    "check_function",
    "check_mean_columns",
    "check_model",
    "check_num_data",
]


def as_inducing_variable(inducing_variable: Any) -> InducingVariables:
    """Inducing variables of GPflow, or inducing inputs [M, D], as GPflow's models want them.

    :param inducing_variable: either of them.
    :raises TypeError: if it is neither.
    :raises ValueError: if the inputs are not finite, or none.
    """
    if isinstance(inducing_variable, InducingVariables):
        return inducing_variable
    if isinstance(inducing_variable, numbers.Number):
        raise TypeError(
            f"inducing_variable must be inducing inputs [M, D], but is the number "
            f"{inducing_variable!r}. Pass rows: kmeans_plusplus(X, {inducing_variable!r})."
        )
    return InducingPoints(as_rows(inducing_variable, name="inducing_variable"))


def check_function(name: str, value: Any, example: str) -> None:
    """Refuse what cannot be called; None is for the argument's default.

    :param name: what the argument is called, for the error.
    :param value: what was passed.
    :param example: what to pass instead.
    :raises TypeError: if it is no function.
    """
    if value is not None and not callable(value):
        raise TypeError(
            f"{name} must be a function, or None, but is {value!r}. Pass {example}, or leave it out."
        )


def check_num_data(num_data: Any) -> None:
    """Refuse numbers of rows that cannot be; a tensor is taken as it is.

    :param num_data: N, or None where it is not known.
    :raises ValueError: if it is no positive integer.
    """
    if num_data is not None and not tf.is_tensor(num_data):
        check_count("num_data", num_data)


def check_mean_columns(mean_function: Any, X: tf.Tensor, num_latent_gps: int) -> None:
    """Refuse a mean function for another number of latent functions.

    :param mean_function: from inputs [N, D] to [N, 1], or to a column for each latent function.
    :param X: inputs, of which the first is tried.
    :param num_latent_gps: number of latent functions.
    :raises ValueError: naming the numbers of columns.
    """
    columns = mean_function(X[:1]).shape[-1]
    if columns not in (1, num_latent_gps):
        raise ValueError(
            f"mean_function must return one column, or {num_latent_gps}, one for each latent function, "
            f"but returns {columns}. Build it for {num_latent_gps}."
        )


def check_float(model: Any) -> None:
    """Refuse to compute with a model that was built under another default float of GPflow.

    TensorFlow would say so of some product within.

    :param model: whose kernel has parameters; one without, such as a frozen one, is taken as it is.
    :raises ValueError: naming both floats.
    """
    parameter = next(iter(model.kernel.parameters), None)
    if parameter is not None and parameter.dtype != default_float():
        raise ValueError(
            f"{type(model).__name__} was built in {parameter.dtype.name}, but GPflow's default float "
            f"is {tf.as_dtype(default_float()).name} now. Call gpflow.config.set_default_float(np."
            f"{parameter.dtype.name}) before using it, or build the model anew."
        )


def check_model(model: Any, example: str = "ILRGPR((X, y), kernel, num_classes=K)") -> None:
    """Refuse what is no model of GPflow.

    :param model: what was passed.
    :param example: what to pass instead.
    :raises TypeError: if it is something else, such as the class or the data.
    """
    if not isinstance(model, GPModel):
        what = (
            f"the class {model.__name__}" if isinstance(model, type) else f"of type {_kind(model)}"
        )
        raise TypeError(
            f"model must be a model of GPflow or of this package, but is {what}. Build one, for "
            f"example {example}."
        )


def _kind(value: Any) -> str:
    """A type, with the shape where there is one."""
    shape = f" with shape {list(value.shape)}" if isinstance(value, np.ndarray) else ""
    return f"{type(value).__name__}{shape}"
