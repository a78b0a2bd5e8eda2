"""What models that keep their data accept: inputs of any real dtype, labels of any form.

The one place where rows are checked, eagerly, before they reach a model.
"""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import InputData
from gpflow.config import default_float

from gpflow_ilr.inputs.labels import as_labels

__all__ = ["as_column", "as_inputs", "check_data"]


def as_inputs(X: InputData) -> tf.Tensor:
    """Inputs as a tensor of GPflow's default float, whatever real dtype they have.

    :param X: [..., N, D].
    :raises TypeError: if X does not hold real numbers.
    """
    X = tf.convert_to_tensor(X)
    if not (X.dtype.is_floating or X.dtype.is_integer or X.dtype.is_bool):
        raise TypeError(
            f"X must hold real numbers, but its dtype is {X.dtype.name}. Encode categories as "
            "numbers first, for example one-hot."
        )
    return tf.cast(X, default_float())


def check_data(
    data: Any, num_classes: int, num_columns: int | None = None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """X in the default float, the labels as GPflow keeps them, and the labels.

    :param data: a pair of inputs [N, D] and labels in any form.
    :param num_classes: K.
    :param num_columns: D, where it is known.
    :raises ValueError: if the pair, the inputs or the labels make no sense, with what to do.
    """
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise ValueError(f"data must be a pair (X, y), but is a {type(data).__name__}.")
    X = as_inputs(data[0])
    if X.shape.rank != 2:
        raise ValueError(
            f"X must have shape [N, D], but has {list(X.shape)}. For one feature use X[:, None]."
        )
    if num_columns not in (None, X.shape[1]):
        raise ValueError(
            f"X has {X.shape[1]} columns, but the training data have {num_columns}. Pass the same "
            "features in the same order."
        )
    finite = np.all(np.isfinite(X.numpy()), axis=1)
    if not np.all(finite):
        row = int(np.argmin(finite))
        raise ValueError(
            f"X must be finite, but row {row} is {X.numpy()[row]}. Impute or drop such rows."
        )
    labels = as_labels(data[1], num_classes, num_rows=X.shape[0])
    return X, as_column(labels, getattr(data[1], "dtype", labels.dtype)), labels


def as_column(labels: tf.Tensor, dtype: Any) -> tf.Tensor:
    """Labels as GPflow keeps them: class indices [N, 1], or the soft rows [N, K] as they are.

    :param labels: what :func:`gpflow_ilr.inputs.labels.as_labels` returned.
    :param dtype: dtype of the labels as given. Class indices keep it where TensorFlow can, because
        ``gpflow.models.training_loss(model, data)`` compares the data it gets with the model's.
    """
    if labels.shape.rank == 2:
        return labels
    numeric = np.issubdtype(getattr(dtype, "as_numpy_dtype", dtype), np.number)
    return tf.cast(labels[:, None], dtype) if numeric else labels[:, None]
