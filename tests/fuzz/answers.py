"""What an answer must be, where it is more than class probabilities."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

__all__ = [
    "Draw",
    "Entry",
    "finite",
    "interval",
    "latents",
    "predicted",
    "quietly",
    "spread",
    "uncertainty",
]

Draw = Callable[[st.SearchStrategy[Any]], Any]
Entry = Callable[[Draw], Any]
"""It draws its arguments, and returns class probabilities where it has some, else None."""


def finite(values: Any) -> None:
    """Nothing but finite numbers."""
    for value in tf.nest.flatten(values):
        assert np.all(np.isfinite(np.asarray(value, float))), value


def spread(values: Any) -> None:
    """Finite variances, or other sizes, none of them negative."""
    finite(values)
    for value in tf.nest.flatten(values):
        assert np.all(np.asarray(value, float) >= 0.0), value


def latents(moments: Any, full: bool = False) -> None:
    """Means, and variances or, where they are full, covariances."""
    mean, variance = moments
    finite(mean)
    (finite if full else spread)(variance)


def predicted(answer: Any) -> Any:
    """The class probabilities of ``predict_y``, once the variance beside them is right."""
    p, variance = answer
    spread(variance)
    assert variance.shape == p.shape
    return p


def uncertainty(entropies: Any) -> None:
    """Entropies: total, aleatoric and epistemic."""
    spread(tuple(entropies))


def interval(bounds: Any) -> None:
    """The lower and the upper ends of intervals of probabilities."""
    lower, upper = (np.asarray(bound) for bound in bounds)
    assert np.all((lower >= 0.0) & (lower <= upper) & (upper <= 1.0 + 1e-12)), (lower, upper)


def quietly(entry: Entry) -> Entry:
    """Without warnings, of short chains or of lost digits."""

    def call(draw: Draw) -> Any:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return entry(draw)

    return call
