"""The automatic fit where rows are few: everything is judged by folds.

Leave-one-out keeps the hyperparameters, and is optimistic where they are many for the rows. So each
fold is predicted by a model whose kernel and noise the other folds have chosen; one λ is chosen for the
predictions of all folds. Exact models with several kernels compete with natural gradients from their
posteriors, whose number of steps is the best for all folds together; those that help are mixed. What is
clearly worse is not followed through all folds, and only what is chosen is fitted to all rows.
"""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.utilities import deepcopy, set_trainable

from gpflow_ilr.calibration.criterion import Marginals, MeanNLL
from gpflow_ilr.calibration.criterion import label_nll as label_nll_of
from gpflow_ilr.calibration.search import SMOOTHING_BOUNDS, choose_sharpness
from gpflow_ilr.codes import sharpness_of
from gpflow_ilr.expectations import expected_softmax
from gpflow_ilr.inputs.rows import check_data
from gpflow_ilr.inputs.scaling import SCALINGS, suitable_scalings
from gpflow_ilr.models import ILRGPR, ILRSGPR, ILRSVGP
from gpflow_ilr.starting import kmeans_plusplus
from gpflow_ilr.training.candidates import Candidates, ScaledClassifier, label_nll
from gpflow_ilr.training.polish import NaturalSteps
from gpflow_ilr.training.report import Budget, Report
from gpflow_ilr.training.settings import (
    FAMILIES,
    LINEAR,
    LINEAR_FAMILIES,
    Rows,
    Setting,
    ranked_settings,
)

__all__ = ["choose_for_few_rows", "stratified_folds"]

SCREENING = 0.5
"""The part of the seconds after which no more settings are tried."""
MANY_FOLDS = 500
"""Below so many rows there are five folds, else three."""
NUM_INDUCING = 128
MAX_STEPS, CHECK_EVERY = 120, 10
FURTHER = 4
"""Looks that a fold goes on after twice the best of those before."""
LONG_STEPS = {"natural_step": 0.5, "learning_rate": 0.2}
"""All rows are one batch, which needs no small steps."""
_SHARPNESSES = 25

Part = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Which rows are held out [N], the others, scaled, and these."""


def stratified_folds(y: np.ndarray, num_folds: int, seed: int) -> np.ndarray:
    """The fold of each row, [N]: every class is dealt out evenly.

    :param y: class indices, [N].
    :param num_folds: how many.
    :param seed: of the order in which rows are dealt.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    folds = np.empty(len(y), int)
    folds[order] = np.arange(len(y)) % num_folds
    return folds


def choose_for_few_rows(
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
    :param seed: of the folds.
    :param updatable: leave out models that cannot take in rows later: natural gradients.
    """
    X, y, *_ = rows
    num_folds = min(5 if len(X) < MANY_FOLDS else 3, len(X))
    report.criterion = f"is that of {num_folds} folds, each predicted from the others"
    search = _Search(rows, num_classes, stratified_folds(y, num_folds, seed), report)
    scalings = suitable_scalings(X)
    tried = ranked_settings(
        search.exact,
        X.shape[1],
        scalings,
        [*FAMILIES, *LINEAR_FAMILIES],
        lambda: budget.elapsed > SCREENING * budget.max_seconds,
    )
    if not tried[0].ard:  # so many lengthscales have not earned their place, not even in a mixture
        search.candidates.leave_out_ard()
    if updatable:
        return search.candidates.best()
    # Natural gradients from a plane are logistic regression, which its closed form is far from, and so
    # is the scaling that suits it from the one that suits a curve.
    planes = [Setting(scaling, LINEAR, ard=False) for scaling in scalings]
    for setting in dict.fromkeys([tried[0], *planes]):
        if not budget.remaining:
            break
        if setting not in search.models:
            search.exact(setting)
        search.polished(setting, budget, seed)
    return search.candidates.best()


class _Search:
    """Models of one data set, and of all but one of its folds.

    :param rows: raw.
    :param num_classes: K.
    :param folds: the fold of each row.
    :param report: what is tried is added to it.
    """

    def __init__(self, rows: Rows, num_classes: int, folds: np.ndarray, report: Report) -> None:
        self.X, self.y, *self.weights = rows
        self.num_classes, self.folds = num_classes, folds
        self.candidates = Candidates(self.y, report, *self.weights)
        self.models: dict[Setting, list[ILRGPR]] = {}
        """Of each setting, the exact model without each fold."""
        self._whole: dict[Setting, ILRGPR] = {}
        self._compiled: dict[tuple, tuple[ILRSVGP, list[tf.Variable], NaturalSteps]] = {}

    def parts(self, setting: Setting) -> list[Part]:
        """For each fold, which rows are in it, and the others and these, as the others scale them.

        Then the same for all rows, which are predicted by none.
        """
        parts = []
        for fold in range(self.folds.max() + 2):
            held_out = self.folds == fold
            scaled = SCALINGS[setting.scaling](self.X[~held_out])(self.X).numpy()
            parts.append((held_out, scaled[~held_out], scaled[held_out]))
        return parts

    def exact(self, setting: Setting) -> np.ndarray:
        """The exact model, by folds; the NLL of each label."""
        *folds, _ = self.parts(setting)
        models = setting.fitted_to_each(
            [(X, *self._labels(~held_out)) for held_out, X, _ in folds], self.num_classes
        )
        marginals, order = [], []
        for model, (held_out, _, X_held_out) in zip(models, folds, strict=True):
            held_out_rows = check_data((X_held_out, *self._labels(held_out)), self.num_classes)
            marginals.append(model.held_out(held_out_rows))
            order.append(np.flatnonzero(held_out))
        together = Marginals(
            *(
                None if values[0] is None else tf.concat(values, axis=0)
                for values in zip(*marginals, strict=True)
            )
        )
        code = models[0].code
        sharpness = cautious_sharpness(together, code.link)
        p = np.empty([len(self.y), self.num_classes])
        p[np.concatenate(order)] = expected_softmax(
            sharpness * together.mean,
            sharpness**2 * together.variance,
            code.link,
            models[0].likelihood.nodes,
        )
        for model in models:
            model.code.sharpness.assign(sharpness)
        self.models[setting] = models
        build = lambda: self._scaled(setting, self.whole(setting))  # noqa: E731
        return self.candidates.add("exact", setting, p, "", build)

    def whole(self, setting: Setting) -> ILRGPR:
        """The exact model of all rows, fitted when it is asked for: most settings are not chosen."""
        if setting not in self._whole:
            *_, (_, X, _) = self.parts(setting)
            self._whole[setting] = setting.fitted((X, self.y, *self.weights), self.num_classes)
            self._whole[setting].code.sharpness.assign(self.models[setting][0].code.sharpness)
        return self._whole[setting]

    def _scaled(self, setting: Setting, model: Any) -> ScaledClassifier:
        return ScaledClassifier(SCALINGS[setting.scaling](self.X), model)

    def polished(self, setting: Setting, budget: Budget, seed: int) -> None:
        """Natural gradients from the exact posterior, as many steps as are best for the folds."""
        counts = range(CHECK_EVERY, MAX_STEPS + 1, CHECK_EVERY)
        p = np.zeros([len(counts), len(self.y), self.num_classes])
        *folds, _ = parts = self.parts(setting)
        most = min(NUM_INDUCING, *(len(np.unique(X, axis=0)) for _, X, _ in parts))
        model, rows, steps = self._natural_steps(setting, parts[0], most, seed)

        def restart(i: int) -> None:
            """Go back to the exact posterior without fold i, or of all rows after the last."""
            for variable, values in zip(rows, self._rows(parts[i]), strict=True):
                variable.assign(values)
            exact = self.models[setting][i] if i < len(folds) else self.whole(setting)
            start = uncollapsed(exact, most, seed)
            gpflow.utilities.multiple_assign(model, gpflow.utilities.read_values(start))
            steps.restart()

        seen = np.zeros(len(self.y), bool)
        most_steps, best, looks = len(counts), 0, []
        for i, (held_out, _, X_held_out) in enumerate(folds):
            restart(i)
            for k in range(most_steps):
                if not steps.take(CHECK_EVERY):
                    return
                p[k, held_out] = model.predict_y(X_held_out)[0].numpy()
                looks.append(budget.elapsed)
            seen |= held_out
            nll = np.stack([label_nll(each[seen], self.y[seen]) for each in p[:most_steps]])
            weights = self.candidates.relative_weights[seen]
            total = nll @ weights
            best = int(np.argmax(total <= np.min(total) + 1e-9 * np.sum(weights)))  # the first
            # Later folds need not go where those before have long been past their best.
            most_steps = min(most_steps, 2 * (best + 1) + FURTHER)
            if self.candidates.is_hopeless(nll[best], seen):
                given_up = f"given up after {i + 1} of {len(folds)} folds"
                self.candidates.note("polished", setting, weights * nll[best], given_up)
                return
            to_come = (len(folds) - 1 - i) * most_steps + best + 1
            # Of the looks so far all but the first, whose steps are compiled.
            if to_come * (looks[-1] - looks[0]) > budget.remaining * max(1, len(looks) - 1):
                return

        def build() -> ScaledClassifier:
            restart(len(folds))
            done = steps.take(counts[best])
            return self._scaled(setting, deepcopy(model) if done else self.whole(setting))

        remark = f"{counts[best]} natural-gradient steps"
        self.candidates.add("polished", setting, p[best], remark, build)

    def _labels(self, some: np.ndarray) -> list[np.ndarray]:
        """Labels and, if there are some, weights of some rows."""
        return [values[some] for values in (self.y, *self.weights)]

    def _natural_steps(
        self, setting: Setting, part: Part, num_inducing: int, seed: int
    ) -> tuple[ILRSVGP, list[tf.Variable], NaturalSteps]:
        """A model, its rows and its steps, compiled once for all settings of one kind of kernel."""
        key = setting.family, setting.ard, num_inducing
        if key not in self._compiled:
            rows = [tf.Variable(x, shape=[None, *x.shape[1:]]) for x in self._rows(part)]
            model = uncollapsed(self.models[setting][0], num_inducing, seed)
            loss = lambda: model.training_loss(tuple(map(tf.identity, rows)))  # noqa: E731
            self._compiled[key] = model, rows, NaturalSteps(model, loss, **LONG_STEPS)
        return self._compiled[key]

    def _rows(self, part: Part) -> Rows:
        """X, labels and weights of the rows outside a fold, as a model with batches takes them."""
        held_out, X, _ = part
        y, *weights = self._labels(~held_out)
        return X, y[:, None], *weights


def cautious_sharpness(held_out: Marginals, link: tf.Tensor) -> float:
    """The smallest L that the labels do not tell from the best one, by a standard error.

    Few labels may be separable by luck. The NLL then hardly falls any more as L grows, but a new row
    on the wrong side costs the more.

    :param held_out: predictions and labels.
    :param link: C, [K, P].
    """
    best, _ = choose_sharpness(MeanNLL(held_out, link))

    def nll(sharpness: float) -> np.ndarray:
        nll = label_nll_of(held_out, link, tf.constant(sharpness, link.dtype)).numpy()
        return nll if held_out.weights is None else nll * held_out.weights

    least = nll(best)
    for L in np.geomspace(sharpness_of(SMOOTHING_BOUNDS[0], link.shape[0]), best, _SHARPNESSES):
        excess = nll(float(L)) - least
        if np.mean(excess) <= np.std(excess) / np.sqrt(len(excess)):
            return float(L)
    return best


def uncollapsed(model: ILRGPR, num_inducing: int, seed: int) -> ILRSVGP:
    """A sparse model with the exact likelihood that starts at an exact model's posterior.

    :param model: the exact model.
    :param num_inducing: M, at most; no more than there are distinct rows.
    :param seed: of the choice of inducing inputs.
    """
    distinct = np.unique(model.data[0], axis=0)
    Z = kmeans_plusplus(distinct, min(num_inducing, len(distinct)), seed)
    collapsed = ILRSGPR(
        model.data,
        model.kernel,
        Z,
        num_classes=model.code.num_classes,
        smoothing=model.code.smoothing,
        noise_variance=float(model.code.noise_variance[0, 0]),
    )
    result = ILRSVGP.from_collapsed(collapsed)
    set_trainable(result.inducing_variable, False)  # they are rows, or nearly all there are
    return result
