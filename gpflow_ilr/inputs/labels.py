"""The one place that accepts class labels.

Labels arrive as integers, as integer-valued floats (GPflow's habit), as booleans, as one-hot rows
or as rows of class probabilities. They leave as class indices or as rows on the simplex, and
nothing else passes: what cannot be read in exactly one way is refused with a sentence that names
the first offending row, its value and what to do. :func:`as_labels` is the eager boundary of the
models, :func:`label_rows` the boundary of the likelihoods, which works in graphs as well.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.config import default_float

from gpflow_ilr.inputs.arrays import first, is_real, odd_row, row_name
from gpflow_ilr.simplex import check_num_classes

__all__ = [
    "as_labels",
    "check_num_classes",
    "check_one_kind",
    "membership",
    "label_rows",
    "check_simplex_rows",
    "label_tensor",
]

# By name, because NumPy has no finfo of bfloat16.
_EPSILON = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23}

_NUMBER_THE_CLASSES = "Number the classes: classes, y = np.unique(y, return_inverse=True)."
_LOGITS = "Logits need a softmax, log-probabilities an exp."
_WEIGHTS = "A row is one label: divide weights by their sum."


def as_labels(y: Any, num_classes: int, num_rows: int | None = None) -> tf.Tensor:
    """Class indices [N] (int32) for hard labels, rows on the simplex [N, K] for soft ones.

    Accepted are, with K = ``num_classes``:

    - [N] or [N, 1]: integers of any dtype, integer-valued floats, and booleans when K = 2;
    - [N, K]: one-hot rows of any of these dtypes, or rows of probabilities (see
      :func:`check_simplex_rows`), which are kept as they are. If every row is exactly one-hot the
      labels are hard, otherwise all rows are soft.

    :param y: labels as an array, a tensor, a pandas object or a (nested) list.
    :param num_classes: the number of classes K.
    :param num_rows: the number of rows of X, if known; another number of labels is refused.
    :raises ValueError: if the labels cannot be read in exactly one of these ways.
    :raises TypeError: if ``y`` is symbolic, for its values cannot be checked.
    """
    K = check_num_classes(num_classes)
    if _is_symbolic(y):
        raise TypeError(
            f"as_labels reads the values of y, but y is symbolic ({y!r}). Call it eagerly, outside "
            "tf.function; inside a graph use label_rows."
        )
    Y = _real_array(y)
    if Y.ndim not in (1, 2):
        raise ValueError(
            f"Labels must have shape [N], [N, 1] or [N, {K}] for num_classes={K}, but y has shape "
            f"{list(Y.shape)}. Pass one label for each row of X."
        )
    if len(Y) == 0:
        raise ValueError(f"Labels need at least one row, but y has shape {list(Y.shape)}.")
    if num_rows is not None and len(Y) != num_rows:
        turned = " Is y transposed?" if Y.ndim == 2 and Y.shape[1] == num_rows else ""
        raise ValueError(
            f"Every row of X needs one label, but X has {num_rows} rows and y has {len(Y)} "
            f"(shape {list(Y.shape)}). Pass as many labels as rows.{turned}"
        )
    Y = Y[:, None] if Y.ndim == 1 else Y
    _check_last_axis(Y.shape, K)
    if Y.shape[1] == 1:
        _check_indices(Y, K)
        return tf.constant(Y[:, 0].astype(np.int32))
    check_simplex_rows(Y, "Labels")
    # A row on the simplex made of zeros and ones holds exactly one 1.
    if np.all((Y == 0) | (Y == 1)):
        return tf.constant(np.argmax(Y, axis=1).astype(np.int32))
    return tf.constant(Y, dtype=default_float())


def membership(labels: tf.Tensor, num_classes: int, dtype: Any = None) -> tf.Tensor:
    """Rows on the simplex [N, K]: one-hot rows for class indices, soft rows as they are.

    Works in graphs and trusts its values: it is made for what :func:`as_labels` returned.

    :param labels: class indices [N] or soft rows [N, K] from :func:`as_labels`.
    :param num_classes: the number of classes K.
    :param dtype: of the result; GPflow's default float if None.
    :raises ValueError: if shape and dtype are not ones that :func:`as_labels` returns.
    """
    K, dtype = check_num_classes(num_classes), tf.as_dtype(dtype or default_float())
    labels = tf.convert_to_tensor(labels)
    if labels.dtype.is_integer and labels.shape.rank == 1:
        return tf.one_hot(labels, K, dtype=dtype)
    if labels.dtype.is_floating and labels.shape.rank == 2 and labels.shape[-1] == K:
        return tf.cast(labels, dtype)
    raise ValueError(
        f"membership needs integers [N] or soft rows [N, {K}], but labels has dtype "
        f"{labels.dtype.name} and shape {labels.shape}. Pass y through as_labels first."
    )


def label_rows(Y: Any, num_classes: int, dtype: Any = None) -> tf.Tensor:
    """Rows on the simplex [..., K] from class indices [..., 1] or one-hot or soft rows [..., K].

    The last axis always belongs to the label, as in GPflow's likelihoods. Values that are known
    are validated as in :func:`as_labels`. Values that only a running graph knows are asserted to
    be valid and, because XLA drops assertions, the row of an invalid label is also set to NaN.

    :param Y: class indices [..., 1] or rows [..., K]; the last dimension must be static.
    :param num_classes: the number of classes K.
    :param dtype: of the result; GPflow's default float if None.
    :raises ValueError: for invalid known values, and for invalid shapes and dtypes.
    :raises tf.errors.InvalidArgumentError: when a graph meets an invalid label.
    """
    K, dtype = check_num_classes(num_classes), tf.as_dtype(dtype or default_float())
    if _is_symbolic(Y):
        return _symbolic_label_rows(tf.convert_to_tensor(Y), K, dtype)
    values = _real_array(Y)
    _check_last_axis(values.shape, K)
    if values.shape[-1] == 1:
        _check_indices(values, K)
        return tf.one_hot(values[..., 0].astype(np.int32), K, dtype=dtype)
    check_simplex_rows(values, "Labels")
    # Tensors are passed on, so that soft rows stay connected to a tape that watches them.
    return tf.cast(Y if tf.is_tensor(Y) else values, dtype)


def label_tensor(y: Any) -> tf.Tensor:
    """Labels with an axis of their own, [..., 1] or [..., K], of whatever dtype, for a likelihood.

    :param y: [N], or with that axis, as an array, a tensor, a pandas object or a list.
    :raises ValueError: if they are no numbers, or none at all.
    """
    try:
        Y = tf.convert_to_tensor(y)
    except (TypeError, ValueError):  # objects, among which may be numbers
        Y = tf.convert_to_tensor(_real_array(y))
    if Y.shape.rank == 0:
        raise ValueError(
            f"Labels must be one for each row of X, but y is {y!r}. Pass a list or array."
        )
    return Y[:, None] if Y.shape.rank == 1 else Y


def check_one_kind(labels: np.ndarray, known: np.ndarray, name: str) -> None:
    """Refuse text beside numbers: NumPy would turn the numbers into text.

    :param labels: of classes by any name, [n].
    :param known: those that they will stand beside.
    :param name: what the argument is called, for the error.
    :raises ValueError: if one of them is text and the other is not.
    """
    if (labels.dtype.kind in "OSUT") != (known.dtype.kind in "OSUT"):
        raise ValueError(
            f"{name} has labels of dtype {labels.dtype}, such as {labels[0]!r}, but the others are of "
            f"dtype {known.dtype}, such as {known[0]!r}. Pass labels of one kind."
        )


def check_simplex_rows(rows: np.ndarray, name: str) -> None:
    """Refuse rows [..., K] that are off the closed simplex by more than round-off.

    Entries must be finite and not negative, and their sum within max(2e-6, 4ε) of one, with ε the
    machine epsilon of the dtype. (Softmax rows computed in float32 with K up to 10,000 were off by
    up to 8e-7, also after a cast to float64; probabilities with six digits are off by 1e-6.)

    :param rows: a real array [..., K].
    :param name: what the rows are, to begin the sentence with.
    :raises ValueError: naming the first row that is off the simplex.
    """
    values = rows.astype(np.float64)
    finite = np.isfinite(values).all(axis=-1)
    negative = (values < 0).any(axis=-1)
    sums = np.where(np.isfinite(values), values, 0.0).sum(axis=-1)
    bad = ~finite | negative | (abs(sums - 1.0) > _sum_tolerance(rows.dtype.name))
    if not bad.any():
        return
    index = first(bad)
    if not finite[index]:
        fault, advice = "is not finite", "Drop or repair such rows."
    elif negative[index]:
        fault, advice = "has a negative entry", _LOGITS
    else:
        fault, advice = f"sums to {sums[index]:.9g}", _WEIGHTS
    shown = ", ".join(str(value) for value in rows[index][:6]) + ", ..." * (rows.shape[-1] > 6)
    raise ValueError(
        f"{name} with {rows.shape[-1]} columns must be rows on the simplex (entries at least 0, "
        f"sum 1), but {row_name(index)} {fault}: ({shown}). {advice}"
    )


def _epsilon(dtype_name: str) -> float:
    """Machine epsilon of a float dtype; a bound below those of the others for exact dtypes."""
    return _EPSILON.get(dtype_name, 2.0**-52)


def _sum_tolerance(dtype_name: str) -> float:
    """How far from one round-off may take the sum of a row of probabilities."""
    return max(2e-6, 4.0 * _epsilon(dtype_name))


def _is_symbolic(y: Any) -> bool:
    """Whether the values of ``y`` cannot be read here: symbolic tensors and graphs' variables."""
    if isinstance(y, (list, tuple)):
        # Numbers need no question, and long lists are made of them.
        return any(_is_symbolic(row) for row in y if not isinstance(row, numbers.Number))
    return tf.is_symbolic_tensor(y) or (isinstance(y, tf.Variable) and not tf.executing_eagerly())


def _real_array(y: Any) -> np.ndarray:
    """``y`` as an array of booleans, integers or floats; anything else is refused."""
    if isinstance(y, np.ma.MaskedArray) and np.ma.is_masked(y):
        row = row_name(first(np.ma.getmaskarray(y))[:1])
        raise ValueError(f"Labels must not be masked, but {row} is. Drop or relabel such rows.")
    Y = _list_of_objects(y) if isinstance(y, (list, tuple)) else np.asarray(y)
    if Y.dtype == object:
        Y = _real_array_of_objects(Y)
    if not is_real(Y.dtype):
        value = f"row 0 has {Y.flat[0]!r}" if Y.size else "y is empty"
        raise ValueError(
            f"Labels must be real numbers, but {value} (dtype {Y.dtype.name}). "
            + _NUMBER_THE_CLASSES
        )
    return Y


def _list_of_objects(rows: list[Any] | tuple[Any, ...]) -> np.ndarray:
    """A list of rows of one shape as an array of Python objects."""
    # As objects, lest NumPy turn [0, "a"] into strings and [True, 2] into integers.
    if all(issubclass(row_type, numbers.Number) for row_type in set(map(type, rows))):
        return np.array(rows, dtype=object)
    rows = [row.numpy() if tf.is_tensor(row) else row for row in rows]
    other = odd_row(rows)
    if other is not None:
        raise ValueError(
            f"Labels must be rows of one shape, but row {other} has {rows[other]!r} where row 0 "
            f"has {rows[0]!r}. Pass one class index in each row, or one row of probabilities."
        )
    return np.array(rows, dtype=object)


def _real_array_of_objects(Y: np.ndarray) -> np.ndarray:
    """An array of Python objects as one of booleans, integers or floats, if they all are that."""
    if Y.ndim == 0:
        raise ValueError(
            f"Labels must be an array, a tensor or a list, but y is {Y[()]!r} "
            f"({type(Y[()]).__name__})."
        )
    # There are few types among many objects, so the types are classified, not the objects.
    types = set(map(type, Y.flat))
    booleans = {t for t in types if issubclass(t, (bool, np.bool_))}
    others = {t for t in types - booleans if not issubclass(t, numbers.Real)}
    if others:
        index = _first_of(Y, others)
        raise ValueError(
            f"Labels must be real numbers, but {row_name(index[:1])} has {Y[index]!r} "
            f"({type(Y[index]).__name__}). Drop rows without a label. " + _NUMBER_THE_CLASSES
        )
    if booleans and types != booleans:
        index = _first_of(Y, booleans)
        raise ValueError(
            f"Labels must not mix booleans with numbers, but {row_name(index[:1])} has {Y[index]}. "
            "Use integers only."
        )
    if booleans:
        return Y.astype(bool)
    if all(issubclass(t, numbers.Integral) for t in types):
        # Beyond int64, which no number of classes reaches, the value only has to be refused.
        return Y.astype(np.int64 if max(map(abs, Y.flat), default=0) < 2**63 else np.float64)
    return Y.astype(np.float64)


def _first_of(Y: np.ndarray, types: set[type]) -> tuple[int, ...]:
    """The position of the first object of one of some types."""
    return next(index for index, value in np.ndenumerate(Y) if type(value) in types)


def _check_last_axis(shape: tuple[int | None, ...], K: int) -> None:
    """Refuse shapes whose last axis holds neither one class index nor K memberships."""
    if len(shape) == 0 or shape[-1] not in (1, K):
        raise ValueError(
            f"Labels must be class indices [N, 1] or one-hot or soft rows [N, {K}] for "
            f"num_classes={K}, but have shape {list(shape)}. Check num_classes and the labels' "
            "orientation."
        )


def _check_index_dtype(dtype_name: str, K: int) -> None:
    """Refuse dtypes that cannot tell K class indices apart."""
    if dtype_name == "bool" and K > 2:
        raise ValueError(
            f"Booleans can name two classes, but num_classes={K} and row 0 has a boolean label. "
            "Pass integers, or one-hot rows."
        )
    largest = round(2.0 / _epsilon(dtype_name))
    if largest < K - 1:
        raise ValueError(
            f"Labels of dtype {dtype_name} cannot name {K} classes, for it rounds integers above "
            f"{largest}. Pass integers."
        )


def _from_one(K: int) -> str:
    """What to do with labels that are counted from one."""
    return f"Labels that run 1..{K}: subtract 1."


def _check_indices(Y: np.ndarray, K: int) -> None:
    """Refuse class indices [..., 1] that are not integers 0..K-1."""
    _check_index_dtype(Y.dtype.name, K)
    indices = Y[..., 0].astype(np.float64)
    # NaN fails every comparison.
    bad = ~((indices >= 0) & (indices <= K - 1) & (indices == np.round(indices)))
    if not bad.any():
        return
    index = first(bad)
    value = indices[index]
    if not np.isfinite(value):
        advice = "Drop or relabel the rows without a label."
    elif value != np.round(value):
        advice = f"Soft labels are rows of {K} probabilities; for two classes (1 - p, p)."
    elif value == K and indices.min() >= 1:
        advice = _from_one(K)
    elif K == 2 and np.isin(indices, (-1, 1)).all():
        advice = "Labels -1 and +1: use (y + 1) // 2."
    elif value < 0:
        advice = "Drop or relabel rows whose negative label means that there is none."
    else:
        advice = "Raise num_classes if there are more classes, or renumber them without gaps."
    raise ValueError(
        f"Labels must be integers 0..{K - 1} for num_classes={K}, but {row_name(index)} has label "
        f"{Y[..., 0][index]}. {advice}"
    )


def _symbolic_label_rows(Y: tf.Tensor, K: int, dtype: tf.DType) -> tf.Tensor:
    """:func:`label_rows` for values that only a running graph knows."""
    if not (Y.dtype.is_integer or Y.dtype.is_floating or Y.dtype.is_bool):
        raise ValueError(f"Labels must be real numbers, but have dtype {Y.dtype.name}.")
    if Y.shape.rank is None or (Y.shape.rank > 0 and Y.shape[-1] is None):
        raise ValueError(
            f"The last dimension of the labels must be static, 1 or {K}, but their shape is "
            f"{Y.shape}. Fix it with tf.ensure_shape."
        )
    _check_last_axis(tuple(Y.shape), K)
    width = Y.shape[-1]
    if width == 1:
        _check_index_dtype(Y.dtype.name, K)
        label = tf.squeeze(Y, axis=-1)
        index = tf.cast(label, tf.int64)  # where unsigned integers that are too large are negative
        rest = tf.math.floormod(index, K)  # in 0..K − 1: equal to the label where it is valid
        valid = (
            tf.equal(tf.cast(rest, Y.dtype), label)
            if Y.dtype.is_floating
            else tf.equal(rest, index)
        )
        rows = tf.one_hot(index, K, dtype=dtype)
        rule = f"Labels must be integers 0..{K - 1} for num_classes={K}."
        advice = _from_one(K)
    else:
        P = Y if Y.dtype in (tf.float32, tf.float64) else tf.cast(Y, tf.float32)
        distance = abs(tf.reduce_sum(P, axis=-1) - 1.0)
        valid = tf.reduce_all(P >= 0, axis=-1) & (distance <= _sum_tolerance(Y.dtype.name))
        rows = tf.cast(Y, dtype)
        rule = f"Labels with {K} columns must be rows on the simplex (entries at least 0, sum 1)."
        advice = f"{_LOGITS} {_WEIGHTS}"

    def refuse() -> tf.Operation:
        # The first (in floats: GPUs have no argmin of integers). XLA compiles this for an empty
        # batch, too, so that one row is added.
        row = tf.argmin(tf.concat([tf.reshape(tf.cast(valid, tf.float32), [-1]), [1.0]], axis=0))
        flat = tf.reshape(tf.cast(Y, tf.float64), [-1, width])
        value = tf.gather(tf.concat([flat, tf.zeros([1, width], tf.float64)], axis=0), row)
        # Words that depend on the values would keep XLA from compiling.
        message = [rule, "The first other row and its value:", row, value, advice]
        return tf.debugging.Assert(False, message)

    # In a branch, so that steps with valid labels do not pay for the message.
    with tf.control_dependencies([tf.cond(tf.reduce_all(valid), tf.no_op, refuse)]):
        nan = tf.constant(np.nan, dtype)
        return tf.where(tf.expand_dims(valid, -1), rows, nan)  # XLA knows no assertions
