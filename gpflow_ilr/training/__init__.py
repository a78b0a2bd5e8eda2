"""Training that does not lose what it has found.

GPflow's optimisers train every model here; :func:`fit` runs them so that a failure in the middle, of a
factorisation or by Ctrl-C, leaves the model with the best parameters seen so far instead of with
those that a line search happened to try last, and :class:`CalibrationToTensorBoard` shows how it goes.
:func:`polish` goes on from a closed form, with the exact likelihood; :func:`fit_auto` chooses scaling,
kernel and model by held-out labels.
"""

from gpflow_ilr.training.auto import AutoClassifier, fit_auto
from gpflow_ilr.training.fit import fit
from gpflow_ilr.training.monitoring import CalibrationToTensorBoard
from gpflow_ilr.training.polish import Polish, polish
from gpflow_ilr.training.report import Report, Trial
from gpflow_ilr.training.result import Fit

__all__ = [
    "AutoClassifier",
    "CalibrationToTensorBoard",
    "Fit",
    "Polish",
    "Report",
    "Trial",
    "fit",
    "fit_auto",
    "polish",
]
