"""A problem that is exact in float32, and models of it in either precision."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import disable_check_shapes
from gpflow.kernels import Kernel, SquaredExponential
from gpflow.models import GPModel
from gpflow.models.training_mixins import ExternalDataTrainingLossMixin

from gpflow_ilr.linalg.jitter import FLOAT32_JITTER

K, N = 3, 15
JITTER = 2 * FLOAT32_JITTER  # above the floor of float32, so that both precisions add the same
_RNG = np.random.default_rng(0)
_LATTICE = np.stack(np.meshgrid(np.arange(5.0), np.arange(3.0)), axis=-1).reshape(N, 2)
X = _LATTICE + np.round(4 * _RNG.uniform(-1, 1, (N, 2))) / 16  # well apart, and exact in float32
XNEW = np.round(16 * _RNG.uniform(0, 4, (7, 2))) / 16
Z = X[::2] + 0.125


@contextmanager
def precision(dtype: type, jitter: float = 1e-6) -> Iterator[None]:
    config = gpflow.config.Config(float=dtype, jitter=jitter)
    with gpflow.config.as_context(config), disable_check_shapes():  # faster without
        yield


def q(Z: Any, num_latents: int) -> dict[str, Any]:
    """q(u) away from the prior, where gradients are not round-off."""
    rng = np.random.default_rng(1)
    M = len(Z)
    roots = np.tril(rng.normal(size=(num_latents, M, M)), -1) / M + 0.75 * np.eye(M)
    return {"q_mu": rng.normal(size=(M, num_latents)), "q_sqrt": roots, "num_data": N}


def loss_and_gradient(model: GPModel, data: tuple[Any, Any]) -> tuple[tf.Tensor, tf.Tensor]:
    batch = tf.constant(data[0], gpflow.default_float()), tf.constant(data[1][:, None])
    with tf.GradientTape() as tape:
        external = isinstance(model, ExternalDataTrainingLossMixin)
        loss = model.training_loss(batch) if external else model.training_loss()
    gradients = tape.gradient(loss, model.trainable_variables)
    return loss, tf.concat([tf.reshape(g, [-1]) for g in gradients], axis=0)


X_HARD = np.repeat(_RNG.normal(size=(30, 2)), 2, axis=0) + 1e-9 * (np.arange(60) % 2)[:, None]
Y_HARD = (X_HARD[:, 0] > 0) + 1 * (X_HARD[:, 1] > 0)
VARIANCE = 40.0


def hard_kernel() -> Kernel:
    return SquaredExponential(VARIANCE, lengthscales=10.0)
