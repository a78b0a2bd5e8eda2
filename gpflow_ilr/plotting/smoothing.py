"""How the smoothing λ was chosen: the NLL of held-out labels at every λ, from one fit.

λ near one is where the differences are, so the axis is its logit, log(λ/(1 − λ)), which is the
sharpness L up to a shift where λ is large: 0.9, 0.99 and 0.999 are equally far apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, logit

from gpflow_ilr.calibration.criterion import MeanNLL
from gpflow_ilr.calibration.search import FLAT_NLL, SMOOTHING_BOUNDS
from gpflow_ilr.codes import ILRCode, sharpness_of
from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.inputs.rows import LabelledData, check_data
from gpflow_ilr.plotting.axes import BLUE, GREY, VERMILLION, Axes, drawn_into, legend

__all__ = ["plot_smoothing"]

_TICKS = {0.01: "0.01", 0.5: "0.5", 0.99: "0.99", 1 - 1e-5: "$1-10^{-5}$", 1 - 1e-8: "$1-10^{-8}$"}
_MINOR_TICKS = [0.1, *(1.0 - 10.0**-n for n in (1, 3, 4, 6, 7))]


def plot_smoothing(
    model: Any,
    data: LabelledData | None = None,
    *,
    trained_on: bool = False,
    max_rows: int | None = 2048,
    num_points: int = 80,
    ax: Axes | None = None,
) -> Axes:
    """Draw the NLL of held-out labels as a function of λ, and the model's λ.

    The labels are those that ``calibrate`` would use, given the same arguments: of training rows, each
    left out in turn, or of ``data``. Where another λ is better by 0.001 nats the best is marked, too.
    The picture ends at a little more than log K, the NLL of a forecast that knows nothing.

    :param model: a model with a smoothing λ: ``ILRGPR``, ``ILRSGPR``, ``ILRNNGPR``, ``CodeSVGP``. With
        soft labels its λ is varied, and then is what it was.
    :param data: validation rows (X, y) to use instead of leave-one-out.
    :param trained_on: ``data`` are training rows of a model that keeps none (``CodeSVGP``).
    :param max_rows: at most this many evenly spaced training rows enter; None for all.
    :param num_points: number of λ at which the curve is computed.
    :param ax: axes to draw into; those of a new figure if None.
    :raises TypeError: if the model has no λ, or cannot predict held-out rows.
    :raises ValueError: if data or counts make no sense.
    """
    code = getattr(model, "code", None)
    if not isinstance(code, ILRCode) or not hasattr(model, "held_out"):
        raise TypeError(
            f"model must have a smoothing λ and predict held-out rows, but {type(model).__name__} "
            "does not. Pass an ILRGPR, ILRSGPR, ILRNNGPR or CodeSVGP with an ILRCode."
        )
    check_count("num_points", num_points, smallest=3)
    K, present = code.num_classes, code.smoothing
    low, high = logit(SMOOTHING_BOUNDS)
    grid = expit(np.linspace(low, high, num_points))
    values = _nll_at(model, [*grid, present], data, trained_on, max_rows)
    curve, here = values[:-1], values[-1]
    best = int(np.argmin(curve))

    ax = drawn_into(ax)
    kind = "leave-one-out" if data is None or trained_on else "validation"
    ax.plot(grid, curve, color=BLUE, linewidth=1.4, label=f"{kind}\nNLL")
    ax.axhline(
        np.log(K), color=GREY, linewidth=0.8, linestyle="--", label=f"log {K}:\nknows nothing"
    )
    at: dict[str, Any] = {
        "linestyle": "none",
        "color": VERMILLION,
        "markersize": 8,
        "zorder": 3,
        "clip_on": False,
    }
    ax.plot(
        present, here, marker="o", label=f"the model's λ,\n{_written(present)}: {here:.3f}", **at
    )
    if curve[best] < here - FLAT_NLL:
        note = f"a better λ,\n{_written(grid[best])}: {curve[best]:.3f}"
        ax.plot(grid[best], curve[best], marker="o", markerfacecolor="none", label=note, **at)
    lowest, highest = min(curve[best], here), max(np.log(K), here if np.isfinite(here) else 0.0)
    room = 0.06 * (highest - min(lowest, 0.0))
    ax.set_ylim(lowest - room, highest + room)
    ax.set_xscale("logit")
    ax.set_xlim(*SMOOTHING_BOUNDS)
    ax.set_xticks(list(_TICKS), list(_TICKS.values()), fontsize="small")
    ax.set_xticks(_MINOR_TICKS, [""] * len(_MINOR_TICKS), minor=True)
    ax.set(xlabel="smoothing λ", ylabel="NLL of held-out labels (nats per row)")
    legend(ax)
    return ax


def _written(smoothing: float) -> str:
    """λ with the digits by which it differs from one."""
    if smoothing < 0.9995:
        return f"{smoothing:.3g}"
    return f"1 − {1.0 - smoothing:.1g}"


def _nll_at(
    model: Any,
    smoothing: list[float],
    data: LabelledData | None,
    trained_on: bool,
    max_rows: int | None,
) -> np.ndarray:
    """Mean NLL of held-out labels at each λ."""
    code = model.code
    rows = None if data is None else check_data(data, code.num_classes, model.num_columns)
    sharpness = [sharpness_of(value, code.num_classes) for value in smoothing]
    if not model.has_soft_labels:
        return MeanNLL(model.held_out(rows, trained_on, max_rows), code.link).at(sharpness)
    # Soft targets are coded with λ, so the predictions follow it.
    present, values = code.sharpness.numpy(), []
    try:
        for L in sharpness:
            code.sharpness.assign(L)
            values.append(MeanNLL(model.held_out(rows, trained_on, max_rows), code.link)(L))
    finally:
        code.sharpness.assign(present)
    return np.array(values)
