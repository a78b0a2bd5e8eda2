"""What a collapsed model keeps between calls: its sums, for as long as they stay what they are.

The sums cost O(N M²), predictions with them O(M²) a row, so a model keeps them. They depend on the
kernel, the inducing variables and the mean function, which may be anybody's classes with any
attributes; whether they have changed is therefore judged by what they compute, never by what they
are: K_uu, and kernel, mean function and label features at some probe rows.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpflow_ilr.collapsed.statistics import GroupStatistics, Rows

__all__ = ["NUM_PROBES", "Elsewhere", "KeptStatistics", "are_close"]

NUM_PROBES = 64
"""Rows at which kernel, mean function and features are compared, the first and the last among them."""

_ROUNDING = (
    1e-10  # between processors, relative to the largest entry; a change of a parameter is more
)


class Elsewhere(enum.Flag):
    """Which rows of the sums a model does not have."""

    NOWHERE = 0
    SEEN_ONCE = enum.auto()
    """The model's own rows are a sample of those that it has seen."""
    SHARED = enum.auto()
    """There are rows of other workers among those of the sums."""


@dataclass(frozen=True)
class KeptStatistics:
    """Sums over rows, and the probes of what they were computed with.

    Not a tuple: GPflow would look for parameters in it.

    :param statistics: sums over the rows, one for each span of outputs.
    :param rows: the rows; those of other data are another object.
    :param probes: what the model's parts computed at the probe rows.
    :param elsewhere: which rows are not here, so that the sums cannot be computed again.
    """

    statistics: list[GroupStatistics]
    rows: Rows
    probes: list[np.ndarray]
    elsewhere: Elsewhere = Elsewhere.NOWHERE

    def valid(self, probes: Sequence[np.ndarray]) -> bool:
        """Whether the sums are those of the model that computes these probes now.

        :param probes: of the present parameters.
        :raises ValueError: if they are not, and some rows are held elsewhere.
        """
        same = len(probes) == len(self.probes) and all(
            map(are_close if self.elsewhere else np.array_equal, self.probes, probes)
        )
        if self.elsewhere and not same:
            raise ValueError(
                "The kernel, the inducing inputs or the mean function (or, with soft labels, the "
                "smoothing) have changed since the statistics of rows that are not here were taken. "
                "Take new ones: model.absorb(dataset), or, for rows of other workers, "
                "gpflow_ilr.distributed.share_statistics(model, strategy)."
            )
        return same


def are_close(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether probes are equal up to the rounding of another processor.

    :param a: one probe.
    :param b: the other.
    """
    return a.shape == b.shape and np.allclose(
        a, b, rtol=0.0, atol=_ROUNDING * abs(a).max(initial=0)
    )
