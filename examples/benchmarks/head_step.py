"""One training step of a network by its last layer: softmax, and GPHead in its three modes.

Batches of 256 rows, 64 features from one Dense layer, K = 10, M = 50, in float32, ``fit`` of Keras 3.
Processor time of the step, which other processes on the machine do not change, best of some rounds.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from contest import arguments, report

from gpflow_ilr.keras import ELBOLoss, GPHead

BATCH, FEATURES, K, M = 256, 64, 10, 50


def network(last: Any) -> Any:
    layers = keras.layers
    body = [layers.Input((FEATURES,)), layers.Dense(FEATURES, activation="relu")]
    return keras.Sequential([*body, last])


def main() -> None:
    options = arguments(__doc__, rounds=5)
    steps = 3 if options.quick else 200
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20 * BATCH, FEATURES)).astype("float32")
    rows = tf.data.Dataset.from_tensor_slices((X, rng.integers(0, K, len(X))))
    batches = rows.batch(BATCH, drop_remainder=True).cache().repeat()

    def head(objective: str) -> Any:
        return GPHead(K, M, num_data=len(X), gp_dtype="float32", objective=objective)

    softmax = "softmax layer"
    builtin = "sparse_categorical_crossentropy"
    contestants = {
        softmax: (keras.layers.Dense(K, activation="softmax"), builtin),
        "GPHead(objective='code')": (head("code"), ELBOLoss()),
        "GPHead(objective='draw')": (head("draw"), builtin),
        "GPHead(objective='elbo')": (head("elbo"), ELBOLoss()),
    }
    models = {}
    for name, (last, loss) in contestants.items():
        models[name] = network(last)
        models[name].compile(keras.optimizers.Adam(1e-3), loss=loss)
        models[name].fit(batches, steps_per_epoch=steps, shuffle=False, verbose=0)  # traces
    times = dict.fromkeys(models, np.inf)
    for _ in range(options.rounds):
        for name, model in models.items():
            start = time.process_time()
            model.fit(batches, steps_per_epoch=steps, shuffle=False, verbose=0)
            times[name] = min(times[name], (time.process_time() - start) / steps)
    report(times, softmax)


if __name__ == "__main__":
    main()
