"""Calls whose arguments are right but for one, which a sentence that refuses it must name.

Where several arguments are awkward, it is not known which one is to be named; here it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
from hypothesis import strategies as st

import gpflow_ilr as gi
from gpflow_ilr import metrics
from gpflow_ilr.training import fit_auto
from tests.fuzz import awkward
from tests.fuzz.auto_entries import NAMES, estimator, fitted, named_labels

__all__ = ["ONE_AWKWARD", "SLOW_ONE_AWKWARD", "Call"]

N, D, K = 6, 2, 3
RNG = np.random.default_rng(0)
X, XNEW, Y = RNG.standard_normal((N, D)), RNG.standard_normal((4, D)), np.arange(N) % K
P = np.full((N, K), 1 / K)

ROWS, LABELS, WEIGHTS = awkward.rows(N, D), awkward.labels(N, K), awkward.weights(N)
OF_X, OF_Y, OF_WEIGHTS, OF_K = (
    r"\bX\b",
    r"\by\b|\b[Ll]abels?\b",
    r"\b(sample_)?weights?\b",
    "num_classes|code",
)


class Call(NamedTuple):
    """A call of one awkward argument, and what the sentence must call that."""

    awkward: st.SearchStrategy[Any]
    call: Callable[[Any], Any]
    name: str
    predicts: bool = False
    """Whether it returns probabilities, of the model that it has fitted."""


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential()


def exact() -> gi.ILRGPR:
    return gi.ILRGPR((X, Y), kernel(), num_classes=K)


def svgp(**options: Any) -> gi.ILRSVGP:
    return gi.ILRSVGP(
        **{"kernel": kernel(), "inducing_variable": X[:3], "num_classes": K, "num_data": N}
        | options
    )


def _of_models() -> dict[str, Call]:
    calls = {}
    for cls in (gi.ILRGPR, gi.DirichletGPR, gi.ILRNNGPR, gi.LogisticSoftmaxGP):

        def made(*data: Any, num_classes: Any = K, cls: Any = cls) -> Any:
            return cls(data, kernel(), num_classes=num_classes)

        calls |= {
            f"{cls.__name__} X": Call(ROWS, lambda x, made=made: made(x, Y), OF_X),
            f"{cls.__name__} y": Call(LABELS, lambda y, made=made: made(X, y), OF_Y),
            f"{cls.__name__} weights": Call(
                WEIGHTS, lambda w, made=made: made(X, Y, w), OF_WEIGHTS
            ),
            f"{cls.__name__} num_classes": Call(
                awkward.CLASSES, lambda K, made=made: made(X, Y, num_classes=K), f"{OF_K}|{OF_Y}"
            ),
        }
    return calls


ONE_AWKWARD: dict[str, Call] = {
    **_of_models(),
    "ILRGPR kernel": Call(
        awkward.kernels(D), lambda k: gi.ILRGPR((X, Y), k, num_classes=K).training_loss(), "kernel"
    ),
    "ILRSGPR Z": Call(
        awkward.inducing(D),
        lambda Z: gi.ILRSGPR((X, Y), kernel(), Z, num_classes=K).training_loss(),
        "inducing_variable|inducing inputs",
    ),
    "ILRSVGP Z": Call(awkward.inducing(D), lambda Z: svgp(inducing_variable=Z), "inducing"),
    "predict_y": Call(ROWS, lambda x: exact().predict_y(x), r"\bX(new)?\b"),
    "predict_y of SVGP": Call(ROWS, lambda x: svgp().predict_y(x), r"\bX(new)?\b"),
    "update X": Call(ROWS, lambda x: exact().update(x, Y), r"\bX(_new)?\b"),
    "update y": Call(LABELS, lambda y: exact().update(X, y), OF_Y),
    "num_samples": Call(
        awkward.counts(), lambda n: exact().predict_probability_samples(XNEW, n), "num_samples"
    ),
    "metrics labels": Call(LABELS, lambda y: metrics.negative_log_likelihood(P, y), OF_Y),
    "metrics bins": Call(
        awkward.counts(), lambda n: metrics.expected_calibration_error(P, Y, n), "num_bins"
    ),
    "starting_kernel X": Call(ROWS, lambda x: gi.starting_kernel(x, K), OF_X),
    "kmeans_plusplus": Call(awkward.counts(), lambda n: gi.kmeans_plusplus(X, n), "num_inducing"),
    "predict_proba": Call(ROWS, lambda x: fitted().predict_proba(x), OF_X),
    "partial_fit X": Call(ROWS, lambda x: fitted().partial_fit(x, NAMES[Y]), OF_X),
    "partial_fit y": Call(named_labels(N), lambda y: fitted().partial_fit(X, y), OF_Y),
    "partial_fit weights": Call(
        WEIGHTS, lambda w: fitted().partial_fit(X, NAMES[Y], sample_weight=w), OF_WEIGHTS
    ),
    "partial_fit classes": Call(
        named_labels(N), lambda c: fitted().partial_fit(X, NAMES[Y], c), "classes"
    ),
    "predict_set X": Call(ROWS, lambda x: fitted().predict_set(x, X, NAMES[Y]), OF_X),
    "predict_set X_cal": Call(ROWS, lambda x: fitted().predict_set(X, x, NAMES[Y]), "X_cal"),
    "predict_set y_cal": Call(named_labels(N), lambda y: fitted().predict_set(X, X, y), "y_cal"),
}


def chosen(X: Any, y: Any, num_classes: Any = K, sample_weight: Any = None) -> Any:
    """Probabilities by the model that ``fit_auto`` chooses."""
    options = {"num_classes": num_classes, "sample_weight": sample_weight, "max_seconds": 1e-3}
    return fit_auto(X, y, **options).predict_y(X)[0]


def estimated(X: Any, y: Any, sample_weight: Any = None) -> Any:
    """Probabilities by the estimator."""
    return estimator().fit(X, y, sample_weight=sample_weight).predict_proba(X)


SLOW_ONE_AWKWARD: dict[str, Call] = {
    name: Call(*parts, predicts=True)
    for name, parts in {
        "ILRClassifier X": (ROWS, lambda x: estimated(x, Y), OF_X),
        "ILRClassifier y": (named_labels(N), lambda y: estimated(X, y), OF_Y),
        "ILRClassifier weights": (WEIGHTS, lambda w: estimated(X, Y, w), OF_WEIGHTS),
        "fit_auto X": (ROWS, lambda x: chosen(x, Y), OF_X),
        "fit_auto y": (LABELS, lambda y: chosen(X, y), OF_Y),
        "fit_auto weights": (WEIGHTS, lambda w: chosen(X, Y, sample_weight=w), OF_WEIGHTS),
        "fit_auto num_classes": (awkward.CLASSES, lambda K: chosen(X, Y, K), f"{OF_K}|{OF_Y}"),
    }.items()
}
