"""From a closed form on features to the exact likelihood, by natural gradients on features in memory.

The model that is trained stays in the units of the label code, with the sharpness L as the factor of a
mixing matrix L·I: so its kernel has the structure of the closed form's, and one number calibrates it.

Rows that have trained the network are further apart in its features than rows that have not, and say
less than they seem to. In the closed form a larger noise makes up for that; here each row counts as
w ≤ 1 rows, w Σ_n E_q[log π_y] − KL(q ‖ p), with w chosen by rows that the network has not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.utilities import deepcopy, set_trainable

from gpflow_ilr.calibration.criterion import Marginals, MeanNLL
from gpflow_ilr.calibration.search import choose_sharpness
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.heads.fixed_posterior import Snapshot, snapshot
from gpflow_ilr.inputs.counts import check_seed, number_or_nan
from gpflow_ilr.inputs.rows import LabelledRows, check_data
from gpflow_ilr.models import ILRSGPR, ILRSVGP
from gpflow_ilr.models.warm_start import variational_start
from gpflow_ilr.training.held_out import HeldOut
from gpflow_ilr.training.polish import Polish, hold_out_some, polish

__all__ = ["HeadPolish", "ROW_WEIGHTS", "polish_features", "polished_snapshot"]

ROW_WEIGHTS = (1.0, 0.3, 0.1)
"""What is tried for rows that may have trained the network."""


@dataclass(frozen=True)
class HeadPolish(Polish):
    """What ``ClosedFormHead.polish`` did; NLL, steps and reason are those of the best row weight.

    :param row_weight: how many rows each training row counted for, of the best try.
    :param gain_error: the standard error of what the held-out NLL gained.
    :param kept: whether the gain is larger than that; if not, the head stays in closed form.
    :param network_saw_rows: whether the held-out rows had trained the network.
    """

    row_weight: float
    gain_error: float
    kept: bool
    network_saw_rows: bool = False

    def __str__(self) -> str:
        gain = f"{self.nll_before - self.nll_after:.4f} ± {self.gain_error:.4f}"
        verdict = "kept" if self.kept else "given up: no more than chance may give"
        said = (
            f"{super().__str__()} Each row counts as {self.row_weight:g}. Gain {gain}: {verdict}."
        )
        if self.network_saw_rows:
            said += (
                "\nThe held-out rows have trained the network, which promises too much: pass "
                "validation=(X_val, y_val), rows that it has not seen."
            )
        return said


def polish_features(
    model: ILRSGPR,
    rows: LabelledRows,
    held_out: LabelledRows | None,
    num_data: int,
    nodes: NodeRule | None = None,
    row_weights: float | Sequence[float] = ROW_WEIGHTS,
    seed: int = 0,
    **options: Any,
) -> tuple[ILRSVGP | None, HeadPolish]:
    """The polished model, or None if held-out rows prefer the closed form, and what was done.

    :param model: the closed form; its inducing inputs are trained if they are trainable.
    :param rows: training rows, all of which count.
    :param held_out: rows that say when to stop, and choose the scale last; a tenth of ``rows`` if None,
        and the scale stays.
    :param num_data: number of rows of the closed form, whatever their weights.
    :param nodes: node rule of expectations.
    :param row_weights: what each row counts for; of several numbers held-out rows choose one.
    :param seed: of minibatches, and of the rows that are held out.
    :param options: other arguments of :func:`gpflow_ilr.training.polish`, for each of the weights.
    """
    weights, seed = _row_weights(row_weights), check_seed(seed)
    calibrated, training = held_out is not None, tuple(rows.tensors)
    if held_out is None:
        training, other = hold_out_some(training, seed)
        held_out = check_data(other, model.code.num_classes)
    tries = []
    for weight in weights:
        svgp = _in_code_units(model, max(1, round(weight * num_data)), nodes)
        judge = HeldOut(svgp, tuple(held_out.tensors), compile=False)
        before = judge.row_nll()
        done = polish(svgp, training, validation=tuple(held_out.tensors), seed=seed, **options)
        if calibrated and done.best_step:
            _rescale(svgp, held_out)
        gain, error = _mean_and_error(before - judge.row_nll(), judge.weights)
        found = vars(done) | {"nll_after": done.nll_before - gain}
        result = HeadPolish(**found, row_weight=weight, gain_error=error, kept=gain > error)
        tries.append((svgp, result))
    best, result = min(tries, key=lambda found: found[1].nll_after)
    result = replace(result, seconds=sum(each.seconds for _, each in tries))
    return best if result.kept else None, result


def polished_snapshot(svgp: ILRSVGP) -> Snapshot:
    """What predictions need of a polished model: its mixing matrix is a multiple of the identity.

    :param svgp: what :func:`polish_features` returned.
    """
    taken = snapshot(svgp)
    assert taken.mixing is not None
    return taken._replace(scale=tf.convert_to_tensor(taken.mixing)[0, 0], mixing=None)


def _row_weights(given: float | Sequence[float]) -> tuple[float, ...]:
    """One weight, or several, as they are tried."""
    weights = tuple(given) if isinstance(given, (Sequence, np.ndarray)) else (given,)
    if not weights or not all(0.0 < number_or_nan(weight) <= 1.0 for weight in weights):
        raise ValueError(
            f"row_weights must be a number above 0 and at most 1, or several, but it is {given!r}. "
            "Pass 1.0 where the network has not seen the rows."
        )
    return tuple(float(weight) for weight in weights)


def _in_code_units(model: ILRSGPR, num_data: int, nodes: NodeRule | None) -> ILRSVGP:
    """The uncollapsed model that predicts as the closed form does."""
    K, scale = model.code.num_classes, float(model.code.scale)
    svgp = ILRSVGP(
        **{**variational_start(model, 1.0), "kernel": deepcopy(model.kernel)},
        num_classes=K,
        mixing=scale * np.eye(K - 1),
        num_data=num_data,
        nodes=nodes,
    )
    set_trainable(svgp.likelihood.W, False)
    return svgp


def _rescale(svgp: ILRSVGP, held_out: LabelledRows) -> None:
    """The scale of the latents that held-out rows prefer."""
    latents = Marginals.of(held_out, *svgp.predict_f(held_out.X))
    nll = MeanNLL(latents, svgp.likelihood.link)
    factor, smallest = choose_sharpness(nll)
    if smallest < nll(1.0):
        svgp.likelihood.W.assign(factor * svgp.likelihood.W)


def _mean_and_error(values: np.ndarray, weights: np.ndarray | None) -> tuple[float, float]:
    """Mean of values [N] whose rows count as often as weights say, and its standard error."""
    shares = np.full(len(values), 1.0) if weights is None else weights
    shares = shares / np.sum(shares)
    mean = np.sum(shares * values)
    return float(mean), float(np.sqrt(np.sum(np.square(shares * (values - mean)))))
