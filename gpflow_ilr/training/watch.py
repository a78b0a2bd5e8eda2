"""What watches a training: it keeps the trace and the best state, and says when to stop.

Every optimiser tells its watch of each step. At each *look*, which is every so many steps, the watch
judges the present state by a criterion that is to be small, and copies the state if it is the best so
far. Whatever ends the training (its own end, patience, a limit of time, Ctrl-C, a number that is not
finite), the variables then get the best values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

__all__ = ["Best", "FAILURES", "NotFinite", "Observer", "Stop", "Watch"]

_LEAST_GAIN = 1e-4


class Stop(Exception):  # noqa: N818 - no error
    """Training is to end; the message says why."""


class NotFinite(ArithmeticError):  # noqa: N818 - its name says what it is
    """A loss, a criterion or a parameter is not finite."""


FAILURES = (NotFinite, tf.errors.InvalidArgumentError)
"""What is raised where a step fails numerically."""

Observer = Callable[["Watch"], None]


class Best(NamedTuple):
    """The best state so far: its criterion, its step, and the values of the variables."""

    value: float
    step: int
    state: Sequence[np.ndarray]


class Watch:
    """The trace, the best state, and the reasons to stop.

    :param variables: the state.
    :param criterion: judges the present state; it is given the losses so far.
    :param check_every: steps between looks; None if the optimiser calls :meth:`offer` itself.
    :param max_steps: the last step, after which there is a look, too.
    :param patience: stop after so many looks without a gain; None for never.
    :param max_seconds: stop after so many; None for never.
    :param observers: called after each step; StopIteration ends the training.
    """

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        criterion: Callable[[list[float]], float],
        *,
        check_every: int | None,
        max_steps: int,
        patience: int | None = None,
        max_seconds: float | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.losses: list[float] = []
        self.looks: list[tuple[int, float]] = []
        self._variables, self._criterion = list(variables), criterion
        self._check_every, self._max_steps = check_every, max_steps
        self._patience, self._max_seconds = patience, max_seconds
        self._observers = observers
        self.best = Best(np.inf, 0, self._state())
        self._fruitless = 0
        self._start = time.perf_counter()

    @property
    def num_steps(self) -> int:
        """Steps that have been taken."""
        return len(self.losses)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.perf_counter() - self._start

    def run(self, train: Callable[[], tuple[bool, str]]) -> tuple[bool, str, bool]:
        """Train; whether that succeeded, why it ended, and whether it failed or was interrupted.

        :param train: calls :meth:`step` after each step; returns whether it succeeded, and a message.
        :raises tf.errors.InvalidArgumentError: if training fails before there is anything to keep.
        """
        try:
            if self._check_every is not None:
                value = float(self._criterion(self.losses))
                self.looks.append((0, value))
                self.best = self.best._replace(value=value if np.isfinite(value) else np.inf)
            try:
                success, message = train()
            except Stop as stop:
                success, message = True, str(stop)
            if self._check_every is not None and self.looks[-1][0] != self.num_steps:
                self._look()
        except (KeyboardInterrupt, *FAILURES) as error:
            if not self.losses and np.isinf(self.best.value):
                raise
            interrupted = isinstance(error, KeyboardInterrupt)
            reason = "it was interrupted" if interrupted else str(error).strip().split("\n")[0]
            return False, reason, True
        finally:
            self.restore()
        return success, message, False

    def step(self, loss: float) -> None:
        """Take notice of a step.

        :param loss: its loss.
        :raises Stop: if it is to be the last one.
        :raises NotFinite: if the loss or the criterion is not finite.
        """
        self.losses.append(float(loss))
        if not np.isfinite(loss):
            raise NotFinite(f"the loss of step {self.num_steps} is {float(loss)}")
        every = self._check_every
        if every is not None and (self.num_steps % every == 0 or self.num_steps == self._max_steps):
            self._look()
        self._tell()

    def fail(self) -> None:
        """A look at a state that is lost: the variables get the best values.

        :raises Stop: if there is no more patience.
        """
        self.looks.append((self.num_steps, np.nan))
        self._fruitless += 1
        self.restore()
        self._tell()

    def offer(self, value: float, step: int) -> None:
        """Keep the present state if it is the best so far.

        :param value: of the criterion; NaN is never the best.
        :param step: whose state this is.
        """
        if value < self.best.value:
            state = self._state()
            if not all(np.isfinite(x).all() for x in state):
                raise NotFinite(f"a parameter is not finite after step {step}")
            self.best = Best(float(value), step, state)

    def restore(self) -> None:
        """Give the variables the best values."""
        for variable, value in zip(self._variables, self.best.state, strict=True):
            variable.assign(value)

    def _state(self) -> list[np.ndarray]:
        return [v.numpy().copy() for v in self._variables]

    def _look(self) -> None:
        value = float(self._criterion(self.losses))
        if not np.isfinite(value):
            raise NotFinite(f"the criterion after step {self.num_steps} is {value}")
        self.looks.append((self.num_steps, value))
        self._fruitless = 0 if value < self.best.value - _LEAST_GAIN else self._fruitless + 1
        self.offer(value, self.num_steps)

    def _tell(self) -> None:
        for observe in self._observers:
            try:
                observe(self)
            except StopIteration:
                raise Stop("a callback ended it") from None
        if self._patience is not None and self._fruitless >= self._patience:
            raise Stop(f"no gain in {self._patience} looks")
        if self._max_seconds is not None and self.seconds > self._max_seconds:
            raise Stop(f"{self._max_seconds:g} seconds were over")
