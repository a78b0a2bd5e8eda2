"""What an automatic fit has tried, what each promised, and what it took."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

__all__ = ["Budget", "Report", "Trial"]

_HEADER = f"{'':2}{'model':<12} {'setting':<42} {'NLL':>7} {'seconds':>8}"
_TIMED = 1024


@dataclass(frozen=True)
class Trial:
    """Something that was tried.

    :param model: what kind of model.
    :param setting: scaling and kernel.
    :param nll: NLL of held-out labels, in nats per row.
    :param seconds: what it took.
    :param remark: what else there is to say.
    """

    model: str
    setting: str
    nll: float
    seconds: float
    remark: str = ""

    def __str__(self) -> str:
        numbers = f"{self.nll:7.4f} {self.seconds:8.1f}"
        return f"  {self.model:<12} {self.setting:<42} {numbers}  {self.remark}".rstrip()


@dataclass
class Report:
    """All trials of an automatic fit; as a string, a table.

    :param criterion: how held-out labels were had.
    :param trials: in the order of time.
    :param chosen: the trial whose model is returned.
    :param seconds: what everything took.
    :param progress: print each trial as it is added.
    """

    criterion: str = ""
    trials: list[Trial] = field(default_factory=list)
    chosen: Trial | None = None
    seconds: float = 0.0
    progress: bool = field(default=False, repr=False, compare=False)

    def add(self, trial: Trial) -> None:
        """Add a trial, and print it where progress is to be shown.

        :param trial: what was tried.
        """
        if self.progress and not self.trials:
            print(_HEADER, flush=True)
        self.trials.append(trial)
        if self.progress:
            print(trial, flush=True)

    def __str__(self) -> str:
        lines = [_HEADER]
        for trial in self.trials:
            lines.append(f"{'*' if trial is self.chosen else ' '}{str(trial)[1:]}")
        lines.append(
            f"* is the model that was chosen, in {self.seconds:.1f} s. NLL {self.criterion}."
        )
        return "\n".join(lines)


class Budget:
    """Seconds and bytes that may be used.

    :param max_seconds: from now on.
    :param max_bytes: for one matrix.
    """

    def __init__(self, max_seconds: float, max_bytes: float) -> None:
        self.max_seconds, self.max_bytes = max_seconds, max_bytes
        self._start = time.perf_counter()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    def allows_factor(self, size: int) -> bool:
        """Whether half of what is left is enough for a few factorisations of a matrix.

        :param size: of the matrix, N.
        """
        if 8 * size**2 > self.max_bytes:
            return False
        A = np.random.default_rng(0).standard_normal([_TIMED, _TIMED])
        A @ A  # what is started once
        start = time.perf_counter()
        A @ A
        seconds = time.perf_counter() - start
        return 0.75 * seconds * (size / _TIMED) ** 3 < 0.5 * self.remaining

    @property
    def remaining(self) -> float:
        """Seconds that are left, none once they are over."""
        return max(0.0, self.max_seconds - self.elapsed)
