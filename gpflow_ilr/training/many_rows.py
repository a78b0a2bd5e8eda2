"""The automatic fit where rows are many: a kernel from a sample, then all rows.

The kernel comes from the evidence of a sample; the rows outside it have not seen the kernel, so that
leaving each of them out in turn is honest, however many lengthscales there are. Settings are compared
by nearest neighbours, which take a second. The best one is then fitted to a larger sample, and its
neighbours compete with inducing inputs in closed form, with those after natural gradients, with the
exact model, and with a mixture of the best two.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpflow_ilr.inputs.scaling import SCALINGS, Scaling
from gpflow_ilr.models import ILRGPR, ILRNNGPR, ILRSGPR, ILRSVGP
from gpflow_ilr.starting import kmeans_plusplus
from gpflow_ilr.training.candidates import Candidates, ScaledClassifier
from gpflow_ilr.training.polish import polish
from gpflow_ilr.training.report import Budget, Report
from gpflow_ilr.training.settings import Setting, best_setting

__all__ = ["choose_for_many_rows"]

SAMPLE, LARGE_SAMPLE = 1000, 2000
"""Rows that the kernel comes from, while settings are compared and afterwards."""
HELD_OUT = 2048
"""Rows by which models are compared."""
NUM_INDUCING = 300
POLISH_GAIN = 0.3
"""The largest part of its NLL that natural gradients have been seen to take from a model."""
SCREENING = 0.4
"""The part of the seconds after which no more settings are tried."""


def choose_for_many_rows(
    X: np.ndarray, y: np.ndarray, num_classes: int, budget: Budget, report: Report, seed: int
) -> Any:
    """The best classifier of those that were tried, with its scaling.

    :param X: [N, D], raw.
    :param y: class indices, [N].
    :param num_classes: K.
    :param budget: seconds and bytes.
    :param report: what is tried is added to it.
    :param seed: of the samples.
    """
    report.criterion = "is that of left-out rows that have not trained the kernel"
    scalings = {name: scaling(X) for name, scaling in SCALINGS.items()}
    rows = {name: scaling(X).numpy() for name, scaling in scalings.items()}
    order = np.random.default_rng(seed).permutation(len(X))
    sample = min(LARGE_SAMPLE, len(X) // 2)
    held_out = np.sort(order[sample:][:HELD_OUT])
    candidates = Candidates(y[held_out], report)
    search = _Search(scalings, rows, y, num_classes, order, held_out, candidates)
    setting = best_setting(
        lambda setting: search.neighbours(setting, min(SAMPLE, sample)),
        X.shape[1],
        lambda: budget.elapsed > SCREENING * budget.max_seconds,
    )
    candidates.choose(setting)
    search.neighbours(setting, sample, choose_count=True)
    search.polished(setting, budget, seed)
    search.exact(setting, budget)
    return candidates.best()


class _Search:
    """Models of one data set.

    :param scalings: of the inputs, by name.
    :param X: rows, for each scaling.
    :param y: their labels.
    :param num_classes: K.
    :param order: in which rows are taken for samples.
    :param held_out: numbers of the rows by which models are compared.
    :param candidates: where models are added.
    """

    def __init__(
        self,
        scalings: dict[str, Scaling],
        X: dict[str, np.ndarray],
        y: np.ndarray,
        num_classes: int,
        order: np.ndarray,
        held_out: np.ndarray,
        candidates: Candidates,
    ) -> None:
        self.scalings, self.X, self.y = scalings, X, y
        self.num_classes, self.order = num_classes, order
        self.held_out, self.candidates = held_out, candidates
        self.from_sample: dict[Setting, ILRGPR] = {}
        self.nearest: ILRNNGPR | None = None

    def neighbours(self, setting: Setting, sample: int, choose_count: bool = False) -> np.ndarray:
        """Nearest neighbours with the kernel of a sample; the NLL of each held-out label."""
        X, rows = self.X[setting.scaling], self.order[:sample]
        start = setting.fitted(X[rows], self.y[rows], self.num_classes)
        noise = float(start.code.noise_variance[0, 0])
        K = self.num_classes
        model = ILRNNGPR((X, self.y), start.kernel, num_classes=K, noise_variance=noise)
        model.criterion_rows = self.held_out
        model.calibrate(noise=True, neighbours=choose_count)
        self.from_sample[setting], self.nearest = start, model
        remark = f"{model.num_neighbours} neighbours, kernel of {sample} rows"
        p = _left_out_probabilities(model, self.held_out)
        return self.add("neighbours", setting, p, remark, model)

    def polished(self, setting: Setting, budget: Budget, seed: int) -> None:
        """Inducing points in closed form, then natural gradients where they can be worth it."""
        X, start = self.X[setting.scaling], self.from_sample[setting]
        validation = X[self.held_out], self.y[self.held_out]
        rest = np.setdiff1d(np.arange(len(X)), self.held_out)
        Z = kmeans_plusplus(X[rest], min(NUM_INDUCING, len(np.unique(X[rest], axis=0))), seed)
        model = ILRSGPR(
            (X[rest], self.y[rest]),
            start.kernel,
            Z,
            num_classes=self.num_classes,
            noise_variance=float(start.code.noise_variance[0, 0]),
        )
        closed_form = model.calibrate(validation).nll_after
        p = model.predict_y(validation[0])[0].numpy()
        self.add("collapsed", setting, p, f"{len(Z)} inducing inputs", model)
        if (1.0 - POLISH_GAIN) * closed_form > self.candidates.smallest or not budget.remaining:
            return
        uncollapsed = ILRSVGP.from_collapsed(model)
        result = polish(
            uncollapsed,
            model.data,
            validation=validation,
            max_seconds=0.6 * budget.remaining,
            seed=seed,
        )
        p = uncollapsed.predict_y(validation[0])[0].numpy()
        remark = f"{result.best_step} natural-gradient steps"
        self.add("polished", setting, p, remark, uncollapsed)

    def exact(self, setting: Setting, budget: Budget) -> None:
        """The exact model with the neighbours' noise and λ, where it fits into the budget."""
        X, near = self.X[setting.scaling], self.nearest
        assert near is not None
        if not budget.allows_factor(len(X)):
            return
        model = ILRGPR(
            (X, self.y),
            near.kernel,
            num_classes=self.num_classes,
            noise_variance=float(near.code.noise_variance[0, 0]),
            smoothing=near.code.smoothing,
        )
        p = _left_out_probabilities(model, self.held_out)
        self.add("exact", setting, p, "", model)

    def add(
        self, name: str, setting: Setting, probabilities: np.ndarray, remark: str, model: Any
    ) -> np.ndarray:
        """Add a model to the candidates; the NLL of each held-out label."""
        scaled = ScaledClassifier(self.scalings[setting.scaling], model)
        return self.candidates.add(name, setting, probabilities, remark, lambda: scaled)


def _left_out_probabilities(model: Any, rows: np.ndarray) -> np.ndarray:
    """Class probabilities of some training rows, each left out in turn, [n, K]."""
    mean, variance = model.leave_one_out(rows)
    scale = model.code.scale
    return model.likelihood.predict_mean_and_var(
        model.data[0][: len(rows)], scale * mean, scale**2 * variance + 0.0 * mean
    )[0].numpy()
