"""The two sets of ``heads.py``, and the networks for them: eight known classes of ten, two unknown."""

from typing import Any

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

__all__ = ["K", "Rows", "cnn", "mlp", "split"]

K = 8
Rows = tuple[np.ndarray, np.ndarray]


def mlp(spectral: bool = False, rate: float = 0.0) -> Any:
    wrap = keras.layers.SpectralNormalization if spectral else lambda layer: layer
    layers: list[Any] = [keras.layers.Input((64,))]
    for units in (64, 32):
        layers.append(wrap(keras.layers.Dense(units, activation="relu")))
        if rate:
            layers.append(keras.layers.Dropout(rate))
    return keras.Sequential(layers)


def cnn(spectral: bool = False, rate: float = 0.0) -> Any:
    wrap = keras.layers.SpectralNormalization if spectral else lambda layer: layer
    layers: list[Any] = [keras.layers.Input((28, 28, 1))]
    for filters in (16, 32):
        convolution = keras.layers.Conv2D(filters, 3, strides=2, activation="relu", padding="same")
        layers.append(wrap(convolution))
    layers += [keras.layers.Flatten(), wrap(keras.layers.Dense(64, activation="relu"))]
    if rate:
        layers.append(keras.layers.Dropout(rate))
    return keras.Sequential(layers)


def split(path: str | None, seed: int, quick: bool) -> tuple[Any, ...]:
    """The body, rows of known classes for training, validation and test, and the unknown inputs.

    Averages of earlier layers were found with half of the images of Fashion-MNIST's unseen classes, by
    a script that read its test part; which half is not on record. So its training part's are scored.
    """
    if path is None:
        X, y = load_digits(return_X_y=True)
        X, body = (X / 16.0).astype("float32"), mlp
        known = y < K
        sizes = (160, 80) if quick else (700, 250)
        rest, X_test, y_rest, y_test = train_test_split(
            X[known], y[known], train_size=sum(sizes), random_state=seed, stratify=y[known]
        )
        others = X[~known]
    else:
        with np.load(path) as arrays:
            X, y, X_new, y_new = (arrays[k] for k in ("X_train", "y_train", "X_test", "y_test"))
        X, X_new = (x[..., None].astype("float32") / 255.0 for x in (X, X_new))
        body, sizes = cnn, (300, 100) if quick else (5400, 1200)
        rest, y_rest, others = X[y < K], y[y < K], X[y >= K]
        chosen = np.random.default_rng(seed).permutation(len(rest))[: sum(sizes)]
        rest, y_rest = rest[chosen], y_rest[chosen]
        X_test, y_test = X_new[y_new < K], y_new[y_new < K]
    X_train, X_val, y_train, y_val = train_test_split(
        rest, y_rest, train_size=sizes[0], random_state=seed, stratify=y_rest
    )
    flat = X_test.reshape(len(X_test), -1)
    shuffled = np.random.default_rng(seed).permuted(flat, axis=1).reshape(X_test.shape)
    unknown = {"unseen": others, "noise": shuffled}
    return body, (X_train, y_train), (X_val, y_val), (X_test, y_test), unknown
