"""One training for all models, with the best parameters kept whatever ends it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

from gpflow_ilr.inputs.archives import check_checkpoint
from gpflow_ilr.inputs.counts import check_seed
from gpflow_ilr.inputs.model_parts import check_float, check_function, check_model
from gpflow_ilr.inputs.rows import LabelledData
from gpflow_ilr.training.checkpoint import Checkpoint
from gpflow_ilr.training.held_out import HeldOut
from gpflow_ilr.training.lbfgs import LBFGS
from gpflow_ilr.training.losses import Loss, training_loss
from gpflow_ilr.training.methods import Method, check_lengths, check_limits, chosen_method
from gpflow_ilr.training.progress import progress_bar
from gpflow_ilr.training.result import Fit
from gpflow_ilr.training.steps import Steps, take_steps
from gpflow_ilr.training.watch import Observer, Watch

__all__ = ["fit"]

_ROUNDS = 5
"""Times that a model is trained on with other neighbours, at most."""


def fit(
    model: GPModel,
    data: LabelledData | tf.data.Dataset | None = None,
    *,
    method: Method = "auto",
    variables: Sequence[tf.Variable] | None = None,
    max_iterations: int = 1000,
    batch_size: int | None = None,
    learning_rate: float = 0.01,
    natural_step: float = 0.1,
    validation: LabelledData | None = None,
    check_every: int = 10,
    patience: int = 10,
    max_seconds: float | None = None,
    callback: Callable[[int, float], Any] | None = None,
    monitor: Callable[[int], Any] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 10.0,
    seed: int = 0,
    compile: bool = True,  # noqa: A002 - GPflow's name
) -> Fit:
    """Minimise the model's training loss; afterwards the model has the best parameters.

    L-BFGS is GPflow's; natural gradients are taken for q(u), with steps of Adam for all else. By
    default minibatches are trained on by natural gradients (Adam if the model has no full q(u)), all
    rows by L-BFGS.

    The best parameters are those with the smallest criterion: the NLL of ``validation`` rows where
    there are some, looked at every ``check_every`` steps; else the training loss, of L-BFGS at every
    evaluation, of Adam and natural gradients at the same looks. Of minibatches it is the mean of the
    last ``check_every`` losses. A failure (a number that is not finite, a factorisation that fails) and
    Ctrl-C are warnings: the result says ``success=False`` and why.

    By L-BFGS, a nearest-neighbour model whose metric has changed is trained on with its new neighbours,
    up to five times.

    :param model: any model of GPflow or of this package.
    :param data: rows (X, y), or (X, y, weights), or a ``tf.data.Dataset`` of batches of them, which is
        repeated, for a model that has no rows of its own. For a nearest-neighbour model, rows that are
        predicted from all others; None for its own.
    :param method: ``"l-bfgs"``, ``"adam"``, ``"natural"``, or ``"auto"``, as above.
    :param variables: what to train; the model's trainable variables if None. By natural gradients,
        what Adam trains beside q(u).
    :param max_iterations: at most so many steps.
    :param batch_size: draw so many rows at each step; None for all.
    :param learning_rate: of Adam.
    :param natural_step: length of the natural-gradient steps, between 0 and 1.
    :param validation: held-out rows (X, y), or (X, y, weights).
    :param check_every: steps between looks.
    :param patience: stop after so many looks without a smaller NLL of the validation rows.
    :param max_seconds: stop at the first step after so many; None for no limit.
    :param callback: called with the number and the loss of each step; StopIteration ends training.
    :param monitor: a ``gpflow.monitor.Monitor``, or whatever else is called with a step's number.
    :param progress: show a progress bar (needs tqdm).
    :param checkpoint: a file for a training that may be killed. The best parameters so far are written
        to it now and then and at the end, atomically, and a later call with this file begins from
        them, as ``resumed`` of the result says. Steps, seconds and patience are counted anew, and
        Adam's moments and L-BFGS's curvature found anew; of minibatches without ``validation``, what
        is best is sought from there on. Whether ``data`` are the same is not looked at. Remove the
        file to begin anew.
    :param checkpoint_every: seconds between two writings, at least.
    :param seed: of the rows that ``batch_size`` draws.
    :param compile: compile loss and gradient with ``tf.function``.
    :raises ValueError: if an argument does not fit the model or the others, or the checkpoint is of
        another model or no checkpoint.
    :raises OSError: if the checkpoint cannot be written; the model then has the best parameters, too.
    :raises tf.errors.InvalidArgumentError: if the loss fails where training starts.
    """
    check_model(model)
    check_float(model)
    check_limits(max_iterations, check_every, patience, max_seconds)
    checkpoint = check_checkpoint(checkpoint, checkpoint_every)
    check_lengths(natural_step, learning_rate)
    check_seed(seed)
    check_function("callback", callback, "a function of step and loss")
    check_function("monitor", monitor, "a gpflow.monitor.Monitor")
    loss = training_loss(model, data, batch_size, seed, compile)
    method = chosen_method(method, model, loss.has_minibatches)
    q = (model.q_mu, model.q_sqrt) if method == "natural" else None
    in_q = [p.unconstrained_variable for p in q or ()]
    if variables is None:
        variables = [v for v in model.trainable_variables if all(v is not x for x in in_q)]
    elif not isinstance(variables, Iterable) or not all(
        isinstance(variable, tf.Variable) for variable in variables
    ):
        raise TypeError(
            f"variables must be a sequence of tf.Variable, but is {variables!r}. Pass, for example, "
            "model.kernel.trainable_variables."
        )
    if not (variables or q):
        raise ValueError(
            f"variables has nothing to train: {type(model).__name__} needs at least one."
        )
    keep = None
    if checkpoint is not None:
        keep = Checkpoint(checkpoint, checkpoint_every, model, [*variables, *in_q])
    resumed = keep is not None and keep.restore()
    held_out = None if validation is None else HeldOut(model, validation, compile)
    by_evaluation = held_out is None and method == "l-bfgs"
    with ExitStack() as stack:
        observers: list[Observer] = [] if keep is None else [keep]
        if progress:
            bar = progress_bar(max_iterations, type(model).__name__, held_out is not None)
            observers.append(stack.enter_context(bar))
        if callback is not None:
            observers.append(lambda watch: callback(watch.num_steps, watch.losses[-1]))
        if monitor is not None:
            observers.append(lambda watch: monitor(watch.num_steps))
        watch = Watch(
            [*variables, *in_q],
            _criterion(loss, held_out, check_every, compile),
            check_every=None if by_evaluation else check_every,
            max_steps=max_iterations,
            patience=None if held_out is None else patience,
            max_seconds=max_seconds,
            observers=observers,
        )

        def train() -> tuple[bool, str]:
            if method != "l-bfgs":
                whole = compile and loss.fits_in_graph
                steps = Steps(loss.closure, variables, learning_rate, q, natural_step, whole)
                return take_steps(steps, watch, max_iterations)
            is_stale = getattr(model, "has_stale_neighbours", lambda: False)
            closure, rounds = loss.closure, []

            def present() -> float:
                """The loss of neighbours that are sought anew, once: not worth a trace."""
                return float(training_loss(model, data, batch_size, seed, compile=False).closure())

            for _ in range(_ROUNDS):
                lbfgs = LBFGS(closure, variables, compile)
                ending = lbfgs.train(watch, max_iterations, by_loss=by_evaluation)
                if by_evaluation:
                    watch.restore()
                if not is_stale():
                    rounds.append(watch.best)
                    break
                closure = training_loss(model, data, batch_size, seed, compile).closure
                rounds.append(watch.best._replace(value=present()))
            if (
                by_evaluation
            ):  # losses of different neighbours do not compare: these are of their own
                watch.best = min(rounds, key=lambda best: best.value)
                watch.restore()
                if is_stale():
                    present()
            return ending

        success, message, failed = watch.run(train)
        if keep is not None:
            keep.write(watch)
    if failed:
        _warn(message, watch, "held-out NLL" if held_out is not None else "loss")
    looks = [] if held_out is None else watch.looks
    return Fit(
        method=method,
        success=success,
        message=message,
        fun=watch.best.value,
        best_step=watch.best.step,
        losses=np.array(watch.losses),
        validation=looks,
        seconds=watch.seconds,
        resumed=resumed,
    )


def _criterion(
    loss: Loss,
    held_out: HeldOut | None,
    check_every: int,
    compile: bool,  # noqa: A002
) -> Callable[[list[float]], float]:
    """What judges a state, given the losses so far."""
    if held_out is not None:
        return lambda _: held_out.nll()
    if loss.has_minibatches:
        return lambda losses: float(np.mean(losses[-check_every:])) if losses else np.inf
    whole = compile and loss.fits_in_graph
    value = tf.function(loss.closure, autograph=False) if whole else loss.closure
    return lambda _: float(value())


def _warn(reason: str, watch: Watch, what: str) -> None:
    kept = (
        "the parameters it began with"
        if watch.best.step == 0
        else f"the best parameters of {watch.num_steps} steps, those of step {watch.best.step} "
        f"({what} {watch.best.value:.6g})"
    )
    warnings.warn(
        f"Training stopped early: {reason.rstrip('.')}. The model has {kept}.",
        RuntimeWarning,
        stacklevel=3,
    )
