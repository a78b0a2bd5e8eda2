"""One call that chooses scaling, kernel and model by held-out labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, OutputData

from gpflow_ilr.inputs.counts import check_seed, number_or_nan
from gpflow_ilr.inputs.rows import as_rows, check_data
from gpflow_ilr.inputs.weights import as_weights
from gpflow_ilr.models import prediction_sets
from gpflow_ilr.models.svgp import ClassifierSVGP
from gpflow_ilr.training.few_rows import choose_for_few_rows
from gpflow_ilr.training.many_rows import choose_for_many_rows
from gpflow_ilr.training.report import Budget, Report

__all__ = ["FEW_ROWS", "AutoClassifier", "fit_auto"]

FEW_ROWS = 1500
"""Up to so many rows, models are judged by folds; above, by rows outside a sample."""


class AutoClassifier(tf.Module):
    """What :func:`fit_auto` returns: a classifier of raw rows, and what was tried.

    :param classifier: a scaling and a model, or a mixture of two such.
    :param report: what was tried, and what it promised.
    :param unit_weight: the weight with which a row counts once.
    """

    predict_set = prediction_sets.predict_set

    def __init__(self, classifier: Any, report: Report, unit_weight: float = 1.0) -> None:
        super().__init__()
        self.classifier, self.report, self.unit_weight = classifier, report, unit_weight
        self._posterior: Any = None

    @property
    def updatable(self) -> bool:
        """Whether it can take in rows: those that natural gradients have trained cannot."""
        return not any(isinstance(module, ClassifierSVGP) for module in self.submodules)

    def update(
        self,
        X_new: InputData,
        y_new: OutputData,
        *,
        sample_weight: Any = None,
        num_classes: int | None = None,
    ) -> None:
        """Add rows, and classes that appear later: scaling, kernel, noise and sharpness stay.

        :param X_new: [n, D], raw.
        :param y_new: class indices.
        :param sample_weight: [n], in the units of those of the fit; None for ``unit_weight``.
        :param num_classes: the number of classes from now on; None for as many as before.
        :raises TypeError: if natural gradients are in it: fit with ``updatable=True``.
        """
        if not self.updatable:
            raise TypeError(
                "This classifier has a model that was trained by natural gradients, which cannot take "
                "in rows. Fit it with fit_auto(..., updatable=True), which leaves those out."
            )
        if sample_weight is not None:
            num_rows = len(as_rows(X_new, name="X_new"))
            sample_weight = as_weights(sample_weight, num_rows, may_vanish=True)
            sample_weight = sample_weight / self.unit_weight
        options = {"sample_weight": sample_weight, "num_classes": num_classes}
        self.classifier.update(X_new, y_new, **options)
        self._posterior = None

    def predict_y(self, Xnew: InputData) -> MeanAndVariance:
        """Class probabilities and the variance of the one-hot label, [N, K] each.

        :param Xnew: [N, D], raw.
        """
        if self._posterior is None:
            self._posterior = self.classifier.posterior()
        return self._posterior.predict_y(Xnew)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_posterior": None}  # what can be computed again is not saved


def fit_auto(
    X: InputData,
    y: OutputData,
    *,
    num_classes: int,
    sample_weight: Any = None,
    updatable: bool = False,
    max_seconds: float = 120.0,
    max_bytes: float = 4e9,
    progress: bool = False,
    seed: int = 0,
) -> AutoClassifier:
    """Choose scaling, kernel and model by held-out labels, and fit them.

    Up to 1,500 rows everything is judged by folds, above by rows that the kernel has not seen. Tried
    are columns that are standardised, mapped to normal quantiles or, where they share a unit, divided
    by one scale; several families of kernels, with one lengthscale or one for each column; exact models
    or nearest neighbours; inducing inputs with natural gradients of the exact likelihood. Those that
    help are mixed. ``report`` of what is returned says what was tried, what it promised, and what it
    took.

    :param X: [N, D], raw: no need to scale them.
    :param y: class indices, [N] or [N, 1], or one-hot rows [N, K].
    :param num_classes: K.
    :param sample_weight: [N], how much each row counts in posteriors and in the NLL that chooses; the
        evidence, which finds kernels, counts each once. Only their ratios matter: on average a row
        counts once. Rows of weight zero are left out. None for alike.
    :param updatable: leave out models that cannot take in rows later (those trained by natural
        gradients), so that ``update`` works.
    :param max_seconds: after so many nothing more is tried. What is under way is finished: with
        very few seconds, one kernel is fitted all the same.
    :param max_bytes: for the largest matrix, of N × N numbers in the exact model.
    :param progress: print each trial as it is made.
    :param seed: of samples and folds.
    :raises ValueError: if X or y cannot be read, labels are soft, or an option is out of its range.
    """
    rows = check_data((X, y, sample_weight), num_classes)
    if rows.labels.shape.rank != 1:
        raise ValueError(
            "fit_auto needs one class for each row, but y has soft rows. Build an ILRGPR or ILRSGPR, "
            "which learn from soft labels."
        )
    if len(rows) < 2:
        raise ValueError(
            "X has one row (that counts): fit_auto holds rows out, and needs at least two."
        )
    for name, value in (("max_seconds", max_seconds), ("max_bytes", max_bytes)):
        if not number_or_nan(value) > 0:
            raise ValueError(f"{name} must be positive, but is {value!r}. Pass a number.")
    check_seed(seed)
    report, budget = Report(progress=progress), Budget(max_seconds, max_bytes)
    choose = choose_for_few_rows if len(rows) <= FEW_ROWS else choose_for_many_rows
    given, labels, *weights = (tensor.numpy() for tensor in rows.tensors)
    unit = float(np.mean(weights[0])) if weights else 1.0
    relative = [w / unit for w in weights]
    arrays = (given, labels, *relative)
    classifier = choose(arrays, num_classes, budget, report, seed, updatable)
    report.seconds = budget.elapsed
    return AutoClassifier(classifier, report, unit)
