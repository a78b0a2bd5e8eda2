"""Kernels, inputs and gradients that tests of kernel matrices share."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import kernels
from gpflow.kernels import Kernel

N, M, D = 7, 5, 3
ISOTROPIC = [
    kernels.SquaredExponential,
    kernels.RationalQuadratic,
    kernels.Exponential,
    kernels.Matern12,
    kernels.Matern32,
    kernels.Matern52,
]
Matrix = Callable[[Kernel, tf.Tensor, tf.Tensor | None], tf.Tensor]


def inputs(rng: np.random.Generator, *shape: int) -> tf.Tensor:
    return tf.constant(rng.uniform(-1, 1, size=(*shape, D)), gpflow.default_float())
