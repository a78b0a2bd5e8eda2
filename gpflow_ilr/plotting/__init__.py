"""Pictures of a classifier: what it believes, how far that can be trusted, and how it was trained.

Each function draws one picture into the ``ax`` that it is given, or into a new figure, and returns
the axes, so that titles, limits and sizes stay yours::

    from gpflow_ilr import plotting

    ax = plotting.plot_reliability(model.predict_y(X_test)[0], y_test)
    ax.figure.savefig("reliability.png")

This room alone needs matplotlib (``pip install 'gpflow_ilr[plot]'``), so ``import gpflow_ilr`` does not
import it. Colours are those of Okabe and Ito, or cividis, which colour-blind readers tell apart.
"""

from gpflow_ilr.plotting.confusion import plot_confusion
from gpflow_ilr.plotting.entropies import plot_entropies
from gpflow_ilr.plotting.regions import plot_decision_regions
from gpflow_ilr.plotting.reliability import plot_reliability
from gpflow_ilr.plotting.smoothing import plot_smoothing
from gpflow_ilr.plotting.trace import plot_trace
from gpflow_ilr.plotting.triangle import plot_simplex

__all__ = [
    # What a classifier believes
    "plot_decision_regions",
    "plot_simplex",
    "plot_entropies",
    # How far that can be trusted
    "plot_reliability",
    "plot_confusion",
    # How it came to be
    "plot_trace",
    "plot_smoothing",
]
