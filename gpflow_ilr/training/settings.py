"""Kernels to choose from, and an order to try them in.

A setting says how columns are scaled, of which family the kernel is, and whether every column has a
lengthscale of its own. The choices hardly depend on each other: scaling and lengthscales are chosen
with one family, then the family. So seven settings are tried instead of sixteen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import gpflow
import numpy as np
from gpflow.kernels import IsotropicStationary

from gpflow_ilr.inputs.scaling import SCALINGS
from gpflow_ilr.models import ILRGPR
from gpflow_ilr.starting import starting_kernel
from gpflow_ilr.training.fit import fit

__all__ = ["FAMILIES", "Setting", "best_setting"]

FAMILIES: dict[str, type[IsotropicStationary]] = {
    "Matern52": gpflow.kernels.Matern52,
    "SquaredExponential": gpflow.kernels.SquaredExponential,
    "Matern32": gpflow.kernels.Matern32,
    "RationalQuadratic": gpflow.kernels.RationalQuadratic,
}
"""Families of kernels, by name; scaling and lengthscales are chosen with the first."""


@dataclass(frozen=True)
class Setting:
    """How columns are scaled, and what kernel they get.

    :param scaling: a name among :data:`gpflow_ilr.inputs.scaling.SCALINGS`.
    :param family: a name among :data:`FAMILIES`.
    :param ard: a lengthscale for each column.
    """

    scaling: str
    family: str
    ard: bool

    def __str__(self) -> str:
        return f"{self.family}{' ARD' if self.ard else ''}, {self.scaling}"

    def fitted(
        self, X: np.ndarray, y: np.ndarray, num_classes: int, max_iterations: int = 30
    ) -> ILRGPR:
        """An exact model of some rows, with the kernel and the noise of the largest evidence.

        :param X: [n, D], scaled.
        :param y: class indices.
        :param num_classes: K.
        :param max_iterations: of L-BFGS, at most.
        """
        kernel = starting_kernel(X, num_classes, FAMILIES[self.family], self.ard)
        model = ILRGPR((X, y), kernel, num_classes=num_classes, noise="shared")
        fit(model, max_iterations=max_iterations)
        return model


def best_setting(
    score: Callable[[Setting], np.ndarray], num_columns: int, is_over: Callable[[], bool]
) -> Setting:
    """The setting with the smallest mean NLL of held-out labels of those that are tried.

    A lengthscale for each column must be better by more than a standard error: where rows are few,
    so many parameters are often better by luck, and then worse on new rows.

    :param score: NLL of each held-out label with a setting, of the same rows for all.
    :param num_columns: D.
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

    first, *others = FAMILIES
    best = best_of(Setting(scaling, first, ard=False) for scaling in SCALINGS)
    if num_columns > 1:
        each = best_of(Setting(scaling, first, ard=True) for scaling in SCALINGS)
        gain = nll[best] - nll[each]
        if np.mean(gain) > np.std(gain) / np.sqrt(len(gain)):
            best = each
    return best_of([best, *(replace(best, family=family) for family in others)])
