"""Weights of classes, and the way back from the world that they make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpflow_ilr import ILRGPR
from gpflow_ilr.calibration import balanced_class_weights, undo_class_weights
from gpflow_ilr.metrics import negative_log_likelihood as nll
from gpflow_ilr.starting import starting_kernel
from gpflow_ilr.training import fit


def test_balanced_classes_count_alike_and_a_row_counts_once_on_average() -> None:
    y = np.array([0, 0, 0, 0, 1, 1, 3])
    weights = balanced_class_weights(y, 4)
    totals = np.bincount(y, weights[y], minlength=4)
    np.testing.assert_allclose(totals, [7 / 3, 7 / 3, 0.0, 7 / 3])
    assert np.mean(weights[y]) == pytest.approx(1.0)
    assert weights[2] == 1.0
    np.testing.assert_array_equal(balanced_class_weights(np.eye(4)[y], 4), weights)


def test_probabilities_come_back() -> None:
    rng = np.random.default_rng(0)
    p, weights = rng.dirichlet(np.ones(3), size=(2, 5)), np.array([0.2, 1.0, 7.0])
    weighted = p * weights / np.sum(p * weights, axis=-1, keepdims=True)
    np.testing.assert_allclose(undo_class_weights(weighted, weights), p, atol=1e-14)


@pytest.mark.parametrize("weights", [[1.0, 2.0], [1.0, 0.0, 1.0], [1.0, np.nan, 1.0], 2.0])
def test_weights_of_other_classes_are_refused(weights: Any) -> None:
    with pytest.raises(ValueError, match="class_weights must be 3 positive numbers"):
        undo_class_weights(np.full((2, 3), 1 / 3), weights)


def test_soft_labels_have_no_class_to_count() -> None:
    with pytest.raises(ValueError, match="y must be class indices or one-hot rows"):
        balanced_class_weights(np.full((4, 2), 0.5), 2)


def test_a_weighted_model_is_calibrated_again_after_the_correction() -> None:
    """One column, two overlapping normal classes, of which one has a tenth of the rows."""
    rng = np.random.default_rng(0)

    def draw(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
        y = (rng.uniform(size=num_rows) < 0.1).astype(int)
        return rng.normal(size=(num_rows, 1)) + 1.5 * y[:, None], y

    (X, y), (X_new, y_new) = draw(500), draw(5000)
    weights = balanced_class_weights(y, 2)
    probabilities = {}
    for name, data in {"plain": (X, y), "balanced": (X, y, weights[y])}.items():
        model = ILRGPR(data, starting_kernel(X, 2), num_classes=2, noise="shared")
        fit(model, max_iterations=30)
        model.calibrate()
        probabilities[name] = model.predict_y(X_new)[0].numpy()
    plain, balanced = probabilities["plain"], probabilities["balanced"]
    rare = y_new == 1
    assert np.mean(balanced[rare, 1] > 0.5) > 1.5 * np.mean(plain[rare, 1] > 0.5)
    assert nll(balanced, y_new) > 1.3 * nll(plain, y_new)
    corrected = undo_class_weights(balanced, weights).numpy()
    assert nll(corrected, y_new) < 1.05 * nll(plain, y_new)
