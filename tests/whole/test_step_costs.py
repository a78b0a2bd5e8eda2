"""What a training step computes, counted in its graph: no clock, so that no busy machine excuses it.

Counts are of the graph and of the functions that it calls, bodies of loops once. They may fall: then
the numbers here fall, too. Nodes have some room, since TensorFlow's own gradients differ by version.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential

import gpflow_ilr as gi
from gpflow_ilr.keras import ELBOLoss, GPHead

N, D, K, M, NODES = 96, 3, 7, 11, 64
_RNG = np.random.default_rng(0)
X, Y = _RNG.normal(size=(N, D)), _RNG.integers(0, K, N)
Z = X[:M] + 0.01
BATCH = tf.constant(X), tf.constant(Y[:, None])
PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "Einsum")
FACTORISATIONS = ("Cholesky", "SelfAdjointEigV2", "Qr", "Svd")
MOVES_NOTHING = (
    "Reshape",
    "Identity",
    "IdentityN",
    "Const",
    "StopGradient",
    "ExpandDims",
    "Squeeze",
)
ROOM = 1.05

Step = Callable[[], Any]


class Cost(NamedTuple):
    """At most so many products, exactly so many factorisations, at most so many passes and nodes.

    A pass is an operation other than a product that writes as many numbers as the largest matrices of
    the method have: nodes × rows × classes, rows × inducing inputs, or rows × rows.
    """

    products: int
    factorisations: int
    passes: int
    nodes: int


def cost(step: Step, large: int) -> Cost:
    graph = tf.function(step, autograph=False).get_concrete_function().graph
    found = list(nodes_of(graph.as_graph_def(add_shapes=True)))
    kinds = Counter(node.op for node in found)
    passes = [
        node
        for node in found
        if node.op not in (*MOVES_NOTHING, *PRODUCTS) and largest_output(node) >= large
    ]
    products, factorisations = (
        sum(kinds[kind] for kind in of) for of in (PRODUCTS, FACTORISATIONS)
    )
    return Cost(products, factorisations, len(passes), len(found))


def nodes_of(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def largest_output(node: Any) -> int:
    """How many numbers; what a loop does not know the number of are rows."""
    shapes = node.attr["_output_shapes"].list.shape
    sizes = (math.prod(N if d.size < 0 else d.size for d in shape.dim) for shape in shapes)
    return max(sizes, default=0)


def gradient(model: Any, *batch: Any) -> Step:
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = model.training_loss(*batch)
        return tape.gradient(loss, model.trainable_variables)

    return step


def closed_form(name: str, *inducing: np.ndarray, **options: Any) -> Step:
    return gradient(
        getattr(gi, name)((X, Y), SquaredExponential(), *inducing, num_classes=K, **options)
    )


def svgp(**options: Any) -> Step:
    model = gi.ILRSVGP(SquaredExponential(), Z, num_classes=K, num_data=1000, **options)
    return gradient(model, BATCH)


def head(objective: str) -> Step:
    last = GPHead(K, M, num_data=1000, objective=objective)
    network = keras.Sequential([keras.layers.Input((D,)), keras.layers.Dense(8), last])
    loss_of = keras.losses.SparseCategoricalCrossentropy() if objective == "draw" else ELBOLoss()

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(Y, network(X.astype("float32"), training=True)) + sum(network.losses)
        return tape.gradient(loss, network.trainable_variables)

    return step


CASES: dict[str, tuple[Callable[[], Step], int, Cost]] = {
    "ILRGPR": (lambda: closed_form("ILRGPR"), N * N, Cost(8, 1, 23, 492)),
    "DirichletGPR": (lambda: closed_form("DirichletGPR"), N * N, Cost(14, 2, 31, 538)),
    "ILRSGPR": (lambda: closed_form("ILRSGPR", Z), N * M, Cost(40, 2, 23, 1256)),
    "ILRSGPR, per output": (
        lambda: closed_form("ILRSGPR", Z, noise="per_output"),
        N * M,
        Cost(36, 2, 23, 1253),
    ),
    "ILRSGPR, per class": (
        lambda: closed_form("ILRSGPR", Z, noise="per_class"),
        N * M,
        Cost(40, 2, 27, 1617),
    ),
    "DirichletSGPR": (lambda: closed_form("DirichletSGPR", Z), N * M, Cost(40, 2, 23, 1391)),
    "ILRSVGP": (svgp, NODES * N * K, Cost(45, 1, 24, 1537)),
    "ILRSVGP, W": (lambda: svgp(mixing=True), NODES * N * K, Cost(54, 1, 24, 1584)),
    "GPHead, code": (lambda: head("code"), N * M, Cost(23, 1, 11, 455)),
    "GPHead, draw": (lambda: head("draw"), N * M, Cost(22, 1, 13, 425)),
    "GPHead, elbo": (lambda: head("elbo"), NODES * N * K, Cost(55, 1, 24, 1347)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_step_costs_no_more_than_it_did(case: str) -> None:
    build, large, most = CASES[case]
    found = cost(build(), large)
    assert found.factorisations == most.factorisations
    assert found.products <= most.products
    assert found.passes <= most.passes
    assert found.nodes <= ROOM * most.nodes


def test_the_count_would_notice_a_product_a_factorisation_and_a_pass_in_a_loop() -> None:
    A = tf.eye(4)

    def step(more: bool) -> tf.Tensor:
        def body(i: tf.Tensor, S: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return i + 1, tf.exp(tf.linalg.cholesky(S @ S)) if more else S

        return tf.while_loop(lambda i, _: i < 3, body, [0, A])[1]

    less, more = (cost(lambda more=more: step(more), large=16) for more in (False, True))
    assert (more.products, more.factorisations) == (less.products + 1, less.factorisations + 1)
    assert more.passes == less.passes + 2  # the factor and the exponential
