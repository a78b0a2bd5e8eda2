"""Choosing the smoothing λ, and the noise, after one fit.

In the unit code λ acts on predictions only. Given predictions of rows that have not been seen
(closed-form leave-one-out, or validation rows) it is a one-dimensional search (:mod:`.search`) for
the smallest NLL (:mod:`.criterion`); :func:`calibrate` does it for any model and tells what it
found (:mod:`.result`).
"""

from gpflow_ilr.calibration.calibrate import Calibratable, calibrate, smoothing
from gpflow_ilr.calibration.criterion import Marginals
from gpflow_ilr.calibration.result import Calibration

__all__ = ["Calibratable", "Calibration", "Marginals", "calibrate", "smoothing"]
