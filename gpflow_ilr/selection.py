"""Choosing the smoothing λ, and the noise, after one fit.

In the unit code λ acts on predictions only, through the sharpness L that multiplies the latent. So
λ needs no grid of fits: given Gaussian predictions of f/L for rows that the predictions have not
seen (by leave-one-out, or validation rows), the best L minimises a function of one variable,

    NLL(L) = −mean log E[softmax(L C f)]_y.

The search is bounded, because on separable data the NLL falls for ever as L grows.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy.optimize import minimize_scalar

from gpflow_ilr.codes import MAX_SMOOTHING, sharpness_of
from gpflow_ilr.expectations import GaussHermite, NodeRule, Sobol, expected_softmax
from gpflow_ilr.labels import membership

__all__ = [
    "Calibration",
    "Marginals",
    "choose_noise",
    "choose_sharpness",
    "label_nll",
    "largest_sharpness",
    "mean_nll",
]

SMOOTHING_BOUNDS = (1e-3, MAX_SMOOTHING)
"""λ is sought between these."""
NOISE_FACTOR = 100.0
"""The noise is sought within this factor of its present value, on either side."""
_LOG_TOLERANCE = 2e-3
_SCAN_POINTS = 13
_SCAN_ROWS = 512
_SEARCH_ELEMENTS = 2**18


class Marginals(NamedTuple):
    """Gaussian predictions of f/L for rows with known labels, none of which the prediction saw."""

    mean: tf.Tensor
    """[N, P]."""
    variance: tf.Tensor
    """[N, P], or [N, 1] where the outputs share it."""
    labels: tf.Tensor
    """[N] or [N, K], as :func:`gpflow_ilr.labels.as_labels` returns them."""


class Calibration(NamedTuple):
    """What ``calibrate`` did."""

    smoothing: float
    """λ, as now set."""
    nll_before: float
    """NLL of the held-out labels at the old λ (and noise), in nats per row."""
    nll_after: float
    """NLL of the held-out labels at the new λ (and noise)."""
    noise_variance: float
    """Mean noise variance in units of L², as now set."""


def search_nodes(num_latents: int, num_rows: int) -> NodeRule:
    """Nodes for the search: many for few rows, fewer where their errors average out over rows.

    At least as many as have the right covariance, up to 128; where even those are too few (K > 65),
    L comes out a little low.

    :param num_latents: number of latents.
    :param num_rows: number of held-out rows.
    """
    if num_latents == 1:
        return GaussHermite(32)
    least = min(max(32, 2 ** int(np.ceil(np.log2(2 * num_latents)))), 128)
    affordable = 2 ** int(np.log2(max(1, _SEARCH_ELEMENTS // (num_rows * (num_latents + 1)))))
    return Sobol(min(max(least, affordable), 1024))


def label_nll(
    held_out: Marginals, link: tf.Tensor, sharpness: tf.Tensor, num_rows: int | None = None
) -> tf.Tensor:
    """−log E[softmax(L C f)]_y for each row, [N].

    :param held_out: predictions and labels.
    :param link: C, [K, P].
    :param sharpness: L.
    :param num_rows: number of all held-out rows, where these are only some of them: the nodes are
        chosen for it.
    """
    count = held_out.mean.shape[0] if num_rows is None else num_rows
    p = expected_softmax(
        sharpness * held_out.mean,
        sharpness**2 * held_out.variance,
        link,
        search_nodes(held_out.mean.shape[-1], count),
    )
    log_p = tf.math.log(tf.maximum(p, np.finfo(p.dtype.as_numpy_dtype).tiny))
    rows = membership(held_out.labels, link.shape[0], dtype=p.dtype)
    return -tf.reduce_sum(rows * log_p, axis=-1)


def mean_nll(held_out: Marginals, link: tf.Tensor, sharpness: tf.Tensor) -> float:
    """Mean NLL of held-out labels, in nats per row.

    :param held_out: predictions and labels.
    :param link: C, [K, P].
    :param sharpness: L.
    """
    return float(tf.reduce_mean(label_nll(held_out, link, sharpness)))


def choose_sharpness(
    held_out: Marginals, link: tf.Tensor, present: tf.Tensor | None = None
) -> tuple[float, float]:
    """The L in bounds with the smallest mean NLL of held-out labels, and that NLL.

    The NLL may have two valleys (rows with wide posteriors saturate early, others late), so a coarse
    scan on a few rows comes before the search between the neighbours of its best.

    :param held_out: predictions and labels.
    :param link: C, [K, P].
    :param present: the present L, which is kept if the search finds none better.
    """

    def nll(log_sharpness: float, rows: Marginals = held_out) -> float:
        return mean_nll(rows, link, tf.constant(np.exp(log_sharpness), link.dtype))

    few = Marginals(*(x[:: 1 + x.shape[0] // _SCAN_ROWS] for x in held_out))
    lowest, highest = (np.log(sharpness_of(value, link.shape[0])) for value in SMOOTHING_BOUNDS)
    grid = np.linspace(lowest, highest, _SCAN_POINTS)
    best = int(np.argmin([nll(x, few) for x in grid]))
    found = minimize_scalar(
        nll,
        bounds=(grid[max(best - 1, 0)], grid[min(best + 1, _SCAN_POINTS - 1)]),
        method="bounded",
        options={"xatol": _LOG_TOLERANCE},
    )
    candidates = [(float(found.fun), float(np.exp(found.x)))]
    if best == _SCAN_POINTS - 1:  # the search does not visit the ends of its interval
        candidates.append((nll(highest), float(np.exp(highest))))
    if present is not None:
        candidates.append((mean_nll(held_out, link, present), float(present)))
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
        return choose_sharpness(held_out_at(float(np.exp(log_noise))), link)

    grid = np.log(start) + np.linspace(-1.0, 1.0, 9) * np.log(NOISE_FACTOR)
    values = [best_at(x)[1] for x in grid]
    i = int(np.argmin(values))
    found = minimize_scalar(
        lambda x: best_at(x)[1],
        bounds=(grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)]),
        method="bounded",
        options={"xatol": 0.05},
    )
    log_noise = found.x if found.fun < values[i] else grid[i]
    sharpness, nll = best_at(log_noise)
    return float(np.exp(log_noise)), sharpness, nll


def largest_sharpness(num_classes: int) -> float:
    """The largest L that the search considers, which also bounds the leave-one-out objective.

    :param num_classes: K.
    """
    return sharpness_of(SMOOTHING_BOUNDS[1], num_classes)
