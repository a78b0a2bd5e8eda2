"""A stream of rows that is generated as it is read, and a program that absorbs it until it is killed.

Usage: ``python -m tests.models.streams CHECKPOINT``: writes the peak memory after each checkpoint.
"""

import resource
import sys
import time
from typing import Any

import gpflow
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr.collapsed.absorbed import Absorbed

K, D, ROWS = 3, 16, 4096
OPTIONS = {"batch_size": ROWS, "sample_size": 256}


def stream(num_batches: int) -> tf.data.Dataset:
    def batch(i: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        X = tf.random.stateless_normal([ROWS, D], [i, 7], dtype=tf.float64)
        return X, tf.argmax(X[:, :K], axis=1)

    return tf.data.Dataset.range(num_batches).map(batch)


def small_model() -> Any:
    X, y = next(iter(stream(1)))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=4.0)
    return gi.ILRSGPR((X[:50], y[:50]), kernel, X.numpy()[:20], num_classes=K)


if __name__ == "__main__":
    save = Absorbed.save

    def save_and_tell(self: Absorbed, *arguments: Any) -> None:
        save(self, *arguments)
        print(self.num_batches, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)
        if self.num_batches == 150:
            time.sleep(3600)  # to be killed here

    Absorbed.save = save_and_tell  # type: ignore[method-assign]
    small_model().absorb(stream(10**6), checkpoint=sys.argv[1], checkpoint_every=0.0, **OPTIONS)
