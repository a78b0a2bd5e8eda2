"""What cannot be drawn is refused by the name of the argument, with its value and the fix."""

import re

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.plotting.arguments import as_classes, as_probabilities, check_share, names_of


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
        (1, "labels must be as many as X has rows, 2, but have shape []."),
        ([0, 3], "row 1 has label 3"),
        (
            [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]],
            "are soft rows [2, 3]. Pass np.argmax(labels, axis=1)",
        ),
    ],
)
def test_what_are_no_labels_of_the_rows_is_refused(given, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        as_classes(given, 3, 2, of="X")


def test_names_are_those_given_or_numbers() -> None:
    assert names_of(None, 2, "class ") == ["class 0", "class 1"]
    assert names_of(np.array(["a", "b"]), 2) == ["a", "b"]
    for wrong in (["a"], "ab"):
        with pytest.raises(
            ValueError, match=f"must be 2 names, .* but is {re.escape(repr(wrong))}"
        ):
            names_of(wrong, 2)


@pytest.mark.parametrize("value", [0.0, 1.0, 90, np.nan])
def test_a_share_lies_between_zero_and_one(value: float) -> None:
    assert check_share("level", 0.5) == 0.5
    with pytest.raises(ValueError, match=f"level must lie .* but is {value!r}"):
        check_share("level", value)
