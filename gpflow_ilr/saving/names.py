"""Which classes and functions a file may name: the allow-list, and what users add to it.

A file says ``gpflow.kernels.Matern32``, ``tensorflow_probability.bijectors.Softplus`` or
``gpflow_ilr.ILRGPR``: the public name of a class, which stays when modules move. Nothing is imported
because a file names it.
"""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType
from typing import Any

import gpflow
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods.utils import inv_probit

__all__ = ["RefusedError", "name_of", "named", "register"]

_OURS = "gpflow_ilr"
_PUBLIC: dict[str, ModuleType] = {
    "gpflow.kernels": gpflow.kernels,
    "gpflow.functions": gpflow.functions,
    "gpflow.likelihoods": gpflow.likelihoods,
    "gpflow.models": gpflow.models,
    "gpflow.inducing_variables": gpflow.inducing_variables,
    "gpflow.quadrature": gpflow.quadrature,
    "gpflow.base": gpflow.base,
    "tensorflow_probability.bijectors": tfp.bijectors,
    "tensorflow_probability.distributions": tfp.distributions,
}
_registered: dict[str, Any] = {"tensorflow.exp": tf.exp, "gpflow.inv_probit": inv_probit}


class RefusedError(ValueError):
    """What cannot be saved or loaded, with a sentence that says why."""


def register(thing: Any = None, *, name: str | None = None) -> Any:
    """Let files name a class or function of yours, as Keras does for its files.

    Objects of the class are saved as their attributes, and made anew without a call of ``__init__``;
    bijectors and distributions as their ``parameters``, which their ``__init__`` gets again. Register
    before saving, and before loading, under one name::

        @gpflow_ilr.saving.register
        class Periodic2(gpflow.kernels.Kernel): ...

    :param thing: a class, or a function that models hold (a link, a parse); as a decorator, left out.
    :param name: what files call it; None for module and name, ``your_module.Periodic2``.
    :returns: the class or function.
    :raises TypeError: if it is something else.
    :raises ValueError: if the name is taken by another.
    """
    if thing is None:
        return lambda decorated: register(decorated, name=name)
    if not isinstance(thing, (type, FunctionType)):
        raise TypeError(f"thing must be a class or a function, but is {thing!r}. Pass its class.")
    known: str = f"{thing.__module__}.{thing.__qualname__}" if name is None else name
    if not isinstance(known, str) or known.rpartition(".")[0] in (*_PUBLIC, _OURS):
        raise ValueError(f"name must be text of your own, but is {name!r}. Pass 'my_package.Name'.")
    if not _same(_registered.setdefault(known, thing), thing):
        raise ValueError(
            f"name {known!r} is taken by {_registered[known]!r}. Pass another name for {thing!r}."
        )
    _registered[known] = thing
    return thing


def name_of(thing: Any) -> str | None:
    """What files call a class or function; None if they may not.

    :param thing: a class or a function.
    """
    for name, registered in _registered.items():
        if registered is thing:
            return name
    if not isinstance(thing, type):
        return None
    short: str = thing.__name__
    if _package(thing) == _OURS:
        return f"{_OURS}.{short}" if _ours().get(short) is thing else None
    for public, module in _PUBLIC.items():
        if _package(thing) == _package(module) and getattr(module, short, None) is thing:
            return f"{public}.{short}"
    return None


def named(name: Any) -> Any:
    """The class or function of a name in a file.

    :param name: its name.
    :raises RefusedError: if it is not in the allow-list.
    """
    if isinstance(name, str):
        if name in _registered:
            return _registered[name]
        public, _, last = name.rpartition(".")
        found = _ours().get(last) if public == _OURS else getattr(_PUBLIC.get(public), last, None)
        if isinstance(found, type) and name_of(found) == name:
            return found
    raise RefusedError(
        f"It has a class or function {name!r}, which is not here. If it is yours, import its module "
        f"and call gpflow_ilr.saving.register(it, name={name!r}) before loading; if it is of a "
        "package, load the file with the versions that wrote it."
    )


def _package(thing: Any) -> str:
    name: str = thing.__name__ if isinstance(thing, ModuleType) else thing.__module__
    return name.partition(".")[0]


def _ours() -> dict[str, type | None]:
    """The classes of this package by their names; None where two share one, as Keras layers do."""
    found: dict[str, type | None] = {}
    for module in [m for name, m in sys.modules.items() if name.startswith(f"{_OURS}.")]:
        for name, thing in vars(module).items():
            if isinstance(thing, type) and thing.__module__ == module.__name__:
                found[name] = None if name in found else thing
    return found


def _same(known: Any, thing: Any) -> bool:
    """Whether it is the same, or its module was run again (in a notebook)."""
    places = {(t.__module__, t.__qualname__) for t in (known, thing)}
    return known is thing or (len(places) == 1 and "<locals>" not in thing.__qualname__)
