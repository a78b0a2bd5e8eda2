"""What takes more than a step: a fit, calibration after it, a stream of rows, raw rows to quality."""

import importlib.util
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from contest import AbsentError
from problems import problem

__all__ = ["absorb", "calibrate", "enough", "import_of", "to_quality"]

ITERATIONS = 100
BUDGETS = {"fit_auto": (15.0, 30.0, 60.0, 120.0), "trees": (75, 150, 300, 600)}
"""Seconds, up to the default of ``fit_auto``; and rounds, up to where most have stopped."""


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
    if importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(name=package)
    return lambda: subprocess.run([sys.executable, "-c", f"import {package}"], check=True)


def to_quality(data: str, by: str, budgets: int, folder: str | None = None) -> Callable[[], object]:
    """Seconds from raw rows to a classifier within 1 % of the best NLL that it has at any budget.

    A budget is seconds of ``fit_auto``, or the most rounds of trees, which are calibrated; each begins
    from raw rows. Its own held-out rows say which one is best and which is close: test rows choose
    nothing. Every turn is of another split.
    """
    import auto
    import trees

    import gpflow_ilr as gi

    path = None if folder is None else Path(folder)
    if data not in auto.OWN_SETS and (path is None or not (path / f"{data}.npz").exists()):
        raise AbsentError(f"{data}.npz: name the folder that has it by --data-dir")
    if importlib.util.find_spec(trees.PACKAGES[by].partition(".")[0]) is None:
        raise ModuleNotFoundError(name=by)
    trees.import_all()
    most = BUDGETS["fit_auto" if by == "fit_auto" else "trees"][:budgets]
    seeds = itertools.count()

    def fitted(X: np.ndarray, y: np.ndarray, budget: float) -> trees.Fitted:
        if by == "fit_auto":
            return auto.automatic_fit(X, y, budget)
        return trees.boosted(X, y, by, int(budget), calibrate=True)

    def turn() -> Callable[[], dict[str, Any]]:
        X, y, X_test, y_test = auto.load(data, path, next(seeds))
        curve = []
        for budget in most:
            clock, work = time.perf_counter(), time.process_time()
            one = fitted(X, y, budget)
            p = one.predict(X_test)
            point = {
                "budget": budget,
                "seconds": time.perf_counter() - clock,
                "work": time.process_time() - work,
                "held-out NLL": one.held_out_nll,
                "NLL": float(gi.metrics.negative_log_likelihood(np.maximum(p, 1e-15), y_test)),
                "ECE": float(gi.metrics.expected_calibration_error(p, y_test)),
            }
            curve.append(point)
        first, best = enough(curve)
        known = {key: first[key] for key in ("seconds", "work", "NLL", "ECE")}
        return lambda: known | {"best NLL": best["NLL"], "curve": curve}

    return turn


def enough(curve: Sequence[dict[str, float]]) -> tuple[dict[str, float], dict[str, float]]:
    """The soonest point within 1 % of the best, and the best, by held-out rows."""
    best = min(curve, key=lambda point: point["held-out NLL"])
    close = [point for point in curve if point["held-out NLL"] <= 1.01 * best["held-out NLL"]]
    return min(close, key=lambda point: point["seconds"]), best
