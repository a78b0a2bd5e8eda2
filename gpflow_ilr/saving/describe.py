"""From a model to data: a description of what it is made of, and its arrays.

Numbers, text, lists, tuples and dictionaries stand in the description as they are; everything that
may be shared (modules, parameters, variables, tensors, arrays) has a number, and stands there once.
"""

from __future__ import annotations

import inspect
import math
from enum import Enum
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter

from gpflow_ilr.saving.names import RefusedError, name_of

__all__ = ["CONSTRUCTED", "DTYPES", "Description", "is_of_tensorflow"]

CONSTRUCTED = (tfp.bijectors.Bijector, tfp.distributions.Distribution)
"""What is made by its constructor, whose arguments it remembers: the rest of it is caches."""

_BITS = {
    "int": (8, 16, 32, 64),
    "uint": (8, 16, 32, 64),
    "float": (16, 32, 64),
    "complex": (64, 128),
}
DTYPES = frozenset(["bool", *(f"{kind}{n}" for kind, bits in _BITS.items() for n in bits)])
"""Of arrays in files, little-endian: none that holds objects."""


def is_of_tensorflow(attribute: str) -> bool:
    """Whether TensorFlow keeps an attribute of a module for itself, and makes it anew."""
    return attribute.startswith("_self_") or attribute in ("_name", "_name_scope")


class Description:
    """What a file says about a model, and the arrays that follow, in the order of their objects.

    :param model: the model.
    :raises RefusedError: if it has something that is not data.
    """

    def __init__(self, model: Any) -> None:
        self.objects: list[dict[str, Any]] = []
        self.arrays: list[np.ndarray] = []
        self.floats: set[tf.DType] = set()
        """Of the parameters, which are those that the model was built in."""
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # so that none of the identities above is given again
        self.root = self._value(model, "model")

    def as_json(self) -> dict[str, Any]:
        """What goes into the file as text."""
        return {"root": self.root, "objects": self.objects}

    def _value(self, thing: Any, where: str) -> Any:
        if thing is None or type(thing) in (bool, int, str):
            return thing
        if type(thing) is float:
            return thing if math.isfinite(thing) else {"float": repr(thing)}
        if isinstance(thing, Enum):
            return {"enum": self._class(thing, where), "member": thing.name}
        if isinstance(thing, np.generic):
            value = self._value(thing.item(), where)
            return {"scalar": _dtype(thing, where), "value": value}
        if isinstance(thing, (list, tuple)):
            items = [self._value(item, f"{where}[{i}]") for i, item in enumerate(thing)]
            if isinstance(thing, list):
                return items
            if hasattr(thing, "_fields"):
                return {"named": self._class(thing, where), "items": items}
            return {"tuple": items}
        if isinstance(thing, dict):
            pairs = thing.items()
            return {
                "dict": [
                    [self._value(k, where), self._value(v, f"{where}[{k!r}]")] for k, v in pairs
                ]
            }
        if isinstance(thing, slice):
            parts = (thing.start, thing.stop, thing.step)
            return {"slice": [self._value(part, where) for part in parts]}
        if isinstance(thing, tf.DType):
            return {"dtype": thing.name}
        if name := name_of(thing):
            return {"known": name}
        return {"object": self._number(thing, where)}

    def _number(self, thing: Any, where: str) -> int:
        if id(thing) not in self._numbers:
            number = self._numbers[id(thing)] = len(self.objects)
            self._alive.append(thing)
            self.objects.append({})
            self.objects[number] |= self._object(thing, where)
        return self._numbers[id(thing)]

    def _object(self, thing: Any, where: str) -> dict[str, Any]:
        if isinstance(thing, np.ndarray):
            transposed = thing.flags.f_contiguous and not thing.flags.c_contiguous
            kept = self._array(thing.T if transposed else thing, where)
            return {"array": kept, "transposed": transposed}
        if isinstance(thing, tf.Variable):
            shape = None if thing.shape.is_fully_defined() else _shape(thing)
            values = self._array(thing.numpy(), where)
            return {"variable": values, "trainable": bool(thing.trainable), "shape": shape}
        if isinstance(thing, tf.Tensor) and hasattr(thing, "numpy"):
            return {"tensor": self._array(thing.numpy(), where)}
        if type(thing) is Parameter:
            return self._parameter(thing, where)
        if isinstance(thing, np.random.Generator):
            return {"generator": self._value(thing.bit_generator.state, where)}
        if isinstance(thing, CONSTRUCTED):
            known = self._class(thing, where)
            given = {
                key: self._value(value, f"{where}.{key}")
                for key, value in thing.parameters.items()
                if not _is_default_function(type(thing), key, value)
            }
            return {"class": known, "parameters": given}
        known, state = self._class(thing, where), _state(thing, where)
        described = {
            key: self._value(value, f"{where}.{key}")
            for key, value in state.items()
            if not (isinstance(thing, tf.Module) and is_of_tensorflow(key))
        }
        # GPflow has modules that never called their base's constructor, and have no name.
        return {"class": known, "state": described, "name": state.get("_name")}

    def _parameter(self, thing: Parameter, where: str) -> dict[str, Any]:
        self.floats.add(thing.dtype)
        return {
            "parameter": self._number(thing.unconstrained_variable, where),
            "name": thing.name,
            "shape": None if thing.shape.is_fully_defined() else _shape(thing),
            "transform": self._value(thing.transform, f"{where}.transform"),
            "prior": self._value(thing.prior, f"{where}.prior"),
            "prior_on": thing.prior_on.value,
        }

    def _array(self, values: np.ndarray, where: str) -> list[Any]:
        """The dtype and shape of an array that follows."""
        kept = [_dtype(values, where), list(values.shape)]
        self.arrays.append(values)
        return kept

    def _class(self, thing: Any, where: str) -> str:
        # __class__ looks through what TensorFlow wraps around named tuples.
        cls = thing.__class__
        known = name_of(cls)
        if known is None:
            code = cls.__name__ in ("function", "method", "builtin_function_or_method", "Function")
            why = "and files carry no code" if code else f"of class {cls.__qualname__}"
            raise RefusedError(
                f"{where} cannot be saved: it is {thing!r}, {why}. Call gpflow_ilr.saving.register("
                f"{'function' if code else cls.__name__}) before saving and loading, or take it out of "
                "the model."
            )
        return known


def _is_default_function(cls: Any, argument: str, value: Any) -> bool:
    """Whether an argument is a function that the constructor takes by itself."""
    expected = inspect.signature(cls.__init__).parameters.get(argument)
    return callable(value) and expected is not None and expected.default is value


def _state(thing: Any, where: str) -> dict[str, Any]:
    """The attributes; those that can be computed again are left out by ``__getstate__``."""
    own = getattr(type(thing), "__getstate__", None) is not getattr(object, "__getstate__", None)
    state = thing.__getstate__() if own else getattr(thing, "__dict__", None)
    if not isinstance(state, dict):
        raise RefusedError(
            f"{where} cannot be saved: a {type(thing).__qualname__} keeps its attributes in slots."
        )
    return state


def _dtype(values: np.ndarray | np.generic, where: str) -> str:
    if values.dtype.name not in DTYPES:
        raise RefusedError(
            f"{where} cannot be saved: it has the dtype {values.dtype}. Convert it to numbers, or take "
            "it out of the model."
        )
    return values.dtype.name


def _shape(thing: Any) -> list[int | None] | None:
    return None if thing.shape.rank is None else thing.shape.as_list()
