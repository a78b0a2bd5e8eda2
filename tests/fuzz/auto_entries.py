"""What chooses its model itself, with awkward inputs: ``fit_auto`` and the scikit-learn estimator.

A fit takes about a second, whatever the limit of time, so that these have a smaller share of the
examples, few rows and one kernel.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gpflow_ilr.sklearn import ILRClassifier
from gpflow_ilr.training import fit_auto
from tests.fuzz import awkward
from tests.fuzz.answers import Draw, Entry

__all__ = ["AUTO_ENTRIES", "FITTED_ENTRIES", "NAMES", "estimator", "fitted", "named_labels"]

NAMES = np.array(["ant", "bee", "cat"])


def estimator(**options: Any) -> ILRClassifier:
    """One that gives up at once; one kernel is fitted all the same."""
    return ILRClassifier(**{"time_limit": 1e-3, "random_state": 0} | options)


@st.composite
def named_labels(draw: Any, num_rows: int) -> Any:
    """Labels as scikit-learn takes them: numbers as others have them, and text."""
    y = np.random.default_rng(draw(awkward.SEEDS)).integers(0, 3, num_rows)
    forms: list[Callable[[np.ndarray], Any]] = [
        lambda y: NAMES[y],
        lambda y: NAMES[y].astype(object),
        lambda y: NAMES[y].tolist(),
        lambda y: np.where(y == 0, None, NAMES[y].astype(object)),
        lambda y: [*NAMES[y[:-1]], 3.5],
        lambda y: NAMES[y][:, None],
        lambda y: np.where(y == 0, np.datetime64("2020-01-01"), np.datetime64("NaT")),
    ]
    return draw(
        st.one_of(
            awkward.labels(num_rows, 3), st.builds(lambda form: form(y), st.sampled_from(forms))
        )
    )


def _fit_auto(draw: Draw) -> Any:
    N, D, K = draw(awkward.SIZES), draw(st.sampled_from([1, 2])), draw(awkward.CLASSES)
    K = 20 if K == 1000 else K
    classifier = fit_auto(
        draw(awkward.rows(N, D)),
        draw(awkward.labels(N, K)),
        num_classes=K,
        sample_weight=draw(awkward.weights(N)),
        updatable=draw(st.booleans()),
        max_seconds=draw(st.sampled_from([1e-3, 1e-3, 1e-3, 0, np.nan])),
        seed=draw(st.sampled_from([0, 0, 0, -1])),
    )
    return classifier.predict_y(draw(awkward.rows(draw(awkward.SIZES), D)))[0]


def _fitted(draw: Draw, method: str = "fit") -> ILRClassifier:
    N = draw(awkward.SIZES)
    missing = draw(st.sampled_from(["refuse", "refuse", "impute", "drop"]))
    categories = draw(st.sampled_from([None, None, "from_dtype", [0], [7], ["a"], 3]))
    made = estimator(missing=missing, categories=categories)
    X, y = draw(awkward.rows(N, 2)), draw(named_labels(N))
    getattr(made, method)(X, y, sample_weight=draw(awkward.weights(N)))
    return made


def _predicted(draw: Draw) -> Any:
    return _fitted(draw).predict_proba(draw(awkward.rows(draw(awkward.SIZES), 2)))


def _partial_fit(draw: Draw) -> Any:
    made, n = _fitted(draw, "partial_fit"), draw(awkward.SIZES)
    X, y = draw(awkward.rows(n, 2)), draw(named_labels(n))
    made.partial_fit(X, y, sample_weight=draw(awkward.weights(n)))
    return made.predict_proba(draw(awkward.rows(3, 2)))


@functools.cache
def _pickled(names: bool) -> bytes:
    """One that was fitted to right rows, of text or of numbers: predictions take no second."""
    rng = np.random.default_rng(0)
    y = np.arange(9) % 3
    made = estimator().partial_fit(rng.standard_normal((9, 2)), NAMES[y] if names else y)
    return pickle.dumps(made)


def fitted(names: bool = True) -> ILRClassifier:
    """Such a one, anew."""
    return pickle.loads(_pickled(names))


def _new_rows(draw: Draw) -> Any:
    return draw(awkward.rows(draw(awkward.SIZES), draw(st.sampled_from([2, 2, 2, 3]))))


def _of_new_rows(draw: Draw) -> Any:
    return fitted(draw(st.booleans())).predict_proba(_new_rows(draw))


def _logarithms_of_new_rows(draw: Draw) -> None:
    answer = fitted(draw(st.booleans())).predict_log_proba(_new_rows(draw))
    assert np.all(answer <= 1e-12)  # −∞ where a probability underflows


def _classes_of_new_rows(draw: Draw) -> None:
    made = fitted(draw(st.booleans()))
    assert np.all(np.isin(made.predict(_new_rows(draw)), made.classes_))


def _with_new_rows(draw: Draw) -> Any:
    made, n = fitted(draw(st.booleans())), draw(awkward.SIZES)
    classes = draw(st.sampled_from([None, None, NAMES, [0, 1], ["dog"], 3, [np.nan]]))
    y, weights = draw(named_labels(n)), draw(awkward.weights(n))
    made.partial_fit(draw(awkward.rows(n, 2)), y, classes, sample_weight=weights)
    return made.predict_proba(np.ones((1, 2)))


def _sets(draw: Draw) -> None:
    made, n = fitted(draw(st.booleans())), draw(awkward.SIZES)
    X_cal, y_cal = draw(awkward.rows(n, 2)), draw(named_labels(n))
    sets = made.predict_set(_new_rows(draw), X_cal, y_cal, level=draw(awkward.LEVELS))
    assert sets.dtype == bool
    assert sets.shape[1] == len(made.classes_)


AUTO_ENTRIES: dict[str, Entry] = {
    "training.fit_auto": _fit_auto,
    "sklearn.ILRClassifier": _predicted,
    "sklearn.ILRClassifier.fit": _predicted,
    "sklearn.ILRClassifier.partial_fit": _partial_fit,
}
FITTED_ENTRIES: dict[str, Entry] = {
    "sklearn.ILRClassifier.predict_proba": _of_new_rows,
    "sklearn.ILRClassifier.predict_log_proba": _logarithms_of_new_rows,
    "sklearn.ILRClassifier.predict": _classes_of_new_rows,
    "sklearn.ILRClassifier.partial_fit": _with_new_rows,
    "sklearn.ILRClassifier.predict_set": _sets,
}
