"""Sets of classes that hold the true one with a chosen probability: scores, ranks and counts.

A score says how ill a class suits a row. Some rows with known labels, which the prediction has not
seen, say how large the scores of true classes are; a class is in the set of a new row unless its
score is larger than most of them (conformal prediction: Vovk, Gammerman and Shafer, 2005). With N
such rows,

    set = {k : score(x, k) ≤ q̂},   q̂ the r-th smallest of the N scores,   r = ⌈level (N + 1)⌉,

which is to say that fewer than r of them are smaller. Where r > N no score is too large: every
class is in the set. With one r for each class, from the rows of that class, the sets are
class-conditional.

Nothing here knows a model: :func:`gpflow_ilr.models.prediction_sets.predict_set` brings the
probabilities.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import numpy as np

from gpflow_ilr.inputs.counts import check_seed, number_or_nan

__all__ = [
    "KnownScores",
    "Score",
    "check_level",
    "check_score",
    "class_scores",
    "sets_by_each_row",
    "sets_by_rank",
]

Score = Literal["adaptive", "plain"]


class KnownScores(NamedTuple):
    """The scores of the true classes of rows that the prediction has not seen."""

    scores: np.ndarray
    """[N]."""
    labels: np.ndarray
    """Class indices, [N]."""

    @classmethod
    def of(cls, scores: np.ndarray, labels: np.ndarray) -> KnownScores:
        """The scores of the labels among those of all classes.

        :param scores: [N, K].
        :param labels: class indices, [N].
        """
        return cls(scores[np.arange(len(labels)), labels], labels)


def check_level(level: float) -> None:
    """Refuse a level that no set can have.

    :param level: the probability with which a set is to hold the true class.
    :raises ValueError: unless it lies strictly between 0 and 1.
    """
    if not 0.0 < number_or_nan(level) < 1.0:
        raise ValueError(
            f"level must lie strictly between 0 and 1, but is {level!r}. Use 0.9 for sets that miss "
            "one label in ten."
        )


def check_score(score: str, seed: int | None = None) -> None:
    """Refuse a score that there is not, and a seed that would do nothing.

    :param score: its name.
    :param seed: of adaptive scores that are drawn.
    :raises ValueError: for another name, or a seed of plain scores.
    """
    if score not in get_args(Score):
        raise ValueError(
            f"score must be 'adaptive' or 'plain', but is {score!r}. Leave it out for 'adaptive'."
        )
    if seed is not None:
        check_seed(seed)
    if seed is not None and score == "plain":
        raise ValueError(
            f"seed={seed!r} is of adaptive scores, and score='plain' draws nothing. Leave it out, or "
            "use score='adaptive'."
        )


def class_scores(
    probabilities: np.ndarray, score: Score, u: np.ndarray | None = None
) -> np.ndarray:
    """How ill each class suits its row, [..., K].

    ``"plain"`` is 1 − p_k (Sadinle, Lei and Wasserman, 2019). ``"adaptive"`` is the probability of
    all classes that are more probable than k (Romano, Sesia and Candès, 2020), with a drawn share u
    of p_k itself on top where there is one. The most probable class has an adaptive score of zero,
    so that without u no set is empty.

    :param probabilities: [..., K].
    :param score: which one.
    :param u: a draw between 0 and 1 for each row, [...], of adaptive scores; None for no draws.
    """
    p = np.asarray(probabilities)
    if score == "plain":
        return 1.0 - p
    order = np.argsort(-p, axis=-1, kind="stable")  # of equal ones the first is the more probable
    ordered = np.take_along_axis(p, order, axis=-1)
    above = np.zeros_like(p)
    np.put_along_axis(above, order[..., 1:], np.cumsum(ordered[..., :-1], axis=-1), axis=-1)
    return above if u is None else above + u[..., None] * p


def sets_by_rank(
    scores: np.ndarray, known: KnownScores, level: float, class_conditional: bool = False
) -> np.ndarray:
    """The classes whose score is at most the r-th smallest known one, as booleans [..., K].

    :param scores: of all classes of new rows, [..., K].
    :param known: of rows that the prediction has not seen.
    :param level: the probability to hold the true class.
    :param class_conditional: compare each class with rows of that class alone.
    """
    num_classes = scores.shape[-1]
    smaller = np.empty(scores.shape, np.int64)
    for k in range(num_classes):
        own = known.scores[known.labels == k] if class_conditional else known.scores
        smaller[..., k] = np.searchsorted(np.sort(own), scores[..., k], side="left")
    return smaller < _ranks(known.labels, num_classes, level, class_conditional)


def sets_by_each_row(
    scores: np.ndarray, known: KnownScores, level: float, class_conditional: bool = False
) -> np.ndarray:
    """The classes whose score is larger than the known one for fewer than r rows, [..., K].

    As :func:`sets_by_rank`, where each known row has a prediction of its own for the new rows: that
    of a model that has not seen it (jackknife+).

    :param scores: of all classes of new rows, by the model without each known row, [..., N, K].
    :param known: the score of each of these rows, by the model without it.
    :param level: as in :func:`sets_by_rank`.
    :param class_conditional: as in :func:`sets_by_rank`.
    """
    num_classes = scores.shape[-1]
    smaller = known.scores[:, None] < scores
    if class_conditional:
        smaller &= known.labels[:, None] == np.arange(num_classes)
    ranks = _ranks(known.labels, num_classes, level, class_conditional)
    return np.count_nonzero(smaller, axis=-2) < ranks


def _ranks(
    labels: np.ndarray, num_classes: int, level: float, class_conditional: bool
) -> np.ndarray:
    """⌈level (N + 1)⌉ of each class, [K]."""
    counts = np.bincount(labels, minlength=num_classes)
    counts = counts if class_conditional else np.full(num_classes, len(labels))
    # Rounded first: 0.55 · 100 is 55.00000000000001 in floating point.
    return np.array([math.ceil(round(level * (int(n) + 1), 9)) for n in counts])
