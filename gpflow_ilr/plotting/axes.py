"""The one module that imports matplotlib: axes to draw into, colours, and where a legend goes.

Colours are Okabe and Ito's eight, which readers with any common colour blindness tell apart. More
classes than that get colours along viridis, where neighbours are alike: such pictures need numbers,
too. Legends stand beside the axes, never over the data.
"""

from __future__ import annotations

import numpy as np

try:
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.colors import to_rgb
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "gpflow_ilr.plotting draws with matplotlib, which cannot be imported "
        f"({error}). Run pip install 'gpflow_ilr[plot]'.",
        name="matplotlib",
    ) from error

__all__ = ["Axes", "BLUE", "GREY", "ORANGE", "VERMILLION", "class_colours", "drawn_into", "legend"]

BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
VERMILLION, SKY, YELLOW, BLACK = "#D55E00", "#56B4E9", "#F0E442", "#000000"
GREY = "0.55"
_OKABE_ITO = (BLUE, ORANGE, GREEN, PURPLE, VERMILLION, SKY, YELLOW, BLACK)


def drawn_into(ax: Axes | None) -> Axes:
    """The axes that were given, or those of a new figure.

    :param ax: axes of matplotlib, or None.
    :raises TypeError: if it is something else, such as the figure, or an array of axes.
    """
    if ax is None:
        return plt.subplots(layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise TypeError(
            f"ax must be the axes to draw into, but is a {type(ax).__name__}. Pass one of those that "
            "plt.subplots() returns, or leave it out for a new figure."
        )
    return ax


def class_colours(num_classes: int) -> np.ndarray:
    """A colour for each class, red, green and blue between 0 and 1, [K, 3].

    :param num_classes: K.
    """
    if num_classes <= len(_OKABE_ITO):
        return np.array([to_rgb(colour) for colour in _OKABE_ITO[:num_classes]])
    return plt.get_cmap("viridis")(np.linspace(0.0, 1.0, num_classes))[:, :3]


def legend(ax: Axes, title: str | None = None) -> None:
    """A legend to the right of the axes, where it covers nothing.

    :param ax: the axes.
    :param title: of the legend.
    """
    ax.legend(
        title=title,
        loc="upper left",
        bbox_to_anchor=(1.02, 1.0),
        borderaxespad=0.0,
        frameon=False,
        fontsize="small",
        title_fontsize="small",
        alignment="left",
    )
