"""How much is added to the diagonal of a kernel matrix, in each precision.

GPflow's jitter, 1e-6 by default, is enough in float64 as a share of the kernel's variance, the mean of
the diagonal, which is what it is here in every model: so it means the same for a kernel of variance
1e-3 and of 1e10, where an absolute 1e-6 is below rounding. In float32 it is of the order of the
rounding error of a kernel matrix: of squared exponentials with duplicated inputs the Cholesky
factorisation failed with 50 rows at a jitter of 1e-6 of the kernel's variance, with 500 at 1e-5, with
2000 at 3e-5, and never at 1e-4. So in float32 it is at least 1e-4 of the kernel's variance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import tensorflow as tf
from gpflow.config import as_context, config, default_float, default_jitter

__all__ = ["FLOAT32_JITTER", "absolute_jitter", "least_noise", "relative_jitter", "safe_jitter"]

FLOAT32_JITTER = 1e-4
"""The least jitter in float32, as a share of the kernel's variance."""


def relative_jitter() -> float:
    """The jitter as a share of the kernel's variance: GPflow's, in float32 at least 1e-4."""
    return max(default_jitter(), FLOAT32_JITTER) if _is_single() else default_jitter()


def absolute_jitter(variance: tf.Tensor) -> tf.Tensor:
    """The jitter in the kernel's own units: :func:`relative_jitter` times its variance.

    :param variance: the kernel's variance: the mean of the matrix's diagonal.
    """
    # A variance that underflows to zero, in a line search, still has a jitter.
    smallest = np.sqrt(np.finfo(variance.dtype.as_numpy_dtype).tiny)
    return relative_jitter() * tf.maximum(variance, tf.constant(smallest, variance.dtype))


def least_noise(diagonal: tf.Tensor) -> tf.Tensor:
    """The noise variance below which rounding may make K + V indefinite: ε · trace(K).

    Training passes through amplitudes so far above the noise; other models get the noise they ask
    for. In float32 the distances in K have rounding errors of their own, so it is 1e-4 of the
    kernel's variance.

    :param diagonal: the diagonal of K, [..., N], for each of which there is one, [...].
    """
    if _is_single():
        return FLOAT32_JITTER * tf.reduce_mean(diagonal, axis=-1)
    eps = tf.constant(np.finfo(np.float64).eps, diagonal.dtype)
    return eps * tf.reduce_sum(diagonal, axis=-1)


@contextmanager
def safe_jitter(variance: Callable[[], tf.Tensor]) -> Iterator[None]:
    """GPflow's own code with :func:`absolute_jitter`.

    :param variance: computes the kernel's variance.
    """
    with as_context(replace(config(), jitter=absolute_jitter(variance()))):
        yield


def _is_single() -> bool:
    return bool(default_float() == np.float32)
