"""Claims about the automatic fit of many rows, shrunk to few."""

from __future__ import annotations

import numpy as np
import pytest

import gpflow_ilr as gi
from gpflow_ilr.training import many_rows as module
from gpflow_ilr.training import settings
from gpflow_ilr.training.candidates import label_nll
from gpflow_ilr.training.many_rows import choose_for_many_rows
from gpflow_ilr.training.report import Budget, Report
from tests.training.test_few_rows import rows


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SAMPLE": 40,
        "LARGE_SAMPLE": 60,
        "HELD_OUT": 50,
        "NUM_INDUCING": 10,
    }.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "FAMILIES", ["Matern52"])


def test_held_out_rows_have_not_trained_the_kernel_and_promises_are_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y = rows(240)
    report, models, sampled = Report(), [], []
    fitted, add = settings.Setting.fitted, module._Search.add

    def spy(setting: settings.Setting, rows: settings.Rows, *rest: object) -> gi.ILRGPR:
        sampled.append(rows[0])
        return fitted(setting, rows, *rest)

    monkeypatch.setattr(settings.Setting, "fitted", spy)
    monkeypatch.setattr(
        module._Search, "add", lambda self, *args: models.append((self, *args)) or add(self, *args)
    )
    classifier = choose_for_many_rows((X, y), 3, Budget(300.0, 1e9), report, 0)
    kinds = [trial.model for trial in report.trials]
    assert kinds[:8] == ["neighbours"] * 6 + ["collapsed", "polished"]
    assert kinds[8] == "exact"
    assert [len(X) for X in sampled] == [40] * 4 + [60]

    search, _, setting, p, _, near = models[0]
    held_out = search.held_out
    assert len(held_out) == 50
    own = {tuple(row) for row in search.X[setting.scaling][held_out]}
    assert not any(tuple(row) in own for row in sampled[-1])
    # The promise of neighbours is leave-one-out with the noise, λ and count that were chosen.
    mean, variance = near.predict_loo()
    some = [x.numpy()[held_out] for x in (mean, variance)]
    expected = near.likelihood.predict_mean_and_var(X[held_out], *some)[0].numpy()
    np.testing.assert_allclose(p, expected, atol=1e-9)
    assert report.trials[4].nll == pytest.approx(np.mean(label_nll(p, y[held_out])))
    # Inducing inputs have been fitted to the rest.
    # The other neighbours are those that mix best with these by halves.
    partner = models[1][2]
    assert models[1][-1].num_neighbours == near.num_neighbours
    halves = {
        other: -np.mean(np.log(np.exp(-nll) + np.exp(-search._screened[setting][1])))
        for other, (_, nll) in search._screened.items()
        if other != setting
    }
    assert len(halves) == 3
    assert halves[partner] == min(halves.values())
    collapsed = models[2][-1]
    assert collapsed.num_data == 240 - 50
    assert report.chosen in report.trials
    X_new, y_new = rows(500, seed=1)
    nll = gi.metrics.negative_log_likelihood(classifier.predict_y(X_new)[0], y_new)
    assert nll < report.chosen.nll + 0.2


def test_a_short_budget_gives_neighbours_and_no_large_matrix() -> None:
    X, y = rows(240)
    report = Report()
    classifier = choose_for_many_rows((X, y), 3, Budget(1e-3, 1.0), report, 0)
    assert {trial.model for trial in report.trials} <= {"neighbours", "collapsed", "mixture"}
    np.testing.assert_allclose(np.sum(classifier.predict_y(X)[0], axis=1), 1.0)


def test_weights_count_in_fits_and_in_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows(240)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=240)
    report, models = Report(), []
    add = module._Search.add
    monkeypatch.setattr(
        module._Search, "add", lambda self, *args: models.append((self, *args)) or add(self, *args)
    )
    choose_for_many_rows((X, y, weights), 3, Budget(300.0, 1e9), report, 0)
    for search, name, _, p, _, model in models:
        if not hasattr(model, "data"):  # natural gradients
            continue
        of_rows = {tuple(x): w for x, w in zip(search.X["standardised"], weights, strict=True)}
        if name == "exact":
            np.testing.assert_array_equal(model.data[2], list(of_rows.values()))
        assert len(model.data) == 3
        nll = label_nll(p, y[search.held_out])
        expected = np.average(nll, weights=weights[search.held_out])
        found = [t.nll for t in report.trials if t.model == name]
        assert np.min(np.abs(np.array(found) - expected)) < 1e-12


@pytest.mark.parametrize(("least", "tried"), [(3, False), (2, True)])
def test_one_scale_for_all_columns_is_tried_where_they_are_many(
    least: int, tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = rows(240)
    monkeypatch.setattr(module, "MANY_COLUMNS", least)
    report = Report()
    choose_for_many_rows((X * [1.0, 0.02], y), 3, Budget(300.0, 1e9), report, 0, True)
    assert any("one scale" in trial.setting for trial in report.trials) == tried
