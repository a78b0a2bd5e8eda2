"""The one place that reads latents: what methods of a likelihood are given by users and models.

Models give tensors, whose number of columns and dtype are looked at. Users give arrays and lists, which
become tensors of the likelihood's float, and of which none may be NaN.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood

__all__ = ["after_a_look", "of_known_latents"]

Class = TypeVar("Class", bound=type[Likelihood])
Method = TypeVar("Method", bound=Callable[..., Any])

METHODS = (
    "log_prob",
    "conditional_mean",
    "conditional_variance",
    "predict_mean_and_var",
    "predict_log_density",
    "variational_expectations",
)
"""What GPflow's likelihoods are called by: X, latents and, perhaps, labels."""


def of_known_latents(likelihood: Class) -> Class:
    """A likelihood whose public methods look at the latents F, or Fmu and Fvar, before GPflow's do.

    GPflow checks shapes as well, but in eager mode only, and does not know what to do about them.

    :param likelihood: a class with ``num_classes``, ``num_latent_gps`` and ``link_dtype``, None for any
        float.
    """
    for name in METHODS:
        setattr(likelihood, name, after_a_look(getattr(Likelihood, name)))
    return likelihood


def after_a_look(method: Method) -> Method:
    """A method of a likelihood that looks at the latents F, or Fmu and Fvar, before it does anything.

    :param method: with arguments of these names.
    """
    _, *arguments = inspect.signature(method).parameters
    names = {n: place for place, n in enumerate(arguments) if n in ("F", "Fmu", "Fvar")}

    @tf.autograph.experimental.do_not_convert  # two seconds at the first trace, for the same graph
    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = list(args)
        for name, place in names.items():
            if place < len(given):
                given[place] = _as_latents(self, given[place], name)
            elif name in kwargs:
                kwargs[name] = _as_latents(self, kwargs[name], name)
        return method(self, *given, **kwargs)

    return cast(Method, checked)


def _as_latents(likelihood: Any, F: Any, name: str) -> Any:
    """Latents [..., L] of the likelihood's dtype."""
    if not tf.is_tensor(F):
        # log_prob of F has limits where a link bounds probabilities; means and variances have none.
        F = _as_array(F, name, may_be_infinite=name == "F" and likelihood.link_dtype is None)
        if name == "F" and likelihood.num_latent_gps == likelihood.num_classes:
            _check_one_is_left(F)
        _check_columns(likelihood, F, name)
        return tf.constant(F, likelihood.link_dtype)
    _check_columns(likelihood, F, name)
    found = F.dtype.base_dtype
    if found != default_float() and likelihood.link_dtype not in (None, found):
        raise ValueError(
            f"{name} is of {found.name}, but {type(likelihood).__name__} is of "
            f"{likelihood.link_dtype.name}, the default float under which it was built. Set that again "
            f"(gpflow.config.set_default_float), or tf.cast {name}."
        )
    return F


def _as_array(F: Any, name: str, may_be_infinite: bool) -> np.ndarray:
    """Numbers; finite ones where a link adds them up, and ∞ − ∞ would be none."""
    try:
        values = np.asarray(F)
        values = (
            values if values.dtype.kind == "f" and values is F else values.astype(default_float())
        )
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be real numbers [..., L], but is {F!r}. Pass what predict_f returns."
        ) from None
    wrong = np.isnan(values) if may_be_infinite else ~np.isfinite(values)
    wrong |= values < (0.0 if name == "Fvar" else -np.inf)
    if wrong.any():
        rule = "finite and not negative" if name == "Fvar" else "finite"
        raise ValueError(
            f"{name} must be {rule}, but an entry is {values[wrong][0]}. Repair or drop such rows."
        )
    return values


def _check_one_is_left(F: np.ndarray) -> None:
    """Refuse rows where all classes vanish: their probabilities are 0/0."""
    if np.any(np.all(np.isneginf(F), axis=-1)):
        raise ValueError(
            "F must be finite in one latent at least, but is −inf in all of a row. Repair or drop it."
        )


def _check_columns(likelihood: Any, F: Any, name: str) -> None:
    """Refuse latents [..., L'] of a model with another number of them."""
    if name == "Fvar":  # which GPflow compares with Fmu
        return
    shape = tf.TensorShape(F.shape)
    K, L = likelihood.num_classes, likelihood.num_latent_gps
    if shape.rank in (None, 0) or shape[-1] in (None, L):
        return
    why = {K - 1: "one less than classes", K: "one for each class"}
    raise ValueError(
        f"{type(likelihood).__name__} of {K} classes has {L} latents, but the model gives it "
        f"{shape[-1]}. Build the model with num_latent_gps={L} "
        f"({why.get(L, 'the columns of its link matrix')})."
    )
