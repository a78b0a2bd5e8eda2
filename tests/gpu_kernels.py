"""Which ops of a traced function have no GPU kernel, read off TensorFlow's kernel registry.

The Linux wheel of TensorFlow is built with CUDA, so the registry lists GPU kernels on machines without
a GPU too. That an op has one for its dtypes is necessary for it to run on a GPU, and not sufficient.
"""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf
from tensorflow.core.framework import kernel_def_pb2, node_def_pb2, op_def_pb2
from tensorflow.python.framework import kernels, op_def_registry
from tensorflow.python.framework.dtypes import as_dtype

FLOATS = (tf.float32, tf.float64)
HOST_CODE = ("EagerPyFunc", "PyFunc", "PyFuncStateless")  # Python, whatever device it is placed on
SCALARS = ("padding_value",)  # arguments that are single numbers, which the host may hold


def ops_without_gpu_kernel(
    function: tf.types.experimental.ConcreteFunction, floats: tf.DType = tf.float64
) -> set[str]:
    """Ops, in the function and in all functions it calls, that a GPU cannot run on its own memory.

    :param function: traced in either floating type.
    :param floats: the floating type to look kernels up for; the ops are the same for both.
    """
    return {
        f"{node.op}({', '.join(dtype.name for dtype in types.values())})"
        for node in _nodes(function)
        if (types := _types(node, floats)) is not None
        and tf.string not in types.values()  # the sentence of an assertion stays on the host
        and not _has_gpu_kernel(node, types)
    }


def op_names(function: tf.types.experimental.ConcreteFunction) -> set[str]:
    """All ops of the function and of the functions it calls."""
    return {node.op for node in _nodes(function)}


def _nodes(function: tf.types.experimental.ConcreteFunction) -> Iterator[node_def_pb2.NodeDef]:
    graph = function.graph.as_graph_def()
    yield from graph.node
    for called in graph.library.function:
        yield from called.node_def


def _types(node: node_def_pb2.NodeDef, floats: tf.DType) -> dict[str, tf.DType] | None:
    """Type attributes of a node; None for a call of a function, whose body is visited itself."""
    op_def = op_def_registry.get(node.op)
    if op_def is None or any(a.type in ("func", "list(func)") for a in op_def.attr):
        return None
    types = {
        attribute.name: as_dtype(node.attr[attribute.name].type)
        for attribute in op_def.attr
        if attribute.type == "type" and attribute.name in node.attr
    }
    return {name: floats if dtype in FLOATS else dtype for name, dtype in types.items()}


def _has_gpu_kernel(node: node_def_pb2.NodeDef, types: dict[str, tf.DType]) -> bool:
    op_def = op_def_registry.get(node.op)
    if node.op in HOST_CODE:
        return False
    registered = kernels.get_registered_kernels_for_op(node.op).kernel
    return any(
        kernel.device_type in ("GPU", "DEFAULT")
        and _allows(kernel, types)
        and not _keeps_floats_on_the_host(kernel, op_def, types)
        for kernel in registered
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
