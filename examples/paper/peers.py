"""What people use today: boosted trees, a support vector machine and a network, on the same splits.

Trees stop early on a tenth of the training rows; the machine's probabilities are calibrated by sigmoids
and its constants chosen by folds; the network's temperature is chosen on rows that have not trained it.
Machine and network have their columns scaled as our models have.
Those whose package is missing are left out, with a word.
"""

import importlib.util
import warnings
from typing import Any

import numpy as np
from ours import standardised
from problem import Fitted, Problem
from results import circumstances
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

__all__ = ["PEERS", "missing_package"]

ROUNDS, PATIENCE = 1000, 50
FEW_ROWS = 1500
SEARCHED = 3000
"""Rows that choose the constants of the support vector machine."""
WEIGHT_DECAYS = (1e-4, 1e-2, 1.0)
SCALING = "robust"
"""Columns as for our models: a few wild values cannot spoil it, as four rows of EEG would."""
NEEDS = {"LightGBM": "lightgbm", "CatBoost": "catboost"}


def missing_package(peer: str) -> str | None:
    """The name of the package that a peer needs and that is not installed, if any.

    :param peer: among :data:`PEERS`.
    """
    package = NEEDS.get(peer, "sklearn")
    return package if importlib.util.find_spec(package) is None else None


def _all_columns(p: np.ndarray, classes: np.ndarray, num_classes: int) -> np.ndarray:
    """Probabilities with a column for classes that training rows did not have, too."""
    full = np.zeros([len(p), num_classes])
    full[:, np.asarray(classes, int)] = p
    return full


def _early_stopped(problem: Problem) -> tuple[tuple, tuple]:
    held_out = problem.held_out_tenth()
    X, y = problem.data
    return (X[~held_out], y[~held_out]), (X[held_out], y[held_out])


def _rounds(problem: Problem) -> int:
    return 5 if problem.quick else ROUNDS


def gradient_boosting(problem: Problem) -> Fitted:
    from sklearn.ensemble import HistGradientBoostingClassifier

    (X, y), (X_val, y_val) = _early_stopped(problem)
    model = HistGradientBoostingClassifier(
        max_iter=_rounds(problem),
        early_stopping=True,
        n_iter_no_change=PATIENCE,
        random_state=problem.seed,
    )
    model.fit(X, y, X_val=X_val, y_val=y_val)
    return Fitted(
        lambda X: _all_columns(model.predict_proba(X), model.classes_, problem.num_classes),
        {"rounds": int(model.n_iter_)},
    )


def lightgbm(problem: Problem) -> Fitted:
    from lightgbm import LGBMClassifier, early_stopping

    (X, y), validation = _early_stopped(problem)
    model = LGBMClassifier(
        n_estimators=_rounds(problem),
        verbose=-1,
        random_state=problem.seed,
        n_jobs=circumstances()["cores"],
    )
    stop = early_stopping(PATIENCE, verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the name that older versions know is deprecated
        model.fit(X, y, eval_set=[validation], callbacks=[stop])
    return Fitted(
        lambda X: _all_columns(model.predict_proba(X), model.classes_, problem.num_classes),
        {"rounds": int(model.best_iteration_)},
    )


def catboost(problem: Problem) -> Fitted:
    from catboost import CatBoostClassifier

    (X, y), validation = _early_stopped(problem)
    model = CatBoostClassifier(
        _rounds(problem),
        early_stopping_rounds=PATIENCE,
        random_seed=problem.seed,
        thread_count=circumstances()["cores"],
        verbose=False,
        allow_writing_files=False,
    )
    model.fit(X, y, eval_set=validation)
    return Fitted(
        lambda X: _all_columns(model.predict_proba(X), model.classes_.ravel(), problem.num_classes),
        {"rounds": int(model.tree_count_)},
    )


def support_vectors(problem: Problem) -> Fitted:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    scaling, X = standardised(problem)
    y = problem.y
    rows = np.random.default_rng(problem.seed).permutation(len(X))[:SEARCHED]
    grid: dict[str, Any] = {"C": [1.0], "gamma": ["scale"]}
    if not problem.quick:
        usual = 1.0 / X.shape[1]  # "scale" of standardised columns
        grid = {"C": [1.0, 10.0, 100.0], "gamma": [0.3 * usual, usual, 3.0 * usual]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes with fewer rows than folds
        search = GridSearchCV(SVC(), grid, cv=3).fit(X[rows], y[rows])
        folds = 5 if len(X) <= FEW_ROWS else 3
        folds = int(max(2, min(folds, np.min(np.bincount(y)[np.unique(y)]))))
        model = CalibratedClassifierCV(search.best_estimator_, method="sigmoid", cv=folds).fit(X, y)
    chosen = {name: float(value) for name, value in search.best_params_.items() if value != "scale"}
    return Fitted(
        lambda rows: _all_columns(
            model.predict_proba(scaling(rows).numpy()), model.classes_, problem.num_classes
        ),
        chosen | {"scaling": SCALING},
    )


def network(problem: Problem) -> Fitted:
    """Two layers; weight decay and temperature are the best for rows that have not trained it."""
    from sklearn.model_selection import StratifiedKFold
    from sklearn.neural_network import MLPClassifier

    few = len(problem.X) <= FEW_ROWS
    scaling, X = standardised(problem)
    y = problem.y

    def built(decay: float) -> Any:
        return MLPClassifier(
            (64,) if few else (256, 128),
            alpha=decay,
            max_iter=5 if problem.quick else 500 if few else 60,
            batch_size="auto" if few else 128,
            early_stopping=False,
            random_state=problem.seed,
        )

    def logits(model: Any, X: np.ndarray) -> np.ndarray:
        # Probabilities of softmax are logits up to a constant of each row.
        p = _all_columns(model.predict_proba(X), model.classes_, problem.num_classes)
        return np.log(np.maximum(p, 1e-30))

    if few:  # each row is predicted by a network of the other folds
        folds = StratifiedKFold(5, shuffle=True, random_state=problem.seed)
        splits = [(train, test) for train, test in folds.split(X, y)]
    else:
        held_out = problem.held_out_tenth()
        splits = [(np.flatnonzero(~held_out), np.flatnonzero(held_out))]
    best: tuple[float, float, float, Any] | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged, or a rare class in some folds only
        for decay in WEIGHT_DECAYS[:1] if problem.quick else WEIGHT_DECAYS:
            models = [built(decay).fit(X[train], y[train]) for train, _ in splits]
            outside = np.concatenate(
                [logits(m, X[test]) for m, (_, test) in zip(models, splits, strict=True)]
            )
            labels = np.concatenate([y[test] for _, test in splits])
            temperature, nll = _temperature(outside, labels)
            if best is None or nll < best[0]:
                best = nll, decay, temperature, models[0]
        _, decay, temperature, model = best
        if few:
            model = built(decay).fit(X, y)

    def predict(rows: np.ndarray) -> np.ndarray:
        return np.exp(log_softmax(logits(model, scaling(rows).numpy()) / temperature, axis=1))

    chosen = {"weight_decay": decay, "temperature": temperature, "scaling": SCALING}
    return Fitted(predict, chosen)


def _temperature(logits: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The temperature with the smallest NLL, and that NLL."""

    def nll(log_temperature: float) -> float:
        log_p = log_softmax(logits / np.exp(log_temperature), axis=1)
        return -float(np.mean(log_p[np.arange(len(y)), y]))

    found = minimize_scalar(nll, bounds=(-3.0, 3.0), method="bounded")
    return float(np.exp(found.x)), float(found.fun)


PEERS = {
    "HistGradientBoosting": gradient_boosting,
    "LightGBM": lightgbm,
    "CatBoost": catboost,
    "SVC": support_vectors,
    "MLP": network,
}
