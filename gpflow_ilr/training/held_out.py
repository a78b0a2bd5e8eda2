"""Held-out rows, by which a model is judged while it is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

from gpflow_ilr.inputs.rows import LabelledData
from gpflow_ilr.training.labelled_rows import labelled_rows

__all__ = ["HeldOut"]

_CHUNK_ROWS = 4096


class HeldOut:
    """Rows that the model is not trained on, and what it says of them at present.

    Predictions are compiled once. That leaves alone the index that a nearest-neighbour model keeps
    for training: predictions with values would build it anew.

    :param model: the model.
    :param rows: X [N, D], labels and, if rows do not count alike, weights [N].
    :param compile: compile predictions with ``tf.function``.
    :raises ValueError: if there are no rows.
    """

    def __init__(self, model: GPModel, rows: LabelledData, compile: bool = True) -> None:  # noqa: A002
        checked = labelled_rows(model, rows, "validation")
        self.rows = checked[:2]
        self.weights = checked[2].numpy() if len(checked) == 3 else None
        self.labels = rows[1]

        def compiled(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
            options = {"autograph": False, "reduce_retracing": True}
            return tf.function(function, **options) if compile else function

        self._log_density = compiled(lambda X, Y: model.predict_log_density((X, Y)))
        self._probabilities = compiled(lambda X, _: model.predict_y(X)[0])

    def nll(self) -> float:
        """Mean NLL of the labels, in nats per row."""
        return float(np.average(self.row_nll(), weights=self.weights))

    def row_nll(self) -> np.ndarray:
        """NLL of each label, [N]."""
        return -self._in_chunks(self._log_density)

    def probabilities(self) -> np.ndarray:
        """Predicted class probabilities, [N, K]."""
        return self._in_chunks(self._probabilities)

    def _in_chunks(self, predict: Callable[..., Any]) -> np.ndarray:
        X, Y = self.rows
        starts = range(0, len(X), _CHUNK_ROWS)
        return np.concatenate([predict(*(x[i : i + _CHUNK_ROWS] for x in (X, Y))) for i in starts])
