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
