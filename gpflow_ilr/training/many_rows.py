"""The automatic fit where rows are many: a kernel from a sample, then all rows.

The kernel comes from the evidence of a sample; the rows outside it have not seen the kernel, so that
leaving each of them out in turn is honest, however many lengthscales there are. Settings are compared
by nearest neighbours, which take a second. The best one is then fitted to a larger sample, and its
neighbours compete with those of another setting, with inducing inputs in closed form, with these after
natural gradients, and with the exact model; those that help are mixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpflow_ilr.calibration.criterion import Marginals, label_nll
from gpflow_ilr.inputs.scaling import ONE_SCALE, Scaling, suitable_scalings
from gpflow_ilr.models import ILRGPR, ILRNNGPR, ILRSGPR, ILRSVGP
from gpflow_ilr.starting import kmeans_plusplus
from gpflow_ilr.training.candidates import Candidates, ScaledClassifier
from gpflow_ilr.training.polish import polish
from gpflow_ilr.training.report import Budget, Report
from gpflow_ilr.training.settings import FAMILIES, Rows, Setting, ranked_settings

__all__ = ["choose_for_many_rows"]

SAMPLE, LARGE_SAMPLE = 1000, 2000
"""Rows that the kernel comes from, while settings are compared and afterwards."""
SCREENED, HELD_OUT = 6144, 2048
"""Rows by which settings are compared, and models."""
NUM_INDUCING = 300
MANY_COLUMNS = 32
"""Of fewer columns a sample determines a lengthscale each, so that one scale for all is not tried."""
POLISH_GAIN = 0.3
"""The largest part of its NLL that natural gradients have been seen to take from a model."""
SCREENING = 0.4
"""The part of the seconds after which no more settings are tried."""


def choose_for_many_rows(
    rows: Rows,
    num_classes: int,
    budget: Budget,
    report: Report,
    seed: int,
    updatable: bool = False,
) -> Any:
    """The best classifier of those that were tried, with its scaling.

    :param rows: raw.
    :param num_classes: K.
    :param budget: seconds and bytes.
    :param report: what is tried is added to it.
    :param seed: of the samples.
    :param updatable: leave out models that cannot take in rows later: natural gradients.
    """
    report.criterion = "is that of left-out rows that have not trained the kernel"
    X, *labels = rows
    scalings = suitable_scalings(X)
    if X.shape[1] < MANY_COLUMNS:
        scalings.pop(ONE_SCALE, None)
    scaled = {name: scaling(X).numpy() for name, scaling in scalings.items()}
    order = np.random.default_rng(seed).permutation(len(X))
    sample = min(LARGE_SAMPLE, len(X) // 2)
    search = _Search(scalings, scaled, labels, num_classes, order, sample, report)
    setting, *others = ranked_settings(
        search.screened,
        X.shape[1],
        scalings,
        FAMILIES,
        lambda: budget.elapsed > SCREENING * budget.max_seconds,
    )
    search.neighbours(setting)
    if others and budget.remaining:
        search.other_neighbours(setting, others)
    search.inducing(setting, budget, seed, polishing=not updatable)
    search.exact(setting, budget)
    return search.candidates.best()


class _Search:
    """Models of one data set.

    :param scalings: of the inputs, by name.
    :param X: rows, for each scaling.
    :param labels: of the rows, and, if there are some, weights.
    :param num_classes: K.
    :param order: in which rows are taken for samples.
    :param sample: rows of the larger sample; what comes after them is held out.
    :param report: what is tried is added to it.
    """

    def __init__(
        self,
        scalings: dict[str, Scaling],
        X: dict[str, np.ndarray],
        labels: Sequence[np.ndarray],
        num_classes: int,
        order: np.ndarray,
        sample: int,
        report: Report,
    ) -> None:
        self.scalings, self.X, self.labels = scalings, X, labels
        self.num_classes, self.order, self.sample = num_classes, order, sample
        self.held_out = np.sort(order[sample:][:HELD_OUT])
        y, *weights = self._labels(self.held_out)
        self.candidates = Candidates(y, report, *weights)
        self._screened: dict[Setting, tuple[ILRNNGPR, np.ndarray]] = {}

    def screened(self, setting: Setting) -> np.ndarray:
        """The NLL of each of many held-out labels, with the kernel of a small sample."""
        size = min(SAMPLE, self.sample)
        model, _ = self._nearest(setting, size)
        model.calibrate(noise=True)
        rows = np.sort(self.order[self.sample :][:SCREENED])
        held_out = Marginals.of(model.labelled_rows.take(rows), *model.leave_one_out(rows))
        nll = label_nll(held_out, model.code.link, model.code.scale).numpy()
        if held_out.weights is not None:
            nll *= held_out.weights / np.mean(held_out.weights)
        remark = f"{model.num_neighbours} neighbours, kernel of {size} rows"
        self.candidates.note("neighbours", setting, nll, remark)
        self._screened[setting] = model, nll
        return nll

    def _nearest(self, setting: Setting, size: int) -> tuple[ILRNNGPR, ILRGPR]:
        """Nearest neighbours, and the exact model of a sample that their kernel is from."""
        K = self.num_classes
        start = setting.fitted(self._rows(setting, self.order[:size]), K)
        noise = float(start.code.noise_variance[0, 0])
        model = ILRNNGPR(self._rows(setting), start.kernel, num_classes=K, noise_variance=noise)
        model.criterion_rows = self.held_out
        return model, start

    def neighbours(self, setting: Setting) -> None:
        """Nearest neighbours with the kernel of the larger sample, and their number chosen."""
        self.nearest, self.start = self._nearest(setting, self.sample)
        self.nearest.calibrate(noise=True, neighbours=True)
        self._add_neighbours(setting, self.nearest, self.sample)

    def other_neighbours(self, setting: Setting, others: Sequence[Setting]) -> None:
        """As many neighbours with that other kernel which errs in the most different rows."""
        _, nll = self._screened[setting]

        def mixed(other: Setting) -> float:
            """The NLL of both by halves, but for a constant."""
            return -float(np.mean(np.logaddexp(-nll, -self._screened[other][1])))

        partner = min(others, key=mixed)
        model, _ = self._screened[partner]
        if model.num_neighbours != self.nearest.num_neighbours:
            model.num_neighbours = self.nearest.num_neighbours
            model.calibrate(noise=True, max_rows=HELD_OUT // 2)
        self._add_neighbours(partner, model, min(SAMPLE, self.sample))

    def _add_neighbours(self, setting: Setting, model: ILRNNGPR, size: int) -> None:
        remark = f"{model.num_neighbours} neighbours, kernel of {size} rows"
        p = _left_out_probabilities(model, self.held_out)
        self.add("neighbours", setting, p, remark, model)

    def inducing(self, setting: Setting, budget: Budget, seed: int, polishing: bool) -> None:
        """Inducing points in closed form, then natural gradients where they can be worth it."""
        start, validation = self.start, self._rows(setting, self.held_out)
        rest = self._rows(setting, np.setdiff1d(self.order, self.held_out))
        Z = kmeans_plusplus(rest[0], min(NUM_INDUCING, len(np.unique(rest[0], axis=0))), seed)
        model = ILRSGPR(
            rest,
            start.kernel,
            Z,
            num_classes=self.num_classes,
            noise_variance=float(start.code.noise_variance[0, 0]),
        )
        closed_form = model.calibrate(validation).nll_after
        p = model.predict_y(validation[0])[0].numpy()
        self.add("collapsed", setting, p, f"{len(Z)} inducing inputs", model)
        if (1.0 - POLISH_GAIN) * closed_form > self.candidates.smallest:
            return
        if not (polishing and budget.remaining):
            return
        uncollapsed = ILRSVGP.from_collapsed(model)
        result = polish(
            uncollapsed,
            model.data,
            validation=validation,
            max_seconds=0.6 * budget.remaining,
            seed=seed,
        )
        if not result.best_step:  # it is what it was
            return
        p = uncollapsed.predict_y(validation[0])[0].numpy()
        remark = f"{result.best_step} natural-gradient steps"
        self.add("polished", setting, p, remark, uncollapsed)

    def exact(self, setting: Setting, budget: Budget) -> None:
        """The exact model with the neighbours' noise and λ, where it fits into the budget."""
        near = self.nearest
        if not budget.allows_factor(near.num_data):
            return
        model = ILRGPR(
            self._rows(setting),
            near.kernel,
            num_classes=self.num_classes,
            noise_variance=float(near.code.noise_variance[0, 0]),
            smoothing=near.code.smoothing,
        )
        p = _left_out_probabilities(model, self.held_out)
        self.add("exact", setting, p, "", model)

    def _labels(self, some: np.ndarray) -> list[np.ndarray]:
        """Labels and, if there are some, weights of some rows."""
        return [values[some] for values in self.labels]

    def _rows(self, setting: Setting, some: Any = slice(None)) -> Rows:
        """Rows with the scaling of a setting."""
        return self.X[setting.scaling][some], *self._labels(some)

    def add(
        self, name: str, setting: Setting, probabilities: np.ndarray, remark: str, model: Any
    ) -> None:
        """Add a model to the candidates."""
        scaled = ScaledClassifier(self.scalings[setting.scaling], model)
        self.candidates.add(name, setting, probabilities, remark, lambda: scaled)


def _left_out_probabilities(model: Any, rows: np.ndarray) -> np.ndarray:
    """Class probabilities of some training rows, each left out in turn, [n, K]."""
    mean, variance = model.leave_one_out(rows)
    scale = model.code.scale
    return model.likelihood.predict_mean_and_var(
        model.data[0][: len(rows)], scale * mean, scale**2 * variance + 0.0 * mean
    )[0].numpy()
