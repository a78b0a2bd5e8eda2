"""What a model is given, and what it gives back: the same for ours, the baselines and the peers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpflow_ilr import kmeans_plusplus
from gpflow_ilr.training.few_rows import stratified_folds

__all__ = ["Contestant", "Fitted", "LeftOutError", "Problem", "inducing"]

_TENTHS = 10


class LeftOutError(Exception):
    """A contestant is not for such a problem, and half a sentence says why."""


@dataclass(frozen=True)
class Problem:
    """Training rows of a split, and nothing of its test rows.

    :param X: [N, D], raw.
    :param y: classes [N].
    :param num_classes: K.
    :param seed: of the split, and of whatever a model draws.
    :param num_inducing: M; None where models are exact.
    :param quick: only to see that it runs.
    """

    X: np.ndarray
    y: np.ndarray
    num_classes: int
    seed: int
    num_inducing: int | None = None
    quick: bool = False

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """All training rows."""
        return self.X, self.y

    def held_out_tenth(self) -> np.ndarray:
        """Which training rows choose something, [N]: a tenth of every class, but not its only row."""
        held_out = stratified_folds(self.y, _TENTHS, self.seed) == 0
        counts = np.bincount(self.y, minlength=self.num_classes)
        return held_out & (counts[self.y] > 1)


def inducing(problem: Problem, X: np.ndarray) -> np.ndarray:
    """Inducing inputs by k-means++, as in the paper; no more than there are distinct rows.

    :param problem: says how many.
    :param X: [N, D], scaled rows.
    """
    distinct = np.unique(X, axis=0)
    return kmeans_plusplus(distinct, min(problem.num_inducing, len(distinct)), problem.seed)


@dataclass(frozen=True)
class Fitted:
    """What a contestant has learned.

    :param predict: from raw rows [n, D] to class probabilities [n, K].
    :param chosen: what training or held-out rows have chosen, for the record.
    """

    predict: Callable[[np.ndarray], np.ndarray]
    chosen: dict[str, Any] = field(default_factory=dict)


Contestant = Callable[[Problem], Fitted]
