"""Rows that come in batches, to a model that keeps none of them.

The ELBO of a batch is scaled to all rows, so a model must know how many there are. One that does
not can only take what it gets for all of them, and a minibatch would then train something else
without a word; here it is told from the whole where that can be seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from gpflow.base import InputData

from gpflow_ilr.inputs.labels import label_tensor
from gpflow_ilr.inputs.rows import LabelledData, as_inputs
from gpflow_ilr.inputs.weights import weights_of_batch

__all__ = ["DataMark", "as_batch", "missing_num_data"]


def as_batch(data: LabelledData, num_columns: int | None = None) -> LabelledData:
    """X in the default float, labels with a last axis, as GPflow wants them, and weights if given.

    :param data: X [N, D], labels ([N], [N, 1] class indices or [N, K] rows) and, if rows have some,
        weights [N].
    :param num_columns: D, where it is known.
    :raises ValueError: if there are more or fewer labels, or weights, than rows.
    """
    X, Y = as_inputs(data[0], num_columns), label_tensor(data[1])
    # A single label would be broadcast to all rows.
    if not X.shape[:-1].is_compatible_with(Y.shape[:-1]):
        raise ValueError(
            f"Every row of X needs one label, but X has shape {X.shape} and the labels have shape "
            f"{Y.shape}. Pass as many labels as rows."
        )
    return (X, Y) if len(data) == 2 else (X, Y, weights_of_batch(data[2], X))


@dataclass(frozen=True)
class DataMark:
    """What tells one data set from another at no cost: its shape, its first and its last row.

    :param shape: of X.
    :param ends: the bytes of the first and the last row.
    """

    shape: tuple[int, ...]
    ends: bytes

    @classmethod
    def of(cls, X: InputData) -> DataMark:
        """The mark of some inputs.

        :param X: [N, D].
        """
        with tf.init_scope():  # values, also while a function is traced
            values = as_inputs(X).numpy()
        return cls(values.shape, values[:1].tobytes() + values[-1:].tobytes())


def missing_num_data(model: Any, reason: str) -> str:
    """The sentence for a model that would take a batch for the whole data set.

    :param model: the model.
    :param reason: why the batch is not known to be all data.
    """
    return (
        f"num_data is missing: {type(model).__name__} would take each batch for the whole data set, "
        f"but {reason}. Build it with num_data=len(X), the number of rows of all batches."
    )
