"""The one place that reads inputs X, for training, for prediction and for starting values.

Inputs arrive as arrays, tensors, data frames or nested lists of any real dtype. They leave as tensors
[..., N, D] of GPflow's default float, whose values are finite where they are known (a graph's are not),
and whose columns are as many as the model has. What is given as a tensor stays connected to it.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import scipy.sparse
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float

from gpflow_ilr.inputs.arrays import encoding, first, is_real, odd_row, row_name
from gpflow_ilr.inputs.frames import is_frame, read_frame
from gpflow_ilr.inputs.labels import as_labels
from gpflow_ilr.inputs.weights import as_weights

__all__ = [
    "LabelledData",
    "LabelledRows",
    "as_column",
    "as_inputs",
    "as_rows",
    "check_data",
    "refuse_masked",
]

LabelledData = tuple[TensorType, ...]
"""X [N, D], labels in any form and, where rows do not count alike, weights [N]."""

_MISSING = ("NoneType", "NAType", "NaTType")  # of Python and pandas
_REPAIR = "Impute or drop such rows."
_ROOM = 1e-4  # sums of 10⁷ squared differences stay finite


@tf.autograph.experimental.do_not_convert  # which takes a second, for the same graph
def as_inputs(X: Any, num_columns: int | None = None, name: str = "X") -> tf.Tensor:
    """Inputs [..., N, D] in GPflow's default float, whatever real dtype they have.

    Values that are known must be finite; of symbolic tensors dtype, rank and the number of columns are
    checked as far as they are static. Gradients flow through what is given as a tensor.

    :param X: [..., N, D], as an array, a tensor, a variable, a data frame or nested lists.
    :param num_columns: D of the training data, where it is known.
    :param name: what the argument is called, for the error.
    :raises TypeError: if X does not hold real numbers, or is sparse.
    :raises ValueError: if its shape or its values make no sense.
    """
    columns = None
    if is_frame(X):
        X, columns = read_frame(X, name)
    given = _as_tensor(X, name) if _holds_tensors(X) else _as_array(X, name)
    _check_shape(X, given, num_columns, name)
    if isinstance(given, np.ndarray):
        return tf.convert_to_tensor(_finite(_real_array(given, name, columns), name, columns))
    if not (given.dtype.is_floating or given.dtype.is_integer or given.dtype.is_bool):
        raise TypeError(
            f"{name} must hold real numbers, but its dtype is {given.dtype.name}. "
            + encoding("c" if given.dtype.is_complex else "O", name)
        )
    if not tf.is_symbolic_tensor(given):
        _finite(np.asarray(given), name, columns)  # NumPy looks at the same memory on the CPU
    return tf.cast(given, default_float())


def as_rows(X: Any, num_columns: int | None = None, name: str = "X") -> tf.Tensor:
    """Known inputs [N, D] with N ≥ 1 and D ≥ 1, read by :func:`as_inputs`.

    :param X: [N, D].
    :param num_columns: D of the training data, where it is known.
    :param name: what the argument is called, for the error.
    :raises TypeError: as :func:`as_inputs`, and if X is symbolic.
    :raises ValueError: as :func:`as_inputs`, and if X has another rank or no rows.
    """
    inputs = as_inputs(X, num_columns, name)
    if tf.is_symbolic_tensor(inputs):
        raise TypeError(
            f"{name} must have values, but is symbolic ({inputs!r}). Pass it outside tf.function."
        )
    if inputs.shape.rank != 2:
        raise ValueError(
            f"{name} must have shape [N, D], but has {inputs.shape.as_list()}. One input is one row: "
            f"flatten each with tf.reshape({name}, [len({name}), -1])."
        )
    if 0 in inputs.shape:
        raise ValueError(
            f"{name} must have shape [N, D] with at least one row and one column, but has "
            f"{inputs.shape.as_list()}."
        )
    return inputs


@dataclass(frozen=True)
class LabelledRows:
    """Rows that have been checked. Not a tuple: GPflow would look for parameters in it.

    :param X: [N, D].
    :param labels: class indices [N] or soft rows [N, K], as :func:`as_labels` returns them.
    :param weights: [N], all positive; None where every row counts once.
    """

    X: tf.Tensor
    labels: tf.Tensor
    weights: tf.Tensor | None = None

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def tensors(self) -> list[tf.Tensor]:
        """X, labels and, if there are some, weights: what the constructor takes."""
        return [self.X, self.labels] + ([] if self.weights is None else [self.weights])

    @property
    def total_weight(self) -> tf.Tensor:
        """Σ w, the number of rows that these count for, []."""
        return tf.reduce_sum(self.known_weights)

    def take(self, numbers: Any) -> LabelledRows:
        """The rows of these numbers.

        :param numbers: [n].
        """
        return LabelledRows(*(tf.gather(tensor, numbers) for tensor in self.tensors))

    def part(self, start: Any, stop: Any) -> LabelledRows:
        """Rows ``start`` to ``stop``.

        :param start: the first.
        :param stop: the one after the last.
        """
        return LabelledRows(*(tensor[start:stop] for tensor in self.tensors))

    def joined(self, others: LabelledRows) -> LabelledRows:
        """These rows and others, whose labels are of the same kind.

        :param others: the rows that follow.
        """
        pairs = [(self.X, others.X), (self.labels, others.labels)]
        if self.weights is not None or others.weights is not None:
            pairs.append((self.known_weights, others.known_weights))
        return LabelledRows(*(tf.concat(pair, axis=0) for pair in pairs))

    @property
    def known_weights(self) -> tf.Tensor:
        """The weights, of ones where there are none, [N]."""
        ones = tf.ones(tf.shape(self.X)[:1], self.X.dtype)
        return ones if self.weights is None else self.weights


def check_data(
    data: Any, num_classes: int, num_columns: int | None = None, may_vanish: bool = False
) -> LabelledRows:
    """Rows of a data set: X in the default float, labels, weights. Rows of weight zero are left out.

    :param data: inputs [N, D], labels in any form, and weights [N] if rows have some.
    :param num_classes: K.
    :param num_columns: D, where it is known.
    :param may_vanish: whether all weights may be zero, so that no row remains.
    :raises TypeError: if the inputs are no real numbers.
    :raises ValueError: if the data, the inputs, the labels or the weights make no sense, with what to
        do.
    """
    if not isinstance(data, (tuple, list)) or len(data) not in (2, 3):
        raise ValueError(
            "data must be a pair (X, y), or (X, y, sample_weight), but is a "
            f"{type(data).__name__}{_length(data)}."
        )
    X = as_rows(data[0], num_columns)
    labels = as_labels(data[1], num_classes, num_rows=X.shape[0])
    if len(data) == 2 or data[2] is None:
        return LabelledRows(X, labels)
    weights = as_weights(data[2], len(X), may_vanish=may_vanish)
    rows, counting = LabelledRows(X, labels, weights), np.flatnonzero(weights)
    return rows if len(counting) == len(rows) else rows.take(counting)


def _length(data: Any) -> str:
    return f" of length {len(data)}" if isinstance(data, (tuple, list)) else ""


def as_column(labels: tf.Tensor, dtype: Any) -> tf.Tensor:
    """Labels as GPflow keeps them: class indices [N, 1], or the soft rows [N, K] as they are.

    :param labels: what :func:`gpflow_ilr.inputs.labels.as_labels` returned.
    :param dtype: dtype of the labels as given. Class indices keep it where TensorFlow can, because
        ``gpflow.models.training_loss(model, data)`` compares the data it gets with the model's.
    """
    if labels.shape.rank == 2:
        return labels
    try:
        kept = tf.as_dtype(dtype)
    except TypeError:  # a dtype of pandas, for example
        return labels[:, None]
    return tf.cast(labels[:, None], kept if kept.is_integer or kept.is_floating else labels.dtype)


def _holds_tensors(X: Any) -> bool:
    """Whether ``X`` is a tensor, or a list with one in it."""
    if not isinstance(X, (list, tuple)):
        return bool(tf.is_tensor(X))
    # One entry of each type answers for all of them: long lists are made of few types.
    entries = {type(entry): entry for entry in X}
    if any(issubclass(entry, (list, tuple)) for entry in entries):
        return any(map(_holds_tensors, X))
    return any(not issubclass(t, numbers.Number) and tf.is_tensor(e) for t, e in entries.items())


def _as_tensor(X: Any, name: str) -> tf.Tensor:
    """A tensor, a variable or a list with tensors in it as one dense tensor."""
    if isinstance(X, tf.SparseTensor):
        raise TypeError(
            f"{name} must be dense, but is a SparseTensor. Pass tf.sparse.to_dense({name}) if it fits "
            "in memory."
        )
    if isinstance(X, tf.RaggedTensor):
        raise ValueError(
            f"{name} must have rows of one length, but is a RaggedTensor. Pass {name}.to_tensor() if "
            "what is missing is 0."
        )
    if isinstance(X, tf.Tensor):  # whose values a graph would hide by converting it
        return X
    try:
        return tf.convert_to_tensor(X)
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        if not isinstance(X, (list, tuple)):
            raise
        raise ValueError(
            f"{name} is a list of tensors, but they cannot be stacked. Give them one shape and one "
            f"dtype, and pass tf.stack({name})."
        ) from error


def _as_array(X: Any, name: str) -> np.ndarray:
    """Anything else as an array, of whatever dtype."""
    if scipy.sparse.issparse(X):
        raise TypeError(
            f"{name} must be dense, but is a {type(X).__name__} of scipy.sparse. Pass "
            f"{name}.toarray() if it fits in memory."
        )
    try:
        values = np.asarray(X)
        if isinstance(X, (list, tuple)) and values.dtype.kind in "US":
            values = np.array(X, dtype=object)  # lest a single string make strings of the numbers
    except ValueError as error:
        if not isinstance(X, (list, tuple)):
            raise
        raise _ragged(X, name) from error
    if values.dtype == object and values.ndim == 0:
        raise TypeError(
            f"{name} must be an array, a tensor, a data frame or nested lists, but is {X!r} "
            f"({type(X).__name__})."
        )
    if values.dtype == object and any(
        isinstance(e, (list, tuple, np.ndarray)) for e in values.flat
    ):
        raise _ragged(list(values), name)
    refuse_masked(X, name)
    return values


def refuse_masked(values: Any, name: str) -> None:
    """Refuse an array with masked entries, whose values NumPy would take all the same.

    :param values: inputs or labels, of any type.
    :param name: what the argument is called, for the error.
    :raises ValueError: naming the first masked entry.
    """
    if np.ma.is_masked(values):
        place = _place(first(np.ma.getmaskarray(values)), None)
        raise ValueError(f"{name} must not be masked, but {place} is. {_REPAIR}")


def _ragged(rows: Any, name: str) -> ValueError:
    """What to say of rows of different lengths."""
    other = odd_row(rows)
    if other is None:
        where = "the rows within a row differ"
    else:
        sizes = [np.size(np.array(rows[i], dtype=object)) for i in (other, 0)]
        where = f"row {other} has {sizes[0]} entries where row 0 has {sizes[1]}"
    return ValueError(
        f"{name} must have rows of one length, but {where}. Pass a number for every feature."
    )


def _check_shape(X: Any, given: Any, num_columns: int | None, name: str) -> None:
    """Refuse what is not [..., N, D], with ``num_columns`` for D, as far as it is static."""
    shape = tf.TensorShape(given.shape)
    if shape.rank is None:
        return
    if shape.rank < 2:
        column = f"{name}.to_frame()" if hasattr(X, "to_frame") else f"{name}[:, None]"
        fix = f"For one feature use {column}." if shape.rank else f"For one number use [[{name}]]."
        raise ValueError(f"{name} must have shape [N, D], but has {shape.as_list()}. {fix}")
    if num_columns is not None and shape[-1] not in (None, num_columns):
        raise ValueError(
            f"{name} has {shape[-1]} columns, but the training data have {num_columns}. Pass the same "
            "features in the same order."
        )


def _real_array(values: np.ndarray, name: str, columns: list[Any] | None) -> np.ndarray:
    """An array as one of booleans, integers or floats, if its entries all are that."""
    if values.dtype == object:
        # There are few types among many objects, so the types are classified, not the objects.
        types = {t for t in set(map(type, values.flat)) if not _is_real_type(t)}
        if not types:
            return values.astype(np.float64)
        index = next(index for index, entry in np.ndenumerate(values) if type(entry) in types)
        entry, place = values[index], _place(index, columns)
        if type(entry).__name__ in _MISSING:
            raise ValueError(f"{name} must be finite, but {place} is {entry!r}. {_REPAIR}")
        raise TypeError(
            f"{name} must hold real numbers, but {place} is {entry!r} ({type(entry).__name__}). "
            + encoding("c" if isinstance(entry, complex) else "O", name)
        )
    if is_real(values.dtype):
        return values
    kind = values.dtype.kind
    what = "string" if kind in "US" else values.dtype.name
    index = (0,) * values.ndim
    found = f"{_place(index, columns)} is {str(values[index])!r}" if values.size else "it is empty"
    raise TypeError(f"{name} must hold real numbers, but {found} ({what}). {encoding(kind, name)}")


def _is_real_type(entry: type) -> bool:
    """Whether Python objects of a type are real numbers."""
    return issubclass(entry, (numbers.Real, np.bool_, Decimal))


def _finite(given: np.ndarray, name: str, columns: list[Any] | None) -> np.ndarray:
    """The values in the default float, refused unless all are finite, and sums of their squares."""
    with np.errstate(over="ignore"):  # what overflows is refused below
        values: np.ndarray = given.astype(default_float(), copy=False)
    largest = _ROOM * np.sqrt(np.finfo(values.dtype).max)
    if not values.size or -largest <= values.min() <= values.max() <= largest:  # of NaN it is false
        return values
    index = first(~(np.abs(values) <= largest))
    place, value = _place(index, columns), given[index]
    if not np.isfinite(value):
        raise ValueError(f"{name} must be finite, but {place} is {value}. {_REPAIR}")
    raise ValueError(
        f"{name} must be within ±{largest:.1e}, or sums of squares overflow {values.dtype.name}, but "
        f"{place} is {value}. Rescale such columns."
    )


def _place(index: tuple[int, ...], columns: list[Any] | None) -> str:
    """How sentences call an entry: by its row and its column, or the column's name in a frame."""
    if len(index) == 1:
        return row_name(index)
    column = index[-1] if columns is None else repr(columns[index[-1]])
    return f"{row_name(index[:-1])}, column {column}"
