"""The reliability diagram: of the rows that were given a probability, how many came true.

A bin's distance from the diagonal means something only beside the number of its rows. So the band of
what chance alone does to a perfectly calibrated forecaster with the same confidences
(:mod:`gpflow_ilr.plotting.chance`) is part of the picture, and so are the numbers of rows, in a strip
below zero where there are no data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from gpflow_ilr.inputs.probabilities import as_classes, as_probabilities
from gpflow_ilr.metrics import ReliabilityCurve, reliability_curve
from gpflow_ilr.plotting.arguments import check_share, names_of
from gpflow_ilr.plotting.axes import BLUE, GREY, Axes, class_colours, drawn_into, legend
from gpflow_ilr.plotting.chance import chance_band

__all__ = ["plot_reliability"]

_FLOOR, _TALLEST = -0.26, 0.15
_NUMBERED_BINS = 12


def plot_reliability(
    probabilities: Any,
    labels: Any,
    *,
    kind: Literal["top", "classwise"] = "top",
    num_bins: int = 10,
    level: float = 0.9,
    class_names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how often what was predicted with some probability came true.

    The band is where a perfectly calibrated forecaster with these confidences stays by chance, in each
    bin by itself with probability ``level``: of ten bins one outside a band of 0.9 is no news. Below
    zero stand the numbers of rows in the bins; above 12 bins only the largest number is written.
    Classes stand side by side within a bin, each with its own band and with a ring where it leaves it.

    :param probabilities: class probabilities [N, K].
    :param labels: hard labels in any form that ``as_labels`` accepts.
    :param kind: ``"top"``: whether the most probable class is right (for K = 2, whether the class is
        1); ``"classwise"``: a curve for each class' own probability.
    :param num_bins: number of bins of equal width between 0 and 1.
    :param level: of the band, in (0, 1).
    :param class_names: K names, for the legend.
    :param ax: axes to draw into; those of a new figure if None.
    :raises ValueError: for invalid probabilities, labels, names or options.
    """
    P = as_probabilities(probabilities)
    N, K = P.shape
    y = as_classes(labels, K, N)
    names = names_of(class_names, K, "class ")
    check_share("level", level)
    if kind not in ("top", "classwise"):
        raise ValueError(f"kind must be 'top' or 'classwise', but is {kind!r}.")
    if kind == "top":
        curves = [reliability_curve(P, y, num_bins)]
        confidences = [P.max(axis=1) if K > 2 else P[:, 1]]
        colours: list[Any] = [BLUE]
        event = "confidence (largest probability)" if K > 2 else f"probability of {names[1]}"
        share = "share that was right" if K > 2 else f"share of {names[1]}"
    else:
        curves = [reliability_curve(P, y, num_bins, k) for k in range(K)]
        confidences, colours = list(P.T), list(class_colours(K))
        event, share = "probability of a class", "share of rows of this class"
    bands = [chance_band(p, curves[0].edges, level) for p in confidences]

    ax = drawn_into(ax)
    ax.plot([0.0, 1.0], [0.0, 1.0], color=GREY, linewidth=0.8, linestyle="--", zorder=1)
    if kind == "top":
        _draw_curve(ax, curves[0], bands[0])
    else:
        for k in range(K):
            _draw_class(ax, curves[k], bands[k], colours[k], names[k], (k, K))
        ax.scatter([], [], 40, "none", edgecolors="black", label="beyond chance")
    band = f"chance,\n{level:.0%} of bins"
    ax.scatter([], [], 80, "0.86", marker="s", edgecolors="0.7", label=band)
    _draw_counts(ax, curves, colours)
    ax.set(xlabel=event, ylabel=share, xlim=(-0.02, 1.02), ylim=(_FLOOR, 1.03))
    ax.set_yticks(np.linspace(0.0, 1.0, 6))
    legend(ax)
    return ax


def _draw_curve(ax: Axes, curve: ReliabilityCurve, band: tuple[np.ndarray, np.ndarray]) -> None:
    """A box of chance over each bin, and the shares at the mean confidences."""
    lower, upper = band
    style: dict[str, Any] = {"color": "0.86", "edgecolor": "0.7", "linewidth": 0.5, "zorder": 0}
    ax.bar(
        curve.edges[:-1], upper - lower, np.diff(curve.edges), bottom=lower, align="edge", **style
    )
    filled = curve.count > 0
    style = {"color": BLUE, "marker": "o", "markersize": 5, "linewidth": 1.2, "label": "forecasts"}
    ax.plot(curve.confidence[filled], curve.accuracy[filled], **style)


def _draw_class(
    ax: Axes,
    curve: ReliabilityCurve,
    band: tuple[np.ndarray, np.ndarray],
    colour: Any,
    name: str,
    place: tuple[int, int],
) -> None:
    """One of several classes, side by side in each bin; what is beyond its chance has a ring."""
    (lower, upper), (k, K) = band, place
    step = np.diff(curve.edges) / (K + 1)  # a space between bins is as wide as a class
    x = curve.edges[:-1] + (k + 1) * step
    ax.bar(x, upper - lower, 0.8 * step, bottom=lower, color=colour, alpha=0.3, zorder=0)
    filled = curve.count > 0
    style: dict[str, Any] = {"linestyle": "none", "color": colour, "zorder": 3}
    size = np.clip(20.0 / K, 2.5, 5.0)
    ax.plot(x[filled], curve.accuracy[filled], marker="o", markersize=size, label=name, **style)
    beyond = filled & ((curve.accuracy < lower) | (curve.accuracy > upper))
    style |= {"markerfacecolor": "none", "markeredgecolor": "black", "zorder": 4}
    ax.plot(x[beyond], curve.accuracy[beyond], marker="o", markersize=size + 3.0, **style)


def _draw_counts(ax: Axes, curves: list[ReliabilityCurve], colours: list[Any]) -> None:
    """Numbers of rows, as bars in a strip below zero; those of several curves are stacked."""
    edges = curves[0].edges
    totals = np.sum([curve.count for curve in curves], axis=0)
    unit, bottom = _TALLEST / np.max(totals), np.full(len(edges) - 1, _FLOOR)
    for curve, colour in zip(curves, colours, strict=True):
        width = np.diff(edges)
        ax.bar(
            edges[:-1] + 0.1 * width,
            unit * curve.count,
            0.8 * width,
            bottom,
            align="edge",
            color=colour,
            alpha=0.55,
            linewidth=0.0,
        )
        bottom = bottom + unit * curve.count
    written = totals > 0 if len(totals) <= _NUMBERED_BINS else totals == np.max(totals)
    middles = 0.5 * (edges[:-1] + edges[1:])
    for x, y, total in zip(middles[written], bottom[written], totals[written], strict=True):
        ax.text(x, y + 0.01, f"{total}", ha="center", va="bottom", fontsize=7, color="0.25")
    ax.axhline(0.0, color="0.8", linewidth=0.6, zorder=0)
