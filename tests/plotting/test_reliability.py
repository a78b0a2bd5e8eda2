"""What the reliability diagram shows is the curve of the metrics, its counts and its chance."""

import numpy as np
import pytest

from gpflow_ilr.metrics import reliability_curve
from gpflow_ilr.plotting import plot_reliability
from gpflow_ilr.plotting.chance import chance_band
from tests.plotting.forecasts import perfect


def lines(ax) -> dict:
    return {line.get_label(): line.get_xydata() for line in ax.get_lines()}


def written(ax) -> list[int]:
    return [int(text.get_text()) for text in ax.texts]


@pytest.mark.parametrize("K", [2, 3])
def test_points_and_counts_are_those_of_the_curve(K: int) -> None:
    P, y = perfect(300, K)
    curve = reliability_curve(P, y, 8)
    filled = curve.count > 0
    ax = plot_reliability(P, y, num_bins=8)
    expected = np.stack([curve.confidence[filled], curve.accuracy[filled]], axis=1)
    np.testing.assert_array_equal(lines(ax)["forecasts"], expected)
    assert written(ax) == list(curve.count[filled])
    heights = np.array([bar.get_height() for bar in ax.containers[-1]])
    np.testing.assert_allclose(heights / heights.sum(), curve.count / 300)


def test_counts_stand_below_the_data() -> None:
    ax = plot_reliability(*perfect(300, 3))
    tops = [bar.get_y() + bar.get_height() for bar in ax.containers[-1]]
    assert max(tops) < 0.0
    assert all(text.get_position()[1] < 0.0 for text in ax.texts)


def test_boxes_are_the_chance_of_the_confidences() -> None:
    P, y = perfect(300, 3)
    curve = reliability_curve(P, y)
    lower, upper = chance_band(P.max(axis=1), curve.edges, 0.8)
    boxes = plot_reliability(P, y, level=0.8).containers[0]
    np.testing.assert_array_equal([box.get_y() for box in boxes], lower)
    np.testing.assert_allclose([box.get_y() + box.get_height() for box in boxes], upper)
    np.testing.assert_allclose([box.get_x() for box in boxes], curve.edges[:-1])


def test_classwise_every_class_has_its_own_curve_within_the_bins() -> None:
    P, y = perfect(400, 3)
    names = ["a", "b", "c"]
    ax = plot_reliability(P, y, kind="classwise", class_names=names)
    curves = [reliability_curve(P, y, class_index=k) for k in range(3)]
    for name, curve in zip(names, curves, strict=True):
        points = lines(ax)[name]
        filled = curve.count > 0
        np.testing.assert_array_equal(points[:, 1], curve.accuracy[filled])
        assert np.all(points[:, 0] > curve.edges[:-1][filled])
        assert np.all(points[:, 0] < curve.edges[1:][filled])
    assert written(ax) == list(sum(curve.count for curve in curves))


@pytest.mark.parametrize(("power", "fewest", "most"), [(1, 0, 3), (3, 10, 30)])
def test_classwise_a_ring_is_around_what_chance_does_not_explain(
    power: int, fewest: int, most: int
) -> None:
    P, y = perfect(2000, 3)
    P = P**power / np.sum(P**power, axis=1, keepdims=True)
    expected = []
    for k in range(3):
        curve = reliability_curve(P, y, class_index=k)
        lower, upper = chance_band(P[:, k], curve.edges, 0.99)
        expected += list(curve.accuracy[(curve.accuracy < lower) | (curve.accuracy > upper)])
    ax = plot_reliability(P, y, kind="classwise", level=0.99)
    rings = [line for line in ax.get_lines() if str(line.get_markerfacecolor()) == "none"]
    np.testing.assert_array_equal(np.concatenate([ring.get_ydata() for ring in rings]), expected)
    assert fewest <= len(expected) <= most  # of 30 bins, where one in a hundred is no news


def test_many_bins_have_one_number() -> None:
    P, y = perfect(500, 2)
    assert written(plot_reliability(P, y, num_bins=40)) == [reliability_curve(P, y, 40).count.max()]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kind": "all"}, "kind must be 'top' or 'classwise', but is 'all'"),
        ({"num_bins": 0}, "num_bins must be an integer of at least 1, but is 0"),
        ({"level": 95}, "level must lie strictly between 0 and 1, but is 95"),
        ({"class_names": ["a"]}, "class_names must be 3 names"),
        ({"labels": [0, 1]}, "labels must be as many as probabilities has rows, 9"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, sentence: str) -> None:
    P, y = perfect(9, 3)
    with pytest.raises(ValueError, match=sentence):
        plot_reliability(P, options.pop("labels", y), **options)
