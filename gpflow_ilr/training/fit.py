"""Training by L-BFGS, with the best parameters kept whatever happens."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import GPModel
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from gpflow.optimizers import Scipy
from scipy.optimize import OptimizeResult

from gpflow_ilr.inputs.counts import check_count

__all__ = ["fit"]

_ROUNDS = 5
"""Times that a model is trained on with other neighbours, at most."""


def fit(
    model: GPModel,
    data: RegressionData | None = None,
    *,
    variables: Sequence[tf.Variable] | None = None,
    max_iterations: int = 1000,
    compile: bool = True,  # noqa: A002 - GPflow's name
) -> OptimizeResult:
    """Minimise the model's training loss by L-BFGS; afterwards the model has the best parameters.

    ``gpflow.optimizers.Scipy`` leaves the parameters that it tried last where the loss raises an error
    (a factorisation that fails in a line search). Here such an end is a warning, and so is Ctrl-C: the
    model has the parameters with the smallest loss of all that were tried, and the result says
    ``success=False`` and why. A nearest-neighbour model whose metric has changed by training is trained
    on with its new neighbours.

    :param model: any model of GPflow or of this package.
    :param data: (X, y), for a model that has no data of its own; for a nearest-neighbour model some of
        its rows, which are predicted from all others.
    :param variables: what to train; the model's trainable variables if None.
    :param max_iterations: at most so many steps.
    :param compile: compile loss and gradient with ``tf.function``.
    :returns: SciPy's result, with the smallest loss as ``fun``.
    :raises ValueError: if data are missing, or given to a model that has its own.
    :raises tf.errors.InvalidArgumentError: if the loss fails where training starts.
    """
    check_count("max_iterations", max_iterations)
    variables = tuple(model.trainable_variables if variables is None else variables)
    is_stale = getattr(model, "has_stale_neighbours", lambda: False)
    for _ in range(_ROUNDS):
        result = _minimised(_closure(model, data, compile), variables, max_iterations, compile)
        if result.status < 0 or not is_stale():
            break
    return result


def _minimised(
    closure: Callable[[], tf.Tensor],
    variables: Sequence[tf.Variable],
    max_iterations: int,
    compile: bool,  # noqa: A002 - GPflow's name
) -> OptimizeResult:
    """SciPy's result; the variables have the values with the smallest loss that was seen."""
    optimizer = _KeepsBest()
    try:
        result = optimizer.minimize(
            closure, variables, compile=compile, options={"maxiter": max_iterations}
        )
    except (tf.errors.InvalidArgumentError, KeyboardInterrupt) as error:
        if optimizer.best is None:  # nothing has been found that could be kept
            raise
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        result = OptimizeResult(success=False, status=-1, message=reason)
        warnings.warn(
            f"Training stopped early: {reason} The model has the best parameters of "
            f"{optimizer.num_evaluations} evaluations (loss {optimizer.smallest:.6g}).",
            RuntimeWarning,
            stacklevel=3,
        )
    if optimizer.best is not None:
        optimizer.assign_tensors(variables, optimizer.unpack_tensors(variables, optimizer.best))
        result.update(x=optimizer.best, fun=optimizer.smallest, nfev=optimizer.num_evaluations)
    return result


class _KeepsBest(Scipy):
    """GPflow's optimiser, which remembers the parameters with the smallest finite loss."""

    def __init__(self) -> None:
        super().__init__()
        self.best: np.ndarray | None = None
        self.smallest = np.inf
        self.num_evaluations = 0

    def eval_func(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """Value and gradient for SciPy, as GPflow makes them, and a memory of the best."""
        evaluate = super().eval_func(*arguments, **options)

        def remember(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            self.num_evaluations += 1
            loss, gradient = evaluate(x)
            if loss < self.smallest:  # which NaN is not
                self.best, self.smallest = x.copy(), float(loss)
            return loss, gradient

        return remember


def _closure(model: Any, data: RegressionData | None, compile: bool) -> Callable[[], tf.Tensor]:  # noqa: A002
    takes_data = "data" in inspect.signature(model.training_loss_closure).parameters
    if data is not None and not takes_data:
        raise ValueError(f"{type(model).__name__} has its rows already: leave out data.")
    if data is not None:
        return model.training_loss_closure(data, compile=compile)
    if not isinstance(model, InternalDataTrainingLossMixin):
        raise ValueError(f"{type(model).__name__} keeps no rows: pass data=(X, y).")
    return model.training_loss_closure(compile=compile)
