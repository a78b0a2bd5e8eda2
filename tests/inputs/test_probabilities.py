"""Claims about reading probabilities and the labels that belong to them."""

import re

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.inputs.probabilities import as_classes, as_probabilities


def test_probabilities_of_any_kind_become_arrays() -> None:
    P = np.array([[0.25, 0.75], [1.0, 0.0]])
    for given in (P, P.tolist(), tf.constant(P, tf.float32)):
        read = as_probabilities(given)
        assert read.dtype == np.float64
        np.testing.assert_array_equal(read, P)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((np.ones([2, 1]), 0), "is a tuple of 2. Of what predict_y returns pass the first."),
        ([0.1, 0.9], "must have shape [N, K] with N > 0 and K > 1, but have [2]. Pass a row"),
        ([["a", "b"]], "must be real numbers, but have dtype str"),
        ([[0.5, 0.5], [1.0]], "rows have different lengths. Pass K probabilities"),
        (np.ma.array(np.eye(2), mask=[[0, 0], [0, 1]]), "must not be masked, but row 1 is. Drop"),
        ([[0.5, 0.6]], "row 0 sums to 1.1"),
        ([[1.0, 0.0], [np.nan, 1.0]], "row 1 is not finite"),
    ],
)
def test_what_are_no_probabilities_is_refused(given, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^forecasts.*{re.escape(sentence)}"):
        as_probabilities(given, "forecasts")


@pytest.mark.parametrize("given", [[2, 0], [[2], [0]], np.eye(3)[[2, 0]]])
def test_labels_of_any_form_become_class_indices(given) -> None:
    np.testing.assert_array_equal(as_classes(given, 3, 2), [2, 0])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([0, 1, 2], "labels must be as many as X has rows, 2, but have shape [3]. Pass the labels"),
        (1, "labels must be as many as X has rows, 2, but labels is 1."),
        ([0, 3], "row 1 has label 3"),
        (
            [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]],
            "row 0 is soft: [0.5 0.5 0. ]. Pass np.argmax(labels, axis=1)",
        ),
    ],
)
def test_what_are_no_labels_of_the_rows_is_refused(given, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        as_classes(given, 3, 2, of="X")


def test_symbolic_probabilities_are_refused() -> None:
    with pytest.raises(TypeError, match=r"forecasts must have values.*outside tf\.function"):
        tf.function(lambda P: as_probabilities(P, "forecasts"))(tf.constant([[0.5, 0.5]]))


def test_tuples_of_rows_are_rows() -> None:
    np.testing.assert_array_equal(as_probabilities(((0.5, 0.5), (1.0, 0.0))), [[0.5, 0.5], [1, 0]])
