"""Steps of first order: Adam's, and natural gradients of q(u) beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gpflow
import tensorflow as tf
from gpflow.base import Parameter
from gpflow.config import default_float
from gpflow.models import SVGP
from gpflow.optimizers import NaturalGradient

from gpflow_ilr.training.watch import FAILURES, Watch

__all__ = ["NaturalSteps", "Steps", "take_steps"]


class Steps:
    """Steps of Adam, each after a natural gradient where there is a q(u).

    :param loss: the training loss, of another minibatch at each call.
    :param variables: what Adam trains.
    :param learning_rate: of Adam.
    :param q: mean and root covariance of q(u), for natural gradients.
    :param natural_step: their length.
    :param compile: compile a step with ``tf.function``.
    """

    def __init__(
        self,
        loss: Callable[[], tf.Tensor],
        variables: Sequence[tf.Variable],
        learning_rate: float = 0.01,
        q: tuple[Parameter, Parameter] | None = None,
        natural_step: float = 0.1,
        compile: bool = True,  # noqa: A002 - GPflow's name
    ) -> None:
        self._length = tf.Variable(natural_step, trainable=False, dtype=default_float())
        self._adam = gpflow.keras.tf_keras.optimizers.Adam(learning_rate)
        natural = NaturalGradient(self._length)

        def step() -> tf.Tensor:
            losses = []

            def noted() -> tf.Tensor:
                losses.append(loss())
                return losses[-1]

            if q is not None:
                natural.minimize(noted, [q])
            if variables:
                self._adam.minimize(noted, variables)
            return losses[0]

        self._step = tf.function(step, autograph=False) if compile else step

    def one(self) -> float:
        """Take a step; the loss, of its first minibatch, where it began."""
        return float(self._step())

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


class NaturalSteps(Steps):
    """A natural gradient of q(u), then one of Adam's steps for all else that is trainable.

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
        q = {id(p.unconstrained_variable) for p in (model.q_mu, model.q_sqrt)}
        others = [v for v in model.trainable_variables if id(v) not in q]
        super().__init__(loss, others, learning_rate, (model.q_mu, model.q_sqrt), natural_step)


def take_steps(
    steps: Steps, watch: Watch, num_steps: int, recover: bool = False
) -> tuple[bool, str]:
    """Take steps under a watch.

    :param steps: the steps.
    :param watch: the watch.
    :param num_steps: how many.
    :param recover: go on from the best state after a failure, with steps half as long.
    """
    for _ in range(num_steps):
        try:
            watch.step(steps.one())
        except FAILURES:
            if not recover:
                raise
            watch.fail()
            steps.shorten()
            steps.restart()
    return True, "all steps were taken"
