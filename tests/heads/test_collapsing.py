"""All rows in one pass equal all rows at once; noise and λ are chosen by held-out rows."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr import ILRSGPR, Sobol, metrics, starting_kernel
from gpflow_ilr.calibration.search import FLAT_NLL
from gpflow_ilr.heads.collapsing import absorb_features, calibrate_on
from gpflow_ilr.heads.features import FeatureReader
from tests.heads.stacks import STACKS, K, N, X, Y

READER = FeatureReader(None, STACKS["keras"].keras)
RNG = np.random.default_rng(5)
X_VAL = RNG.normal(size=(60, 4))
Y_VAL = (X_VAL[:, 0] > 0).astype(int) + (X_VAL[:, 1] > 0)


def model_of(X: np.ndarray, y: np.ndarray) -> ILRSGPR:
    nodes = Sobol(1024)  # as many as the search has for so few rows
    return ILRSGPR((X, y), starting_kernel(X_VAL, K), X_VAL[:6], num_classes=K, nodes=nodes)


@pytest.mark.parametrize("labels", [Y, Y[:, None], np.eye(K)[Y]], ids=["hard", "column", "one-hot"])
def test_one_pass_over_a_dataset_is_all_rows_at_once(labels: np.ndarray) -> None:
    model = model_of(X[:4], Y[:4])
    dataset = tf.data.Dataset.from_tensor_slices((X, labels)).batch(7)
    assert absorb_features(model, READER, dataset) == N
    expected = model_of(X, Y).predict_y(X_VAL)[0]
    np.testing.assert_allclose(model.predict_y(X_VAL)[0], expected, rtol=1e-9)


def test_soft_rows_are_taken_in_too() -> None:
    soft = 0.8 * np.eye(K)[Y] + 0.2 / K
    model = model_of(X[:4], soft[:4])
    absorb_features(model, READER, (X, soft))
    expected = model_of(X, soft).predict_y(X_VAL)[0]
    np.testing.assert_allclose(model.predict_y(X_VAL)[0], expected, rtol=1e-9)


def test_weights_of_rows_count_as_repetitions() -> None:
    counts = np.arange(N) % 3
    repeated = np.repeat(np.arange(N), counts)
    model = model_of(X[:4], Y[:4])
    dataset = tf.data.Dataset.from_tensor_slices((X, Y, counts)).batch(7)
    assert absorb_features(model, READER, dataset) == np.count_nonzero(counts)
    expected = model_of(X[repeated], Y[repeated])
    np.testing.assert_allclose(model.predict_y(X_VAL)[0], expected.predict_y(X_VAL)[0], rtol=1e-9)
    twice = np.repeat(np.arange(20), 2)  # so few that both searches have all nodes
    weighted = calibrate_on(model, (X_VAL[:20], Y_VAL[:20], np.full(20, 2.0)))
    by_hand = calibrate_on(expected, (X_VAL[twice], Y_VAL[twice]))
    assert weighted.num_rows == 20
    assert weighted.nll_after == pytest.approx(by_hand.nll_after, rel=1e-6)
    assert weighted.smoothing == pytest.approx(by_hand.smoothing, rel=1e-6)
    assert weighted.noise_variance == pytest.approx(by_hand.noise_variance, rel=1e-6)


def test_what_is_wrong_with_a_row_is_said_as_if_there_were_no_dataset() -> None:
    model = model_of(X[:4], Y[:4])
    wrong = np.where(np.arange(N) == 15, 7, Y)
    soft = np.where(np.arange(N)[:, None] == 15, 1.0 / K, np.eye(K)[Y])
    weights = np.where(np.arange(N) == 15, -1.0, 1.0)
    for rows, sentence in (
        ((X, wrong), "begins at row 14: Labels must be integers .* row 15 has label 7"),
        ((X, soft), "has hard labels, but the batch of dataset that begins at row 14 has soft"),
        ((X, Y, weights), "begins at row 14: sample_weight must be .* row 15 has -1.0"),
    ):
        before = model.predict_y(X_VAL)[0]
        with pytest.raises(ValueError, match=sentence):
            absorb_features(model, READER, tf.data.Dataset.from_tensor_slices(rows).batch(7))
        np.testing.assert_array_equal(model.predict_y(X_VAL)[0], before)


def test_held_out_rows_choose_noise_and_smoothing() -> None:
    model = model_of(X, Y)
    before = metrics.negative_log_likelihood(model.predict_y(X_VAL)[0], Y_VAL)
    found = calibrate_on(model, (X_VAL, Y_VAL))
    after = metrics.negative_log_likelihood(model.predict_y(X_VAL)[0], Y_VAL)
    assert found.nll_before == pytest.approx(before, abs=1e-6)
    assert found.nll_after == pytest.approx(after, abs=1e-6)
    assert after < before - 0.01
    assert model.smoothing == found.smoothing
    assert not found.leave_one_out
    # λ alone, at the noise as it was, does not reach that; what is as good counts as equal.
    by_smoothing = model_of(X, Y).calibrate((X_VAL, Y_VAL))
    assert found.nll_after < by_smoothing.nll_after + FLAT_NLL
    assert found.noise_variance != by_smoothing.noise_variance
