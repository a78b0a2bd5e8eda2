"""Boosted trees as a user has them: a tenth of the rows stops them early, and may calibrate them."""

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from machine import threads
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

__all__ = ["PACKAGES", "Fitted", "boosted", "import_all", "temperature"]

PACKAGES = {
    "fit_auto": "gpflow_ilr.training",
    "HistGradientBoosting": "sklearn.ensemble",
    "LightGBM": "lightgbm",
    "CatBoost": "catboost",
}
"""What each contestant imports."""

PATIENCE = 30


class Fitted(NamedTuple):
    """Class probabilities of new rows, and the NLL of those that the contestant held out itself."""

    predict: Callable[[np.ndarray], np.ndarray]
    held_out_nll: float


def import_all() -> None:
    """Import what is installed, before a clock starts: no contestant pays for it."""
    for package in PACKAGES.values():
        if importlib.util.find_spec(package.partition(".")[0]) is not None:
            importlib.import_module(package)


def boosted(
    X: np.ndarray, y: np.ndarray, by: str, rounds: int = 600, calibrate: bool = False
) -> Fitted:
    """Trees of at most so many rounds.

    :param X: training rows, the first tenth of which are held out.
    :param y: their classes.
    :param by: whose.
    :param rounds: at most.
    :param calibrate: by a temperature, which may be one, from the rows that are held out.
    """
    count = len(X) // 10
    rows, held_out = (X[count:], y[count:]), (X[:count], y[:count])
    model = {"HistGradientBoosting": _sklearn, "LightGBM": _lightgbm, "CatBoost": _catboost}[by](
        rows, held_out, rounds
    )
    logits = _logits(model.predict_proba(held_out[0]))
    T = temperature(logits, held_out[1]) if calibrate else 1.0

    def predict(new: np.ndarray) -> np.ndarray:
        p = model.predict_proba(new)
        return p if T == 1.0 else softmax(_logits(p) / T, axis=1)

    return Fitted(predict, _nll(logits, held_out[1], T))


def temperature(logits: np.ndarray, y: np.ndarray) -> float:
    """What logits are divided by for the least NLL of these rows; one unless another is better."""
    found = minimize_scalar(
        lambda log_t: _nll(logits, y, np.exp(log_t)), bounds=(-3.0, 3.0), method="bounded"
    )
    return float(np.exp(found.x)) if found.fun < _nll(logits, y, 1.0) else 1.0


def _logits(p: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(p, 1e-15))


def _nll(logits: np.ndarray, y: np.ndarray, T: float) -> float:
    return float(-np.mean(log_softmax(logits / T, axis=1)[np.arange(len(y)), y]))


def _sklearn(rows: tuple, held_out: tuple, rounds: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        max_iter=rounds, early_stopping=True, n_iter_no_change=PATIENCE, random_state=0
    )
    return model.fit(*rows, X_val=held_out[0], y_val=held_out[1])


def _lightgbm(rows: tuple, held_out: tuple, rounds: int) -> Any:
    from lightgbm import LGBMClassifier, early_stopping

    model = LGBMClassifier(n_estimators=rounds, n_jobs=threads(), verbose=-1)
    stop = early_stopping(PATIENCE, verbose=False)
    return model.fit(*rows, eval_set=[held_out], callbacks=[stop])


def _catboost(rows: tuple, held_out: tuple, rounds: int) -> Any:
    from catboost import CatBoostClassifier

    options = {"early_stopping_rounds": PATIENCE, "verbose": False, "allow_writing_files": False}
    model = CatBoostClassifier(rounds, thread_count=threads(), **options)
    return model.fit(*rows, eval_set=held_out)
