"""The smoothing λ of a fitted classifier: set by hand, or chosen by held-out labels.

λ scales the latent at prediction and nothing else, so it can change after training; for hard labels
setting it equals retraining at that value. :func:`calibrate` is given a model that predicts rows it
has not seen (:class:`Calibratable`) and is a method of every such model by one line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from gpflow_ilr.calibration.criterion import Marginals, MeanNLL
from gpflow_ilr.calibration.result import Calibration
from gpflow_ilr.calibration.search import (
    NOISE_FACTOR,
    choose_neighbours,
    choose_noise,
    choose_sharpness,
    noise_at_limit,
    sharpness_at_limit,
)
from gpflow_ilr.codes import ILRCode
from gpflow_ilr.inputs.model_parts import check_float
from gpflow_ilr.inputs.rows import LabelledData, LabelledRows, check_data

__all__ = ["Calibratable", "calibrate", "smoothing"]

_SOFT_ROUNDS = 20
_FEW_ROWS = 1024


class Calibratable(Protocol):
    """What calibration needs of a model."""

    kernel: Any
    mean_function: Any

    @property
    def code(self) -> Any:
        """The label code."""
        ...

    @property
    def num_columns(self) -> int | None:
        """D, where it is known."""
        ...

    @property
    def has_soft_labels(self) -> bool:
        """Whether predictions depend on λ through the training targets, too."""
        ...

    def held_out(
        self, data: LabelledRows | None, trained_on: bool, max_rows: int | None
    ) -> Marginals:
        """Predictions for rows that have not been seen, in the code's units, with their labels."""
        ...


def _get_smoothing(self: Calibratable) -> float:
    return _ilr_code(self).smoothing


def _set_smoothing(self: Calibratable, value: float) -> None:
    _ilr_code(self).smoothing = value


smoothing = property(
    _get_smoothing,
    _set_smoothing,
    doc="λ. For hard labels, setting it after training equals retraining at that value.",
)


def calibrate(
    self: Calibratable,
    data: LabelledData | None = None,
    *,
    trained_on: bool = False,
    noise: bool = False,
    neighbours: bool = False,
    max_rows: int | None = 2048,
) -> Calibration:
    """Set the smoothing λ to the value with the smallest NLL of held-out labels.

    Without ``data`` the held-out predictions are closed-form leave-one-out predictions of the
    training rows, so no validation set is needed. Call it after training: one fit serves all λ.
    Print what it returns: it says when the promise cannot be trusted.

    :param data: validation rows (X, y), or (X, y, weights), to use instead of leave-one-out. A model
        that keeps no rows (``CodeSVGP``) needs some.
    :param trained_on: for a model that keeps no rows: ``data`` are training rows, so predict each
        without itself. Soft ones are coded with λ, and q wants training again afterwards.
    :param noise: choose the noise ratio σ²/L² by the same criterion, below Proposition 1's
        value or above it. Where less noise is as good, to 0.001 nats, the most is taken that is.
        Needs leave-one-out and a noise that is ``"fixed"`` or ``"shared"``.
        With soft labels noise and λ take turns, and what they reach depends on the start.
    :param neighbours: choose the number of neighbours by the same criterion, together with the noise
        where that is chosen. For nearest-neighbour models.
    :param max_rows: at most this many evenly spaced training rows enter the criterion (all of
        them stay in the posterior); None for all. Rows that are inducing inputs do not enter it.
    :raises TypeError: if the model's code has no smoothing.
    :raises ValueError: if something is asked for that the model cannot do.
    """
    code = _ilr_code(self)
    check_float(self)
    if noise:
        _check_noise_can_be_chosen(self, data)
    if neighbours:
        _check_neighbours_can_be_chosen(self, data)
    checked = None
    if data is not None:
        checked = check_data(data, code.num_classes, self.num_columns)

    def predict() -> Marginals:
        return self.held_out(checked, trained_on, max_rows)

    soft = self.has_soft_labels
    held_out = predict()
    nll = _FollowingNLL(code, predict) if soft else MeanNLL(held_out, code.link)
    noise_before = float(tf.reduce_mean(code.noise_variance))
    before = after = nll(code.scale)
    flat = False
    # With soft labels the noise is chosen for the present λ, so the two take turns.
    for _ in range(_SOFT_ROUNDS if soft and (noise or neighbours) else 1):
        present = [(variable, variable.numpy()) for variable in code.variables]
        present_count = getattr(self, "num_neighbours", None)
        if noise:
            reached, flat = _set_noise(self, max_rows)
        sharpness_is_best = noise and not soft
        if neighbours and _set_neighbours(self, max_rows):
            if noise:  # which was chosen for another number, and is not far away: few rows will do
                _, flat = _set_noise(self, min(max_rows or _FEW_ROWS, _FEW_ROWS), factor=10.0)
            if not soft:
                nll = MeanNLL(predict(), code.link)
            sharpness_is_best = False
        if not sharpness_is_best:
            sharpness, reached = choose_sharpness(nll)
            code.sharpness.assign(sharpness)
        if not reached < after:
            for variable, value in present:
                variable.assign(value)
            if neighbours:
                self.num_neighbours = present_count  # type: ignore[attr-defined]
            break
        after = reached
    chosen = float(tf.reduce_mean(code.noise_variance))
    seen = data is None or trained_on
    return Calibration(
        smoothing=code.smoothing,
        nll_before=before,
        nll_after=after,
        noise_variance=chosen,
        num_rows=int(held_out.mean.shape[0]),
        leave_one_out=seen,
        num_training_rows=getattr(self, "num_data", None) or int(held_out.mean.shape[0]),
        num_hyperparameters=_num_hyperparameters(self),
        num_neighbours=getattr(self, "num_neighbours", None),
        smoothing_at_limit=sharpness_at_limit(float(code.scale), code.num_classes),
        noise_at_limit=noise and not flat and noise_at_limit(chosen, noise_before),
        noise_is_flat=flat,
    )


def _ilr_code(model: Calibratable) -> ILRCode:
    code = getattr(model, "code", None)
    if not isinstance(code, ILRCode):
        raise TypeError(
            f"The smoothing λ is that of an ILRCode, but the code of this model, of type "
            f"{type(model).__name__}, is a {type(code).__name__}. Use an ILRGPR, ILRSGPR, ILRNNGPR, or "
            "a CodeSVGP with an ILRCode."
        )
    return code


def _set_noise(
    model: Any, max_rows: int | None, factor: float = NOISE_FACTOR
) -> tuple[float, bool]:
    """Set the noise and L; the NLL that they promise as now coded, and whether less is as good."""
    code = model.code
    old = float(code.noise_variance[0, 0])
    at_noise = model.loo_at_noise(model.spread_rows(max_rows))
    new = choose_noise(at_noise, code.link, old, factor)
    code.rescale_noise(new.noise / old)
    code.sharpness.assign(new.sharpness)
    return new.nll, new.flat


def _set_neighbours(model: Any, max_rows: int | None) -> bool:
    """Set the number of neighbours; whether it is another than before."""
    old, rows = model.num_neighbours, model.spread_rows(max_rows)
    chosen = choose_neighbours(
        lambda counts: model.loo_at_counts(rows, counts), model.code.link, model.num_data, old
    )
    if chosen == min(old, max(1, model.num_data - 1)):  # all rows stay all, however many come
        return False
    model.num_neighbours = chosen
    return True


def _check_neighbours_can_be_chosen(model: Any, data: LabelledData | None) -> None:
    if not hasattr(model, "loo_at_counts"):
        raise ValueError(
            f"calibrate(neighbours=True) is for nearest-neighbour models, but this is a "
            f"{type(model).__name__}. Leave neighbours out, or build an ILRNNGPR."
        )
    if data is not None:
        raise ValueError(
            "calibrate(neighbours=True) uses leave-one-out and takes no data. Call calibrate("
            "neighbours=True) first, then calibrate(data) for the smoothing if you want it so."
        )


def _check_noise_can_be_chosen(model: Any, data: LabelledData | None) -> None:
    if not hasattr(model, "loo_at_noise"):
        raise ValueError(
            f"A {type(model).__name__} cannot choose its noise after training: its q(u) was trained "
            "at the present one. Choose it in an ILRSGPR, or give the code a noise_variance."
        )
    if data is not None:
        raise ValueError(
            "calibrate(noise=True) uses leave-one-out and takes no data. Call calibrate("
            "noise=True) first, then calibrate(data) for the smoothing if you want it so."
        )
    if model.code.depends_on_class or model.code.depends_on_output:
        raise ValueError(
            f"calibrate(noise=True) needs one noise for all outputs, but noise="
            f"{model.code.noise!r}. Use noise='fixed' or 'shared'."
        )
    if len(model.output_spans) > 1:
        raise ValueError(
            "calibrate(noise=True) needs one kernel and one set of inducing inputs for all "
            "outputs. Give the constructor a noise_variance instead."
        )


def _num_hyperparameters(model: Any) -> int:
    """How many numbers were trained on the rows that are left out, and are kept while they are.

    Inducing inputs count where leave-one-out itself trained them; the evidence's bound cannot
    over-fit by them.
    """
    modules = [model.kernel, model.mean_function, model.code]
    if getattr(model, "objective", "evidence") == "loo" and hasattr(model, "inducing_variable"):
        modules.append(model.inducing_variable)
    return sum(int(np.prod(v.shape)) for module in modules for v in module.trainable_variables)


class _FollowingNLL:
    """Mean NLL as a function of L where predictions follow L: soft targets are coded with it.

    What :class:`~gpflow_ilr.calibration.criterion.MeanNLL` is for hard labels, at one prediction for
    each L. The code is left at the L that was asked for last.

    :param code: the code of the soft labels.
    :param predict: predictions of held-out rows at the code's present L.
    """

    def __init__(self, code: ILRCode, predict: Callable[[], Marginals]) -> None:
        self._code, self._predict = code, predict

    def __call__(self, sharpness: float | tf.Tensor) -> float:
        self._code.sharpness.assign(sharpness)
        return MeanNLL(self._predict(), self._code.link)(sharpness)

    def at(self, sharpness: Sequence[float]) -> np.ndarray:
        return np.array([self(L) for L in sharpness])

    @property
    def num_classes(self) -> int:
        return self._code.num_classes

    def of_few_rows(self) -> _FollowingNLL:
        return self
