"""Claims about the one call that chooses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpflow_ilr as gi
from gpflow_ilr.saving import load, save
from gpflow_ilr.training import auto as module
from gpflow_ilr.training import fit_auto
from tests.training.test_few_rows import rows

X, Y = rows(60)


@pytest.fixture(scope="module")
def fitted() -> gi.training.AutoClassifier:
    return fit_auto(X, Y, num_classes=3, max_seconds=1e-3)


def test_raw_rows_are_predicted_and_the_report_says_how(
    fitted: gi.training.AutoClassifier,
) -> None:
    X_new, y_new = rows(300, seed=1)
    p, variance = fitted.predict_y(X_new)
    np.testing.assert_allclose(np.sum(p, axis=1), 1.0)
    np.testing.assert_allclose(variance, p * (1 - p))
    assert gi.metrics.accuracy(p, y_new) > 0.6
    assert fitted.report.seconds > 0.0
    assert "* exact" in str(fitted.report)


def test_sets_need_rows_that_it_has_not_seen(fitted: gi.training.AutoClassifier) -> None:
    X_new, _ = rows(20, seed=1)
    X_cal, y_cal = rows(40, seed=2)
    assert fitted.predict_set(X_new, 0.8, data=(X_cal, y_cal)).shape == (20, 3)
    assert np.all(fitted.predict_set(X_new, 0.8, data=(X_cal[:3], y_cal[:3])))
    with pytest.raises(ValueError, match=r"AutoClassifier has none to leave out\. Pass .* data="):
        fitted.predict_set(X_new)


def test_it_is_saved_with_its_scaling(fitted: gi.training.AutoClassifier, tmp_path: Path) -> None:
    expected = fitted.predict_y(X)
    save(fitted, tmp_path / "auto")
    loaded = load(tmp_path / "auto")
    for ours, theirs in zip(loaded.predict_y(X), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)
    assert str(loaded.report) == str(fitted.report)


def test_weights_of_one_change_nothing_and_rows_of_weight_zero_are_absent(
    fitted: gi.training.AutoClassifier,
) -> None:
    rows_and_more = np.concatenate([X, X[:20] + 1.0]), np.concatenate([Y, Y[:20]])
    weights = np.repeat([1.0, 0.0], [60, 20])
    options = {"num_classes": 3, "max_seconds": 1e-3}
    again = fit_auto(*rows_and_more, sample_weight=weights, **options)
    np.testing.assert_allclose(again.predict_y(X)[0], fitted.predict_y(X)[0], atol=1e-6)
    assert again.report.trials[0].nll == pytest.approx(fitted.report.trials[0].nll, rel=1e-6)
    heavier = fit_auto(X, Y, sample_weight=np.where(Y == 0, 20.0, 1.0), **options)
    assert np.mean(heavier.predict_y(X)[0][:, 0]) > 1.1 * np.mean(fitted.predict_y(X)[0][:, 0])


@pytest.mark.parametrize(("num_rows", "kind"), [(3, "few"), (4, "many")])
def test_the_number_of_rows_decides_how_models_are_judged(
    num_rows: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FEW_ROWS", 3)
    for name in ("few", "many"):
        monkeypatch.setattr(module, f"choose_for_{name}_rows", lambda *_, name=name: name)
    assert fit_auto(X[:num_rows], Y[:num_rows], num_classes=3).classifier == kind


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": Y[:-1]}, "labels"),
        ({"y": np.full([60, 3], 1 / 3)}, "soft rows"),
        ({"X": np.full_like(X, np.nan)}, "finite"),
        ({"X": X[:1], "y": Y[:1]}, "at least two"),
        ({"max_seconds": 0.0}, "max_seconds must be positive, but is 0.0"),
        ({"max_bytes": -1.0}, "max_bytes must be positive, but is -1.0"),
        ({"num_classes": 2}, "2"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_input_is_refused(change: dict, message: str) -> None:
    arguments = {"X": X, "y": Y, "num_classes": 3} | change
    with pytest.raises(ValueError, match=message):
        fit_auto(arguments.pop("X"), arguments.pop("y"), **arguments)
