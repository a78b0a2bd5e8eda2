"""Columns brought to one scale, in a way that a few wild values cannot spoil.

Kernels measure distances, so what a column's numbers look like matters as much as the model. Three
ways, none of which is always better: :class:`Standardised` keeps the shape of a column and only cuts
off its tails; :class:`NormalQuantiles` makes every column Gaussian, which suits long tails;
:class:`OneScale` keeps the proportions of columns that share a unit, such as pixels, where one that
hardly varies is not to count as much as any other. They are fitted to training rows and applied, by
TensorFlow ops, to any others.
"""

from __future__ import annotations

import abc

import numpy as np
import tensorflow as tf
from gpflow.base import InputData

from gpflow_ilr.inputs.rows import as_inputs, as_rows

__all__ = [
    "ONE_SCALE",
    "SCALINGS",
    "NormalQuantiles",
    "OneScale",
    "Scaling",
    "Standardised",
    "suitable_scalings",
]

TAIL = 1e-3
"""The share of a column's values that is cut off at either end."""

REACH = 10.0
"""Interquartile ranges beyond the quartiles that are kept, at most."""

NUM_QUANTILES = 1000
"""Quantiles between which the distribution of a column is linear."""

LEAST_PART = 0.25
"""The part of the columns, beside the first, that must count: else their units are not the same."""

LEAST_RATIO = 1.5
"""Of the largest spread to the smallest, below which columns have one scale already."""


class Scaling(tf.Module, abc.ABC):
    """A map of inputs that was fitted to training rows.

    :param X: [N, D], the training rows.
    """

    def __init__(self, X: InputData) -> None:
        super().__init__()
        rows = as_rows(X).numpy()
        self.num_columns = int(rows.shape[1])
        self._fit(rows)

    @property
    def is_suitable(self) -> bool:
        """Whether the training rows are such that it can be worth trying."""
        return True

    @abc.abstractmethod
    def _fit(self, X: np.ndarray) -> None:
        """Keep what is needed of the training rows."""

    def __call__(self, X: InputData) -> tf.Tensor:
        """The scaled inputs, [..., D].

        :param X: [..., D] of any real dtype.
        :raises ValueError: if X has another number of columns than the training rows.
        """
        return self._scale(as_inputs(X, self.num_columns))

    @abc.abstractmethod
    def _scale(self, X: tf.Tensor) -> tf.Tensor:
        """The scaled inputs, of checked ones."""


class Standardised(Scaling):
    """Columns cut off at their outer quantiles, or earlier where these are wild, and standardised.

    :param X: [N, D], the training rows.
    """

    def _fit(self, X: np.ndarray) -> None:
        low, first, third, high = np.quantile(X, [TAIL, 0.25, 0.75, 1.0 - TAIL], axis=0)
        # Of few rows the glitches may be more than the tail.
        reach = REACH * self._ranges(third - first)
        self._low, self._high = np.maximum(low, first - reach), np.minimum(high, third + reach)
        clipped = np.clip(X, self._low, self._high)
        self._mean = np.mean(clipped, axis=0)
        self._spread = self._divisor(np.std(clipped, axis=0))

    def _ranges(self, interquartile: np.ndarray) -> np.ndarray:
        """What the reach of each column is a multiple of, [D]."""
        # Where half of the values are equal, a wild one spoils its own column and no other.
        return np.where(interquartile > 0.0, interquartile, np.inf)

    def _divisor(self, spreads: np.ndarray) -> np.ndarray:
        """What each column is divided by, [D]."""
        return np.where(spreads > 0.0, spreads, 1.0)  # a constant column stays constant

    def _scale(self, X: tf.Tensor) -> tf.Tensor:
        return (tf.clip_by_value(X, self._low, self._high) - self._mean) / self._spread


class OneScale(Standardised):
    """Columns cut off as in :class:`Standardised`, centred, and all divided by one number.

    The number is the root of their mean variance, so that squared distances are as large as there.

    :param X: [N, D], the training rows.
    """

    def _ranges(self, interquartile: np.ndarray) -> np.ndarray:
        # A wild value would spoil the scale of all. Where half of a column's values are equal, as at
        # the border of images, the others say how far values reach.
        varied = interquartile[interquartile > 0.0]
        typical = np.median(varied) if len(varied) else np.inf
        return np.where(interquartile > 0.0, interquartile, typical)

    def _divisor(self, spreads: np.ndarray) -> np.ndarray:
        self._spreads = spreads[spreads > 0.0]
        scale = np.sqrt(np.mean(np.square(self._spreads))) if len(self._spreads) else 1.0
        return np.full(len(spreads), scale)

    @property
    def is_suitable(self) -> bool:
        """Whether enough columns would count, and whether their spreads differ at all.

        Squared distances are sums over columns, in proportion to their variances v; as if (Σv)²/Σv²
        columns counted, which is 1 if one is in so small a unit that its numbers hide all others.
        """
        v = np.square(self._spreads)
        if len(v) < 2 or np.max(v) < LEAST_RATIO**2 * np.min(v):
            return False
        count = np.sum(v) ** 2 / np.sum(np.square(v))
        return bool(count - 1.0 >= LEAST_PART * (len(v) - 1))


class NormalQuantiles(Scaling):
    """Columns mapped to normal quantiles of their ranks among the training rows.

    Values that are equal have the middle of their ranks; those beyond all training rows, and those
    within a thousandth of them, have the outermost quantile, ±3.3.

    :param X: [N, D], the training rows.
    """

    def _fit(self, X: np.ndarray) -> None:
        self._ranks = np.linspace(0.0, 1.0, min(len(X), NUM_QUANTILES))
        self._quantiles = np.quantile(X, self._ranks, axis=0).T.copy()  # [D, Q]

    def _scale(self, X: tf.Tensor) -> tf.Tensor:
        x = tf.transpose(tf.reshape(X, [-1, self.num_columns]))  # [D, n]
        quantiles, ranks = (tf.constant(q, x.dtype) for q in (self._quantiles, self._ranks))
        last = quantiles.shape[1] - 1
        below = tf.searchsorted(quantiles, x, side="right") - 1  # the last that is not above x
        above = tf.searchsorted(quantiles, x, side="left")  # the first that is not below x
        below, above = (tf.clip_by_value(i, 0, last) for i in (below, above))
        left, right = (tf.gather(quantiles, i, batch_dims=1) for i in (below, above))
        share = tf.where(right > left, tf.math.divide_no_nan(x - left, right - left), 0.5)
        low, high = (tf.gather(ranks, i) for i in (below, above))
        outermost = 0.5 / NUM_QUANTILES
        rank = tf.clip_by_value(low + share * (high - low), outermost, 1.0 - outermost)
        return tf.reshape(tf.transpose(tf.math.ndtri(rank)), tf.shape(X))


ONE_SCALE = "one scale"
"""The name of the scaling that lengthscales for each column make superfluous."""

SCALINGS: dict[str, type[Scaling]] = {
    "standardised": Standardised,
    "normal quantiles": NormalQuantiles,
    ONE_SCALE: OneScale,
}
"""The ways to scale columns, by name."""


def suitable_scalings(X: InputData) -> dict[str, Scaling]:
    """Those scalings that can be worth trying, fitted, by name; the first always is.

    :param X: [N, D], the training rows.
    """
    fitted = {name: scaling(X) for name, scaling in SCALINGS.items()}
    return {name: scaling for name, scaling in fitted.items() if scaling.is_suitable}
