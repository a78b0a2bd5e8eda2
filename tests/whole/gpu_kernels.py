"""Which ops of a traced function have no GPU kernel, read off TensorFlow's kernel registry.

The Linux wheel of TensorFlow is built with CUDA, so the registry lists GPU kernels on machines without
a GPU too. That an op has one for its dtypes is necessary for it to run on a GPU, and not sufficient.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.core.framework import kernel_def_pb2, node_def_pb2, op_def_pb2
from tensorflow.python.framework import kernels, op_def_registry
from tensorflow.python.framework.dtypes import as_dtype

FLOATS = (tf.float32, tf.float64)
HOST_CODE = ("EagerPyFunc", "PyFunc", "PyFuncStateless")  # Python, whatever device it is placed on
Types = tuple[tuple[str, tf.DType], ...]
SCALARS = ("padding_value",)  # arguments that are single numbers, which the host may hold


def ops_without_gpu_kernel(
    function: tf.types.experimental.ConcreteFunction,
    floats: tf.DType = tf.float64,
    compiled: bool = False,
) -> set[str]:
    """Ops, in the function and in all functions it calls, that a GPU cannot run on its own memory.

    :param function: traced in either floating type.
    :param floats: the floating type to look kernels up for; the ops are the same for both.
    :param compiled: look for what XLA compiles for a GPU (``jit_compile=True``) instead.
    """
    _register_xla_kernels()
    devices = ("XLA_GPU_JIT",) if compiled else ("GPU", "DEFAULT")
    return {
        f"{op}({', '.join(dtype.name for _, dtype in types)})"
        for op, types in {(node.op, _types(node, floats)) for node in _nodes(function)}
        if types is not None
        and tf.string not in dict(types).values()  # the sentence of an assertion stays on the host
        and not _has_kernel(op, types, devices)
    }


def op_names(function: tf.types.experimental.ConcreteFunction) -> set[str]:
    """All ops of the function and of the functions it calls."""
    return {node.op for node in _nodes(function)}


def _nodes(function: tf.types.experimental.ConcreteFunction) -> Iterator[node_def_pb2.NodeDef]:
    graph = function.graph.as_graph_def()
    yield from graph.node
    for called in graph.library.function:
        yield from called.node_def


def _types(node: node_def_pb2.NodeDef, floats: tf.DType) -> Types | None:
    """Type attributes of a node; None for an argument, and for a call, whose body is visited itself."""
    op_def = op_def_registry.get(node.op)
    calls = op_def is None or any(a.type in ("func", "list(func)") for a in op_def.attr)
    if calls or node.op == "Placeholder":
        return None
    types = (
        (attribute.name, as_dtype(node.attr[attribute.name].type))
        for attribute in op_def.attr
        if attribute.type == "type" and attribute.name in node.attr
    )
    return tuple((name, floats if dtype in FLOATS else dtype) for name, dtype in types)


@functools.cache
def _register_xla_kernels() -> None:
    """XLA registers its kernels when the first function is compiled."""
    tf.function(tf.negative, jit_compile=True)(tf.constant(1.0))


@functools.cache
def _has_kernel(op: str, types: Types, devices: tuple[str, ...]) -> bool:
    op_def = op_def_registry.get(op)
    if op in HOST_CODE:
        return False
    return any(
        kernel.device_type in devices
        and _allows(kernel, dict(types))
        and not _keeps_floats_on_the_host(kernel, op_def, dict(types))
        for kernel in kernels.get_registered_kernels_for_op(op).kernel
    )


def _allows(kernel: kernel_def_pb2.KernelDef, types: dict[str, tf.DType]) -> bool:
    return all(
        types.get(constraint.name) is None
        or types[constraint.name].as_datatype_enum in constraint.allowed_values.list.type
        for constraint in kernel.constraint
    )


def _keeps_floats_on_the_host(
    kernel: kernel_def_pb2.KernelDef, op_def: op_def_pb2.OpDef, types: dict[str, tf.DType]
) -> bool:
    """Shapes and indices may live on the host; the numbers themselves may not."""
    arguments = {arg.name: arg for arg in (*op_def.input_arg, *op_def.output_arg)}
    return any(
        types.get(arguments[name].type_attr) in FLOATS
        for name in kernel.host_memory_arg
        if name in arguments and name not in SCALARS
    )
