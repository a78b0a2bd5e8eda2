"""Models that compete by the probabilities they give to the same held-out labels."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance
from gpflow.models import SVGP
from scipy.optimize import minimize_scalar

from gpflow_ilr.inputs.scaling import Scaling
from gpflow_ilr.training.report import Report, Trial
from gpflow_ilr.training.settings import Setting

__all__ = ["Candidates", "Mixture", "ScaledClassifier", "label_nll"]

_LEAST_SHARE = 0.1
"""What helps by less is not worth another model."""
_PRIOR_ROWS = 5.0
"""The share of a mixture starts as if each model had been better in so many rows."""

Build = Callable[[], Any]


def label_nll(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """−log p of each label, [n].

    :param probabilities: [n, K].
    :param labels: class indices, [n].
    """
    p = probabilities[np.arange(len(labels)), labels]
    return -np.log(np.maximum(p, np.finfo(p.dtype).tiny))


class _Candidate(NamedTuple):
    trial: Trial
    setting: Setting
    probabilities: np.ndarray
    build: Build


class ScaledClassifier(tf.Module):
    """A model together with the scaling of its inputs: it takes raw rows.

    :param scaling: of the inputs.
    :param model: a model of scaled rows, or its posterior.
    """

    def __init__(self, scaling: Scaling, model: Any) -> None:
        super().__init__()
        self.scaling, self.model = scaling, model

    def posterior(self) -> ScaledClassifier:
        """One whose predictions do no work over the data; GPflow's SVGP has no such probabilities."""
        model = self.model if isinstance(self.model, SVGP) else self.model.posterior()
        return ScaledClassifier(self.scaling, model)

    def predict_y(self, Xnew: InputData) -> MeanAndVariance:
        """Class probabilities and the variance of the one-hot label, [N, K] each.

        :param Xnew: [N, D], raw.
        """
        return self.model.predict_y(self.scaling(Xnew))


class Mixture(tf.Module):
    """The average of the probabilities of two models.

    :param first: one of them.
    :param second: the other.
    :param share: the weight of the first.
    """

    def __init__(self, first: Any, second: Any, share: float) -> None:
        super().__init__()
        self.first, self.second, self.share = first, second, share

    def posterior(self) -> Mixture:
        """The mixture of the posteriors, whose predictions do no work over the data."""
        return Mixture(self.first.posterior(), self.second.posterior(), self.share)

    def predict_y(self, Xnew: InputData) -> MeanAndVariance:
        """Class probabilities and the variance of the one-hot label, [N, K] each.

        :param Xnew: [N, D].
        """
        first, second = (model.predict_y(Xnew)[0] for model in (self.first, self.second))
        p = self.share * first + (1.0 - self.share) * second
        return p, p - tf.square(p)


class Candidates:
    """Models of one data set, of which the best is built.

    :param labels: the held-out labels, class indices [n].
    :param report: every trial is added to it, and which one is the best.
    """

    def __init__(self, labels: np.ndarray, report: Report) -> None:
        self.labels, self.report = labels, report
        self._all: list[_Candidate] = []
        self._setting: Setting | None = None
        self._start = time.perf_counter()

    def add(
        self, name: str, setting: Setting, probabilities: np.ndarray, remark: str, build: Build
    ) -> np.ndarray:
        """Add a model, which took the time since the last one; returns the NLL of each label.

        :param name: what kind of model.
        :param setting: its scaling and kernel.
        :param probabilities: of the classes of the held-out rows, [n, K].
        :param remark: what else there is to say.
        :param build: the model, built when it is chosen.
        """
        nll = label_nll(probabilities, self.labels)
        trial = self.note(name, setting, nll, remark)
        self._all.append(_Candidate(trial, setting, probabilities, build))
        return nll

    def note(self, name: str, setting: Setting, nll: np.ndarray, remark: str) -> Trial:
        """Report what was tried, and took the time since the last, without making it a candidate.

        :param name: what kind of model.
        :param setting: its scaling and kernel.
        :param nll: of held-out labels.
        :param remark: what else there is to say.
        """
        now = time.perf_counter()
        trial = Trial(name, str(setting), float(np.mean(nll)), now - self._start, remark)
        self._start = now
        self.report.trials.append(trial)
        return trial

    def choose(self, setting: Setting) -> None:
        """From now on only those with one setting can be the best; others can help in a mixture.

        :param setting: that was chosen.
        """
        self._setting = setting

    def _best(self) -> _Candidate:
        finalists = (c for c in self._all if self._setting in (None, c.setting))
        return min(finalists, key=lambda c: c.trial.nll)

    @property
    def smallest(self) -> float:
        """The smallest NLL so far."""
        return self._best().trial.nll

    def best(self) -> Any:
        """The best, or its mixture with another that makes it better, or is as good."""
        best = self._best()
        helpers = [other for other in self._all if _can_help(other, best)]
        mixtures = [
            mixed
            for other, (share, mixed) in ((c, self._mixture(best, c)) for c in helpers)
            if share < 1.0 - _LEAST_SHARE
            and (mixed.trial.nll < best.trial.nll or not self._can_tell(best, other))
        ]
        if mixtures:
            best = min(mixtures, key=lambda c: c.trial.nll)
            self.report.trials.append(best.trial)
        self.report.chosen = best.trial
        return best.build()

    def _can_tell(self, best: _Candidate, other: _Candidate) -> bool:
        """Whether the other is worse by more than a standard error."""
        nll = [label_nll(c.probabilities, self.labels) for c in (best, other)]
        excess = nll[1] - nll[0]
        return bool(np.mean(excess) > np.std(excess) / np.sqrt(len(excess)))

    def _mixture(self, one: _Candidate, other: _Candidate) -> tuple[float, _Candidate]:
        """With the share that is best for the held-out rows and for a prior that prefers halves."""

        def mixed(share: float) -> np.ndarray:
            return share * one.probabilities + (1.0 - share) * other.probabilities

        def nll(share: float) -> np.ndarray:
            return label_nll(mixed(share), self.labels)

        found = minimize_scalar(
            lambda share: np.sum(nll(share)) - _PRIOR_ROWS * np.log(share * (1.0 - share)),
            bounds=(1e-3, 1.0 - 1e-3),
            method="bounded",
        )
        share = float(found.x)
        remark = f"{1.0 - share:.0%} of {other.trial.model}, {other.trial.setting}"
        trial = Trial("mixture", one.trial.setting, float(np.mean(nll(share))), 0.0, remark)
        build = lambda: Mixture(one.build(), other.build(), share)  # noqa: E731
        return share, _Candidate(trial, one.setting, mixed(share), build)


def _can_help(other: _Candidate, best: _Candidate) -> bool:
    """Whether another kind of model, or one with fewer lengthscales, may be mixed in.

    What a model with more parameters adds to held-out rows was too often found by luck.
    """
    if other.setting == best.setting:
        return other.trial.model != best.trial.model
    return best.setting.ard and not other.setting.ard
