"""Claims about the metrics, against scikit-learn, TensorFlow Probability and plain loops."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.special
import sklearn.calibration
import sklearn.metrics
import tensorflow as tf
import tensorflow_probability as tfp
from hypothesis import given
from hypothesis import strategies as st

from gpflow_ilr import metrics

ALL = [
    metrics.accuracy,
    metrics.negative_log_likelihood,
    metrics.brier_score,
    metrics.expected_calibration_error,
    metrics.classwise_calibration_error,
    metrics.adaptive_calibration_error,
]
PROPER = [metrics.negative_log_likelihood, metrics.brier_score]
HARD_ONLY = [metric for metric in ALL if metric not in PROPER] + [metrics.reliability_curve]
CALIBRATION = ALL[3:]


def predictions(K: int, N: int = 500, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Over-confident predictions: logits twice as large as those that made the labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=[N, K])
    y = np.argmax(logits + rng.gumbel(size=[N, K]), axis=1)
    return scipy.special.softmax(2 * logits, axis=1), y


def looped_calibration_error(confidence: np.ndarray, outcome: np.ndarray, num_bins: int) -> float:
    """Guo et al.'s sum, one row and one bin at a time."""
    bins: list[list[int]] = [[] for _ in range(num_bins)]
    for n, c in enumerate(confidence):
        bins[max(math.ceil(c * num_bins), 1) - 1].append(n)
    return sum(
        len(rows) / len(confidence) * abs(outcome[rows].mean() - confidence[rows].mean())
        for rows in bins
        if rows
    )


# --- The same as others define ------------------------------------------------------------------


@pytest.mark.parametrize("K", [2, 3, 10])
def test_accuracy_nll_and_brier_are_scikit_learns(K: int) -> None:
    P, y = predictions(K)
    classes = np.arange(K)
    assert metrics.accuracy(P, y) == sklearn.metrics.accuracy_score(y, np.argmax(P, axis=1))
    log_loss = sklearn.metrics.log_loss(y, P, labels=classes)
    assert metrics.negative_log_likelihood(P, y) == pytest.approx(log_loss, rel=1e-13)
    brier = sklearn.metrics.brier_score_loss(y, P, labels=classes, scale_by_half=False)
    assert metrics.brier_score(P, y) == pytest.approx(brier, rel=1e-13)
    if K == 2:
        half = sklearn.metrics.brier_score_loss(y, P[:, 1])
        assert metrics.brier_score(P, y) == pytest.approx(2 * half, rel=1e-13)


@pytest.mark.parametrize("K", [2, 5])
def test_brier_is_tfps_up_to_the_constant_one(K: int) -> None:
    P, y = predictions(K)
    theirs = np.mean(tfp.stats.brier_score(y, np.log(P)))
    assert metrics.brier_score(P, y) == pytest.approx(1 + theirs, rel=1e-12)


@pytest.mark.parametrize("K", [3, 10])
@pytest.mark.parametrize("num_bins", [1, 10, 15])
def test_ece_of_the_top_label_is_tfps(K: int, num_bins: int) -> None:
    P, y = predictions(K)
    theirs = tfp.stats.expected_calibration_error(
        num_bins, logits=np.log(P).astype(np.float32), labels_true=y.astype(np.int32)
    )
    # tfp works in float32: N roundings of confidences that sum up to N in each bin's mean.
    assert metrics.expected_calibration_error(P, y, num_bins) == pytest.approx(
        float(theirs), abs=np.sqrt(len(y)) * np.finfo(np.float32).eps
    )


def test_the_binary_reliability_curve_is_scikit_learns() -> None:
    P, y = predictions(2)
    curve = metrics.reliability_curve(P, y)
    true, predicted = sklearn.calibration.calibration_curve(y, P[:, 1], n_bins=10)
    filled = curve.count > 0
    np.testing.assert_allclose(curve.accuracy[filled], true, rtol=1e-13)
    np.testing.assert_allclose(curve.confidence[filled], predicted, rtol=1e-13)
    ece = np.average(abs(true - predicted), weights=curve.count[filled])
    assert metrics.expected_calibration_error(P, y) == pytest.approx(ece, rel=1e-12)


@given(st.integers(2, 6), st.integers(1, 40), st.integers(1, 20), st.integers(0, 10**6))
def test_calibration_errors_are_the_definitions_loops(K: int, N: int, M: int, seed: int) -> None:
    P, y = predictions(K, N, seed)
    if K == 2:
        top = looped_calibration_error(P[:, 1], y == 1, M)
    else:
        top = looped_calibration_error(P.max(axis=1), P.argmax(axis=1) == y, M)
    assert metrics.expected_calibration_error(P, y, M) == pytest.approx(top, abs=1e-13)
    classwise = np.mean([looped_calibration_error(P[:, k], y == k, M) for k in range(K)])
    assert metrics.classwise_calibration_error(P, y, M) == pytest.approx(classwise, abs=1e-13)


@pytest.mark.parametrize("N", [3, 50, 57])
def test_adaptive_bins_hold_equally_many_rows(N: int) -> None:
    P, y = predictions(4, N)
    order = np.argsort(P.max(axis=1))
    gaps = ((P.argmax(axis=1) == y) - P.max(axis=1))[order]
    edges = [math.ceil(m * N / 10) for m in range(11)]
    assert max(np.diff(edges)) - min(np.diff(edges)) <= 1
    expected = sum(abs(gaps[a:b].sum()) for a, b in itertools.pairwise(edges)) / N
    assert metrics.adaptive_calibration_error(P, y) == pytest.approx(expected, abs=1e-13)


def test_adaptive_bins_keep_equal_confidences_together() -> None:
    P, y = np.tile([[0.1, 0.2, 0.7]], [20, 1]), np.repeat([2, 0], 10)
    assert metrics.adaptive_calibration_error(P, y) == pytest.approx(0.7 - 0.5, abs=1e-15)


# --- Edges --------------------------------------------------------------------------------------


def test_confidences_of_exactly_zero_and_one_are_counted() -> None:
    p = np.array([0.0, 0.0, 1.0, 1.0, 0.1, 0.2, 0.3, 0.95])
    curve = metrics.reliability_curve(np.stack([1 - p, p], axis=1), [0, 1, 1, 1, 0, 0, 1, 1])
    # Closed on the right: 0.1 is in the first bin, 0.2 in the second, 0.3 in the third.
    np.testing.assert_array_equal(curve.count, [3, 1, 1, 0, 0, 0, 0, 0, 0, 3])
    np.testing.assert_allclose(curve.accuracy[[0, 9]], [1 / 3, 1.0])
    assert len(curve.edges) == 11


@pytest.mark.parametrize("num_bins", [3, 7, 10, 49])
def test_every_edge_belongs_to_the_bin_on_its_left(num_bins: int) -> None:
    edges = metrics.reliability_curve([[0.5, 0.5]], [0], num_bins).edges
    P = np.stack([1 - edges[1:], edges[1:]], axis=1)
    curve = metrics.reliability_curve(P, np.zeros(num_bins, int), num_bins)
    np.testing.assert_array_equal(curve.count, 1)


def test_empty_bins_are_nan_in_the_curve_and_nothing_in_the_error() -> None:
    curve = metrics.reliability_curve([[0.2, 0.8, 0.0], [0.1, 0.85, 0.05]], [1, 0])
    assert np.isnan(curve.accuracy[curve.count == 0]).all()
    assert np.isnan(curve.confidence[curve.count == 0]).all()
    # 0.8 and 0.85 are in (0.7, 0.8] and (0.8, 0.9].
    assert curve.calibration_error == pytest.approx((0.2 + 0.85) / 2, abs=1e-15)


@pytest.mark.parametrize("K", [2, 3])
def test_certain_and_right_predictions_have_no_loss(K: int) -> None:
    y = np.arange(12) % K
    assert metrics.accuracy(np.eye(K)[y], y) == 1.0
    for metric in (*PROPER, *CALIBRATION):
        assert metric(np.eye(K)[y], y) == 0.0
        assert math.copysign(1.0, metric(np.eye(K)[y], y)) == 1.0


def test_certain_and_wrong_predictions_have_the_largest_loss() -> None:
    y = np.arange(12) % 3
    P = np.eye(3)[(y + 1) % 3]
    assert metrics.accuracy(P, y) == 0.0
    assert metrics.brier_score(P, y) == 2.0
    assert metrics.expected_calibration_error(P, y) == 1.0
    assert metrics.adaptive_calibration_error(P, y) == 1.0


def test_probability_zero_for_a_class_that_occurred_is_infinite_with_a_warning() -> None:
    P = [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    with pytest.warns(RuntimeWarning, match=r"2 of 4 rows give probability 0 .* first is row 1"):
        assert metrics.negative_log_likelihood(P, [0, 1, 1, 1]) == np.inf
    with pytest.warns(RuntimeWarning, match="1 of 1 rows"):
        assert metrics.negative_log_likelihood([[1.0, 0.0]], [[0.5, 0.5]]) == np.inf


def test_tiny_probabilities_are_not_clipped() -> None:
    P = np.array([[1.0, 1e-300]])
    assert metrics.negative_log_likelihood(P, [1]) == pytest.approx(300 * math.log(10), rel=1e-15)


def test_probabilities_calibrated_by_construction_have_small_errors() -> None:
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(4), size=20_000)
    y = np.argmax(np.log(P) + rng.gumbel(size=P.shape), axis=1)
    # E|acc - conf| of a bin of n rows is at most ½/√n, so the error's mean is at most ½√(M/N).
    bound = 0.5 * np.sqrt(10 / len(y))
    for metric in CALIBRATION:
        assert metric(P, y) < bound
        assert metric(P, (y + 1) % 4) > 10 * bound


# --- Inputs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize("K", [2, 4])
def test_numpy_tensors_and_lists_give_the_same_python_float(metric: object, K: int) -> None:
    P, y = predictions(K, N=40)
    expected = metric(P, y)
    assert type(expected) is float
    assert metric(tf.constant(P), tf.constant(y[:, None], tf.float64)) == expected
    assert metric(P.tolist(), y.tolist()) == expected
    assert metric(P, np.eye(K)[y]) == expected
    # Float32 rounds probabilities by 6e-8, which may move none of these rows to another bin.
    assert metric(P.astype(np.float32), y) == pytest.approx(expected, rel=1e-5)


@given(st.integers(2, 5), st.integers(1, 30), st.integers(0, 10**6))
def test_the_order_of_rows_does_not_matter_even_with_ties(K: int, N: int, seed: int) -> None:
    P, y = predictions(K, N, seed)
    # Two digits make ties. Sums of such numbers are one to round-off.
    P = np.round(P, 1)
    P[:, 0] = np.maximum(1 - P[:, 1:].sum(axis=1), 0.0)
    P /= P.sum(axis=1, keepdims=True)
    order = np.random.default_rng(seed).permutation(N)
    for metric in [metric for metric in ALL if metric is not metrics.negative_log_likelihood]:
        assert metric(P[order], y[order]) == pytest.approx(metric(P, y), abs=1e-13)


def test_soft_labels_give_the_mean_over_their_classes() -> None:
    P, _ = predictions(3, N=1)
    weights = np.array([0.2, 0.3, 0.5])
    expected = sum(w * metrics.negative_log_likelihood(P, [k]) for k, w in enumerate(weights))
    assert metrics.negative_log_likelihood(P, [weights]) == pytest.approx(expected, rel=1e-14)
    assert metrics.brier_score(P, P) == 0.0
    assert metrics.brier_score(P, [weights]) == pytest.approx(np.sum((P - weights) ** 2), rel=1e-14)


@pytest.mark.parametrize("metric", HARD_ONLY)
def test_metrics_of_decisions_refuse_soft_labels(metric: object) -> None:
    with pytest.raises(ValueError, match=r"one class for each row, but row 1 is soft.*np\.argmax"):
        metric([[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0], [0.4, 0.6]])


@pytest.mark.parametrize("metric", [*ALL, metrics.reliability_curve])
@pytest.mark.parametrize(
    ("P", "y", "sentence"),
    [
        ([[0.5, 0.5], [0.5, np.nan]], [0, 1], "probabilities .* row 1 is not finite"),
        ([[0.5, 0.5], [0.5, 0.6]], [0, 1], "probabilities .* row 1 sums to 1.1"),
        ([[0.5, 0.5], [1.5, -0.5]], [0, 1], "probabilities .* row 1 has a negative entry"),
        ([0.5, 0.5], [0, 1], r"shape \[N, K\] .* before the labels"),
        ([[0.5], [0.5]], [0, 1], r"pass both, np\.stack"),
        (([[0.5, 0.5]], [[0.2, 0.2]]), [0], "predict_y returns pass the first"),
        (np.zeros([0, 3]), [], r"N > 0 and K > 1, but have \[0, 3\]"),
        ([["a", "b"]], [0], "probabilities must be real numbers, but have dtype str"),
        (np.ma.array([[0.5, 0.5]], mask=[[0, 1]]), [0], "must not be masked"),
        ([[0.5, 0.5]], [0, 1], "as many as probabilities has rows, 1, but have shape .2."),
        ([[0.5, 0.5]], [2], "row 0 has label 2"),
    ],
)
def test_invalid_probabilities_and_labels_are_refused(
    metric: object, P: object, y: object, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        metric(P, y)


def test_symbolic_probabilities_are_refused() -> None:
    with pytest.raises(TypeError, match=r"outside tf\.function"):
        tf.function(lambda P: metrics.accuracy(P, [0]))(tf.constant([[0.5, 0.5]]))


@pytest.mark.parametrize("num_bins", [0, -1, 2.5, "10", True])
def test_numbers_of_bins_that_make_no_sense_are_refused(num_bins: object) -> None:
    for metric in (*CALIBRATION, metrics.reliability_curve):
        with pytest.raises(ValueError, match="num_bins must be an integer of at least 1"):
            metric([[0.5, 0.5]], [0], num_bins)


def test_the_curve_of_one_class_and_its_bounds() -> None:
    P, y = predictions(3)
    errors = [metrics.reliability_curve(P, y, class_index=k).calibration_error for k in range(3)]
    assert metrics.classwise_calibration_error(P, y) == pytest.approx(np.mean(errors), rel=1e-14)
    with pytest.raises(ValueError, match=r"class_index must be one of 0\.\.2, but is 3"):
        metrics.reliability_curve(P, y, class_index=3)
