"""Do the models run on this machine's GPU, and is that faster? Training and prediction, step by step.

    python examples/gpu_check.py --rows 2000 --inducing 200 --float float32

For every step the script prints the time on each device and the ops that TensorFlow placed on the CPU
although it was asked for the GPU. Without a GPU it says so, and prints instead the ops for which this
build of TensorFlow has no GPU kernel: necessary for a GPU, but no proof that one is of use.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import kernels

import gpflow_ilr

Step = Callable[[], Any]
# Arguments, calls and constants are no work, whatever device they stand on.
NO_WORK = {"_Arg", "_Retval", "Const", "Identity", "NoOp", "Placeholder", "_Send", "_Recv"}


def steps(num_rows: int, num_inducing: int, num_classes: int = 5) -> dict[str, Step]:
    """Value and gradient of the loss, and class probabilities, of each model."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(num_rows, 8)), rng.integers(0, num_classes, num_rows)
    Z, kernel = X[:num_inducing], gpflow.kernels.SquaredExponential
    inputs, labels = tf.constant(X, gpflow.default_float()), tf.constant(y[:, None], tf.int32)
    models = {
        "ILRGPR": gpflow_ilr.ILRGPR((X, y), kernel(), num_classes=num_classes),
        "ILRSGPR": gpflow_ilr.ILRSGPR((X, y), kernel(), Z, num_classes=num_classes),
        "ILRSVGP": gpflow_ilr.ILRSVGP(kernel(), Z, num_classes=num_classes, num_data=num_rows),
    }

    def train(model: Any, data: list[Any]) -> Any:
        with tf.GradientTape() as tape:
            loss = model.training_loss(*data)
        return loss, tape.gradient(loss, model.trainable_variables)

    result: dict[str, Step] = {}
    for name, model in models.items():
        data = [(inputs, labels)] if name == "ILRSVGP" else []
        result[f"{name} training"] = lambda model=model, data=data: train(model, data)
        result[f"{name} predict_y"] = lambda model=model: model.predict_y(inputs)[0]
    return {name: tf.function(step, autograph=False) for name, step in result.items()}


def placed_on_cpu(step: Step) -> set[str]:
    """Ops that TensorFlow placed on the CPU; it reports them of a function's first call only."""
    context.enable_run_metadata()
    step()
    metadata = context.export_run_metadata()
    context.disable_run_metadata()
    graphs = [graph for f in metadata.function_graphs for graph in f.partition_graphs]
    if not graphs:
        raise RuntimeError("TensorFlow has not reported where it placed the ops.")
    return {n.op for graph in graphs for n in graph.node if "CPU" in n.device} - NO_WORK


def without_gpu_kernel(step: Any) -> set[str]:
    """Ops of the graph that have no GPU kernel for their dtype."""
    graph = step.get_concrete_function().graph.as_graph_def()
    nodes = {n.op: n for f in graph.library.function for n in f.node_def}
    nodes |= {n.op: n for n in graph.node}

    def kernels_of(node: Any) -> Iterator[Any]:
        for kernel in kernels.get_registered_kernels_for_op(node.op).kernel:
            allowed = {c.name: c.allowed_values.list.type for c in kernel.constraint}
            if all(node.attr[name].type in types for name, types in allowed.items()):
                yield kernel.device_type

    calls = {f.signature.name for f in graph.library.function} | {"SymbolicGradient"}
    on_gpu = {op for op, n in nodes.items() if {"GPU", "DEFAULT"} & set(kernels_of(n))}
    return set(nodes) - on_gpu - calls - NO_WORK


def alternating_times(variants: dict[str, Step], repeats: int) -> dict[str, float]:
    """Best seconds of several calls, in turns, so that all meet the same state of the machine."""
    best = dict.fromkeys(variants, float("inf"))
    for repeat in range(repeats + 1):
        for device, step in variants.items():
            start = time.perf_counter()
            tf.nest.map_structure(lambda x: x.numpy(), step())  # waits for the device
            if repeat > 0:  # the first call traces
                best[device] = min(best[device], time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--inducing", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--float", choices=["float32", "float64"], default="float64")
    arguments = parser.parse_args()
    gpflow.config.set_default_float(np.dtype(arguments.float).type)
    gpus = tf.config.list_logical_devices("GPU")
    devices = ["CPU:0"] + ["GPU:0"] * bool(gpus)
    print(f"{arguments.float}, {arguments.rows} rows, {arguments.inducing} inducing inputs")
    if not gpus:
        print("TensorFlow sees no GPU here: CPU times, and which ops would have no GPU kernel.")

    built = {}
    for device in devices:
        with tf.device(device):  # variables live where they are made
            built[device] = steps(arguments.rows, arguments.inducing)

    def on(device: str, name: str) -> Step:
        def step() -> Any:
            with tf.device(device):
                return built[device][name]()

        return step

    for name in built["CPU:0"]:
        if gpus:
            remark = f"on the CPU: {sorted(placed_on_cpu(on('GPU:0', name))) or 'nothing'}"
        else:
            missing = without_gpu_kernel(built["CPU:0"][name])
            remark = f"without a GPU kernel: {sorted(missing) or 'nothing'}"
        best = alternating_times(
            {device: on(device, name) for device in devices}, arguments.repeats
        )
        line = ", ".join(f"{device} {1e3 * seconds:.1f} ms" for device, seconds in best.items())
        if gpus:
            line += f" (GPU {best['CPU:0'] / best['GPU:0']:.1f} times as fast)"
        print(f"{name}: {line}; {remark}")


if __name__ == "__main__":
    main()
