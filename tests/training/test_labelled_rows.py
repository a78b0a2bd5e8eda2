"""Claims about rows for training: labels are read before a graph meets them."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest

import gpflow_ilr as gi
from gpflow_ilr.training.labelled_rows import labelled_rows

X = np.arange(6).reshape(3, 2)
Y = np.array([0, 2, 1])


@pytest.fixture(scope="module")
def model() -> gi.ILRSVGP:
    return gi.ILRSVGP(gpflow.kernels.Matern52(), X[:2].astype(float), num_classes=3)


@pytest.mark.parametrize(
    "y", [Y, Y[:, None], Y.astype(float), np.eye(3)[Y], np.full([3, 3], 1 / 3)]
)
def test_labels_of_every_form_have_a_last_axis_and_keep_their_values(y, model: gi.ILRSVGP) -> None:
    rows, labels = labelled_rows(model, (X, y))
    assert rows.dtype == gpflow.default_float()
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(labels, y if y.ndim == 2 else y[:, None])


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            X,
            r"validation must be rows \(X, y\), or \(X, y, weights\), but is of type ndarray\. Pass",
        ),
        ((X, Y + 1), "row 1 has label 3. Labels that run 1..3: subtract 1"),
        ((X, Y[:2]), "X has 3 rows and y has 2"),
        ((X[:, :1], Y), "X has 1 columns, but the training data have 2"),
        ((X[:0], Y[:0]), "at least one row"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(rows, sentence: str, model: gi.ILRSVGP) -> None:
    with pytest.raises(ValueError, match=sentence):
        labelled_rows(model, rows, "validation")


def test_targets_of_regression_are_left_alone() -> None:
    model = gpflow.models.SVGP(
        gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), X[:2] + 0.5
    )
    targets = np.array([[0.5], [-1.5], [7.25]])
    np.testing.assert_array_equal(labelled_rows(model, (X, targets))[1], targets)
