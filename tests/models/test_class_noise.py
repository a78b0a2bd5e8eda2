"""Per-class noise on overlapping classes, where without its bound it gives up one of the classes."""

from pathlib import Path
from typing import NamedTuple

import gpflow
import numpy as np
import pytest

import gpflow_ilr as gi
from gpflow_ilr.codes import base as codes

MAGIC = Path(__file__).parents[3] / "shared" / "data" / "magic.npz"


class Problem(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    num_inducing: int


def overlapping() -> Problem:
    """Two classes in the plane, of which the better guess is right four times of five."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4800, 2))
    logit = 2.5 * np.sin(1.5 * X[:, 0]) + 1.5 * X[:, 1] - 0.8
    y = (rng.random(len(X)) < 1.0 / (1.0 + np.exp(-logit))).astype(int)
    return Problem(X[:800], y[:800], X[800:], y[800:], 15)


def magic() -> Problem:
    if not MAGIC.exists():
        pytest.skip("the MAGIC data are not there")
    with np.load(MAGIC) as file:
        X, y = file["X"].astype(float), file["y"].astype(int)
    rows = np.random.default_rng(0).permutation(len(X))
    train, test = rows[:1500], rows[-3000:]
    X = (X - X[train].mean(0)) / X[train].std(0)
    return Problem(X[train], y[train], X[test], y[test], 30)


def predicted(problem: Problem, noise: str) -> np.ndarray:
    X, y, X_test, _, M = problem
    model = gi.ILRSGPR(
        (X, y), gi.starting_kernel(X, 2), gi.kmeans_plusplus(X, M), num_classes=2, noise=noise
    )
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": 40}
    )
    return np.argmax(model.predict_y(X_test)[0], axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("data", [overlapping, magic])
def test_per_class_noise_does_not_collapse(data, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = data()
    shared, per_class = (predicted(problem, noise) for noise in ("shared", "per_class"))
    monkeypatch.setattr(codes, "MAX_NOISE_RATIO", 1e6)
    unprotected = predicted(problem, "per_class")
    y = problem.y_test
    error = np.sqrt(np.mean(shared != per_class) / len(y))  # standard error of the difference
    assert np.mean(per_class == y) > np.mean(shared == y) - 0.01 - 2.0 * error
    assert np.mean(unprotected == y) < np.mean(shared == y) - 0.1  # what it is protected from
