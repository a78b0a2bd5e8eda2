"""The criterion of calibration: the NLL of held-out labels as a function of the sharpness L.

In the unit code λ acts on predictions only, through the sharpness L that multiplies the latent. So
λ needs no grid of fits: given Gaussian predictions of f/L for rows that the predictions have not
seen (by leave-one-out, or validation rows), the best L minimises a function of one variable,

    NLL(L) = −mean log E[softmax(L C f)]_y.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from gpflow_ilr.expectations import (
    GaussHermite,
    NodeRule,
    Sobol,
    logits_at_nodes,
    predictive_log_density,
)
from gpflow_ilr.expectations.nodes import log_average
from gpflow_ilr.expectations.two_classes import NUM_SCALES, log_odds, log_probabilities
from gpflow_ilr.inputs.labels import membership
from gpflow_ilr.inputs.rows import LabelledRows

__all__ = ["LeftOutAtNoise", "Marginals", "MeanNLL", "NLLOfSharpness", "label_nll", "search_nodes"]

_SCAN_ROWS = 512
_SEARCH_ELEMENTS = 2**18
_CHUNK_ELEMENTS = 2**20
_KEPT_ELEMENTS = 2**24


class Marginals(NamedTuple):
    """Gaussian predictions of f/L for rows with known labels, none of which the prediction saw."""

    mean: tf.Tensor
    """[N, P]."""
    variance: tf.Tensor
    """[N, P], or [N, 1] where the outputs share it."""
    labels: tf.Tensor
    """[N] or [N, K], as :func:`gpflow_ilr.inputs.labels.as_labels` returns them."""
    weights: tf.Tensor | None = None
    """[N], how often each row counts; None for once."""

    @classmethod
    def of(cls, rows: LabelledRows, mean: tf.Tensor, variance: tf.Tensor) -> "Marginals":
        """Predictions for rows.

        :param rows: the rows.
        :param mean: [N, P].
        :param variance: [N, P or 1].
        """
        return cls(mean, variance, rows.labels, rows.weights)

    def part(self, rows: slice) -> "Marginals":
        """Those of some rows.

        :param rows: which.
        """
        return Marginals(*(None if x is None else x[rows] for x in self))


LeftOutAtNoise = Callable[[Sequence[float]], Sequence[Marginals]]
"""From several noise variances to leave-one-out predictions of the same rows with each."""


_LogDensity = Callable[[tf.Tensor], tf.Tensor]


def search_nodes(num_latent_gps: int, num_rows: int) -> NodeRule:
    """Nodes for the search: many for few rows, fewer where their errors average out over rows.

    At least as many as have the right covariance, up to 128; where even those are too few (K > 65),
    L comes out a little low.

    :param num_latent_gps: number of latents.
    :param num_rows: number of held-out rows.
    """
    if num_latent_gps == 1:
        return GaussHermite(32)
    least = min(max(32, 2 ** int(np.ceil(np.log2(2 * num_latent_gps)))), 128)
    affordable = 2 ** int(np.log2(max(1, _SEARCH_ELEMENTS // (num_rows * (num_latent_gps + 1)))))
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
    return -predictive_log_density(
        sharpness * held_out.mean,
        sharpness**2 * held_out.variance,
        link,
        search_nodes(held_out.mean.shape[-1], count),
        membership(held_out.labels, link.shape[0], dtype=held_out.mean.dtype),
        one_hot=len(held_out.labels.shape) == 1,
    )


class MeanNLL:
    """Mean NLL of held-out labels, in nats per row (of weight one), as a function of the sharpness L.

    Two classes have a closed form. Of more, the logits at the nodes are linear in L: they are computed
    once for all L, unless the rows are too many to keep them.

    :param held_out: predictions and labels.
    :param link: C, [K, P].
    """

    def __init__(self, held_out: Marginals, link: tf.Tensor) -> None:
        self._held_out = held_out
        self._link = link
        self._num_rows, num_latent_gps = held_out.mean.shape
        weights = held_out.weights
        self._total_weight = self._num_rows if weights is None else float(tf.reduce_sum(weights))
        self._rule = search_nodes(num_latent_gps, self._num_rows)
        self._row_elements = self.num_classes * (
            NUM_SCALES
            if self.num_classes == 2
            else self._rule(num_latent_gps, link.dtype)[1].shape[0]
        )
        few = self._num_rows * self._row_elements <= _KEPT_ELEMENTS
        self._kept = list(self._chunks()) if few else None

    def __call__(self, sharpness: float | tf.Tensor) -> float:
        """Mean NLL at one L."""
        return float(self.at([float(sharpness)])[0])

    def at(self, sharpness: Sequence[float]) -> np.ndarray:
        """Mean NLL at each of several L: as many at a time as are worth it.

        :param sharpness: values of L.
        """
        totals = np.zeros(len(sharpness))
        for log_density, row_weights in self._kept or self._chunks():
            step = max(1, _CHUNK_ELEMENTS // (self._row_elements * row_weights.shape[0]))
            for start in range(0, len(sharpness), step):
                L = tf.constant(sharpness[start : start + step], row_weights.dtype)
                values = tf.linalg.matvec(log_density(L), row_weights)
                totals[start : start + step] -= values.numpy()
        return totals / self._total_weight

    @property
    def num_classes(self) -> int:
        """K."""
        return int(self._link.shape[0])

    def of_few_rows(self) -> "MeanNLL":
        """The mean over some hundred evenly spaced rows, which is cheap."""
        step = 1 + self._num_rows // _SCAN_ROWS
        return MeanNLL(self._held_out.part(slice(None, None, step)), self._link)

    def _chunks(self) -> Iterator[tuple[_LogDensity, tf.Tensor]]:
        """For n rows a time: from L [l] to the log density of their labels [l, n]; weights [n]."""
        chunk = max(1, _CHUNK_ELEMENTS // self._row_elements)
        for start in range(0, self._num_rows, chunk):
            mean, variance, labels, row_weights = self._held_out.part(slice(start, start + chunk))
            rows = membership(labels, self.num_classes, dtype=mean.dtype)
            if row_weights is None:
                row_weights = tf.ones(mean.shape[:1], mean.dtype)
            if self.num_classes == 2:
                log_density = _of_two_classes(*log_odds(mean, variance, self._link), rows)
            else:
                nodes = logits_at_nodes(mean, variance, self._link, self._rule)
                log_density = _at_nodes(*nodes, rows, one_hot=len(labels.shape) == 1)
            yield log_density, row_weights


def _of_two_classes(m: tf.Tensor, v: tf.Tensor, rows: tf.Tensor) -> _LogDensity:
    """Labels of rows whose log-odds are N(m, v) at L = 1."""

    def log_density(L: tf.Tensor) -> tf.Tensor:
        scale = tf.cast(L, m.dtype)[:, None]
        flat = (tf.reshape(x, [-1]) for x in (scale * m, tf.square(scale) * v))
        log_p = tf.reshape(log_probabilities(*flat), [L.shape[0], *rows.shape])
        return tf.reduce_sum(rows * tf.cast(log_p, rows.dtype), axis=-1)

    return log_density


def _at_nodes(logits: tf.Tensor, weights: tf.Tensor, rows: tf.Tensor, one_hot: bool) -> _LogDensity:
    """Labels of rows whose logits at the nodes are [S, n, K] at L = 1."""
    num_nodes, _, num_classes = logits.shape
    logits -= tf.reduce_max(logits, axis=-1, keepdims=True)  # none overflows, whatever L
    of_label = tf.reduce_sum(rows * logits, axis=-1)[:, None]

    def log_density(L: tf.Tensor) -> tf.Tensor:
        scaled = L[:, None, None] * logits[:, None]  # [S, l, n, K]
        total = tf.math.log(tf.reduce_sum(tf.exp(scaled), axis=-1))
        if one_hot:
            return log_average(weights, L[:, None] * of_label - total)
        log_pi = tf.reshape(scaled - total[..., None], [num_nodes, -1, num_classes])
        log_p = tf.reshape(log_average(weights, log_pi), scaled.shape[1:])
        return tf.reduce_sum(rows * log_p, axis=-1)

    return log_density


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
