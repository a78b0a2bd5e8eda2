"""Claims about models that compete by held-out labels."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr.inputs.scaling import Standardised
from gpflow_ilr.training.candidates import Candidates, Mixture, ScaledClassifier, label_nll, stacked
from gpflow_ilr.training.report import Report
from gpflow_ilr.training.settings import Setting

ISO, ARD = (Setting("standardised", "Matern52", ard) for ard in (False, True))
LABELS = np.random.default_rng(0).integers(0, 2, 200)


class Says(tf.Module):
    """Certain of a class, up to a doubt, in every row."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def posterior(self) -> Says:
        return Says(self.p)

    def predict_y(self, X: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
        p = tf.constant(np.tile([self.p, 1.0 - self.p], (len(X), 1)))
        return p, p - p**2


def right_in(rows: slice, p: float = 0.95, otherwise: float = 0.3) -> np.ndarray:
    """Probabilities that are good for some rows and bad for the rest."""
    good = np.full(len(LABELS), otherwise)
    good[rows] = p
    return np.where(np.arange(2) == LABELS[:, None], good[:, None], 1.0 - good[:, None])


def test_nll_is_that_of_the_labels_and_finite() -> None:
    p = np.array([[0.2, 0.8], [1.0, 0.0]])
    np.testing.assert_allclose(label_nll(p, np.array([1, 0])), [-np.log(0.8), 0.0])
    assert np.isfinite(label_nll(p, np.array([1, 1]))).all()


def test_a_mixture_is_the_average_and_so_is_that_of_its_posteriors() -> None:
    mixture, X = Mixture([Says(0.9), Says(0.5)], [0.25, 0.75]), np.zeros([3, 1])
    for each in (mixture, mixture.posterior()):
        p, variance = each.predict_y(X)
        np.testing.assert_allclose(p, np.tile([0.6, 0.4], (3, 1)))
        np.testing.assert_allclose(variance, np.full([3, 2], 0.24))


def test_the_best_is_built_alone_where_no_other_helps() -> None:
    report = Report()
    candidates = Candidates(LABELS, report)
    candidates.add("neighbours", ISO, right_in(slice(None)), "", lambda: "best")
    candidates.add("collapsed", ISO, right_in(slice(0)), "", lambda: pytest.fail("was built"))
    assert candidates.best() == "best"
    assert report.chosen is report.trials[0]
    assert report.chosen.nll == pytest.approx(-np.log(0.95)) == candidates.smallest


@pytest.mark.parametrize(
    ("num_seen", "otherwise", "hopeless"), [(150, 0.3, True), (150, 0.949, False), (50, 0.3, False)]
)
def test_a_model_is_given_up_where_many_labels_say_that_it_is_worse(
    num_seen: int, otherwise: float, hopeless: bool
) -> None:
    candidates = Candidates(LABELS, Report())
    candidates.add("exact", ARD, right_in(slice(0)), "", lambda: None)
    candidates.add("exact", ISO, right_in(slice(None)), "", lambda: None)
    seen = np.arange(len(LABELS)) < num_seen
    # Better than the best in every tenth row, and worse, by much or hardly, in the others.
    nll = label_nll(right_in(slice(None, None, 10), 0.999, otherwise), LABELS)[seen]
    assert candidates.is_hopeless(nll, seen) == hopeless


def test_models_that_are_right_in_different_rows_are_mixed() -> None:
    report = Report()
    candidates = Candidates(LABELS, report)
    parts = {"neighbours": right_in(slice(110)), "polished": right_in(slice(90, None))}
    for name, p in parts.items():
        candidates.add(name, ISO, p, "", lambda: Says(0.5))
    candidates.add("exact", ARD, right_in(slice(0)), "", lambda: pytest.fail("was built"))
    mixture = candidates.best()
    assert isinstance(mixture, Mixture)
    assert len(mixture.models) == 2
    assert 0.5 <= mixture.shares[0] < 0.6  # the larger share comes first
    first, second = (right_in(slice(110)), right_in(slice(90, None)))
    mixed = label_nll(mixture.shares[0] * first + mixture.shares[1] * second, LABELS)
    assert report.chosen.nll == pytest.approx(np.mean(mixed))
    assert report.chosen.nll < min(trial.nll for trial in report.trials[:2])
    assert "polished" in report.chosen.remark


def test_what_held_out_rows_cannot_tell_apart_shares_alike() -> None:
    nll = np.random.default_rng(0).exponential(size=[200, 1]) * np.ones([1, 3])
    np.testing.assert_allclose(stacked(nll), np.full(3, 1 / 3))


def test_labels_count_by_their_weights(rng: np.random.Generator) -> None:
    p, weights = rng.beta(2.0, 1.0, size=[60, 3]), rng.integers(0, 4, size=60)
    repeated = np.repeat(p, weights, axis=0)
    relative = weights / np.mean(weights)
    many = 1000  # of each, so that the prior of the shares does not matter
    np.testing.assert_allclose(
        stacked(-np.log(np.tile(p, [many, 1])), np.tile(relative, many)),
        stacked(-np.log(np.tile(repeated, [many, 1]))),
        atol=1e-3,
    )
    report = Report()
    candidates = Candidates(LABELS, report, np.arange(1.0, 1 + len(LABELS)))
    nll = candidates.add("exact", ISO, right_in(slice(110)), "", lambda: "best")
    raw = label_nll(right_in(slice(110)), LABELS)
    expected = np.average(raw, weights=np.arange(1.0, 1 + len(LABELS)))
    assert np.mean(nll) == pytest.approx(expected)
    assert report.trials[0].nll == pytest.approx(expected)


def test_lengthscales_that_were_not_chosen_have_no_share() -> None:
    candidates = Candidates(LABELS, Report())
    candidates.add("exact", ISO, right_in(slice(110)), "", lambda: "best")
    candidates.add("exact", ARD, right_in(slice(90, None)), "", lambda: pytest.fail("was built"))
    candidates.leave_out_ard()
    assert candidates.best() == "best"


def test_no_other_shares_have_a_smaller_nll(rng: np.random.Generator) -> None:
    p = rng.beta(2.0, 1.0, size=[5000, 3])  # so many rows that the prior does not matter
    shares = stacked(-np.log(p))
    assert np.sum(shares) == pytest.approx(1.0)

    def nll(w: np.ndarray) -> float:
        return float(-np.mean(np.log(p @ w)))

    for _ in range(50):
        assert nll(shares) < nll(rng.dirichlet(np.ones(3))) + 1e-5


def test_a_scaled_classifier_takes_raw_rows(rng: np.random.Generator) -> None:
    X = 1e3 * rng.normal(size=(40, 2)) + 7.0
    y = (X[:, 0] > 0).astype(int)
    scaling = Standardised(X)
    model = gi.ILRGPR((scaling(X), y), gi.starting_kernel(scaling(X), 2), num_classes=2)
    classifier = ScaledClassifier(scaling, model)
    expected = model.predict_y(scaling(X[:5]))
    for each in (classifier, classifier.posterior()):
        for ours, theirs in zip(each.predict_y(X[:5]), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12)
