"""The curve is the criterion of calibrate, and the λ that calibrate chooses is its minimum."""

import numpy as np
import pytest

import gpflow_ilr as gi
from gpflow_ilr.plotting import plot_smoothing


def curve_and_marks(ax) -> tuple[np.ndarray, list[np.ndarray]]:
    curve, _, *marks = (line.get_xydata() for line in ax.get_lines())
    return curve, [mark[0] for mark in marks]


@pytest.fixture
def calibrated(model):
    before = model.smoothing
    yield model, model.calibrate()
    model.smoothing = before


def test_the_chosen_smoothing_is_marked_at_the_minimum(calibrated) -> None:
    model, found = calibrated
    curve, marks = curve_and_marks(plot_smoothing(model, num_points=200))
    assert len(marks) == 1
    assert tuple(marks[0]) == pytest.approx((found.smoothing, found.nll_after), rel=1e-9)
    assert found.nll_after <= curve[:, 1].min() + 1e-4
    nearest = curve[np.argmin(curve[:, 1]), 0]
    odds = [p / (1.0 - p) for p in (nearest, found.smoothing)]
    assert np.log(odds[0] / odds[1]) == pytest.approx(0.0, abs=0.2)


def test_the_curve_is_what_setting_the_smoothing_does(calibrated) -> None:
    model, _ = calibrated
    curve, _ = curve_and_marks(plot_smoothing(model, num_points=9))
    for smoothing, nll in curve[2:7]:
        model.smoothing = smoothing
        assert model.calibrate().nll_before == pytest.approx(nll, rel=1e-9)


def test_a_smoothing_that_was_not_chosen_is_shown_with_a_better_one(calibrated) -> None:
    model, found = calibrated
    model.smoothing = 1.0 - 1e-7
    ax = plot_smoothing(model)
    curve, (present, better) = curve_and_marks(ax)
    assert present[0] == pytest.approx(1.0 - 1e-7, abs=1e-12)
    assert better[1] == curve[:, 1].min()
    assert better[1] == pytest.approx(found.nll_after, abs=1e-3)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert any("1 − 1e-07" in text for text in texts)
    assert model.smoothing == pytest.approx(1.0 - 1e-7, abs=1e-12)


def test_steps_towards_one_are_equally_wide(model) -> None:
    ax = plot_smoothing(model)
    place = ax.transData.transform([(1.0 - 10.0**-n, 0.5) for n in (3, 5, 7)])[:, 0]
    assert place[2] - place[1] == pytest.approx(place[1] - place[0], rel=1e-2)
    low, high = ax.get_ylim()
    assert low < np.log(3) < high  # what knowing nothing costs


def test_validation_rows_give_their_own_curve(model) -> None:
    X, y = (np.asarray(part) for part in model.data)
    ax = plot_smoothing(model, (X[:20] + 0.1, y[:20]), num_points=9)
    curve, (mark, *_) = curve_and_marks(ax)
    P = model.predict_y(X[:20] + 0.1)[0]
    assert mark[1] == pytest.approx(gi.metrics.negative_log_likelihood(P, y[:20]), abs=2e-3)
    assert ax.get_lines()[0].get_label() == "validation\nNLL"
    left_out, _ = curve_and_marks(plot_smoothing(model, num_points=9))
    assert np.max(np.abs(curve - left_out)) > 0.01


@pytest.fixture
def soft(model) -> gi.ILRGPR:
    X, y = (np.asarray(part) for part in model.data)
    labels = 0.8 * np.eye(3)[y.ravel()] + 0.2 / 3
    return gi.ILRGPR((X, labels), model.kernel, num_classes=3, smoothing=0.9, noise_variance=0.3)


def test_soft_labels_are_coded_with_each_smoothing_and_the_models_is_kept(soft) -> None:
    curve, _ = curve_and_marks(plot_smoothing(soft, num_points=5))
    assert soft.smoothing == pytest.approx(0.9, rel=1e-12)
    soft.smoothing = curve[2, 0]
    assert soft.calibrate().nll_before == pytest.approx(curve[2, 1], rel=1e-9)


def test_the_models_smoothing_is_kept_when_a_prediction_fails(soft, monkeypatch) -> None:
    predictions = iter([soft.held_out(None)])
    monkeypatch.setattr(soft, "held_out", lambda *_: next(predictions))
    with pytest.raises(StopIteration):
        plot_smoothing(soft)
    assert soft.smoothing == pytest.approx(0.9, rel=1e-12)


def test_models_without_a_smoothing_are_refused(model) -> None:
    dirichlet = gi.DirichletGPR(model.data, model.kernel, num_classes=3)
    with pytest.raises(TypeError, match=r"but DirichletGPR does not\. Pass an ILRGPR"):
        plot_smoothing(dirichlet)
    with pytest.raises(ValueError, match="num_points must be an integer of at least 3, but is 2"):
        plot_smoothing(model, num_points=2)
