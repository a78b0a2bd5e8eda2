"""Training steps of a network by its last layer: softmax, and GPHead in its three modes.

``fit`` of Keras 3 in float32. On a busy machine it is the processor time that counts.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from gpflow_ilr.keras import ELBOLoss, GPHead

__all__ = ["fit"]


def fit(
    batch: int, D: int, K: int, M: int, steps: int = 1, objective: str | None = None, **_: int
) -> Callable[[], object]:
    """Some steps of ``fit``.

    :param batch: rows of a step.
    :param D: features, from one dense layer.
    :param K: classes.
    :param M: inducing inputs.
    :param steps: of a turn.
    :param objective: of GPHead; None for a softmax layer.
    """
    rng, count = np.random.default_rng(0), 20 * batch
    X = rng.normal(size=(count, D)).astype("float32")
    rows = tf.data.Dataset.from_tensor_slices((X, rng.integers(0, K, count)))
    batches = rows.batch(batch, drop_remainder=True).cache().repeat()
    last: Any = keras.layers.Dense(K, activation="softmax")
    if objective is not None:
        last = GPHead(K, M, num_data=count, gp_dtype="float32", objective=objective)
    body = [keras.layers.Input((D,)), keras.layers.Dense(D, activation="relu")]
    model = keras.Sequential([*body, last])
    builtin = objective in (None, "draw")
    loss = "sparse_categorical_crossentropy" if builtin else ELBOLoss()
    model.compile(keras.optimizers.Adam(1e-3), loss=loss)
    return lambda: model.fit(batches, steps_per_epoch=steps, shuffle=False, verbose=0)
