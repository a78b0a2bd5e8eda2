"""From data to a model: objects are made without a call of what a file says.

Classes come from the allow-list and get their attributes as they were. Only bijectors, distributions
and parameters are constructed, by their own constructors.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from inspect import isdatadescriptor
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter

from gpflow_ilr.saving.describe import CONSTRUCTED, DTYPES, is_of_tensorflow
from gpflow_ilr.saving.names import RefusedError, named

__all__ = ["arrays_of", "rebuild"]

_CARRIERS = ("array", "tensor", "variable")
_GENERATORS = {cls.__name__: cls for cls in (np.random.PCG64, np.random.PCG64DXSM, np.random.SFC64)}


def arrays_of(description: dict[str, Any]) -> Iterator[tuple[np.dtype, tuple[int, ...]]]:
    """Dtype and shape of each array that should follow a description.

    :param description: what the file says.
    :raises RefusedError: if one of them is no array of numbers.
    """
    for thing in description["objects"]:
        for carrier in _CARRIERS:
            if carrier in thing:
                dtype, shape = thing[carrier]
                if dtype not in DTYPES:
                    raise RefusedError(
                        f"It has an array of dtype {dtype!r}, which is not of numbers."
                    )
                if not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 32:
                    raise RefusedError(f"It has an array of shape {shape!r}.")
                yield np.dtype(dtype).newbyteorder("<"), tuple(shape)


def rebuild(description: dict[str, Any], arrays: Iterator[np.ndarray]) -> Any:
    """What was described.

    :param description: what the file says.
    :param arrays: those that :func:`arrays_of` asks for, in that order.
    :raises RefusedError: if a class is not in the allow-list.
    """
    builder = _Builder(description["objects"], arrays)
    return builder.value(description["root"])


class _Builder:
    def __init__(self, objects: list[dict[str, Any]], arrays: Iterator[np.ndarray]) -> None:
        self._objects = objects
        self._arrays = {
            number: next(arrays)
            for number, thing in enumerate(objects)
            if any(carrier in thing for carrier in _CARRIERS)
        }
        # A parameter makes its variable itself.
        self._owners = {t["parameter"]: n for n, t in enumerate(objects) if "parameter" in t}
        self._made: dict[int, Any] = {}
        self._under_way: set[int] = set()

    def value(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, list):
            return [self.value(item) for item in value]
        match value:
            case {"float": "nan" | "inf" | "-inf" as text}:
                return float(text)
            case {"tuple": list(items)}:
                return tuple(map(self.value, items))
            case {"dict": list(pairs)}:
                return {self.value(key): self.value(item) for key, item in pairs}
            case {"slice": [start, stop, step]}:
                return slice(*map(self.value, (start, stop, step)))
            case {"scalar": dtype, "value": number} if dtype in DTYPES:
                return np.dtype(dtype).type(self.value(number))
            case {"dtype": str(name)}:
                return tf.as_dtype(name)
            case {"known": name}:
                return named(name)
            case {"enum": name, "member": str(member)}:
                return _class(name, Enum)[member]
            case {"named": name, "items": list(items)}:
                cls = _class(name, tuple)
                if len(items) != len(cls._fields):
                    raise RefusedError(f"It has a {name} of {len(items)} items.")
                return tuple.__new__(cls, map(self.value, items))
            case {"object": int(number)} if type(number) is int:
                return self._object(number)
        raise RefusedError(f"It has {value!r}, which this version cannot read.")

    def _object(self, number: int) -> Any:
        if number not in self._made:
            if number in self._under_way or number < 0:
                raise RefusedError("It has an object that is a part of itself.")
            self._under_way.add(number)
            self._made[number] = self._make(number, self._objects[number])
        return self._made[number]

    def _make(self, number: int, thing: dict[str, Any]) -> Any:
        match thing:
            case {"array": _, "transposed": bool(transposed)}:
                array = self._arrays[number]
                return array.T if transposed else array
            case {"tensor": _}:
                return tf.constant(self._arrays[number])
            case {"variable": _}:
                if number in self._owners:
                    return self._object(self._owners[number]).unconstrained_variable
                return self._variable(number)
            case {"parameter": int(variable)}:
                return self._parameter(variable, thing)
            case {"generator": state}:
                restored = self.value(state)
                bits = _GENERATORS[restored["bit_generator"]]()
                bits.state = restored
                return np.random.Generator(bits)
            case {"class": name, "parameters": dict(given)}:
                arguments = {key: self.value(value) for key, value in given.items()}
                return _class(name, CONSTRUCTED)(**arguments)
            case {"class": name, "state": dict(state)}:
                made = object.__new__(_class(name, object))
                self._made[number] = made  # before its parts, which may hold it
                self._fill(made, state, thing["name"])
                return made
        raise RefusedError(f"It has an object of {sorted(thing)}, which this version cannot read.")

    def _variable(self, number: int) -> tf.Variable:
        thing = self._objects[number]
        shape = None if thing["shape"] is None else tf.TensorShape(thing["shape"])
        return tf.Variable(self._arrays[number], trainable=thing["trainable"], shape=shape)

    def _parameter(self, variable: int, thing: dict[str, Any]) -> Parameter:
        raw, of_raw = self._arrays[variable], self._objects[variable]
        transform = self.value(thing["transform"])
        # The constructor inverts the transform, with rounding: the value proper is assigned afterwards,
        # and in the meantime there is one that every transform takes, also from an interval (0, 1).
        some = transform.forward(np.full(raw.shape, 0.5).astype(raw.dtype))
        parameter = Parameter(
            some,
            transform=transform,
            prior=self.value(thing["prior"]),
            prior_on=thing["prior_on"],
            trainable=of_raw["trainable"],
            name=thing["name"],
            unconstrained_shape=of_raw["shape"],
            constrained_shape=thing["shape"],
        )
        parameter.unconstrained_variable.assign(raw)
        return parameter

    def _fill(self, made: Any, state: dict[str, Any], name: str | None) -> None:
        module = isinstance(made, tf.Module)
        if module:
            tf.Module.__init__(made, name=name)
        for key, described in state.items():
            if not key.isidentifier() or key.startswith("__") or (module and is_of_tensorflow(key)):
                raise RefusedError(f"It has an attribute {key!r} of a {type(made).__name__}.")
            value = self.value(described)
            if module and not isdatadescriptor(getattr(type(made), key, None)):
                tf.Module.__setattr__(made, key, value)  # which tracks variables and lists
            else:
                vars(made)[key] = value  # without a call of a property's setter


def _class(name: Any, base: Any) -> Any:
    """The class of a name, of a kind that is made in this way."""
    cls = named(name)
    apart = (Enum, Parameter, tf.Variable, *CONSTRUCTED) if base is object else ()
    if not isinstance(cls, type) or not issubclass(cls, base) or issubclass(cls, apart):
        raise RefusedError(f"It has a {name} where that is not possible.")
    return cls
