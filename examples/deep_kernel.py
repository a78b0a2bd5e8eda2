"""A small network on scikit-learn's digits, with a GPHead and with a softmax layer as its last layer.

Prints accuracy, NLL and ECE on the test rows, mean ± standard error over five seeds, each with its own
split and its own network. Learning rates, the number of inducing inputs and the head's defaults were
chosen on the splits of seeds 0 to 2, which are therefore not among the five. Run with
``python examples/deep_kernel.py``; it takes a few minutes (``--quick``: some seconds, to see that it
runs).
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import sys
import time

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gpflow_ilr import metrics
from gpflow_ilr.keras import ELBOLoss, GPHead

NUM_CLASSES, NUM_INDUCING, BATCH_SIZE = 10, 100, 60
EPOCHS, SEEDS = (1, range(2)) if "--quick" in sys.argv else (60, range(5, 10))


def network() -> keras.Sequential:
    return keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(32, activation="relu"),
        ]
    )


def with_softmax(X: np.ndarray) -> keras.Model:
    model = keras.Sequential([network(), keras.layers.Dense(NUM_CLASSES, activation="softmax")])
    model.compile(keras.optimizers.Adam(3e-3), loss="sparse_categorical_crossentropy")
    return model


def with_gp(X: np.ndarray) -> keras.Model:
    features = network()
    head = GPHead(NUM_CLASSES, NUM_INDUCING, num_data=len(X), gp_dtype="float32")
    head.adapt(features.predict(X, verbose=0))  # inducing inputs and lengthscale
    model = keras.Sequential([features, head])
    model.compile(keras.optimizers.Adam(5e-3), loss=ELBOLoss())
    return model


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X = (X / 16.0).astype("float32")
    results: dict[str, list[list[float]]] = {"softmax": [], "GPHead": []}
    for seed in SEEDS:
        X_train, X_test, y_train, y_test = train_test_split(
            X, y, train_size=600, random_state=seed, stratify=y
        )
        # Batches of one static size: the head's graph is then smaller and traced sooner.
        rows = tf.data.Dataset.from_tensor_slices((X_train, y_train)).shuffle(600, seed=seed)
        batches = rows.batch(BATCH_SIZE, drop_remainder=True)
        for name, build in {"softmax": with_softmax, "GPHead": with_gp}.items():
            keras.utils.set_random_seed(seed)
            start = time.perf_counter()
            model = build(X_train)
            model.fit(batches, epochs=EPOCHS, verbose=0, shuffle=False)
            p = model.predict(X_test, batch_size=len(X_test), verbose=0)
            row = [
                metrics.accuracy(p, y_test),
                metrics.negative_log_likelihood(p, y_test),
                metrics.expected_calibration_error(p, y_test),
                time.perf_counter() - start,
            ]
            print(f"seed {seed} {name:<8}", *(f"{value:.4f}" for value in row), flush=True)
            results[name].append(row)
    print("\n| last layer | accuracy | NLL | ECE | seconds |\n|---|---|---|---|---|")
    for name, rows_of in results.items():
        mean = np.mean(rows_of, axis=0)
        error = np.std(rows_of, axis=0, ddof=1) / np.sqrt(len(SEEDS))
        cells = [f"{m:.4f} ± {e:.4f}" for m, e in zip(mean[:3], error[:3], strict=True)]
        print(f"| {name} | " + " | ".join(cells) + f" | {mean[3]:.0f} |")


if __name__ == "__main__":
    main()
