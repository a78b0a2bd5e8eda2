"""Models that compete by the probabilities they give to the same held-out labels.

The smallest NLL of a few hundred labels is often luck. So the models are not ranked but stacked (Yao,
Vehtari, Simpson and Gelman, 2018): their probabilities are averaged with those shares that have the
smallest NLL. Where one model is clearly the best, it has the only share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance
from gpflow.models import SVGP

from gpflow_ilr.expectations import label_variance
from gpflow_ilr.inputs.scaling import Scaling
from gpflow_ilr.training.report import Report, Trial
from gpflow_ilr.training.settings import Setting

__all__ = ["Candidates", "Mixture", "ScaledClassifier", "label_nll", "stacked"]

_LEAST_SHARE = 0.1
"""A model with a smaller share is left out."""
_PRIOR_ROWS = 0.3
"""Shares start as if each model had been the only one to be right in so many rows."""
_ROUNDS = 5000
"""Of EM, at most: shares of models that do not help fall slowly."""

_ENOUGH, _HOPELESS = 100, 2.0
"""Labels, and standard errors by which a model must be worse than the best, to be given up early."""

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
    nll: np.ndarray
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

    def update(self, X: np.ndarray, y: np.ndarray, **options: Any) -> None:
        """Add rows to the model.

        :param X: [n, D], raw.
        :param y: class indices.
        :param options: of the model's ``update``.
        """
        self.model.update(self.scaling(X), y, **options)

    def predict_y(self, Xnew: InputData) -> MeanAndVariance:
        """Class probabilities and the variance of the one-hot label, [N, K] each.

        :param Xnew: [N, D], raw.
        """
        return self.model.predict_y(self.scaling(Xnew))


class Mixture(tf.Module):
    """The average of the probabilities of several models.

    :param models: classifiers with ``predict_y`` and ``posterior``.
    :param shares: their weights, which sum to one.
    """

    def __init__(self, models: Sequence[Any], shares: Sequence[float]) -> None:
        super().__init__()
        self.models, self.shares = list(models), [float(share) for share in shares]

    def posterior(self) -> Mixture:
        """The mixture of the posteriors, whose predictions do no work over the data."""
        return Mixture([model.posterior() for model in self.models], self.shares)

    def update(self, X: np.ndarray, y: np.ndarray, **options: Any) -> None:
        """Add rows to each model.

        :param X: [n, D], raw.
        :param y: class indices.
        :param options: of the models' ``update``.
        """
        for model in self.models:
            model.update(X, y, **options)

    def predict_y(self, Xnew: InputData) -> MeanAndVariance:
        """Class probabilities and the variance of the one-hot label, [N, K] each.

        :param Xnew: [N, D].
        """
        parts = zip(self.shares, self.models, strict=True)
        p = tf.add_n([share * model.predict_y(Xnew)[0] for share, model in parts])
        return p, label_variance(p)


class Candidates:
    """Models of one data set, of which the best mixture is built.

    :param labels: the held-out labels, class indices [n].
    :param report: every trial is added to it, and which one is the best.
    :param weights: how often each row counts, [n]; None for once.
    """

    def __init__(
        self, labels: np.ndarray, report: Report, weights: np.ndarray | None = None
    ) -> None:
        self.labels, self.report = labels, report
        weights = np.ones(len(labels)) if weights is None else weights
        self.relative_weights = weights / np.mean(weights)
        """[n], of mean one: with them, means over rows are weighted means."""
        self._all: list[_Candidate] = []
        self._start = time.perf_counter()

    def add(
        self, name: str, setting: Setting, probabilities: np.ndarray, remark: str, build: Build
    ) -> np.ndarray:
        """Add a model, which took the time since the last one; the NLL of each label, by its weight.

        :param name: what kind of model.
        :param setting: its scaling and kernel.
        :param probabilities: of the classes of the held-out rows, [n, K].
        :param remark: what else there is to say.
        :param build: the model, built when it is chosen.
        """
        nll = label_nll(probabilities, self.labels)
        weighted = self.relative_weights * nll
        trial = self.note(name, setting, weighted, remark)
        self._all.append(_Candidate(trial, setting, nll, build))
        return weighted

    def leave_out_ard(self) -> None:
        """From now on models with a lengthscale for each column are candidates no more."""
        self._all = [candidate for candidate in self._all if not candidate.setting.ard]

    def note(self, name: str, setting: Setting, nll: np.ndarray, remark: str) -> Trial:
        """Report what was tried, and took the time since the last, without making it a candidate.

        :param name: what kind of model.
        :param setting: its scaling and kernel.
        :param nll: of held-out labels, by their weights.
        :param remark: what else there is to say.
        """
        now = time.perf_counter()
        trial = Trial(name, str(setting), float(np.mean(nll)), now - self._start, remark)
        self._start = now
        self.report.add(trial)
        return trial

    @property
    def smallest(self) -> float:
        """The smallest NLL so far."""
        return min(candidate.trial.nll for candidate in self._all)

    def is_hopeless(self, nll: np.ndarray, seen: np.ndarray) -> bool:
        """Whether a model is worse than the best so far, by more than luck would have it.

        Few labels cannot say so: a cautious model is a little worse in all rows but those few in which
        the other errs.

        :param nll: of those labels that it has predicted, [m].
        :param seen: which of the held-out labels these are, [n].
        """
        best = min(self._all, key=lambda candidate: candidate.trial.nll)
        excess = self.relative_weights[seen] * (nll - best.nll[seen])
        return len(excess) >= _ENOUGH and bool(
            np.mean(excess) > _HOPELESS * np.std(excess) / np.sqrt(len(excess))
        )

    def best(self) -> Any:
        """The best mixture, or the only model in it."""
        nll = np.stack([candidate.nll for candidate in self._all], axis=1)
        shares = stacked(nll, self.relative_weights)
        chosen = [int(i) for i in np.argsort(-shares, kind="stable") if shares[i] > 0.0]
        members = [self._all[i] for i in chosen]
        if len(members) == 1:
            self.report.chosen = members[0].trial
            return members[0].build()
        remark = "; ".join(
            f"{shares[i]:.0%} {self._all[i].trial.model} {self._all[i].trial.setting}"
            for i in chosen
        )
        mixed = float(np.mean(-self.relative_weights * np.log(np.exp(-nll) @ shares)))
        self.report.chosen = Trial("mixture", f"of {len(members)} models", mixed, 0.0, remark)
        self.report.add(self.report.chosen)
        return Mixture([member.build() for member in members], shares[chosen].tolist())


def stacked(nll: np.ndarray, weights: np.ndarray | float = 1.0) -> np.ndarray:
    """Shares with the smallest NLL of the mixture, found by EM; small ones are zero, [k].

    :param nll: of n held-out labels under k models, [n, k].
    :param weights: how often each label counts, [n], on average once.
    """
    p = np.exp(np.min(nll, axis=1, keepdims=True) - nll)
    members = np.arange(p.shape[1])
    while True:
        shares = np.full(len(members), 1.0 / len(members))
        for _ in range(_ROUNDS):
            joint, before = shares * p[:, members], shares
            parts = joint / np.sum(joint, axis=1, keepdims=True)
            shares = np.broadcast_to(weights, len(p)) @ parts + _PRIOR_ROWS
            shares /= np.sum(shares)
            if np.max(np.abs(shares - before)) < 1e-7:
                break
        if len(members) == 1 or np.min(shares) >= _LEAST_SHARE:
            result = np.zeros(p.shape[1])
            result[members] = shares
            return result
        members = np.delete(members, np.argmin(shares))
