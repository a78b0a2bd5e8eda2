"""What a collapsed model keeps between calls: its sums, for as long as they stay what they are.

The sums cost O(N M²), predictions with them O(M²) a row, so a model keeps them. They depend on the
kernel, the inducing variables and the mean function, which may be anybody's classes with any
attributes; whether they have changed is therefore judged by what they compute, never by what they
are: K_uu, and kernel, mean function and label features at some probe rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpflow_ilr.collapsed.statistics import GroupStatistics, Rows

__all__ = ["NUM_PROBES", "KeptStatistics"]

NUM_PROBES = 64
"""Rows at which kernel, mean function and features are compared, the first and the last among them."""

_ROUNDING = (
    1e-10  # between processors, relative to the largest entry; a change of a parameter is more
)


@dataclass(frozen=True)
class KeptStatistics:
    """Sums over rows, and the probes of what they were computed with.

    Not a tuple: GPflow would look for parameters in it.

    :param statistics: sums over the rows, one for each span of outputs.
    :param rows: the rows; those of other data are another object.
    :param probes: what the model's parts computed at the probe rows.
    :param elsewhere: some of the rows are held elsewhere, so that the sums cannot be computed again.
    """

    statistics: list[GroupStatistics]
    rows: Rows
    probes: list[np.ndarray]
    elsewhere: bool = False

    def valid(self, probes: Sequence[np.ndarray]) -> bool:
        """Whether the sums are those of the model that computes these probes now.

        :param probes: of the present parameters.
        :raises ValueError: if they are not, and some rows are held elsewhere.
        """
        same = len(probes) == len(self.probes) and all(
            map(_close if self.elsewhere else np.array_equal, self.probes, probes)
        )
        if self.elsewhere and not same:
            raise ValueError(
                "The kernel, the inducing inputs or the mean function (or, with soft labels, the "
                "smoothing) have changed since the statistics of rows held elsewhere were adopted. "
                "Adopt new ones: gpflow_ilr.distributed.share_statistics(model, strategy)."
            )
        return same


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal up to the rounding of another processor, which may have computed the sums."""
    return a.shape == b.shape and np.allclose(
        a, b, rtol=0.0, atol=_ROUNDING * abs(a).max(initial=0)
    )
