"""What takes more than a step: a fit, calibration after it, a stream of rows, raw rows to quality."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from problems import problem

__all__ = ["absorb", "calibrate", "import_of", "to_quality"]

ITERATIONS = 100
BUDGETS: dict[str, tuple[str, str, tuple]] = {
    "fit_auto": ("automatic", "seconds", (5.0, 10.0, 20.0, 40.0, 80.0, 120.0)),
    "LightGBM": ("lightgbm", "rounds", (25, 50, 100, 200, 400, 600)),
    "CatBoost": ("catboost", "rounds", (25, 50, 100, 200, 400, 600)),
    "HistGradientBoosting": ("gradient_boosting", "rounds", (25, 50, 100, 200, 400, 600)),
}


def calibrate(
    N: int, D: int, K: int, M: int = 0, *, fit: bool, noise: str = "fixed", ard: bool = False
) -> Callable[[], object]:
    """The fit of a new model, or the calibration of one that has the parameters of a fit."""
    import gpflow

    import gpflow_ilr as gi

    X, y, _, Z = problem(N, D, K, M)

    def new() -> gi.ILRGPR | gi.ILRSGPR:
        kernel = gi.starting_kernel(X, K, ard=ard)
        if M:
            return gi.ILRSGPR((X, y), kernel, Z, num_classes=K, noise=noise)
        return gi.ILRGPR((X, y), kernel, num_classes=K, noise=noise)

    def fitted() -> gi.ILRGPR | gi.ILRSGPR:
        model = new()
        gpflow.optimizers.Scipy().minimize(
            model.training_loss, model.trainable_variables, options={"maxiter": ITERATIONS}
        )
        return model

    if fit:
        return fitted
    parameters = gpflow.utilities.read_values(fitted())

    def turn() -> object:
        model = new()
        gpflow.utilities.multiple_assign(model, parameters)
        return model.calibrate()

    return turn


def absorb(N: int, D: int, K: int, M: int, batch: int = 2**15) -> Callable[[], object]:
    """Rows that are generated as they are read, taken in in one pass."""
    import tensorflow as tf

    import gpflow_ilr as gi

    given = problem(max(M, 1000), D, K, M)
    centres = tf.constant(1.2 * np.random.default_rng(0).normal(size=(K, D)), tf.float32)

    def rows(i: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        count = tf.minimum(batch, tf.cast(N - i * batch, tf.int32))
        y = tf.random.stateless_uniform([batch], [i, 1], maxval=K, dtype=tf.int64)[:count]
        X = tf.random.stateless_normal([batch, D], [i, 0], dtype=tf.float32)[:count]
        return X + tf.gather(centres, y), y

    def turn() -> object:
        stream = tf.data.Dataset.range(-(-N // batch)).map(rows)
        kernel = gi.starting_kernel(given.X, K)
        model = gi.ILRSGPR(given[:2], kernel, given.Z, num_classes=K)
        return model.absorb(stream, batch_size=batch, sample_size=1000)

    return turn


def import_of(package: str) -> Callable[[], object]:
    """An import, in a new interpreter."""
    import importlib.util

    if importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(name=package)
    return lambda: subprocess.run([sys.executable, "-c", f"import {package}"], check=True)


def to_quality(data: str, by: str, budgets: int, folder: str | None = None) -> Callable[[], object]:
    """Seconds from raw rows to a classifier within 1 % of the best NLL that it has at any budget.

    A budget is seconds of ``fit_auto`` or the most rounds of trees, and each begins from raw rows.
    """
    import auto

    import gpflow_ilr as gi

    if folder is None and data not in auto.OWN_SETS:
        raise FileNotFoundError(f"{data}.npz: name the folder that has it by --data-dir.")
    split = auto.load(data, None if folder is None else Path(folder), 0)
    function, unit, most = BUDGETS[by]

    def turn() -> Callable[[], dict[str, float]]:
        curve = []
        for budget in most[:budgets]:
            start = time.perf_counter()
            p = getattr(auto, function)(split, **{unit: budget})
            seconds = time.perf_counter() - start
            nll = gi.metrics.negative_log_likelihood(np.maximum(p, 1e-15), split[3])
            curve.append((seconds, float(nll)))
        best = min(nll for _, nll in curve)
        enough = min(seconds for seconds, nll in curve if nll <= 1.01 * best)
        return lambda: {"seconds": enough, "best NLL": best}

    return turn
