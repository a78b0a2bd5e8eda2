"""Cells are means of probabilities and counts of most probable classes."""

import numpy as np
import pytest
import sklearn.metrics

from gpflow_ilr.plotting import plot_confusion
from gpflow_ilr.plotting.confusion import confusion_by_confidence
from tests.plotting.forecasts import perfect


def test_counts_are_scikit_learns_and_rows_of_masses_sum_to_one() -> None:
    P, y = perfect(200, 4)
    mass, count = confusion_by_confidence(P, y)
    expected = sklearn.metrics.confusion_matrix(y, np.argmax(P, axis=1))
    np.testing.assert_array_equal(count, expected)
    np.testing.assert_allclose(mass.sum(axis=1), 1.0)
    np.testing.assert_allclose(mass[2], P[y == 2].mean(axis=0))


def test_for_certain_forecasts_masses_are_shares_of_counts() -> None:
    P, y = perfect(200, 3)
    mass, count = confusion_by_confidence(np.eye(3)[np.argmax(P, axis=1)], y)
    np.testing.assert_allclose(mass, count / count.sum(axis=1, keepdims=True))


def test_confident_mistakes_weigh_more_than_hesitant_ones() -> None:
    y = [0, 0]
    confident, _ = confusion_by_confidence(np.array([[0.01, 0.99], [0.9, 0.1]]), np.array(y))
    hesitant, _ = confusion_by_confidence(np.array([[0.49, 0.51], [0.9, 0.1]]), np.array(y))
    assert confident[0, 1] > hesitant[0, 1] + 0.2


def test_colours_and_numbers_are_those_of_the_cells() -> None:
    P, y = perfect(200, 3)
    mass, count = confusion_by_confidence(P, y)
    ax = plot_confusion(P, y, class_names=["a", "b", "c"])
    np.testing.assert_array_equal(ax.images[0].get_array(), mass)
    assert ax.images[0].get_cmap().name == "cividis"
    for text in ax.texts:
        k, c = (round(place) for place in text.get_position())
        assert text.get_text() == f"{mass[c, k]:.2f}\n{count[c, k]}"
    assert len(ax.texts) == 9
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a", "b", "c"]
    assert ax.get_yticklabels()[1].get_text() == f"b ({np.sum(y == 1)})"


def test_a_class_without_rows_has_no_numbers() -> None:
    P, y = perfect(50, 3)
    P, y = P[y != 1], y[y != 1]
    ax = plot_confusion(P, y)
    assert np.isnan(np.asarray(ax.images[0].get_array().filled(np.nan))[1]).all()
    assert {round(text.get_position()[1]) for text in ax.texts} == {0, 2}


def test_many_classes_have_colours_only() -> None:
    assert len(plot_confusion(*perfect(200, 13)).texts) == 0
    assert len(plot_confusion(*perfect(200, 12)).texts) > 12


@pytest.mark.parametrize(
    ("labels", "names", "sentence"),
    [
        (np.zeros(8), None, r"labels must be as many as probabilities has rows, 9, .* \[8\]"),
        (np.full(9, 5), None, "row 0 has label 5"),
        (np.zeros(9), ["a", "b"], "class_names must be 3 names"),
    ],
)
def test_what_does_not_fit_is_refused(labels, names, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        plot_confusion(perfect(9, 3)[0], labels, class_names=names)
