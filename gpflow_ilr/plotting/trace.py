"""The trace of a training: losses against steps, and what held-out rows said meanwhile.

Training here keeps the best parameters that it has seen, so the picture has the smallest loss so far
as a line, and every loss that was tried behind it. Held-out NLL has another unit and its own axis.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpflow_ilr.plotting.axes import BLUE, VERMILLION, Axes, drawn_into

__all__ = ["plot_trace"]

_HEADROOM = 0.05


def plot_trace(losses: Any, validation: Any = None, *, ax: Axes | None = None) -> Axes:
    """Draw training losses against steps, and the NLL of held-out labels if there is one.

    Losses above the first one, which line searches try, leave the picture, unless the last is one of
    them: then training has failed, and all of it is shown. Losses that are not finite leave a gap.

    :param losses: the loss at steps 0, 1, 2, …, or a result that has ``losses`` (and ``validation``),
        such as :func:`gpflow_ilr.training.fit` returns; those of L-BFGS are at steps 1, 2, 3, ….
    :param validation: pairs (step, NLL in nats per row), in the order of steps; on an axis of its own,
        to the right (``ax.figure.axes[-1]``). The smallest is marked.
    :param ax: axes to draw into; those of a new figure if None.
    :raises ValueError: if there are no losses, or something is not of this form.
    """
    first_step = 0
    if hasattr(losses, "losses"):
        # L-BFGS tells the loss after each step, minibatches the loss where a step began.
        first_step = int(getattr(losses, "method", None) == "l-bfgs")
        validation = getattr(losses, "validation", None) if validation is None else validation
        losses = losses.losses
    values = _as_floats("losses", losses)
    if values.ndim != 1 or not np.isfinite(values).any():
        raise ValueError(
            f"losses must be numbers in one dimension, at least one of them finite, but have shape "
            f"{list(values.shape)}. Pass the loss of each step."
        )
    looks = None if validation is None else _as_floats("validation", validation)
    if looks is not None and looks.size == 0:
        looks = None
    if looks is not None and (looks.ndim != 2 or looks.shape[1] != 2):
        raise ValueError(
            f"validation must be pairs (step, NLL), but has shape {list(looks.shape)}. Pass "
            "list(zip(steps, nll))."
        )

    ax = drawn_into(ax)
    finite = np.where(np.isfinite(values), values, np.nan)
    best = np.fmin.accumulate(finite)
    steps = first_step + np.arange(len(values))
    ax.plot(steps, finite, color=BLUE, alpha=0.35, linewidth=0.8, label="loss")
    ax.plot(steps, best, color=BLUE, linewidth=1.6, label="smallest loss so far")
    ax.set_xlabel("step")
    ax.set_ylabel("training loss", color=BLUE)
    ax.tick_params(axis="y", colors=BLUE)
    ax.locator_params(axis="x", integer=True)
    first, last = finite[np.isfinite(finite)][[0, -1]]
    lowest = np.nanmin(finite)
    if lowest < first and last <= first:
        room = _HEADROOM * (first - lowest)
        ax.set_ylim(lowest - room, first + room)
    if looks is not None:
        _draw_validation(ax, looks)
    return ax


def _draw_validation(ax: Axes, looks: np.ndarray) -> None:
    """Held-out NLL on an axis to the right, and its smallest value in words beside it."""
    twin = ax.twinx()
    twin.plot(*looks.T, color=VERMILLION, marker="s", markersize=3.5, linewidth=1.2)
    label = "validation NLL (nats per row)"
    twin.tick_params(axis="y", colors=VERMILLION)
    if np.isfinite(looks[:, 1]).any():
        step, nll = looks[np.nanargmin(np.where(np.isfinite(looks[:, 1]), looks[:, 1], np.nan))]
        twin.plot(step, nll, marker="o", markersize=10, color="none", markeredgecolor=VERMILLION)
        label += f"\nsmallest: {nll:.4g} at step {step:.0f}"
    twin.set_ylabel(label, color=VERMILLION)


def _as_floats(name: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values if hasattr(values, "__array__") else list(values), np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers, but are {values!r} ({error}).") from error
