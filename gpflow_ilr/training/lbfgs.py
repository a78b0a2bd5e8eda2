"""GPflow's L-BFGS under a watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.optimizers import Scipy
from scipy.optimize import OptimizeResult

from gpflow_ilr.training.watch import NotFinite, Watch

__all__ = ["LBFGS"]


class LBFGS(Scipy):
    """Minimises one loss, as often as is wanted: it is compiled once.

    :param closure: the loss.
    :param variables: what to train.
    :param compile: compile loss and gradient.
    """

    def __init__(
        self,
        closure: Callable[[], tf.Tensor],
        variables: Sequence[tf.Variable],
        compile: bool = True,  # noqa: A002 - GPflow's name
    ) -> None:
        super().__init__()
        self._closure, self._variables, self._compile = closure, tuple(variables), compile
        self._note: Callable[[float], None] = lambda _: None
        self._evaluate: Callable[..., Any] | None = None

    def train(self, watch: Watch, max_iterations: int, by_loss: bool = True) -> tuple[bool, str]:
        """From where the variables are; the watch is told of every iteration.

        :param watch: the watch.
        :param max_iterations: at most so many.
        :param by_loss: offer the watch every state that is evaluated, those of line searches too, by
            its loss. The first always is the best so far: the loss may be another one than before.
        :returns: whether it has converged, and SciPy's message.
        :raises NotFinite: if SciPy gives up after a loss that was not finite. It may find its way back
            from one.
        """
        seen: list[bool] = []

        def note(loss: float) -> None:
            if by_loss and np.isfinite(loss):
                if not any(seen):
                    watch.best = watch.best._replace(value=np.inf)
                watch.offer(loss, watch.num_steps + bool(seen))
            seen.append(bool(np.isfinite(loss)))

        def after(intermediate_result: OptimizeResult) -> None:
            # A line search may have ended with another evaluation.
            values = self.unpack_tensors(self._variables, intermediate_result.x)
            self.assign_tensors(self._variables, values)
            watch.step(float(intermediate_result.fun))

        self._note = note
        result = self.minimize(
            self._closure,
            self._variables,
            compile=self._compile,
            callback=after,
            options={"maxiter": max_iterations},
        )
        has_given_up = not result.success and result.status != 1
        if has_given_up and not all(seen):
            raise NotFinite(f"the loss was not finite after step {watch.num_steps}")
        return bool(result.success), str(result.message)

    def eval_func(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """Value and gradient for SciPy, as GPflow makes them."""
        if self._evaluate is None:
            self._evaluate = super().eval_func(*arguments, **options)
        evaluate = self._evaluate

        def noted(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            loss, gradient = evaluate(x)
            self._note(float(loss))
            return loss, gradient

        return noted
