"""Sets of classes that hold the true one with a chosen probability, from what a model can say.

:func:`predict_set` is given whatever predicts probabilities and is one of its methods by one line.
What is promised depends on where the known labels come from, for rows that are exchangeable with
the new ones:

- ``"split"``: rows that the model has not seen. The set holds the true class with probability
  ``level`` at least, whatever the model.
- ``"jackknife+"``: the training rows, and for each of them the model without it, which exact models
  have in closed form. At least 2 · ``level`` − 1, and about ``level`` in practice (Barber, Candès,
  Ramdas and Tibshirani, 2021; for classes Romano, Sesia and Candès, 2020).
- ``"jackknife"``: the training rows, each predicted without itself, beside the model of all rows.
  About ``level`` where one row more or less changes predictions little; no guarantee.

The last two hold for hyperparameters that the rows have not chosen. Where they were trained on the
same rows, leave-one-out is optimistic and sets may be too small, the more so the more
hyperparameters there are: ``criterion_rows`` names the training rows that have not trained them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance

from gpflow_ilr.calibration.prediction_sets import (
    KnownScores,
    Score,
    check_level,
    check_score,
    class_scores,
    sets_by_each_row,
    sets_by_rank,
)
from gpflow_ilr.expectations import expected_softmax
from gpflow_ilr.inputs.model_parts import check_float
from gpflow_ilr.inputs.rows import LabelledData, as_inputs, check_data

__all__ = ["Method", "PredictsClasses", "predict_set"]

Method = Literal["jackknife", "jackknife+", "split"]

_CHUNK_ELEMENTS = 2**22


class PredictsClasses(Protocol):
    """What :func:`predict_set` needs; what leaves rows out needs ``held_out``, too."""

    def predict_y(self, Xnew: InputData) -> MeanAndVariance:
        """Class probabilities, [..., N, K], and their variance."""
        ...


def predict_set(
    self: PredictsClasses,
    Xnew: InputData,
    level: float = 0.9,
    method: Method | None = None,
    data: LabelledData | None = None,
    *,
    score: Score = "adaptive",
    class_conditional: bool = False,
    seed: int | None = None,
) -> tf.Tensor:
    """Which classes are in the set that holds the true one with probability ``level``, [..., N, K].

    What each method promises is at the head of :mod:`gpflow_ilr.models.prediction_sets`.

    :param Xnew: [..., N, D].
    :param level: in (0, 1).
    :param method: ``"split"`` by the rows of ``data``; ``"jackknife"``, by leave-one-out of the
        training rows (its ``criterion_rows``); ``"jackknife+"``, for exact models. By default
        ``"split"`` with data and ``"jackknife"`` without.
    :param data: rows (X, y) with one class each, which neither training nor calibration has seen.
    :param score: ``"adaptive"``: classes in the order of their probability until enough is reached,
        so sets are large where the model is uncertain, and hold the most probable class (by
        jackknife+ nearly always). ``"plain"``: all classes above one probability; smaller sets on
        average, which may be empty.
    :param class_conditional: keep the promise for the rows of each class alone. Classes with fewer
        than about 1/(1 − level) known rows are in every set.
    :param seed: draw adaptive scores, for a coverage of exactly ``level`` where one class is nearly
        certain; sets may then be empty. None for none.
    :raises ValueError: if an argument makes no sense, or the model has no such method.
    :raises RuntimeError: inside ``tf.function``, which is not supported.
    """
    if not tf.executing_eagerly():
        raise RuntimeError("predict_set counts rows in NumPy. Call it outside of tf.function.")
    check_level(level)
    check_score(score, seed)
    method = _check_method(self, method, data)
    scores = _Scores(score, None if seed is None else np.random.default_rng(seed))
    if method == "split":
        p = self.predict_y(Xnew)[0]
        rows = check_data(data, p.shape[-1], getattr(self, "num_columns", None))
        hard = _hard(rows.labels, rows.weights, method)
        known = KnownScores.of(scores(self.predict_y(rows.X)[0]), hard)
        return tf.constant(sets_by_rank(scores(p), known, level, class_conditional))
    check_float(_model_of(self))
    # A posterior may have kept leave-one-out of rows that the model no longer has.
    leaves_out: Any = self if method == "jackknife" else _model_of(self)
    mean, variance, labels, weights = leaves_out.held_out(None)
    hard = _hard(labels, weights, method)
    known = KnownScores.of(scores(_left_out_probabilities(self, mean, variance)), hard)
    if method == "jackknife":
        p = self.predict_y(Xnew)[0]
        return tf.constant(sets_by_rank(scores(p), known, level, class_conditional))
    X = as_inputs(Xnew, leaves_out.num_columns).numpy()
    new = _left_out_scores(leaves_out, X.reshape([-1, X.shape[-1]]), scores)
    sets = [sets_by_each_row(chunk, known, level, class_conditional) for chunk in new]
    return tf.constant(np.concatenate(sets).reshape([*X.shape[:-1], sets[0].shape[-1]]))


class _Scores(NamedTuple):
    """From probabilities to scores, with draws where they are asked for."""

    score: Score
    draws: np.random.Generator | None

    def __call__(self, p: Any, rows: Sequence[int] | None = None) -> np.ndarray:
        """Scores [..., K] of probabilities, with a draw for each of ``rows``, by default of p's."""
        p = np.asarray(p)
        if self.draws is None:
            return class_scores(p, self.score)
        u = self.draws.random(p.shape[:-1] if rows is None else rows)
        return class_scores(p, self.score, u)


def _left_out_scores(model: Any, X: np.ndarray, scores: _Scores) -> Iterator[np.ndarray]:
    """Scores of new rows by the model without each training row, [m, n, K] for m rows a time.

    All of them at once would be new rows × training rows × classes.
    """
    rows = model.spread_rows(None)
    without_each = model.leave_one_out_at(rows)
    chunk = max(1, _CHUNK_ELEMENTS // (len(rows) * model.code.num_classes))
    for i in range(0, max(len(X), 1), chunk):  # no rows are one chunk of no rows
        p = _left_out_probabilities(model, *without_each(tf.constant(X[i : i + chunk])))
        yield scores(p, [p.shape[0], 1])  # one draw for a new row, whichever row is left out


def _check_method(
    self: PredictsClasses, method: Method | None, data: LabelledData | None
) -> Method:
    """The method that was asked for, or the one that fits, refused where it cannot be."""
    if method is None:
        method = "jackknife" if data is None else "split"
    if method not in get_args(Method):
        raise ValueError(f"method must be 'jackknife', 'jackknife+' or 'split', but is {method!r}.")
    name = type(_model_of(self)).__name__
    if method == "split":
        if data is None:
            raise ValueError(
                "method='split' needs data, rows (X, y) that the model has not seen. Pass them as "
                "data=(X, y)."
            )
        return method
    if not hasattr(_model_of(self), "leave_one_out"):
        raise ValueError(
            f"method={method!r} leaves training rows out, but {name} has none to leave out. Pass rows "
            "that it has not seen as data=(X, y)."
        )
    if data is not None:
        raise ValueError(
            f"method={method!r} leaves training rows out and takes no data. Leave data out, or use "
            "method='split'."
        )
    if method == "jackknife+" and not hasattr(_model_of(self), "leave_one_out_at"):
        raise ValueError(
            "method='jackknife+' needs the model without each row, which exact models (ILRGPR, "
            f"DirichletGPR) have in closed form and {name} has not. Use method='jackknife', or pass "
            "rows that it has not seen as data=(X, y)."
        )
    return method


def _model_of(self: Any) -> Any:
    """The model whose posterior this is, or the model itself."""
    return getattr(self, "model", self)


def _left_out_probabilities(self: Any, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Of latents in the code's units, as ``predict_y`` has them."""
    likelihood = self.likelihood
    L = likelihood.code.scale
    return expected_softmax(L * mean, L**2 * variance, likelihood.link, likelihood.nodes)


def _hard(labels: tf.Tensor, weights: tf.Tensor | None, method: Method) -> np.ndarray:
    """Class indices, where the labels are that, and count alike."""
    if weights is not None:
        raise ValueError(
            "A prediction set counts rows, each once, but these rows have weights. Pass rows without "
            "weights, which the model has not seen, as data=(X, y)."
        )
    if labels.shape.rank == 1:
        return np.asarray(labels)
    whose = "y of data has" if method == "split" else "the model was trained on"
    raise ValueError(
        f"A prediction set holds one class or misses it, but {whose} soft rows. Pass rows with one "
        "class each as data=(X, y)."
    )
