"""A training step, value and gradient, of our models and of GPflow's; and the first, with its trace."""

import time
from collections.abc import Callable
from typing import Any

import gpflow
import tensorflow as tf
from problems import Problem, problem

import gpflow_ilr as gi

__all__ = ["first", "step", "value_and_gradient"]


def model_of(name: str, given: Problem, num_data: int, options: dict[str, Any]) -> Any:
    """A model of ours, or GPflow's on the same targets, or GPflow's with a likelihood."""
    X, y, K, Z = given
    kernel = gi.starting_kernel(X[:2000], K)
    if name in ("ILRGPR", "DirichletGPR"):
        return getattr(gi, name)((X, y), kernel, num_classes=K, **options)
    if name in ("ILRSGPR", "DirichletSGPR"):
        return getattr(gi, name)((X, y), kernel, Z, num_classes=K, **options)
    if name == "ILRSVGP":
        return gi.ILRSVGP(kernel, Z, num_classes=K, num_data=num_data, **options)
    if name in ("GPR", "SGPR"):
        code = gi.ILRCode(K)
        data, noise = (X, code.targets.numpy()[y]), code.noise_variance.numpy().item()
        inducing = () if name == "GPR" else (Z,)
        return getattr(gpflow.models, name)(data, kernel, *inducing, noise_variance=noise)
    likelihood = {
        "Softmax": gpflow.likelihoods.Softmax,
        "MultiClass": gpflow.likelihoods.MultiClass,
        "ILRLikelihood": gi.ILRLikelihood,
    }[name](K, **options)
    return gpflow.models.SVGP(
        kernel, likelihood, Z, num_latent_gps=likelihood.latent_dim, num_data=num_data
    )


def value_and_gradient(
    name: str, shape: dict[str, int], options: dict[str, Any]
) -> Callable[[], object]:
    """Compiled, as an optimiser has it."""
    given = problem(**shape)
    model = model_of(name, given, shape["N"], options)
    batch = ()
    if isinstance(model, gpflow.models.SVGP):
        batch = ((tf.constant(given.X), tf.constant(given.y[:, None])),)

    @tf.function(autograph=False)
    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = model.training_loss(*batch)
        return loss, tape.gradient(loss, model.trainable_variables)

    return step


def step(
    N: int, D: int, K: int, M: int = 0, batch: int | None = None, *, model: str, **options: Any
) -> Callable[[], object]:
    """A step that was traced before."""
    return value_and_gradient(model, {"N": N, "D": D, "K": K, "M": M, "batch": batch}, options)


def first(
    N: int, D: int, K: int, M: int, batch: int, exact: int, *, model: str, **options: Any
) -> Callable[[], object]:
    """The first step, with its trace, of a model that is made before; exact models have fewer rows."""
    shape = {"N": exact, "D": D, "K": K} if model in ("GPR", "ILRGPR", "DirichletGPR") else None
    if shape is None:
        shape = {"N": N, "D": D, "K": K, "M": M}
        shape |= {} if model.endswith("SGPR") else {"batch": batch}
    tf.linalg.cholesky(tf.eye(2))  # TensorFlow itself has started

    def turn() -> Callable[[], dict[str, float]]:
        step = value_and_gradient(model, shape, options)
        start = time.perf_counter()
        graph = step.get_concrete_function().graph.as_graph_def()
        traced = time.perf_counter()
        step()
        stop = time.perf_counter()
        nodes = len(graph.node) + sum(len(f.node_def) for f in graph.library.function)
        figures = {"seconds": stop - start, "trace s": traced - start, "nodes": nodes}
        return lambda: figures

    return turn
