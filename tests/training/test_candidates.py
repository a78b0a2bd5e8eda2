"""Claims about models that compete by held-out labels."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr.inputs.scaling import Standardised
from gpflow_ilr.training.candidates import Candidates, Mixture, ScaledClassifier, label_nll
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
    mixture, X = Mixture(Says(0.9), Says(0.5), 0.25), np.zeros([3, 1])
    for each in (mixture, mixture.posterior()):
        p, variance = each.predict_y(X)
        np.testing.assert_allclose(p, np.tile([0.6, 0.4], (3, 1)))
        np.testing.assert_allclose(variance, np.full([3, 2], 0.24))


def test_the_best_is_built_alone_where_no_other_helps() -> None:
    report = Report()
    candidates = Candidates(LABELS, report)
    candidates.add("neighbours", ISO, right_in(slice(None)), "", lambda: "best")
    candidates.add("collapsed", ISO, right_in(slice(0)), "", lambda: pytest.fail("was built"))
    candidates.choose(ISO)
    assert candidates.best() == "best"
    assert report.chosen is report.trials[0]
    assert report.chosen.nll == pytest.approx(-np.log(0.95)) == candidates.smallest


def test_models_that_are_right_in_different_rows_are_mixed() -> None:
    report = Report()
    candidates = Candidates(LABELS, report)
    parts = {"neighbours": right_in(slice(110)), "polished": right_in(slice(90, None))}
    for name, p in parts.items():
        candidates.add(name, ISO, p, "", lambda: Says(0.5))
    candidates.choose(ISO)
    mixture = candidates.best()
    assert isinstance(mixture, Mixture)
    assert 0.4 < mixture.share < 0.6
    first, second = parts.values()
    mixed = label_nll(mixture.share * first + (1 - mixture.share) * second, LABELS)
    assert report.chosen.nll == pytest.approx(np.mean(mixed))
    assert report.chosen.nll < min(trial.nll for trial in report.trials[:2])


def test_what_held_out_rows_cannot_tell_apart_is_mixed() -> None:
    candidates = Candidates(LABELS, Report())
    wild = right_in(slice(None))
    wild[:4] = np.where(
        np.arange(2) == LABELS[:4, None], 0.02, 0.98
    )  # worse in four rows, else better
    candidates.add("exact", ISO, right_in(slice(None), p=0.9), "", lambda: Says(0.9))
    candidates.add("polished", ISO, wild, "", lambda: Says(0.5))
    candidates.choose(ISO)
    assert isinstance(candidates.best(), Mixture)


@pytest.mark.parametrize(("best", "other", "mixed"), [(ARD, ISO, True), (ISO, ARD, False)])
def test_only_a_setting_with_fewer_lengthscales_may_help_another(
    best: Setting, other: Setting, mixed: bool
) -> None:
    candidates = Candidates(LABELS, Report())
    candidates.add("exact", best, right_in(slice(110)), "", lambda: Says(0.5))
    candidates.add("exact", other, right_in(slice(90, None), p=0.99), "", lambda: Says(0.5))
    candidates.choose(best)
    assert isinstance(candidates.best(), Mixture) == mixed


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
