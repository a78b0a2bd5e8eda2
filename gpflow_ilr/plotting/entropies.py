"""Where the uncertainty of predictions comes from: noise in the labels, or too few data.

Rows stand side by side in the order of their total entropy, each a column of two parts: what would
remain if the class probabilities were known (aleatoric) and what more data would remove (epistemic).
Rows that were predicted wrongly belong to the right end, if the model knows what it does not know.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.plotting.axes import BLUE, ORANGE, VERMILLION, Axes, drawn_into, legend

__all__ = ["plot_entropies"]

_TOLERANCE = 1e-3
"""Nats by which total and sum may differ: float32, and integrals at finitely many nodes."""


def plot_entropies(
    entropies: Any, *, correct: Any = None, num_columns: int = 100, ax: Axes | None = None
) -> Axes:
    """Draw the entropy of each row's label, split into its aleatoric and its epistemic part.

    :param entropies: what ``predict_entropy`` returns: total, aleatoric and epistemic, [N] each, in
        nats.
    :param correct: whether each row was predicted rightly, [N]; those that were not are marked below
        zero.
    :param num_columns: where there are more rows, neighbours in the order share a column of their
        means.
    :param ax: axes to draw into; those of a new figure if None.
    :raises ValueError: if these are not three such arrays, or ``correct`` has another length.
    """
    total, aleatoric, epistemic = _checked(entropies)
    N = len(total)
    check_count("num_columns", num_columns)
    order = np.argsort(total, kind="stable")
    groups = np.array_split(order, min(N, num_columns))
    edges = np.cumsum([0, *map(len, groups)])
    below = np.array([aleatoric[rows].mean() for rows in groups])
    above = np.array([epistemic[rows].mean() for rows in groups])

    wrong = None
    if correct is not None:
        right = np.asarray(correct)
        if right.shape != (N,) or right.dtype != bool:
            raise ValueError(
                f"correct must be {N} booleans, one for each row, but has shape {list(right.shape)} "
                f"and dtype {right.dtype}. Pass np.argmax(p, axis=1) == y."
            )
        wrong = np.flatnonzero(~right[order]) + 0.5

    ax = drawn_into(ax)
    tallest = max(np.max(below + above), np.finfo(float).tiny)
    ax.stairs(below, edges, fill=True, color=BLUE, label="aleatoric:\nnoise in the labels")
    ax.stairs(
        below + above,
        edges,
        baseline=below,
        fill=True,
        color=ORANGE,
        label="epistemic:\ntoo few data",
    )
    ax.stairs(below + above, edges, baseline=None, color="0.2", linewidth=0.8, label="total")
    if wrong is not None:
        place = np.full(len(wrong), -0.04 * tallest)
        label = f"predicted wrongly:\n{len(wrong)} of {N}"
        style: dict[str, Any] = {"marker": "|", "s": 40, "linewidths": 1.0, "label": label}
        ax.scatter(wrong, place, color=VERMILLION, **style)
    ax.set(xlim=(0, N), ylim=(0.0 if wrong is None else -0.08 * tallest, 1.05 * tallest))
    ax.set(xlabel="rows, in the order of their entropy", ylabel="entropy of the label (nats)")
    legend(ax)
    return ax


def _checked(entropies: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Total, aleatoric and epistemic entropy, which fit each other."""
    try:
        total, aleatoric, epistemic = (np.asarray(part, np.float64) for part in entropies)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "entropies must be three arrays, total, aleatoric and epistemic, as predict_entropy "
            f"returns them, but is a {type(entropies).__name__} ({error})."
        ) from error
    shapes = [list(part.shape) for part in (total, aleatoric, epistemic)]
    if total.ndim != 1 or len(total) == 0 or shapes != [shapes[0]] * 3:
        raise ValueError(
            f"entropies must be three arrays [N], but have shapes {shapes}. Predict rows X of shape "
            "[N, D]."
        )
    gap = np.abs(total - aleatoric - epistemic)
    bad = ~(gap <= _TOLERANCE) | (np.minimum(aleatoric, epistemic) < -_TOLERANCE)  # NaN fails, too
    if bad.any():
        n = int(np.argmax(bad))
        raise ValueError(
            f"entropies must be total = aleatoric + epistemic, none negative, in this order, but row "
            f"{n} has {total[n]:.4g}, {aleatoric[n]:.4g}, {epistemic[n]:.4g}. Pass what "
            "predict_entropy returns as it is."
        )
    return total, aleatoric, epistemic
