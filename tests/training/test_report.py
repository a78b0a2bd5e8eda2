"""Claims about what an automatic fit tells, and about its budget."""

from __future__ import annotations

import time

from gpflow_ilr.training.report import Budget, Report, Trial


def test_the_table_has_every_trial_and_marks_the_chosen_one() -> None:
    trials = [
        Trial("exact", "Matern52", 0.25, 1.5),
        Trial("polished", "Matern52", 0.21, 9.0, "20 steps"),
    ]
    text = str(Report("is that of 5 folds", trials, trials[1], 11.0))
    first, second = (next(x for x in text.splitlines() if t.model in x) for t in trials)
    assert "0.2500" in first
    assert not first.startswith("*")
    assert second.startswith("* polished")
    assert second.endswith("20 steps")
    assert "11.0 s" in text
    assert "NLL is that of 5 folds." in text


def test_a_budget_runs_out() -> None:
    budget = Budget(1e-3, 1e9)
    time.sleep(2e-3)
    assert budget.elapsed > budget.max_seconds
    assert budget.remaining == 0.0
    assert Budget(100.0, 1e9).remaining > 90.0


def test_a_factorisation_must_fit_into_memory_and_time() -> None:
    assert Budget(1e4, 8e6).allows_factor(1000)
    assert not Budget(1e4, 7e6).allows_factor(1000)
    assert not Budget(1e-6, 8e6).allows_factor(1000)
    assert not Budget(1e-3, 1e12).allows_factor(100_000)
