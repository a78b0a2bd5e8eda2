"""What chance alone does to the bins of a reliability diagram.

A perfectly calibrated forecaster whose n rows of a bin have confidences p_1, …, p_n sees a number of
hits that is a sum of independent Bernoulli variables (Poisson's binomial). Its quantiles say how far
from the diagonal that forecaster's bin may stray, and so which gaps are evidence of anything. They are
exact here, not a normal approximation, because the bins that people worry about hold few rows.
"""

from __future__ import annotations

import numpy as np
from scipy.signal import fftconvolve

__all__ = ["chance_band", "hits_distribution"]


def hits_distribution(probabilities: np.ndarray) -> np.ndarray:
    """The probabilities of 0, 1, …, n hits, [n + 1], in O(n log² n).

    :param probabilities: p_1, …, p_n of independent events.
    """
    p = np.asarray(probabilities, np.float64)
    size = 1 << max(len(p) - 1, 0).bit_length()
    pmf = np.zeros([size, 2])
    pmf[:, 0] = 1.0  # events that never happen fill up to a power of two
    pmf[: len(p)] = np.stack([1.0 - p, p], axis=1)
    while len(pmf) > 1:  # the distribution of a sum is the convolution of those of its two halves
        pmf = fftconvolve(pmf[::2], pmf[1::2], axes=1)
    return np.maximum(pmf[0, : len(p) + 1], 0.0)


def chance_band(
    confidence: np.ndarray, edges: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on a bin's share of hits, [M] each, that a calibrated forecaster keeps by chance.

    In each bin by itself, with probability ``level`` or a little more (hits are whole numbers), and at
    most (1 − level)/2 beyond either bound. Empty bins have NaN.

    :param confidence: of each row, [N].
    :param edges: borders of the bins [M + 1], closed on the right, as those of
        :class:`~gpflow_ilr.metrics.ReliabilityCurve`.
    :param level: in (0, 1).
    """
    bins = np.searchsorted(edges[1:-1], confidence, side="left")
    lower, upper = np.full([2, len(edges) - 1], np.nan)
    tail = 0.5 * (1.0 - level)
    for m in np.unique(bins):
        p = confidence[bins == m]
        cumulative = np.cumsum(hits_distribution(p))
        # The smallest numbers of hits h with P(hits ≤ h) > tail, and with P(hits ≤ h) ≥ 1 − tail.
        low = int(np.searchsorted(cumulative, tail, side="right"))
        high = int(np.searchsorted(cumulative, 1.0 - tail, side="left"))
        lower[m], upper[m] = low / len(p), min(high, len(p)) / len(p)
    return lower, upper
