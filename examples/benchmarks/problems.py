"""The rows that all contestants are given: the same in every process, by their seed."""

from typing import NamedTuple

import numpy as np

__all__ = ["Problem", "problem"]


class Problem(NamedTuple):
    """Rows, classes, how many classes there are, and inducing inputs."""

    X: np.ndarray
    y: np.ndarray
    K: int
    Z: np.ndarray


def problem(N: int, D: int, K: int, M: int = 0, batch: int | None = None, seed: int = 1) -> Problem:
    """K classes around K centres, with overlap.

    :param N: rows.
    :param D: columns.
    :param K: classes.
    :param M: inducing inputs, which are close to rows.
    :param batch: rows that are wanted; all by default.
    :param seed: of the rows; centres are always the same.
    """
    centres = 1.2 * np.random.default_rng(0).normal(size=(K, D))
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, batch or N)
    X = rng.normal(size=(len(y), D))
    X += centres[y]
    return Problem(X, y, K, X[:M] + 0.01 * rng.normal(size=(min(M, len(X)), D)))
