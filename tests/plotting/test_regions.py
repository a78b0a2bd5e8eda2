"""Regions have the colour of the most probable class, as strong as it is probable."""

import numpy as np
import pandas as pd
import pytest

from gpflow_ilr.plotting import plot_decision_regions
from gpflow_ilr.plotting.axes import class_colours
from gpflow_ilr.plotting.regions import region_colours

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, size=[30, 2])
Y = (X[:, 0] > 0).astype(int) + 2 * (X[:, 1] > 0)


def quadrants(rows: np.ndarray) -> np.ndarray:
    """Class 0 to 3 by the signs, certain."""
    return np.eye(4)[(rows[:, 0] > 0).astype(int) + 2 * (rows[:, 1] > 0)]


def nearest_class(colours: np.ndarray, K: int) -> np.ndarray:
    tints = region_colours(np.eye(K))
    return np.argmin(np.linalg.norm(colours[..., None, :] - tints, axis=-1), axis=-1)


def test_each_quadrant_has_the_colour_of_its_class() -> None:
    ax = plot_decision_regions(quadrants, X, Y, resolution=40)
    image, (left, right, bottom, top) = ax.images[0].get_array(), ax.images[0].get_extent()
    assert ax.images[0].origin == "lower"
    for x, y, k in [(-0.5, -0.5, 0), (0.5, -0.5, 1), (-0.5, 0.5, 2), (0.5, 0.5, 3)]:
        column = int((x - left) / (right - left) * 40)
        row = int((y - bottom) / (top - bottom) * 40)
        assert nearest_class(np.asarray(image[row, column]), 4) == k


def test_intensity_is_none_where_nothing_is_known_and_grows_with_probability() -> None:
    np.testing.assert_allclose(region_colours(np.full([1, 3], 1 / 3)), 1.0)
    p = np.linspace(1 / 3, 1.0, 9)
    P = np.stack([p, (1 - p) / 2, (1 - p) / 2], axis=-1)
    distance = np.linalg.norm(1.0 - region_colours(P), axis=-1)
    assert np.all(np.diff(distance) > 0)
    white_to_class = 1.0 - class_colours(3)[0]
    cosine = (1.0 - region_colours(P))[1:] @ white_to_class
    np.testing.assert_allclose(cosine, distance[1:] * np.linalg.norm(white_to_class))


def test_rows_are_drawn_by_class_and_inside() -> None:
    ax = plot_decision_regions(quadrants, X, Y, class_names=list("ABCD"), resolution=9)
    drawn = {c.get_label(): c.get_offsets() for c in ax.collections if c.get_label() in "ABCD"}
    for k, name in enumerate("ABCD"):
        np.testing.assert_allclose(drawn[name], X[np.equal(Y, k)])
    low, high = np.stack([ax.get_xlim(), ax.get_ylim()], axis=1)
    assert np.all((low < X) & (high > X))


def test_a_model_is_asked_for_its_probabilities(model) -> None:
    rows, y = (np.asarray(part) for part in model.data)
    by_model = plot_decision_regions(model, rows, y, resolution=8)
    by_function = plot_decision_regions(lambda r: model.predict_y(r)[0], rows, y, resolution=8)
    image = by_model.images[0].get_array()
    np.testing.assert_array_equal(image, by_function.images[0].get_array())
    assert np.ptp(np.asarray(image)) > 0.3


def test_numbers_of_contours_do_not_cover_the_rows(model) -> None:
    rows, y = (np.asarray(part) for part in model.data)
    ax = plot_decision_regions(model, rows, y, resolution=40)
    points = [c for c in ax.collections if c.get_label() in "012"]
    assert len(points) == 3
    assert len(ax.texts) > 0
    assert max(text.get_zorder() for text in ax.texts) < min(c.get_zorder() for c in points)


def test_a_frame_names_the_axes() -> None:
    frame = pd.DataFrame(X, columns=["width", "height"])
    ax = plot_decision_regions(quadrants, frame, resolution=4)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("width", "height")


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match=r"X must have two columns .* has shape \[5, 3\]. Fit"):
        plot_decision_regions(quadrants, np.zeros([5, 3]), np.zeros(5))
    with pytest.raises(TypeError, match=r"predict must be a model .* but is a list"):
        plot_decision_regions([1], X, Y)
    with pytest.raises(ValueError, match=r"labels must be as many as X has rows, 30, .* \[29\]"):
        plot_decision_regions(quadrants, X, Y[1:], resolution=3)
    with pytest.raises(ValueError, match="a row for each of 9, but returns 1"):
        plot_decision_regions(lambda rows: [[0.5, 0.5]], X, resolution=3)
    with pytest.raises(ValueError, match="resolution must be an integer of at least 2, but is 1"):
        plot_decision_regions(quadrants, X, Y, resolution=1)
