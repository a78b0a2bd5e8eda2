"""Decision regions of two columns: the colour is the most probable class, its intensity how probable.

White is where all classes are equally likely, full colour where one is certain, so a model that knows
what it does not know fades away from its data. Thin lines are contours of the largest probability.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.inputs.probabilities import as_classes, as_probabilities
from gpflow_ilr.inputs.rows import as_rows
from gpflow_ilr.plotting.arguments import names_of
from gpflow_ilr.plotting.axes import Axes, class_colours, drawn_into, legend

__all__ = ["plot_decision_regions", "region_colours"]

_MARGIN = 0.25
_STRONGEST = 0.6  # of a region's colour, so that the points stand out from it
_CONTOURS = (0.6, 0.8, 0.95)


def plot_decision_regions(
    predict: Any,
    X: Any,
    labels: Any = None,
    *,
    class_names: Sequence[str] | None = None,
    resolution: int = 150,
    ax: Axes | None = None,
) -> Axes:
    """Draw what a classifier of two columns predicts around some rows, and the rows.

    :param predict: a model (whatever has ``predict_y``), or a function from rows [n, 2] to class
        probabilities [n, K], such as ``predict_proba`` of scikit-learn's classifiers.
    :param X: rows [N, 2]; the picture shows a quarter of their range more on each side. The names of a
        data frame's columns name the axes.
    :param labels: the rows' hard labels, which colour them; without, they are grey.
    :param class_names: K names, for the legend.
    :param resolution: grid points along each axis.
    :param ax: axes to draw into; those of a new figure if None.
    :raises TypeError: if ``predict`` cannot predict.
    :raises ValueError: if X has not two columns, or something else does not fit.
    """
    rows = as_rows(X).numpy()
    if rows.shape[1] != 2:
        raise ValueError(
            f"X must have two columns to be drawn, but has shape {list(rows.shape)}. Fit a model of "
            "two columns, or pass a function of two that fills in the others."
        )
    low, high = rows.min(axis=0), rows.max(axis=0)
    margin = _MARGIN * np.where(high > low, high - low, 1.0)
    points = check_count("resolution", resolution, smallest=2)
    axes = [np.linspace(a, b, points) for a, b in zip(low - margin, high + margin, strict=True)]
    grid = np.stack(np.meshgrid(*axes), axis=-1)
    P = as_probabilities(_predictor(predict)(grid.reshape(-1, 2)), "what predict returns")
    if len(P) != points**2:
        raise ValueError(
            f"predict must return a row for each of {points**2}, but returns {len(P)}."
        )
    K = P.shape[1]
    y = None if labels is None else as_classes(labels, K, len(rows), "X")
    names = names_of(class_names, K)

    ax = drawn_into(ax)
    P = P.reshape(points, points, K)
    # Pixels are centred on the grid points.
    step = [0.5 * (axis[1] - axis[0]) for axis in axes]
    extent = [(axis[0] - s, axis[-1] + s) for axis, s in zip(axes, step, strict=True)]
    ax.imshow(
        region_colours(P), extent=(*extent[0], *extent[1]), origin="lower", aspect="auto", zorder=0
    )
    largest = P.max(axis=-1)
    levels = [level for level in _CONTOURS if largest.min() < level < largest.max()]
    if levels:
        contours = ax.contour(*axes, largest, levels=levels, colors="0.35", linewidths=0.5)
        ax.clabel(contours, fontsize=7, fmt="%g", zorder=2)  # below the rows
    style: dict[str, Any] = {"s": 18, "edgecolors": "white", "linewidths": 0.6, "zorder": 3}
    if y is None:
        ax.scatter(*rows.T, color="0.3", **style)
    else:
        for k, colour in enumerate(class_colours(K)):
            ax.scatter(*rows[y == k].T, color=colour, label=names[k], **style)
        legend(ax, "class")
    columns = list(getattr(X, "columns", ("$x_1$", "$x_2$")))
    ax.set(xlabel=str(columns[0]), ylabel=str(columns[1]), xlim=extent[0], ylim=extent[1])
    return ax


def region_colours(P: np.ndarray) -> np.ndarray:
    """White where all classes are equally likely, the class' colour where one is certain, [..., 3].

    :param P: class probabilities [..., K].
    """
    K = P.shape[-1]
    intensity = (P.max(axis=-1, keepdims=True) - 1.0 / K) / (1.0 - 1.0 / K)
    colour = class_colours(K)[np.argmax(P, axis=-1)]
    return np.clip(1.0 - _STRONGEST * intensity * (1.0 - colour), 0.0, 1.0)


def _predictor(predict: Any) -> Callable[[np.ndarray], Any]:
    """From rows to probabilities."""
    if hasattr(predict, "predict_y"):
        return lambda rows: predict.predict_y(rows)[0]
    if callable(predict):
        return predict
    raise TypeError(
        "predict must be a model with predict_y, or a function from rows to probabilities, but is a "
        f"{type(predict).__name__}. Of scikit-learn's classifiers pass predict_proba."
    )
