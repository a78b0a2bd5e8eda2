"""The triangle is the simplex: corners are classes, edges have one length, means are means."""

import numpy as np
import pytest

from gpflow_ilr.plotting import plot_simplex
from gpflow_ilr.plotting.axes import class_colours
from gpflow_ilr.plotting.triangle import on_triangle
from tests.plotting.forecasts import perfect


def test_corners_are_left_right_and_top_of_an_equilateral_triangle() -> None:
    left, right, top = on_triangle(np.eye(3))
    np.testing.assert_array_equal(left, [0.0, 0.0])
    np.testing.assert_array_equal(right, [1.0, 0.0])
    assert top[0] == 0.5
    for a, b in [(left, right), (right, top), (top, left)]:
        assert np.linalg.norm(a - b) == pytest.approx(1.0, rel=1e-15)


def test_mixtures_are_on_the_line_between() -> None:
    P, _ = perfect(2, 3)
    a, b, middle = on_triangle(np.stack([*P, 0.25 * P[0] + 0.75 * P[1]]))
    np.testing.assert_allclose(middle, 0.25 * a + 0.75 * b, rtol=1e-14)


def test_names_stand_outside_beside_their_corner() -> None:
    P, y = perfect(9, 3)
    ax = plot_simplex(P, y, class_names=["a", "b", "c"])
    for text, name, corner in zip(ax.texts, "abc", on_triangle(np.eye(3)), strict=True):
        assert text.get_text() == name
        place = np.array(text.get_position())
        assert np.linalg.norm(place - corner) < 0.1
        centre = on_triangle(np.full(3, 1 / 3))
        assert np.linalg.norm(place - centre) > np.linalg.norm(corner - centre)


def test_rows_are_where_they_belong_in_the_colour_of_their_label() -> None:
    P, y = perfect(20, 3)
    (points,) = plot_simplex(P, y).collections
    np.testing.assert_allclose(points.get_offsets(), on_triangle(P))
    np.testing.assert_allclose(points.get_facecolors()[:, :3], class_colours(3)[y])


def test_samples_are_drawn_with_the_mean_of_each_row() -> None:
    samples = np.stack([perfect(6, 3, seed)[0] for seed in range(5)])
    y = np.arange(6) % 3
    cloud, means = plot_simplex(samples, y).collections
    np.testing.assert_allclose(cloud.get_offsets(), on_triangle(samples.reshape(-1, 3)))
    np.testing.assert_allclose(means.get_offsets(), on_triangle(samples.mean(axis=0)))
    np.testing.assert_allclose(cloud.get_facecolors()[:, :3], np.tile(class_colours(3)[y], [5, 1]))


@pytest.mark.parametrize("shape", [[9, 2], [9, 4], [3], [2, 2, 2, 3]])
def test_other_numbers_of_classes_are_refused(shape: list[int]) -> None:
    with pytest.raises(ValueError, match=rf"three corners. They have \{str(shape)[:-1]}\]. For"):
        plot_simplex(np.full(shape, 1.0 / shape[-1]))


def test_labels_of_other_rows_are_refused() -> None:
    with pytest.raises(ValueError, match=r"labels must be as many .* 9, but have shape \[8\]"):
        plot_simplex(perfect(9, 3)[0], np.zeros(8))
