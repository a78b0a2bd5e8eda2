"""The search for the smoothing λ, and for the noise, with the smallest criterion.

The search is bounded, because on separable data the NLL falls for ever as L grows; a result that sits
at the end of its range is told apart (:func:`sharpness_at_limit`, :func:`noise_at_limit`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy.optimize import minimize_scalar

from gpflow_ilr.calibration.criterion import (
    LeftOutAtNoise,
    Marginals,
    MeanNLL,
    NLLOfSharpness,
)
from gpflow_ilr.codes import MAX_SMOOTHING, sharpness_of

__all__ = [
    "NEIGHBOUR_COUNTS",
    "FLAT_NLL",
    "NOISE_FACTOR",
    "NoiseChoice",
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
_FIRST_NEIGHBOURS = 128
_LOG_TOLERANCE = 2e-3
_SCAN_POINTS = 13
_NOISE_TOLERANCE = 0.05
FLAT_NLL = 1e-3
"""Nats per row that are worth neither less noise nor more neighbours."""
_PARABOLAS = 4
_NLL_TOLERANCE = 1e-4


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


class NoiseChoice(NamedTuple):
    """The noise that was chosen."""

    noise: float
    """Variance, in units of L²."""
    sharpness: float
    """The best L with it."""
    nll: float
    """Mean NLL of the held-out labels with both."""
    flat: bool
    """Whether still less noise would hardly change the NLL."""


def choose_noise(
    held_out_at: LeftOutAtNoise,
    link: tf.Tensor,
    start: float,
    factor: float = NOISE_FACTOR,
) -> NoiseChoice:
    """The noise variance, and L, with the smallest mean NLL of held-out labels.

    Predictions at another noise may cost a factorisation, so few are asked for: a scan in factors of
    ten, all at once, because the NLL may have several valleys, and parabolas between the neighbours
    of its best.
    Where rows are many for what they determine, the NLL falls for ever as the noise does, but ever
    less: then the largest noise is taken below which less gains nothing (``FLAT_NLL``).

    :param held_out_at: predictions and labels for each of several noise variances.
    :param link: C, [K, P].
    :param start: the present noise variance.
    :param factor: the noise is sought within this factor of the present one, a power of ten.
    """
    seen: dict[float, tuple[float, float]] = {}  # log noise: NLL, L

    def visit(points: Sequence[float]) -> None:
        predictions = held_out_at([float(np.exp(x)) for x in points])
        for x, held_out in zip(points, predictions, strict=True):
            seen[x] = choose_sharpness(MeanNLL(held_out, link))[::-1]

    def nll(x: float) -> float:
        if x not in seen:
            visit([x])
        return seen[x][0]

    width, decades = np.log(factor), round(np.log10(factor))
    scan = [float(x) for x in np.log(start) + np.linspace(-width, width, 2 * decades + 1)]
    visit(scan)
    i = int(np.argmin([nll(x) for x in scan]))
    best, flat = scan[i], False
    if 0 < i < len(scan) - 1:
        best = _by_parabolas(nll, *scan[i - 1 : i + 2])
    elif i == 0:
        flat = nll(0.5 * (scan[0] + scan[1])) - nll(best) < FLAT_NLL
        if flat:
            best = max(x for x in seen if nll(x) < nll(scan[0]) + FLAT_NLL)
    return NoiseChoice(float(np.exp(best)), seen[best][1], nll(best), flat)


def _by_parabolas(
    function: Callable[[float], float], lower: float, best: float, upper: float
) -> float:
    """Where a function is smallest between two points, from one between them where it is smaller."""
    for _ in range(_PARABOLAS):
        points = [lower, best, upper]
        parabola = np.polyfit(points, [function(x) for x in points], 2)
        vertex = float(-0.5 * parabola[1] / parabola[0])
        if function(best) - np.polyval(parabola, vertex) < _NLL_TOLERANCE:
            break
        if function(vertex) < function(best):
            best, vertex = vertex, best
        lower, upper = (vertex, upper) if vertex < best else (lower, vertex)
    return best


def choose_neighbours(
    held_out_at: Callable[[Sequence[int]], Sequence[Marginals]],
    link: tf.Tensor,
    num_rows: int,
    present: int,
) -> int:
    """The number of neighbours with the smallest mean NLL of held-out labels, each at its best L.

    Numbers up to some come at the price of the largest, so a first question asks for several, the
    present one among them; more are tried for as long as they help. Of those that are as good as the
    best (``FLAT_NLL``), the smallest is taken.

    :param held_out_at: predictions of the same rows for several numbers of neighbours.
    :param link: C, [K, P].
    :param num_rows: N.
    :param present: the present number.
    """
    most = max(1, num_rows - 1)  # all but the row itself
    present = min(present, most)
    candidates = sorted({present, *(m for m in NEIGHBOUR_COUNTS if m <= most)})
    first = [m for m in candidates if m <= max(present, _FIRST_NEIGHBOURS)]
    nll: dict[int, float] = {}
    for counts in [first, *([m] for m in candidates[len(first) :])]:
        for m, held_out in zip(counts, held_out_at(counts), strict=True):
            nll[m] = choose_sharpness(MeanNLL(held_out, link))[1]
        if nll[counts[-1]] > min(nll.values()):
            break
    return min(m for m, value in nll.items() if value <= min(nll.values()) + FLAT_NLL)


def _is_at_limit(value: float, limits: tuple[float, float], tolerance: float) -> bool:
    """Whether a search ended at an end of its range.

    :param value: what it found.
    :param limits: the range.
    :param tolerance: of the search, in the logarithm.
    """
    return bool(np.min(np.abs(np.log(value) - np.log(limits))) <= 2.0 * tolerance)
