"""A confusion matrix that sees probabilities, not only which of them is the largest.

The usual matrix counts a row that was given (0.51, 0.49) like one that was given (0.99, 0.01). Here the
colour, and the first number, of a cell is the mean probability that rows of one class were given for
another, so every row of the matrix sums to one and confident mistakes weigh more than hesitant ones.
The usual count stands below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpflow_ilr.inputs.probabilities import as_classes, as_probabilities
from gpflow_ilr.plotting.arguments import names_of
from gpflow_ilr.plotting.axes import Axes, drawn_into

__all__ = ["confusion_by_confidence", "plot_confusion"]

_MOST_WRITTEN = 12


def plot_confusion(
    probabilities: Any,
    labels: Any,
    *,
    class_names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw which classes are taken for which, and how confidently.

    Cell (c, k) has the mean predicted probability of class k over the rows whose label is c and, below,
    how many of them have k as their most probable class; nothing is written where both are zero, nor
    above 12 classes. A class without rows stays grey.

    :param probabilities: class probabilities [N, K].
    :param labels: hard labels in any form that ``as_labels`` accepts.
    :param class_names: K names, for the axes.
    :param ax: axes to draw into; those of a new figure if None. The colour bar stands beside.
    :raises ValueError: for invalid probabilities, labels or names.
    """
    P = as_probabilities(probabilities)
    N, K = P.shape
    y = as_classes(labels, K, N)
    names = names_of(class_names, K)
    mass, count = confusion_by_confidence(P, y)

    ax = drawn_into(ax)
    ax.set_facecolor("0.85")  # what NaN shows
    image = ax.imshow(mass, cmap="cividis", vmin=0.0, vmax=1.0)
    # An inset keeps to the square of the matrix, whatever the layout of the figure.
    beside = ax.inset_axes((1.04, 0.0, 0.05, 1.0))
    ax.figure.colorbar(image, cax=beside, label="mean predicted probability")
    if K <= _MOST_WRITTEN:
        size = min(9.0, 70.0 / K)
        # Cells that would say 0.00 and 0 stay empty.
        for c, k in np.argwhere((mass >= 0.005) | (count > 0)):
            colour = "black" if mass[c, k] > 0.5 else "white"
            text = f"{mass[c, k]:.2f}\n{count[c, k]}"
            ax.text(k, c, text, ha="center", va="center", color=colour, fontsize=size)
    upright = max(map(len, names)) * K > 40
    ax.set_xticks(range(K), names, rotation=90 if upright else 0)
    ax.set_yticks(range(K), [f"{name} ({n})" for name, n in zip(names, count.sum(1), strict=True)])
    ax.set(xlabel="predicted class", ylabel="label (rows)")
    return ax


def confusion_by_confidence(P: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean probabilities, NaN for a class without rows, and counts of most probable classes, [K, K].

    :param P: class probabilities [N, K].
    :param y: class indices [N].
    """
    K = P.shape[1]
    members, chosen = np.eye(K)[y], np.eye(K)[np.argmax(P, axis=1)]
    rows = members.sum(axis=0)[:, None]
    mass = members.T @ P / np.where(rows > 0, rows, np.nan)
    return mass, (members.T @ chosen).astype(int)
