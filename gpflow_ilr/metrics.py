"""How good predicted class probabilities are: accuracy, log-likelihood, Brier score, calibration.

Every function takes probabilities [N, K], as ``predict_y`` returns them, then labels in any form
that :func:`gpflow_ilr.inputs.labels.as_labels` accepts, and returns a Python float. Metrics are for
people, not for graphs: they compute in NumPy and float64, check what they are given, and never
clip.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.special import xlogy

from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.inputs.labels import as_labels, membership
from gpflow_ilr.inputs.probabilities import as_classes, as_probabilities, check_num_labels

__all__ = [
    "accuracy",
    "negative_log_likelihood",
    "brier_score",
    "expected_calibration_error",
    "classwise_calibration_error",
    "adaptive_calibration_error",
    "ReliabilityCurve",
    "reliability_curve",
]


@dataclass(frozen=True)
class ReliabilityCurve:
    """The bins behind a reliability diagram; empty bins have NaN confidence and accuracy.

    :param edges: borders of the M bins [M+1], from 0 to 1. Bins are closed on the right, (a, b],
        and the first also contains 0, so that a confidence of exactly 0 or 1 is counted.
    :param confidence: mean confidence of the rows in each bin [M].
    :param accuracy: share of the rows in each bin for which the event came true [M].
    :param count: number of rows in each bin [M].
    """

    edges: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray

    @property
    def calibration_error(self) -> float:
        """Σ_m |B_m|/n · |acc(B_m) - conf(B_m)|, to which empty bins add nothing."""
        filled = self.count > 0
        gaps = abs(self.accuracy[filled] - self.confidence[filled])
        return float(np.average(gaps, weights=self.count[filled]))


def accuracy(probabilities: Any, labels: Any) -> float:
    """The share of rows whose most probable class (the first of several) is the label.

    :param probabilities: class probabilities [N, K].
    :param labels: hard labels in any form that ``as_labels`` accepts.
    :raises ValueError: for invalid probabilities or labels, and for soft labels.
    """
    P, y = _with_hard_labels(probabilities, labels)
    return float(np.mean(np.argmax(P, axis=1) == y))


def negative_log_likelihood(probabilities: Any, labels: Any) -> float:
    """The mean of -log π_c, or for soft labels p the cross entropy -Σ_k p_k log π_k, in nats.

    It is infinite, with a warning, if a class that occurs was given probability 0.

    :param probabilities: class probabilities [N, K].
    :param labels: hard or soft labels in any form that ``as_labels`` accepts.
    :raises ValueError: for invalid probabilities or labels.
    """
    P, Y = _with_label_rows(probabilities, labels)
    rows = -xlogy(Y, P).sum(axis=1)
    impossible = np.flatnonzero(np.isinf(rows))
    if impossible.size:
        warnings.warn(
            f"The negative log-likelihood is infinite: {impossible.size} of {len(rows)} rows give "
            f"probability 0 to a class that occurred, the first is row {impossible[0]}. If it "
            "underflowed, use predict_log_density; else the model excluded what happened.",
            RuntimeWarning,
            stacklevel=2,
        )
    return float(np.mean(rows))


def brier_score(probabilities: Any, labels: Any) -> float:
    """The mean of Σ_k (π_k - p_k)², Brier's own definition: between 0 and 2.

    For K = 2 it is twice the mean of (π_1 - p_1)², the score of scikit-learn's binary case.

    :param probabilities: class probabilities [N, K].
    :param labels: hard or soft labels in any form that ``as_labels`` accepts.
    :raises ValueError: for invalid probabilities or labels.
    """
    P, Y = _with_label_rows(probabilities, labels)
    return float(np.mean(np.sum((P - Y) ** 2, axis=1)))


def reliability_curve(
    probabilities: Any, labels: Any, num_bins: int = 10, class_index: int | None = None
) -> ReliabilityCurve:
    """Confidence against accuracy in bins of equal width.

    The event is that the most probable class is right if K > 2, and that the class is 1 if K = 2;
    with a ``class_index``, that the class is this one.

    :param probabilities: class probabilities [N, K].
    :param labels: hard labels in any form that ``as_labels`` accepts.
    :param num_bins: number of bins M between 0 and 1.
    :param class_index: the class whose probability is the confidence, if not as above.
    :raises ValueError: for invalid probabilities or labels, soft labels, no bins, or no such class.
    """
    P, y = _with_hard_labels(probabilities, labels)
    if class_index is not None:
        check_count("class_index", class_index, smallest=0)
        if class_index >= P.shape[1]:
            raise ValueError(
                f"class_index must be one of 0..{P.shape[1] - 1}, but is {class_index!r}. Classes are "
                "counted from 0."
            )
    return _curve(*_events(P, y, class_index), num_bins)


def expected_calibration_error(probabilities: Any, labels: Any, num_bins: int = 10) -> float:
    """ECE = Σ_m |B_m|/n · |acc(B_m) - conf(B_m)| over bins of equal width, as in the paper.

    The confidence is the largest probability if K > 2 and the probability of class 1 if K = 2. Bins
    are closed on the right (Guo et al., 2017), and the first one on both sides.

    :param probabilities: class probabilities [N, K].
    :param labels: hard labels in any form that ``as_labels`` accepts.
    :param num_bins: number of bins M between 0 and 1; the paper has 10.
    :raises ValueError: for invalid probabilities or labels, soft labels, or no bins.
    """
    P, y = _with_hard_labels(probabilities, labels)
    return _curve(*_events(P, y), num_bins).calibration_error


def classwise_calibration_error(probabilities: Any, labels: Any, num_bins: int = 10) -> float:
    """The mean over classes of the calibration error of each class' probability.

    Unlike the top label's error it sees every probability, as in Kull et al. (2019).

    :param probabilities: class probabilities [N, K].
    :param labels: hard labels in any form that ``as_labels`` accepts.
    :param num_bins: number of bins of equal width between 0 and 1.
    :raises ValueError: for invalid probabilities or labels, soft labels, or no bins.
    """
    P, y = _with_hard_labels(probabilities, labels)
    curves = (_curve(*_events(P, y, k), num_bins) for k in range(P.shape[1]))
    return float(np.mean([curve.calibration_error for curve in curves]))


def adaptive_calibration_error(probabilities: Any, labels: Any, num_bins: int = 10) -> float:
    """ECE with bins of equal mass: as many rows in each, so that none is empty or crowded.

    Sizes differ by at most one, except that equal confidences stay in one bin (that of the first of
    them), which keeps the error independent of the order of the rows.

    :param probabilities: class probabilities [N, K].
    :param labels: hard labels in any form that ``as_labels`` accepts.
    :param num_bins: number of bins; some stay empty if there are fewer rows or many ties.
    :raises ValueError: for invalid probabilities or labels, soft labels, or no bins.
    """
    P, y = _with_hard_labels(probabilities, labels)
    confidence, outcome = _events(P, y)
    rank = np.searchsorted(np.sort(confidence), confidence, side="left")
    bins = rank * check_count("num_bins", num_bins) // len(rank)
    # Σ_m |B_m|/n · |acc - conf| = 1/n Σ_m |Σ_{n in B_m} (outcome - confidence)|
    return float(abs(np.bincount(bins, weights=outcome - confidence)).sum() / len(rank))


def _with_label_rows(probabilities: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities [N, K] and labels as rows on the simplex [N, K]."""
    P = as_probabilities(probabilities)
    N, K = P.shape
    check_num_labels(labels, N)
    return P, membership(as_labels(labels, K), K, dtype=tf.float64).numpy()


def _with_hard_labels(probabilities: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities [N, K] and class indices [N]; soft labels are refused."""
    P = as_probabilities(probabilities)
    return P, as_classes(labels, P.shape[1], len(P))


def _events(
    P: np.ndarray, y: np.ndarray, class_index: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Confidence [N] and whether the event came true [N]: see :func:`reliability_curve`."""
    if class_index is None and P.shape[1] > 2:
        return P.max(axis=1), np.argmax(P, axis=1) == y
    class_index = 1 if class_index is None else class_index
    return P[:, class_index], y == class_index


def _curve(confidence: np.ndarray, outcome: np.ndarray, num_bins: int) -> ReliabilityCurve:
    """Means of confidence and outcome in bins of equal width."""
    M = check_count("num_bins", num_bins)
    edges = np.linspace(0.0, 1.0, M + 1)
    # Only inner edges decide, so that round-off beyond 0 or 1 cannot lose a row.
    bins = np.searchsorted(edges[1:-1], confidence, side="left")
    count = np.bincount(bins, minlength=M)
    size = np.where(count > 0, count, np.nan)
    return ReliabilityCurve(
        edges=edges,
        confidence=np.bincount(bins, weights=confidence, minlength=M) / size,
        accuracy=np.bincount(bins, weights=outcome, minlength=M) / size,
        count=count,
    )
