"""From the closed form on: natural gradients with the exact likelihood.

Least squares on pseudo-targets is the wrong likelihood where classes overlap: it punishes rows that
are too right. The collapsed fit is then the start of an uncollapsed model
(:meth:`gpflow_ilr.ILRSVGP.from_collapsed`). Minibatches give a natural gradient for q(u), whose length
needs no tuning because it is measured in q's own geometry, and Adam's steps for everything else.
Held-out rows say when to stop, and which of the states that were passed is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.config import default_float
from gpflow.models import SVGP
from gpflow.optimizers import NaturalGradient

from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.models.batches import as_batch

__all__ = ["NaturalSteps", "Polish", "minibatch_loss", "polish"]

_HELD_OUT_SHARE = 0.1
_LEAST_GAIN = 1e-4
_CHECK_ROWS = 4096


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
    data: RegressionData | None = None,
    *,
    validation: RegressionData | None = None,
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
    :param max_seconds: stop at the first check after so many; None for no limit.
    :param natural_step: length of the natural-gradient steps, between 0 and 1.
    :param learning_rate: of Adam, for the kernel and whatever else is trainable beside q(u).
    :param check_every: steps between looks at the held-out rows.
    :param patience: stop after so many looks without a smaller NLL.
    :param seed: of the minibatches and of the split.
    :param report: called with the step and the held-out NLL at each look.
    :raises ValueError: if rows are missing, or an option is out of its range.
    """
    for name, value in (("batch_size", batch_size), ("max_steps", max_steps)):
        check_count(name, value)
    for name, value in (("check_every", check_every), ("patience", patience)):
        check_count(name, value)
    if not 0.0 < natural_step <= 1.0:
        raise ValueError(f"natural_step must be in (0, 1], but is {natural_step!r}.")
    if not learning_rate > 0.0:
        raise ValueError(f"learning_rate must be positive, but is {learning_rate!r}.")
    if loss is None:
        if data is None:
            raise ValueError("polish needs data, training rows (X, y), or a loss.")
        rows = as_batch(data)
        if validation is None:
            rows, validation = _split(rows, seed)
        loss = minibatch_loss(model, rows, batch_size, seed)
    elif data is not None:
        raise ValueError("loss already has its rows: leave out data.")
    elif validation is None:
        raise ValueError("With a loss of your own, polish needs validation rows (X, y).")
    run = _Run(model, loss, validation, natural_step, learning_rate)
    return run.until(max_steps, max_seconds, check_every, patience, report)


class NaturalSteps:
    """Compiled steps: a natural gradient of q(u), then one of Adam's for all else that is trainable.

    :param model: the model.
    :param loss: its training loss, of another minibatch at each call.
    :param natural_step: length of the natural-gradient steps.
    :param learning_rate: of Adam.
    """

    def __init__(
        self,
        model: SVGP,
        loss: Callable[[], tf.Tensor],
        natural_step: float = 0.1,
        learning_rate: float = 0.01,
    ) -> None:
        self._length = tf.Variable(natural_step, trainable=False, dtype=default_float())
        q = {id(p.unconstrained_variable) for p in (model.q_mu, model.q_sqrt)}
        others = [v for v in model.trainable_variables if id(v) not in q]
        natural = NaturalGradient(self._length)
        self._adam = gpflow.keras.tf_keras.optimizers.Adam(learning_rate)

        def step() -> None:
            natural.minimize(loss, [(model.q_mu, model.q_sqrt)])
            if others:
                self._adam.minimize(loss, others)

        self._step = tf.function(step, autograph=False)

    def take(self, num_steps: int) -> bool:
        """Go on; whether no step has failed numerically, which leaves the model anywhere.

        :param num_steps: so far.
        """
        try:
            for _ in range(num_steps):
                self._step()
        except tf.errors.InvalidArgumentError:
            return False
        return True

    def shorten(self) -> None:
        """Halve the natural-gradient steps."""
        self._length.assign(0.5 * self._length)

    def restart(self) -> None:
        """Forget Adam's moments: the variables have been set to something else."""
        for variable in self._adam.variables:
            if "learning_rate" not in variable.name:
                variable.assign(tf.zeros_like(variable))


class _Run:
    """A training that remembers its best state."""

    def __init__(
        self,
        model: SVGP,
        loss: Callable[[], tf.Tensor],
        validation: RegressionData,
        natural_step: float,
        learning_rate: float,
    ) -> None:
        self.validation = as_batch(validation)
        self.variables = list(model.trainable_variables)
        self.steps = NaturalSteps(model, loss, natural_step, learning_rate)

        @tf.function(autograph=False, reduce_retracing=True)
        def log_density(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(model.predict_log_density((X, Y)))

        self.log_density = log_density
        self.best: Sequence[np.ndarray] = [v.numpy() for v in self.variables]
        self.smallest = self.first = self.nll()

    def nll(self) -> float:
        """Mean NLL of the held-out labels."""
        X, Y = self.validation
        blocks = range(0, len(X), _CHECK_ROWS)
        total = sum(
            float(self.log_density(X[i : i + _CHECK_ROWS], Y[i : i + _CHECK_ROWS])) for i in blocks
        )
        return -total / len(X)

    def restore(self) -> None:
        for variable, value in zip(self.variables, self.best, strict=True):
            variable.assign(value)

    def until(
        self,
        max_steps: int,
        max_seconds: float | None,
        check_every: int,
        patience: int,
        report: Callable[[int, float], Any] | None,
    ) -> Polish:
        start = time.perf_counter()
        step = best_step = looks = 0
        reason = "all steps were taken"
        try:
            while step < max_steps:
                nll = self._go_on(min(check_every, max_steps - step))
                step += min(check_every, max_steps - step)
                if report is not None:
                    report(step, nll)
                looks = 0 if nll < self.smallest - _LEAST_GAIN else looks + 1
                if nll < self.smallest:
                    self.smallest, best_step = nll, step
                    self.best = [v.numpy() for v in self.variables]
                elif not np.isfinite(nll):
                    self.restore()
                    self.steps.shorten()
                if looks == patience:
                    reason = f"no gain in {patience} looks"
                    break
                if max_seconds is not None and time.perf_counter() - start > max_seconds:
                    reason = f"{max_seconds:g} seconds were over"
                    break
        except KeyboardInterrupt:
            reason = "it was interrupted"
        self.restore()
        seconds = time.perf_counter() - start
        return Polish(self.first, self.smallest, step, best_step, seconds, reason)

    def _go_on(self, num_steps: int) -> float:
        """The held-out NLL after some steps; NaN where one has failed."""
        try:
            return self.nll() if self.steps.take(num_steps) else np.nan
        except tf.errors.InvalidArgumentError:
            return np.nan


def _split(rows: RegressionData, seed: int) -> tuple[RegressionData, RegressionData]:
    """Rows to train on, and a tenth that is held out."""
    order = np.random.default_rng(seed).permutation(len(rows[0]))
    held_out = max(1, round(_HELD_OUT_SHARE * len(order)))
    if held_out == len(order):
        raise ValueError("data has one row: pass validation rows as well, or more data.")
    parts = [tuple(tf.gather(x, i) for x in rows) for i in np.split(order, [held_out])]
    return parts[1], parts[0]


def minibatch_loss(
    model: SVGP, rows: RegressionData, batch_size: int, seed: int
) -> Callable[[], tf.Tensor]:
    """The training loss of rows that are drawn anew at each call, or of all where they are few.

    :param model: the model.
    :param rows: X [N, D] and labels with a last axis.
    :param batch_size: how many are drawn.
    :param seed: of the draws.
    """
    num_rows = len(rows[0])
    if num_rows <= batch_size:
        return lambda: model.training_loss(rows)
    generator = tf.random.Generator.from_seed(seed)

    def loss() -> tf.Tensor:
        drawn = generator.uniform([batch_size], maxval=num_rows, dtype=tf.int32)
        return model.training_loss(tuple(tf.gather(x, drawn) for x in rows))

    return loss
