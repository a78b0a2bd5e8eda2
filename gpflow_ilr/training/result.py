"""What a training has done."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

__all__ = ["Fit"]


@dataclass(frozen=True)
class Fit:
    """What :func:`gpflow_ilr.training.fit` did; as a string, a sentence.

    :param method: ``"l-bfgs"``, ``"adam"`` or ``"natural"``.
    :param success: False after a failure or Ctrl-C, and where L-BFGS has not converged.
    :param message: why it ended.
    :param fun: the criterion of the parameters that were kept: the NLL of the validation rows where
        there are some, else the loss.
    :param best_step: the step whose parameters were kept; 0 is the start.
    :param losses: training loss of each step: for L-BFGS after it, for the others where it began, of
        its minibatch.
    :param validation: (step, NLL) of each look at the validation rows; the first is the start.
    :param seconds: what it took.
    :param resumed: whether it began from the parameters of a checkpoint.
    """

    method: str
    success: bool
    message: str
    fun: float
    best_step: int
    losses: np.ndarray = field(repr=False)
    validation: list[tuple[int, float]] = field(repr=False)
    seconds: float
    resumed: bool = False

    @property
    def num_steps(self) -> int:
        """Steps that were taken."""
        return len(self.losses)

    def __str__(self) -> str:
        what = "Held-out NLL" if self.validation else "Loss"
        return (
            f"{what} {self.fun:.6g}, after {self.best_step} of {self.num_steps} steps ({self.method}) "
            f"in {self.seconds:.1f} s: {self.message.rstrip('.')}."
            f"{' It began from its checkpoint.' if self.resumed else ''}"
        )
