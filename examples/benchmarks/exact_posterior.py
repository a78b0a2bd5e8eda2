"""The exact model after training, in one matrix: leave-one-out, posterior, predictions, calibration.

Who needs more matrices of N × N than the machine has memory for says so, instead of ending with it.
"""

from collections.abc import Callable
from typing import Any

import gpflow
import memory
import numpy as np
from contest import AbsentError
from gpflow.config import Config, as_context
from problems import problem

import gpflow_ilr as gi

__all__ = ["calibrate", "gpflow_posterior", "leave_one_out", "predict"]

NEW = 1000
OURS, THEIRS = 1.0, 5.0
"""Matrices of N × N that a turn needs (.7 and 4 at 4,000 rows), and some room."""


def _maker(N: int, D: int, K: int, ours: bool = True) -> Callable[[], Any]:
    """Makes models that have computed nothing yet."""
    needed, free = (OURS if ours else THEIRS) * 8 * N * N / 2**30, memory.of_machine()
    if free is not None and needed > free:
        raise AbsentError(f"it needs some {needed:.0f} GiB, and {free:.0f} are free")
    X, y, *_ = problem(N, D, K)
    kernel = gi.starting_kernel(X[:2000], K)
    if ours:
        return lambda: gi.ILRGPR((X, y), kernel, num_classes=K)
    T = gi.ILRCode(K).targets.numpy()[y]
    return lambda: gpflow.models.GPR((X, T), kernel, noise_variance=0.1)


def _sized(N: int, turn: Callable[[], object]) -> Callable[[], object]:
    """With the size of one matrix, for memory that is counted in matrices."""

    def sized() -> Callable[[], dict[str, float]]:
        turn()
        return lambda: {"one matrix MiB": 8 * N * N / 2**20}

    return sized


def leave_one_out(N: int, D: int, K: int, dtype: str = "float64") -> Callable[[], object]:
    """Leave-one-out, then the posterior."""

    def within(function: Callable[[], Any]) -> Any:
        with as_context(Config(float=getattr(np, dtype))):
            return function()

    make = within(lambda: _maker(N, D, K))

    def turn() -> object:
        model = make()
        model.predict_loo()
        return model.posterior()

    return _sized(N, lambda: within(turn))


def gpflow_posterior(N: int, D: int, K: int) -> Callable[[], object]:
    """GPflow's posterior of the same targets."""
    make = _maker(N, D, K, ours=False)
    return _sized(N, lambda: make().posterior())


def predict(N: int, D: int, K: int) -> Callable[[], object]:
    """Class probabilities from a posterior that is there."""
    posterior, X = _maker(N, D, K)().posterior(), problem(NEW, D, K, seed=2).X
    return lambda: posterior.predict_y(X)


def calibrate(N: int, D: int, K: int, **options: bool) -> Callable[[], object]:
    """λ, and noise if it is wanted, by leave-one-out."""
    make = _maker(N, D, K)
    return _sized(N, lambda: make().calibrate(**options))
