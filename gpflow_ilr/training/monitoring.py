"""Calibration in TensorBoard, while a model is trained.

A task for ``gpflow.monitor``, beside GPflow's own::

    task = CalibrationToTensorBoard("logs", model, (X_val, y_val))
    monitor = gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup(task, period=10))
    gpflow_ilr.training.fit(model, monitor=monitor)
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.models import GPModel
from gpflow.monitor import ToTensorBoard

from gpflow_ilr import metrics
from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.inputs.model_parts import check_model
from gpflow_ilr.inputs.paths import check_path
from gpflow_ilr.inputs.rows import LabelledData
from gpflow_ilr.training.held_out import HeldOut

__all__ = ["CalibrationToTensorBoard"]


class CalibrationToTensorBoard(ToTensorBoard):
    """Writes NLL, accuracy and calibration error of held-out rows, and their reliability diagram.

    The scalars are ``NLL``, ``accuracy`` and ``ECE``, the picture is ``reliability``, below ``name``.
    Needs tensorboard, and the picture matplotlib: ``pip install 'gpflow_ilr[tensorboard]'``.

    :param log_dir: folder of the event files.
    :param model: the model.
    :param validation: held-out rows (X, y), with hard labels.
    :param picture: whether to draw the reliability diagram, too.
    :param num_bins: of ECE and diagram.
    :param name: what stands before the names of scalars and picture.
    :raises ImportError: without tensorboard.
    """

    def __init__(
        self,
        log_dir: str,
        model: GPModel,
        validation: LabelledData,
        *,
        picture: bool = True,
        num_bins: int = 10,
        name: str = "calibration",
    ) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise ImportError(
                "CalibrationToTensorBoard needs the package tensorboard: "
                "pip install 'gpflow_ilr[tensorboard]'."
            )
        check_model(model)
        check_count("num_bins", num_bins)
        check_path("log_dir", log_dir)
        self._held_out = HeldOut(model, validation)
        super().__init__(str(log_dir))
        self._picture, self._num_bins, self._name = picture, num_bins, name

    def run(self, **_: Any) -> None:
        """Write them for the present step."""
        p, y = self._held_out.probabilities(), self._held_out.labels
        scalars = {
            "NLL": self._held_out.nll(),
            "accuracy": metrics.accuracy(p, y),
            "ECE": metrics.expected_calibration_error(p, y, self._num_bins),
        }
        for key, value in scalars.items():
            tf.summary.scalar(f"{self._name}/{key}", value, step=self.current_step)
        if self._picture:
            image = self._drawn(p)
            tf.summary.image(f"{self._name}/reliability", image[None], step=self.current_step)

    def _drawn(self, p: np.ndarray) -> np.ndarray:
        """The reliability diagram, [height, width, 4]."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        from gpflow_ilr.plotting import plot_reliability

        figure = Figure(layout="constrained")
        canvas = FigureCanvasAgg(figure)
        plot_reliability(p, self._held_out.labels, num_bins=self._num_bins, ax=figure.add_subplot())
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())
