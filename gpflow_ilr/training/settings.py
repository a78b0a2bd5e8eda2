"""Kernels to choose from, and an order to try them in.

A setting says how columns are scaled, of which family the kernel is, and whether every column has a
lengthscale of its own. The choices hardly depend on each other: scaling and lengthscales are chosen
with one family, then the family. So few settings are tried instead of all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Constant, IsotropicStationary, Kernel, Linear, Sum

from gpflow_ilr.inputs.scaling import ONE_SCALE
from gpflow_ilr.models import ILRGPR
from gpflow_ilr.starting import starting_kernel
from gpflow_ilr.training.fit import fit
from gpflow_ilr.training.lbfgs import LBFGS
from gpflow_ilr.training.watch import Watch

__all__ = ["FAMILIES", "LINEAR", "LINEAR_FAMILIES", "Rows", "Setting", "ranked_settings"]

FAMILIES: dict[str, type[IsotropicStationary]] = {
    "Matern52": gpflow.kernels.Matern52,
    "SquaredExponential": gpflow.kernels.SquaredExponential,
    "Matern32": gpflow.kernels.Matern32,
    "RationalQuadratic": gpflow.kernels.RationalQuadratic,
}
"""Families of kernels, by name; scaling and lengthscales are chosen with the first."""

LINEAR = "Linear"
"""The family of planes."""
LINEAR_FAMILIES = (LINEAR, f"SquaredExponential + {LINEAR}")
"""Families for few rows, of which a plane is sometimes all that can be learned."""

Rows = tuple[np.ndarray, ...]
"""Scaled inputs [n, D], class indices [n] and, where rows do not count alike, weights [n]."""


@dataclass(frozen=True)
class Setting:
    """How columns are scaled, and what kernel they get.

    :param scaling: a name among :data:`gpflow_ilr.inputs.scaling.SCALINGS`.
    :param family: a name among :data:`FAMILIES` or :data:`LINEAR_FAMILIES`.
    :param ard: a lengthscale for each column.
    """

    scaling: str
    family: str
    ard: bool

    def __str__(self) -> str:
        return f"{self.family}{' ARD' if self.ard else ''}, {self.scaling}"

    def kernel(self, X: np.ndarray, num_classes: int) -> Kernel:
        """The kernel that training starts with.

        :param X: [n, D], scaled.
        :param num_classes: K.
        """
        curved = FAMILIES.get(self.family.removesuffix(f" + {LINEAR}"))
        kernel = starting_kernel(
            X, num_classes, curved or gpflow.kernels.SquaredExponential, self.ard
        )
        if LINEAR not in self.family:
            return kernel
        amplitude = float(kernel.variance.numpy())
        plane = [Linear(variance=amplitude / X.shape[1]), Constant(variance=amplitude)]
        return Sum(plane if curved is None else [kernel, *plane])

    def start(self, rows: Rows, num_classes: int) -> ILRGPR:
        """An exact model of some rows, each of which counts once, not trained yet.

        :param rows: the rows.
        :param num_classes: K.
        """
        kernel = self.kernel(rows[0], num_classes)
        return ILRGPR(rows[:2], kernel, num_classes=num_classes, noise="shared")

    def fitted(self, rows: Rows, num_classes: int, max_iterations: int = 30) -> ILRGPR:
        """An exact model of some rows, with the kernel and the noise of the largest evidence.

        The evidence counts each row once. It would take a row of weight six for six that agree, and
        find a kernel so short that such rows stand alone (two classes, one of 8 % of 400 rows, balanced
        by weights, in the guide ``docs/choosing``: lengthscale 0.18 instead of 4.67, recall 0.26
        instead of 0.79).

        :param rows: the rows.
        :param num_classes: K.
        :param max_iterations: of L-BFGS, at most.
        """
        model = self.start(rows, num_classes)
        fit(model, max_iterations=max_iterations)
        model.data = rows
        return model

    def fitted_to_each(
        self, parts: Sequence[Rows], num_classes: int, max_iterations: int = 30
    ) -> list[ILRGPR]:
        """:meth:`fitted` for several sets of rows, with one trace for all.

        :param parts: the sets of rows.
        :param num_classes: K.
        :param max_iterations: of L-BFGS, at most.
        """
        models = [self.start(rows, num_classes) for rows in parts]
        traced = self.start(parts[0], num_classes)
        rows = [tf.Variable(x, shape=[None, *x.shape[1:]]) for x in traced.labelled_rows.tensors]

        def loss() -> tf.Tensor:
            return -traced.log_evidence_of(*map(tf.identity, rows))

        variables = traced.trainable_variables
        lbfgs = LBFGS(loss, variables)
        for model in models:
            for variable, values in zip(rows, model.labelled_rows.tensors, strict=True):
                variable.assign(values)
            _assign(traced, model)
            watch = Watch(variables, len, check_every=None, max_steps=max_iterations)
            watch.run(functools.partial(lbfgs.train, watch, max_iterations))
            _assign(model, traced)
        for model, data in zip(models, parts, strict=True):
            model.data = data
        return models


def _assign(model: ILRGPR, other: ILRGPR) -> None:
    for variable, value in zip(model.trainable_variables, other.trainable_variables, strict=True):
        variable.assign(value)


def ranked_settings(
    score: Callable[[Setting], np.ndarray],
    num_columns: int,
    scalings: Iterable[str],
    families: Iterable[str],
    is_over: Callable[[], bool],
) -> list[Setting]:
    """Those settings that were tried, the one with the smallest mean NLL of held-out labels first.

    A lengthscale for each column must be better by more than a standard error: where rows are few,
    so many parameters are often better by luck, and then worse on new rows.

    :param score: NLL of each held-out label with a setting, of the same rows for all.
    :param num_columns: D.
    :param scalings: names of scalings.
    :param families: names of families; scaling and lengthscales are chosen with the first.
    :param is_over: whether no more are to be tried.
    """
    nll: dict[Setting, np.ndarray] = {}

    def best_of(settings: Iterable[Setting]) -> Setting:
        tried = []
        for setting in settings:
            if nll and is_over():
                break
            if setting not in nll:
                nll[setting] = score(setting)
            tried.append(setting)
        return min(tried or nll, key=lambda setting: float(np.mean(nll[setting])))

    first, *others = families
    scalings = list(scalings)
    best = best_of(Setting(scaling, first, ard=False) for scaling in scalings)
    if num_columns > 1:
        # With one scale for all they would be those of standardised columns, in other units.
        each = best_of(Setting(s, first, ard=True) for s in scalings if s != ONE_SCALE)
        gain = nll[best] - nll[each]
        if np.mean(gain) > np.std(gain) / np.sqrt(len(gain)):
            best = each
    ard = {family: best.ard and family in FAMILIES for family in others}
    family = best_of([best, *(Setting(best.scaling, f, ard[f]) for f in others)])
    rest = sorted((s for s in nll if s != family), key=lambda s: float(np.mean(nll[s])))
    return [family, *rest]
