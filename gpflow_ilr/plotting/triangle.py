"""The simplex of three classes, as the triangle that it is.

A row of probabilities is the weighted mean of the corners, so three vertices in the plane are the whole
projection. Dashed lines part the regions where each class is the most probable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpflow_ilr.inputs.probabilities import as_classes, as_probabilities
from gpflow_ilr.plotting.arguments import names_of
from gpflow_ilr.plotting.axes import GREY, Axes, class_colours, drawn_into

__all__ = ["CORNERS", "on_triangle", "plot_simplex"]

CORNERS = np.array([[0.0, 1.0, 0.5], [0.0, 0.0, 0.5 * np.sqrt(3.0)]])
"""Class 0 is at the left, 1 at the right, 2 at the top: one column each, edges of length one."""


def on_triangle(probabilities: np.ndarray) -> np.ndarray:
    """Points in the plane, [..., 2], of probabilities [..., 3].

    :param probabilities: rows on the simplex.
    """
    return probabilities @ CORNERS.T


def plot_simplex(
    probabilities: Any,
    labels: Any = None,
    *,
    class_names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw class probabilities of three classes on a triangle.

    Of samples (``predict_probability_samples``) each is a faint point, and the mean of each row a
    larger one: how far a row's cloud spreads is what the model does not know about it.

    :param probabilities: rows [N, 3], or samples [S, N, 3] of them.
    :param labels: hard labels of the N rows, which colour them, as the names of the corners.
    :param class_names: three names, for the corners.
    :param ax: axes to draw into; those of a new figure if None.
    :raises ValueError: if there are not three classes, or something else does not fit.
    """
    shape = list(np.shape(probabilities))
    if len(shape) not in (2, 3) or shape[-1] != 3:
        raise ValueError(
            f"probabilities must have shape [N, 3], or [S, N, 3] for samples: a triangle has three "
            f"corners. They have {shape}. For other numbers of classes use plot_reliability or "
            "plot_confusion."
        )
    samples = as_probabilities(np.reshape(probabilities, [-1, 3])).reshape(-1, *shape[-2:])
    num_samples, N = samples.shape[:2]
    y = None if labels is None else as_classes(labels, 3, N)
    names = names_of(class_names, 3, "class ")

    ax = drawn_into(ax)
    colours = np.full([3, 3], 0.2) if y is None else class_colours(3)
    _draw_triangle(ax, names, colours)
    tints = colours[np.zeros(N, int) if y is None else y]
    if num_samples > 1:
        cloud = on_triangle(samples.reshape(-1, 3))
        tint = np.tile(tints, [num_samples, 1])
        ax.scatter(cloud[:, 0], cloud[:, 1], s=5, c=tint, alpha=0.25, linewidths=0.0, zorder=2)
    means = on_triangle(samples.mean(axis=0))
    ax.scatter(
        means[:, 0], means[:, 1], s=24, c=tints, edgecolors="white", linewidths=0.6, zorder=3
    )
    return ax


def _draw_triangle(ax: Axes, names: list[str], colours: np.ndarray) -> None:
    """Edges, the borders between most probable classes, and a name at each corner in its colour."""
    outline = CORNERS[:, [0, 1, 2, 0]]
    ax.plot(*outline, color="0.2", linewidth=1.0, zorder=1)
    centre = CORNERS.mean(axis=1)
    for k in range(3):
        middle = 0.5 * (CORNERS.sum(axis=1) - CORNERS[:, k])  # of the edge opposite to the corner
        ax.plot(*np.stack([centre, middle], 1), color=GREY, linewidth=0.8, linestyle="--", zorder=1)
        outwards = CORNERS[:, k] - centre
        place = CORNERS[:, k] + 0.05 * outwards / np.linalg.norm(outwards)
        ax.text(
            place[0],
            place[1],
            names[k],
            color=colours[k],
            ha="center",
            va="bottom" if k == 2 else "top",
        )
    ax.set(aspect="equal", xlim=(-0.12, 1.12), ylim=(-0.1, 0.98))
    ax.set_axis_off()
