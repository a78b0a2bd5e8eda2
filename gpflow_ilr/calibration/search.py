"""The search for the smoothing λ, and for the noise, with the smallest criterion.

The search is bounded, because on separable data the NLL falls for ever as L grows; a result that sits
at the end of its range is told apart (:func:`sharpness_at_limit`, :func:`noise_at_limit`).
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from scipy.optimize import minimize_scalar

from gpflow_ilr.calibration.criterion import Marginals, MeanNLL, NLLOfSharpness
from gpflow_ilr.codes import MAX_SMOOTHING, sharpness_of

__all__ = [
    "NEIGHBOUR_COUNTS",
    "NEIGHBOUR_ROWS",
    "NOISE_FACTOR",
    "SMOOTHING_BOUNDS",
    "choose_neighbours",
    "choose_noise",
    "choose_sharpness",
    "noise_at_limit",
    "sharpness_at_limit",
]

SMOOTHING_BOUNDS = (1e-3, 1.0 - 2.0 * (1.0 - MAX_SMOOTHING))
"""λ is sought between these; a learned λ does not reach its own bound, so this one is below it."""
NOISE_FACTOR = 100.0
"""The noise is sought within this factor of its present value, on either side."""
NEIGHBOUR_COUNTS = (8, 16, 32, 64, 128, 256)
"""Numbers of neighbours that are tried."""
NEIGHBOUR_ROWS = 512
"""Training rows that enter the choice of neighbours: differences vary less than the NLL itself."""
_FIRST_NEIGHBOURS = 128
_LOG_TOLERANCE = 2e-3
_SCAN_POINTS = 13
_NOISE_TOLERANCE = 0.05


def sharpness_at_limit(sharpness: float, num_classes: int) -> bool:
    """Whether L is at an end of its range.

    :param sharpness: L.
    :param num_classes: K.
    """
    low, high = (sharpness_of(value, num_classes) for value in SMOOTHING_BOUNDS)
    return _is_at_limit(sharpness, (low, high), _LOG_TOLERANCE)


def noise_at_limit(noise: float, start: float) -> bool:
    """Whether the noise is at an end of its range.

    :param noise: what was found.
    :param start: the noise that the search started from.
    """
    return _is_at_limit(noise, (start / NOISE_FACTOR, start * NOISE_FACTOR), _NOISE_TOLERANCE)


def choose_sharpness(nll: NLLOfSharpness) -> tuple[float, float]:
    """The L in bounds with the smallest mean NLL of held-out labels, and that NLL.

    The NLL may have two valleys (rows with wide posteriors saturate early, others late), so a coarse
    scan on a few rows comes before the search between the neighbours of its best.

    :param nll: the mean NLL as a function of L.
    """
    few = nll.of_few_rows()
    lowest, highest = (np.log(sharpness_of(value, nll.num_classes)) for value in SMOOTHING_BOUNDS)
    grid = np.linspace(lowest, highest, _SCAN_POINTS)
    best = int(np.argmin(few.at(np.exp(grid))))
    found = minimize_scalar(
        lambda x: nll(np.exp(x)),
        bounds=(grid[max(best - 1, 0)], grid[min(best + 1, _SCAN_POINTS - 1)]),
        method="bounded",
        options={"xatol": _LOG_TOLERANCE},
    )
    candidates = [(float(found.fun), float(np.exp(found.x)))]
    if best == _SCAN_POINTS - 1:  # the search does not visit the ends of its interval
        candidates.append((nll(np.exp(highest)), float(np.exp(highest))))
    smallest, sharpness = min(candidates)
    return sharpness, smallest


def choose_noise(
    held_out_at: Callable[[float], Marginals], link: tf.Tensor, start: float
) -> tuple[float, float, float]:
    """The noise variance and L with the smallest mean NLL of held-out labels, and that NLL.

    A coarse scan over the noise, with the best L for each, is followed by a bounded search between
    the neighbours of the best; the NLL may have several valleys in the noise.

    :param held_out_at: predictions and labels for a noise variance.
    :param link: C, [K, P].
    :param start: the present noise variance.
    :returns: noise variance, L, NLL.
    """

    def best_at(log_noise: float) -> tuple[float, float]:
        return choose_sharpness(MeanNLL(held_out_at(float(np.exp(log_noise))), link))

    grid = np.log(start) + np.linspace(-1.0, 1.0, 9) * np.log(NOISE_FACTOR)
    values = [best_at(x)[1] for x in grid]
    i = int(np.argmin(values))
    found = minimize_scalar(
        lambda x: best_at(x)[1],
        bounds=(grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)]),
        method="bounded",
        options={"xatol": _NOISE_TOLERANCE},
    )
    log_noise = found.x if found.fun < values[i] else grid[i]
    sharpness, nll = best_at(log_noise)
    return float(np.exp(log_noise)), sharpness, nll


def choose_neighbours(
    held_out_at: Callable[[Sequence[int]], Sequence[Marginals]], link: tf.Tensor, num_rows: int
) -> int:
    """The number of neighbours with the smallest mean NLL of held-out labels, each at its best L.

    Numbers up to some come at the price of the largest, so a first question asks for several; more
    neighbours are tried for as long as they help.

    :param held_out_at: predictions of the same rows for several numbers of neighbours.
    :param link: C, [K, P].
    :param num_rows: N.
    """
    candidates = [m for m in NEIGHBOUR_COUNTS if m < num_rows] or [max(1, num_rows - 1)]
    best, smallest = candidates[0], np.inf
    first = [m for m in candidates if m <= _FIRST_NEIGHBOURS] or candidates[:1]
    for counts in [first, *([m] for m in candidates[len(first) :])]:
        for m, held_out in zip(counts, held_out_at(counts), strict=True):
            nll = choose_sharpness(MeanNLL(held_out, link))[1]
            if nll < smallest:
                best, smallest = m, nll
        if best != counts[-1]:
            break
    return best


def _is_at_limit(value: float, limits: tuple[float, float], tolerance: float) -> bool:
    """Whether a search ended at an end of its range.

    :param value: what it found.
    :param limits: the range.
    :param tolerance: of the search, in the logarithm.
    """
    return bool(np.min(np.abs(np.log(value) - np.log(limits))) <= 2.0 * tolerance)
