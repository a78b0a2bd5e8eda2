"""Choosing the smoothing λ, and the noise, after one fit.

In the unit code λ acts on predictions only. Given predictions of rows that have not been seen
(closed-form leave-one-out, or validation rows) it is a one-dimensional search (:mod:`.search`) for
the smallest NLL (:mod:`.criterion`); :func:`calibrate` does it for any model and tells what it
found (:mod:`.result`). What weights of classes do to probabilities is undone in
:mod:`.class_weights`.
"""

from gpflow_ilr.calibration.calibrate import Calibratable, calibrate, smoothing
from gpflow_ilr.calibration.class_weights import balanced_class_weights, undo_class_weights
from gpflow_ilr.calibration.criterion import Marginals
from gpflow_ilr.calibration.result import Calibration

__all__ = [
    "Calibratable",
    "Calibration",
    "Marginals",
    "balanced_class_weights",
    "calibrate",
    "smoothing",
    "undo_class_weights",
]
