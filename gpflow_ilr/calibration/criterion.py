"""Choosing the smoothing λ, and the noise, after one fit.

In the unit code λ acts on predictions only, through the sharpness L that multiplies the latent. So
λ needs no grid of fits: given Gaussian predictions of f/L for rows that the predictions have not
seen (by leave-one-out, or validation rows), the best L minimises a function of one variable,

    NLL(L) = −mean log E[softmax(L C f)]_y.

The search is bounded, because on separable data the NLL falls for ever as L grows.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from scipy.optimize import minimize_scalar

from gpflow_ilr.codes import MAX_SMOOTHING, sharpness_of
from gpflow_ilr.expectations import (
    GaussHermite,
    NodeRule,
    Sobol,
    expected_softmax,
    logits_at_nodes,
)
from gpflow_ilr.inputs.labels import membership

__all__ = [
    "Calibration",
    "Marginals",
    "MeanNLL",
    "NLLOfSharpness",
    "choose_noise",
    "choose_sharpness",
    "label_nll",
]

SMOOTHING_BOUNDS = (1e-3, 1.0 - 2.0 * (1.0 - MAX_SMOOTHING))
"""λ is sought between these; a learned λ does not reach its own bound, so this one is below it."""
NOISE_FACTOR = 100.0
"""The noise is sought within this factor of its present value, on either side."""
_LOG_TOLERANCE = 2e-3
_SCAN_POINTS = 13
_SCAN_ROWS = 512
_SEARCH_ELEMENTS = 2**18
_BLOCK_ELEMENTS = 2**20
_KEPT_ELEMENTS = 2**24


class Marginals(NamedTuple):
    """Gaussian predictions of f/L for rows with known labels, none of which the prediction saw."""

    mean: tf.Tensor
    """[N, P]."""
    variance: tf.Tensor
    """[N, P], or [N, 1] where the outputs share it."""
    labels: tf.Tensor
    """[N] or [N, K], as :func:`gpflow_ilr.inputs.labels.as_labels` returns them."""


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
    return _nll(p, membership(held_out.labels, link.shape[0], dtype=p.dtype))


class MeanNLL:
    """Mean NLL of held-out labels, in nats per row, as a function of the sharpness L.

    The logits at the nodes are linear in L. They are computed once for all L, unless the rows are
    too many to keep them.

    :param held_out: predictions and labels.
    :param link: C, [K, P].
    """

    def __init__(self, held_out: Marginals, link: tf.Tensor) -> None:
        self._held_out = held_out
        self._link = link
        self._num_rows, num_latents = held_out.mean.shape
        self._rule = search_nodes(num_latents, self._num_rows)
        self._row_elements = link.shape[0] * self._rule(num_latents, link.dtype)[1].shape[0]
        few = self._num_rows * self._row_elements <= _KEPT_ELEMENTS
        self._kept = list(self._blocks()) if few else None

    def __call__(self, sharpness: float | tf.Tensor) -> float:
        """Mean NLL at one L."""
        return float(self.at([float(sharpness)])[0])

    def at(self, sharpness: Sequence[float]) -> np.ndarray:
        """Mean NLL at each of several L: as many at a time as are worth it.

        :param sharpness: values of L.
        """
        totals = np.zeros(len(sharpness))
        for logits, weights, labels in self._kept or self._blocks():
            num_nodes, num_rows, num_classes = logits.shape
            step = max(1, _BLOCK_ELEMENTS // (num_nodes * num_rows * num_classes))
            for start in range(0, len(sharpness), step):
                L = tf.constant(sharpness[start : start + step], logits.dtype)
                pi = tf.nn.softmax(tf.reshape(L, [-1, 1, 1, 1]) * logits)
                flat = tf.reshape(pi, [L.shape[0], num_nodes, num_rows * num_classes])
                p = tf.linalg.matvec(flat, weights, transpose_a=True)
                p = tf.reshape(p, [L.shape[0], num_rows, num_classes])
                totals[start : start + step] += tf.reduce_sum(_nll(p, labels), axis=-1).numpy()
        return totals / self._num_rows

    @property
    def num_classes(self) -> int:
        """K."""
        return int(self._link.shape[0])

    def of_few_rows(self) -> "MeanNLL":
        """The mean over some hundred evenly spaced rows, which is cheap."""
        step = 1 + self._num_rows // _SCAN_ROWS
        return MeanNLL(Marginals(*(x[::step] for x in self._held_out)), self._link)

    def _blocks(self) -> Iterator[tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
        """Logits at the nodes [S, n, K], their weights, and label rows [n, K], for n rows a time."""
        block = max(1, _BLOCK_ELEMENTS // self._row_elements)
        for start in range(0, self._num_rows, block):
            mean, variance, labels = (x[start : start + block] for x in self._held_out)
            logits, weights = logits_at_nodes(mean, variance, self._link, self._rule)
            yield logits, weights, membership(labels, self._link.shape[0], dtype=logits.dtype)


def _nll(p: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """−log p_y of each row, [..., N], for probabilities [..., N, K] and label rows [N, K]."""
    log_p = tf.math.log(tf.maximum(p, np.finfo(p.dtype.as_numpy_dtype).tiny))
    return -tf.reduce_sum(labels * log_p, axis=-1)


class NLLOfSharpness(Protocol):
    """Mean NLL of held-out labels as a function of L, such as :class:`MeanNLL`."""

    @property
    def num_classes(self) -> int:
        """K."""
        ...

    def __call__(self, sharpness: float | tf.Tensor) -> float:
        """Mean NLL at one L."""
        ...

    def at(self, sharpness: Sequence[float]) -> np.ndarray:
        """Mean NLL at each of several L."""
        ...

    def of_few_rows(self) -> "NLLOfSharpness":
        """The mean over fewer rows, where that is cheaper."""
        ...


def choose_sharpness(nll: NLLOfSharpness, present: tf.Tensor | None = None) -> tuple[float, float]:
    """The L in bounds with the smallest mean NLL of held-out labels, and that NLL.

    The NLL may have two valleys (rows with wide posteriors saturate early, others late), so a coarse
    scan on a few rows comes before the search between the neighbours of its best.

    :param nll: the mean NLL as a function of L.
    :param present: the present L, which is kept if the search finds none better.
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
    if present is not None:
        candidates.append((nll(present), float(present)))
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
        options={"xatol": 0.05},
    )
    log_noise = found.x if found.fun < values[i] else grid[i]
    sharpness, nll = best_at(log_noise)
    return float(np.exp(log_noise)), sharpness, nll
