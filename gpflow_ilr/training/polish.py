"""From the closed form on: natural gradients with the exact likelihood.

Least squares on pseudo-targets is the wrong likelihood where classes overlap: it punishes rows that
are too right. The collapsed fit is then the start of an uncollapsed model
(:meth:`gpflow_ilr.ILRSVGP.from_collapsed`). Minibatches give a natural gradient for q(u), whose length
needs no tuning because it is measured in q's own geometry, and Adam's steps for everything else.
Held-out rows say when to stop, and which of the states that were passed is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.models import SVGP

from gpflow_ilr.inputs.counts import check_count, check_seed
from gpflow_ilr.inputs.model_parts import check_function
from gpflow_ilr.inputs.rows import LabelledData
from gpflow_ilr.training.held_out import HeldOut
from gpflow_ilr.training.labelled_rows import labelled_rows
from gpflow_ilr.training.losses import minibatch_loss
from gpflow_ilr.training.methods import check_lengths, check_limits
from gpflow_ilr.training.steps import NaturalSteps, take_steps
from gpflow_ilr.training.watch import Watch

__all__ = ["NaturalSteps", "Polish", "hold_out_some", "minibatch_loss", "polish"]

_HELD_OUT_SHARE = 0.1


@dataclass(frozen=True)
class Polish:
    """What :func:`polish` did.

    :param nll_before: NLL of the held-out labels at the start, in nats per row.
    :param nll_after: NLL of the held-out labels with the state that was kept.
    :param num_steps: steps that were taken.
    :param best_step: the step whose state was kept; 0 is the start.
    :param seconds: what it took.
    :param reason: why it ended.
    """

    nll_before: float
    nll_after: float
    num_steps: int
    best_step: int
    seconds: float
    reason: str

    def __str__(self) -> str:
        return (
            f"Held-out NLL {self.nll_before:.4f} → {self.nll_after:.4f}, after {self.best_step} of "
            f"{self.num_steps} steps in {self.seconds:.1f} s: {self.reason}."
        )


def polish(
    model: SVGP,
    data: LabelledData | None = None,
    *,
    validation: LabelledData | None = None,
    loss: Callable[[], tf.Tensor] | None = None,
    batch_size: int = 1024,
    max_steps: int = 500,
    max_seconds: float | None = None,
    natural_step: float = 0.1,
    learning_rate: float = 0.01,
    check_every: int = 25,
    patience: int = 6,
    seed: int = 0,
    report: Callable[[int, float], Any] | None = None,
) -> Polish:
    """Train an uncollapsed model by natural gradients; it ends with the best state it has passed.

    That is never worse than the start, by the NLL of the held-out labels. A step that fails
    numerically is taken back, and those that follow are half as long.

    :param model: an ``ILRSVGP`` (best from ``ILRSVGP.from_collapsed``), or any SVGP of labels.
    :param data: training rows (X, y).
    :param validation: rows (X, y) that are held out; a tenth of ``data`` if None, drawn by ``seed``.
    :param loss: the training loss of the next minibatch at each call, instead of ``data``: from a
        pipeline (``model.training_loss_closure(iterator, compile=False)``) or from all workers
        (:func:`gpflow_ilr.distributed.training_loss_closure`). Needs ``validation``.
    :param batch_size: rows of a minibatch; all rows where there are fewer.
    :param max_steps: at most so many steps.
    :param max_seconds: stop at the first step after so many; None for no limit.
    :param natural_step: length of the natural-gradient steps, between 0 and 1.
    :param learning_rate: of Adam, for the kernel and whatever else is trainable beside q(u).
    :param check_every: steps between looks at the held-out rows.
    :param patience: stop after so many looks without a smaller NLL.
    :param seed: of the minibatches and of the split.
    :param report: called with the step and the held-out NLL at each look.
    :raises ValueError: if rows are missing, or an option is out of its range.
    """
    if not isinstance(model, SVGP):
        raise TypeError(
            f"model must be an SVGP, but is of type {type(model).__name__}. Pass an ILRSVGP, best from "
            "ILRSVGP.from_collapsed(model)."
        )
    check_count("batch_size", batch_size)
    check_count("max_steps", max_steps)
    check_limits(max_steps, check_every, patience, max_seconds)
    check_lengths(natural_step, learning_rate)
    check_seed(seed)
    check_function("loss", loss, "model.training_loss_closure(iterator, compile=False)")
    check_function("report", report, "a function of step and NLL")
    if loss is None:
        if data is None:
            raise ValueError("polish needs data, training rows (X, y), or a loss.")
        rows = labelled_rows(model, data)
        if validation is None:
            rows, validation = hold_out_some(rows, seed)
        loss = minibatch_loss(model, rows, batch_size, seed)
    elif data is not None:
        raise ValueError("loss already has its rows: leave out data.")
    elif validation is None:
        raise ValueError("With a loss of your own, polish needs validation rows (X, y).")
    held_out = HeldOut(model, validation)

    def tell(watch: Watch) -> None:
        if report is not None and watch.looks[-1][0] == watch.num_steps:
            report(*watch.looks[-1])

    watch = Watch(
        model.trainable_variables,
        lambda _: held_out.nll(),
        check_every=check_every,
        max_steps=max_steps,
        patience=patience,
        max_seconds=max_seconds,
        observers=[tell],
    )
    steps = NaturalSteps(model, loss, natural_step, learning_rate)
    _, reason, _ = watch.run(lambda: take_steps(steps, watch, max_steps, recover=True))
    return Polish(
        nll_before=watch.looks[0][1],
        nll_after=watch.best.value,
        num_steps=watch.num_steps,
        best_step=watch.best.step,
        seconds=watch.seconds,
        reason=reason,
    )


def hold_out_some(rows: LabelledData, seed: int) -> tuple[LabelledData, LabelledData]:
    """Rows to train on, and a tenth that is held out.

    :param rows: X, labels and, if rows do not count alike, weights.
    :param seed: of the draw.
    :raises ValueError: if there is one row only.
    """
    order = np.random.default_rng(seed).permutation(len(rows[0]))
    held_out = max(1, round(_HELD_OUT_SHARE * len(order)))
    if held_out == len(order):
        raise ValueError("data has one row: pass validation rows as well, or more data.")
    parts = [tuple(tf.gather(x, i) for x in rows) for i in np.split(order, [held_out])]
    return parts[1], parts[0]
