"""What every layer with a GP inside shares: its precision, its kernel, its variables in Keras' files.

A kernel is given by a name or by a function, never as an object, so that a layer can be rebuilt from
plain data. Everything that was learned is among the variables, which are saved by the paths that
GPflow has for them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import IsotropicStationary, Kernel
from gpflow.utilities import parameter_dict

from gpflow_ilr import expectations
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.inputs.counts import number_or_nan
from gpflow_ilr.inputs.keras_layers import refuse_keras_layers

__all__ = [
    "LINEAR",
    "GPLayerLogic",
    "KernelSpec",
    "check_kernel",
    "check_precision",
    "gp_precision",
    "make_kernel",
]

KernelSpec = str | Callable[[], Kernel]
"""The name of a kernel, or a function without arguments that returns one."""

LINEAR = "Linear"
"""The name of the kernel hᵀh' + 1, that of a Bayesian last layer with its bias: of finite rank."""


def check_kernel(kernel: Any) -> KernelSpec:
    """``kernel``, if a layer can be rebuilt from it.

    :param kernel: what a user passed.
    :raises TypeError: if it is neither a name nor a function.
    """
    if isinstance(kernel, Kernel) or not (isinstance(kernel, str) or callable(kernel)):
        raise TypeError(
            "kernel must be the name of a stationary GPflow kernel or a function that returns a "
            f"kernel, so that the layer can be saved and rebuilt, but it is {kernel!r}. Pass a "
            "function: def my_kernel(): return gpflow.kernels.…"
        )
    return kernel


def make_kernel(kernel: KernelSpec, variance: float, lengthscale: float) -> Kernel:
    """The kernel of a name, at a start, or of a function, as that makes it.

    :param kernel: as :func:`check_kernel` returned it.
    :param variance: start of a named kernel's variance.
    :param lengthscale: start of a named kernel's lengthscale.
    :raises ValueError: if there is no isotropic stationary kernel of that name.
    """
    if callable(kernel):
        made = kernel()
        refuse_keras_layers(made, "kernel")
        return made
    if kernel == LINEAR:
        return gpflow.kernels.Linear(variance) + gpflow.kernels.Constant(variance)
    kernel_class = getattr(gpflow.kernels, kernel, None)
    if not (isinstance(kernel_class, type) and issubclass(kernel_class, IsotropicStationary)):
        raise ValueError(
            f"gpflow.kernels has no isotropic stationary kernel {kernel!r}. Use for example "
            "'SquaredExponential' or 'Matern52', or pass a function that returns a kernel."
        )
    return kernel_class(variance=variance, lengthscales=lengthscale)


@contextmanager
def gp_precision(gp_dtype: str, jitter: float, **options: Any) -> Iterator[None]:
    """GPflow's configuration with another float and jitter.

    :param gp_dtype: ``"float64"`` or ``"float32"``.
    :param jitter: GPflow's default jitter.
    :param options: what else is different, by its name in ``gpflow.config.Config``.
    """
    config = dataclasses.replace(
        gpflow.config.config(), float=np.dtype(gp_dtype).type, jitter=jitter, **options
    )
    with gpflow.config.as_context(config):
        yield


def check_precision(gp_dtype: Any, jitter: Any) -> tuple[str, float]:
    """The name of the dtype, and the jitter, in which a GP computes; GPflow's defaults for None.

    :param gp_dtype: ``"float32"``, ``"float64"`` or None.
    :param jitter: a number of at least 0, or None.
    :raises ValueError: if one is something else.
    """
    dtype: Any = gpflow.default_float() if gp_dtype is None else gp_dtype
    if dtype not in ("float32", "float64", tf.float32, tf.float64, np.float32, np.float64):
        raise ValueError(f"gp_dtype must be 'float32' or 'float64', but it is {gp_dtype!r}.")
    size = gpflow.default_jitter() if jitter is None else number_or_nan(jitter)
    if not size >= 0.0:
        raise ValueError(f"jitter must be a number of at least 0, but it is {jitter!r}.")
    return tf.as_dtype(dtype).name, size


class GPLayerLogic:
    """Precision, kernel and saving of a layer whose attribute ``gp`` is a GPflow module."""

    build: Callable[[Any], None]
    built: bool
    compute_dtype: str
    gp: Any
    name: str
    _keras: ClassVar[Any]
    _flags_changed: Callable[[], None]

    def _set_gp_options(
        self, kernel: Any, nodes: NodeRule | None, gp_dtype: str | None, jitter: float | None
    ) -> None:
        """Check and keep what all layers are given."""
        self.kernel = check_kernel(kernel)
        self.nodes = nodes
        self.gp_dtype, self.jitter = check_precision(gp_dtype, jitter)

    @contextmanager
    def precision(self, **options: Any) -> Iterator[None]:
        """GPflow's configuration of this layer, for calls of ``head.gp`` outside of the layer.

        :param options: what else is different, by its name in ``gpflow.config.Config``.
        """
        with gp_precision(self.gp_dtype, self.jitter, **options):
            yield

    def _num_features(self, input_shape: Any) -> int:
        """D, of the shape that Keras builds the layer with."""
        if input_shape[-1] is None:
            raise ValueError(
                f"{type(self).__name__} needs to know the number of features, but the last dimension "
                "of its input is None. Fix it, for example with Input(shape=(D,))."
            )
        return int(input_shape[-1])

    def _check_features(self, inputs: tf.Tensor) -> None:
        if inputs.shape.rank != 2:
            raise ValueError(
                f"{type(self).__name__} wants features [N, D], but they have shape {inputs.shape}. Put "
                "a Flatten or a pooling layer before it."
            )

    @property
    def _output_dtype(self) -> tf.DType:
        """Half precision cannot hold probabilities near 0."""
        dtype = tf.as_dtype(self.compute_dtype)
        return tf.float32 if dtype.size < 4 else dtype

    # Variables and saving

    def _gp_variables(self) -> dict[str, tf.Variable]:
        """Every variable of the GP by the path of its parameter, each once."""
        if not self.built and not hasattr(self, "gp"):
            return {}
        named = {
            path: getattr(parameter, "unconstrained_variable", parameter)
            for path, parameter in parameter_dict(self.gp).items()
        }
        seen: set[int] = set()
        return {
            path: v
            for path, v in named.items()
            if not (id(v) in seen or seen.add(id(v)))  # type: ignore[func-returns-value]
        }

    def _is_trained(self, path: str, variable: tf.Variable) -> bool:
        """Whether a variable of the GP is trained when the layer is."""
        return bool(variable.trainable)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, as plain data."""
        kernel: Any = self.kernel
        if callable(kernel):
            kernel = self._keras.saving.serialize_keras_object(kernel)
        return {
            **super().get_config(),  # type: ignore[misc]
            "kernel": kernel,
            "nodes": _rule_as_data(self.nodes),
            "gp_dtype": self.gp_dtype,
            "jitter": self.jitter,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """The layer of a configuration that :meth:`get_config` returned."""
        config = dict(config)
        if isinstance(config["kernel"], dict):
            config["kernel"] = cls._keras.saving.deserialize_keras_object(config["kernel"])
        if config["nodes"] is not None:
            options = dict(config["nodes"])
            config["nodes"] = getattr(expectations, options.pop("rule"))(**options)
        return cls(**config)

    def save_own_variables(self, store: Any) -> None:
        """Put every variable of the GP into the store, by its path."""
        for path, variable in self._gp_variables().items():
            store[path] = variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Take every variable of the GP from the store, by its path.

        :raises ValueError: if the store is that of another GP; nothing is assigned then.
        """
        variables = self._gp_variables()
        expected = {path: tuple(v.shape) for path, v in variables.items()}
        found = {path: tuple(store[path].shape) for path in store.keys()}  # noqa: SIM118 - Keras' stores do not iterate
        if expected != found:
            name = type(self).__name__
            raise ValueError(
                f"The weights are those of another {name}: they have {found}, but this layer has "
                f"{expected}. Build the model as it was when it was saved."
            )
        for path, variable in variables.items():
            variable.assign(np.asarray(store[path], dtype=self.gp_dtype))


def _rule_as_data(rule: NodeRule | None) -> dict[str, Any] | None:
    if rule is None:
        return None
    name = type(rule).__name__
    if getattr(expectations, name, None) is not type(rule):
        raise TypeError(f"A layer with nodes of class {name} cannot be saved: use Sobol(...).")
    return {"rule": name, **dataclasses.asdict(rule)}  # type: ignore[call-overload]
