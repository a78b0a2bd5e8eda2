"""Models and shards that the programs of a strategy and the tests on one device have in common."""

from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.models import GPModel

import gpflow_ilr as gi

RNG = np.random.default_rng(0)
X = RNG.normal(size=(41, 2))
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
SOFT = RNG.dirichlet(np.ones(3), size=41)
Z = X[:5] + 0.1
WEIGHTS = np.random.default_rng(1).uniform(0.2, 3.0, size=41)
X_NEW = RNG.normal(size=(7, 2))

# Rows of the two workers: all but one, and one; four fifths, and the rest without one of the classes.
ONE_ROW = [np.arange(1, 41), np.arange(1)]
SECOND = (np.arange(41) % 5 == 0) & (Y < 2)
NO_CLASS_TWO = [np.flatnonzero(~SECOND), np.flatnonzero(SECOND)]


def kernel() -> gpflow.kernels.Kernel:
    start = gpflow.kernels.Matern32(variance=0.4, lengthscales=0.8)
    # The log density of a prior belongs to the loss once, however many replicas there are.
    start.lengthscales.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    return start


def linear() -> gpflow.mean_functions.MeanFunction:
    return gpflow.mean_functions.Linear(np.full((2, 2), 0.1), np.full(2, 0.2))


def separate() -> gpflow.inducing_variables.InducingVariables:
    return gpflow.inducing_variables.SeparateIndependentInducingVariables(
        [gpflow.inducing_variables.InducingPoints(Z + i) for i in range(2)]
    )


def svgp(rows: tuple) -> GPModel:
    model = gi.ILRSVGP(kernel(), Z, num_classes=3, num_data=len(X), mixing=True)
    # At q = prior the kernel's gradient is round-off.
    model.q_mu.assign(np.random.default_rng(1).normal(size=model.q_mu.shape))
    return model


class Case(NamedTuple):
    """A model of the rows it is given, and how two workers divide the rows."""

    build: Callable[[tuple], GPModel]
    shards: list[np.ndarray]
    labels: np.ndarray = Y
    weights: np.ndarray | None = None

    def rows(self, worker: int | None) -> tuple:
        rows = np.concatenate(self.shards) if worker is None else self.shards[worker]
        weights = () if self.weights is None else (self.weights[rows],)
        return X[rows], self.labels[rows], *weights

    def data(self, model: GPModel, rows: tuple) -> tuple | None:
        return rows if isinstance(model, gpflow.models.SVGP) else None


CASES = {
    "per class, with a mean": Case(
        lambda rows: gi.ILRSGPR(
            rows, kernel(), Z, num_classes=3, noise="per_class", mean_function=linear()
        ),
        ONE_ROW,
    ),
    "per output": Case(
        lambda rows: gi.ILRSGPR(rows, kernel(), Z, num_classes=3, noise="per_output"), NO_CLASS_TWO
    ),
    "separate": Case(lambda rows: gi.ILRSGPR(rows, kernel(), separate(), num_classes=3), ONE_ROW),
    "weights": Case(
        lambda rows: gi.ILRSGPR(rows, kernel(), Z, num_classes=3, noise="per_class"),
        NO_CLASS_TWO,
        weights=WEIGHTS,
    ),
    "uncollapsed, weights": Case(svgp, ONE_ROW, weights=WEIGHTS),
    "soft labels": Case(lambda rows: gi.ILRSGPR(rows, kernel(), Z, num_classes=3), ONE_ROW, SOFT),
    "Dirichlet": Case(
        lambda rows: gi.DirichletSGPR(rows, kernel(), Z, num_classes=3), NO_CLASS_TWO
    ),
    "uncollapsed": Case(svgp, NO_CLASS_TWO),
    "uncollapsed, one row": Case(svgp, ONE_ROW),
}


def value_and_gradient(loss: Callable[[], tf.Tensor], model: GPModel) -> np.ndarray:
    """Value and gradients in one vector."""
    with tf.GradientTape() as tape:
        value = loss()
    gradients = tape.gradient(value, model.trainable_variables)
    return np.concatenate([np.ravel(x) for x in (value, *gradients)])


def parameters(model: GPModel) -> np.ndarray:
    return np.concatenate([np.ravel(v) for v in model.trainable_variables])


def batches(worker: int | None) -> tf.data.Dataset:
    """Batches of 3 rows on the first worker and of 5 others on the second, or of all 8."""
    rows = np.arange(40).reshape(5, 8)
    mine = rows[:, {0: slice(3), 1: slice(3, None), None: slice(None)}[worker]]
    return tf.data.Dataset.from_tensor_slices((X[mine], Y[mine])).repeat()
