"""Claims about the boundary for inputs: what it reads, and that everyone refuses the rest alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import gpflow
import keras
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import gpflow_ilr as gi
import gpflow_ilr.keras
from gpflow_ilr.inputs.rows import as_inputs, as_rows, check_data
from gpflow_ilr.starting import greedy_variance, kmeans_plusplus, starting_kernel

NAN, INF = float("nan"), float("inf")
FLOAT32 = gpflow.config.Config(float=np.float32)
X = np.array([[0, 1], [1, 0], [1, 1]])
READ = {
    "lists": X.tolist(),
    "tuples": tuple(map(tuple, X.tolist())),
    "a list of arrays": list(X),
    "a list of tensors": [tf.constant(row) for row in X],
    "booleans beside numbers": [[False, 1], [1.0, 0], [True, 1]],
    "objects": X.astype(object),
    "fractions and decimals": [[Fraction(0), Decimal(1)], [np.float32(1), False], [True, 1.0]],
    "an array without masked values": np.ma.array(X, mask=np.zeros([3, 2])),
    "a Fortran array": np.asfortranarray(X),
    "a view": np.repeat(X, 2, axis=0)[::2],
    "the other byte order": X.astype(">f8"),
    "a tensor": tf.constant(X),
    "bfloat16": tf.cast(X, tf.bfloat16),
    "a NumPy bfloat16": tf.cast(X, tf.bfloat16).numpy(),
    "a boolean tensor": tf.cast(X, tf.bool),
    "a variable": tf.Variable(X),
    "a parameter": gpflow.Parameter(X.astype(float)),
    "a Keras variable": keras.Variable(X),
    "a data frame": pd.DataFrame(X),
    **{
        dtype: X.astype(dtype)
        for dtype in (
            "bool",
            "int8",
            "uint8",
            "uint64",
            "int64",
            "float16",
            "float32",
            "longdouble",
        )
    },
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("given", READ.values(), ids=READ)
def test_every_form_of_the_same_inputs_is_the_same_tensor(given: Any, dtype: type) -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        for inputs in (as_inputs(given), as_rows(given, num_columns=2)):
            assert inputs.dtype == dtype
            np.testing.assert_array_equal(inputs, X)


@given(
    npst.arrays(
        st.sampled_from([np.float16, np.float32, np.float64, np.int32, np.bool_]),
        npst.array_shapes(min_dims=2, max_dims=4, min_side=0, max_side=4),
        elements={"allow_nan": False, "allow_infinity": False},
    ).filter(lambda values: np.all(np.abs(values.astype(float)) < 1e150))
)
def test_finite_inputs_are_kept_exactly_with_their_leading_dimensions(values: np.ndarray) -> None:
    np.testing.assert_array_equal(as_inputs(values), values.astype(np.float64))
    np.testing.assert_array_equal(as_inputs(tf.constant(values)), values.astype(np.float64))


@given(npst.arrays(np.float64, (3, 2, 2), elements=st.floats(-1e150, 1e150)), st.data())
def test_the_first_value_that_is_not_finite_is_named(values: np.ndarray, data: Any) -> None:
    values[~np.isfinite(values)] = 0.0
    i, row, column = (data.draw(st.integers(0, side - 1)) for side in values.shape)
    bad = data.draw(st.sampled_from([NAN, INF, -INF]))
    values[i, row, column] = bad
    sentence = (
        f"X must be finite, but row {(i, row)}, column {column} is {bad}. Impute or drop such"
    )
    for form in (values, values.tolist(), tf.constant(values), tf.Variable(values)):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            as_inputs(form)


@pytest.mark.parametrize("make", [np.asarray, tf.constant])
def test_values_that_overflow_the_default_float_are_refused_as_they_were_given(make: Any) -> None:
    big, too_big = (make(np.array([[1.0, 2.0], [3.0, x]])) for x in (1e150, -1e155))
    np.testing.assert_array_equal(as_inputs(big), big)
    sentence = (
        "X must be within ±{}, or sums of squares overflow {}, but row 1, column 1 is {}. Resc"
    )
    wide = re.escape(sentence.format("1.3e+150", "float64", "-1e+155"))
    with pytest.raises(ValueError, match=wide):  # and so would a linear kernel
        as_inputs(too_big)
    with gpflow.config.as_context(FLOAT32):
        for read in (as_inputs, tf.function(lambda _: as_inputs(big))):
            narrow = re.escape(sentence.format("1.8e+15", "float32", "1e+150"))
            with pytest.raises(ValueError, match=narrow):
                read(big)


def test_a_tensor_that_fits_is_not_copied() -> None:
    fitting = tf.constant(X, tf.float64)
    assert as_inputs(fitting, num_columns=2) is fitting


def test_later_changes_of_an_array_do_not_reach_the_inputs() -> None:
    values = X.astype(float)
    inputs = as_inputs(values)
    values[:] = 7.0
    np.testing.assert_array_equal(inputs, X)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
@pytest.mark.parametrize("form", ["tensor", "variable", "list", "captured"])
def test_gradients_reach_what_was_given_as_a_tensor(dtype: Any, wrap: Any, form: str) -> None:
    given = tf.Variable(X, dtype=dtype) if form == "variable" else tf.constant(X, dtype)
    with tf.GradientTape() as tape:
        tape.watch(given)
        if form == "captured":
            value = wrap(lambda: tf.reduce_sum(tf.square(as_inputs(given))))()
        elif form == "list":
            value = wrap(lambda t: tf.reduce_sum(tf.square(as_inputs([t[0], t[1], t[2]]))))(given)
        else:
            value = wrap(lambda t: tf.reduce_sum(tf.square(as_inputs(t))))(given)
    np.testing.assert_array_equal(tape.gradient(value, given), 2.0 * X)


@pytest.mark.parametrize(
    ("spec", "error", "sentence"),
    [
        (tf.TensorSpec([None, 2], tf.string), TypeError, "real numbers, but its dtype is string"),
        (
            tf.TensorSpec([None, 2], tf.complex64),
            TypeError,
            "its dtype is complex64. Pass real and",
        ),
        (
            tf.TensorSpec([None]),
            ValueError,
            "[N, D], but has [None]. For one feature use X[:, None]",
        ),
        (tf.TensorSpec([]), ValueError, "must have shape [N, D], but has []."),
        (tf.TensorSpec([None, 3]), ValueError, "X has 3 columns, but the training data have 2."),
    ],
)
def test_graphs_refuse_bad_dtypes_ranks_and_columns_when_traced(
    spec: tf.TensorSpec, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        tf.function(lambda t: as_inputs(t, 2), input_signature=[spec]).get_concrete_function()


@pytest.mark.parametrize("shape", [None, [None, None], [None, None, 2], [3, 2]])
@pytest.mark.parametrize("xla", [False, True])
def test_what_a_graph_does_not_know_is_not_checked(shape: list | None, xla: bool) -> None:
    spec = tf.TensorSpec(shape, tf.float32)
    read = tf.function(lambda t: as_inputs(t, 2), input_signature=[spec], jit_compile=xla)
    values = tf.constant(X if shape is None or len(shape) == 2 else X[None], tf.float32)
    assert read(values).dtype == tf.float64
    np.testing.assert_array_equal(read(values * NAN), values * NAN)


@pytest.mark.parametrize("make", [np.asarray, tf.constant])
def test_known_values_are_checked_while_a_graph_is_traced(make: Any) -> None:
    values = make(np.array([[0.0, NAN]], np.float32))
    with pytest.raises(ValueError, match="row 0, column 1 is nan"):
        tf.function(lambda: as_inputs(values))()


def test_rows_must_have_values() -> None:
    for spec in (tf.TensorSpec([None, 2]), tf.TensorSpec(None)):
        with pytest.raises(TypeError, match=r"X must have values, but is symbolic .* outside"):
            tf.function(as_rows, input_signature=[spec]).get_concrete_function()


def _build_model(X: Any) -> Any:
    return gi.ILRGPR((X, [0, 1, 2]), gpflow.kernels.Matern32(), num_classes=3)


READERS: dict[str, Callable[[Any], Any]] = {
    "as_inputs": as_inputs,
    "as_rows": as_rows,
    "check_data": lambda X: check_data((X, [0, 1, 2]), 3),
    "a model": _build_model,
    "starting_kernel": lambda X: starting_kernel(X, 3),
    "kmeans_plusplus": lambda X: kmeans_plusplus(X, 1),
    "greedy_variance": lambda X: greedy_variance(X, 1, gpflow.kernels.Matern32()),
    "GPHead.adapt": lambda X: gpflow_ilr.keras.GPHead(3, 2, num_data=3).adapt(X),
}


DATES = np.array([["2020-01-01", "2021-01-01"]], "M8[D]")
NUMBERS = "{} must hold real numbers, but "
FINITE = "{} must be finite, but "
SHAPE = "{} must have shape [N, D], but has "


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "strings": (X.astype(str), TypeError, NUMBERS + "row 0, column 0 is '0' (string). Encode"),
    "one string": ([[0, 1], [2, "a"]], TypeError, NUMBERS + "row 1, column 1 is 'a' (str). Encode"),
    "one object": (
        np.array([[0, 1], [b"a", 2]], object),
        TypeError,
        NUMBERS
        + "row 1, column 0 is b'a' (bytes). Encode categories as numbers, for example one-hot",
    ),
    "complex": (X + 1j, TypeError, NUMBERS + "row 0, column 0 is '1j' (complex128). Pass real and"),
    "one complex": (
        np.array([[0], [1j]], object),
        TypeError,
        NUMBERS + "row 1, column 0 is 1j (complex).",
    ),
    "dates": (
        DATES,
        TypeError,
        NUMBERS + "row 0, column 0 is '2020-01-01' (datetime64[D]). Pass ti",
    ),
    "durations": (
        DATES - DATES[0, 0],
        TypeError,
        NUMBERS + "row 0, column 0 is '0 days' (timedelta",
    ),
    "records": (
        np.zeros([1, 1], [("a", int)]),
        TypeError,
        NUMBERS + "row 0, column 0 is '(0,)' (voi",
    ),
    "a tensor of strings": (
        tf.constant([["a"]]),
        TypeError,
        NUMBERS + "its dtype is string. Encode",
    ),
    "a sparse matrix": (
        scipy.sparse.csr_matrix(X),
        TypeError,
        "{} must be dense, but is a csr_matrix of scipy.sparse. Pass {}.toarray() if it fits in memory",
    ),
    "a sparse array": (
        scipy.sparse.coo_array(X),
        TypeError,
        "is a coo_array of scipy.sparse. Pass",
    ),
    "a sparse tensor": (
        tf.sparse.from_dense(X),
        TypeError,
        "{} must be dense, but is a SparseTensor. Pass tf.sparse.to_dense({}) if it fits in memory.",
    ),
    "nothing": (
        None,
        TypeError,
        "{} must be an array, a tensor, a data frame or nested lists, but is",
    ),
    "a set": ({1}, TypeError, "nested lists, but is {1} (set)."),
    "a column of strings": (
        pd.DataFrame({"a": [1, 2], "b": ["u", "v"]}),
        TypeError,
        NUMBERS + f"column 'b' has dtype {pd.Series(['u']).dtype} (row 0 is 'u'). Encode",
    ),
    "nan": ([[0, 1], [2, NAN]], ValueError, FINITE + "row 1, column 1 is nan. Impute or drop such"),
    "an infinite tensor": (
        tf.constant([[0.0], [INF]]),
        ValueError,
        FINITE + "row 1, column 0 is inf.",
    ),
    "no value": (
        [[0, 1], [2, None]],
        ValueError,
        FINITE + "row 1, column 1 is None. Impute or drop",
    ),
    "nan in a frame": (
        pd.DataFrame({"a": [1, 2], "b": [0.5, NAN]}),
        ValueError,
        FINITE + "row 1, column 'b' is nan. Impute or drop such rows.",
    ),
    "masked": (
        np.ma.array(X, mask=[[0, 0], [1, 0], [0, 0]]),
        ValueError,
        "{} must not be masked, but row 1, column 0 is. Impute or drop such rows.",
    ),
    "ragged lists": (
        [[0, 1], [1, 2], [1]],
        ValueError,
        "{} must have rows of one length, but row 2 has 1 entries where row 0 has 2. Pass a number for",
    ),
    "an array of lists": (
        np.array([[0, 1], [1]], object),
        ValueError,
        "{} must have rows of one length, but row 1 has 1 entries where row 0 has 2.",
    ),
    "a ragged tensor": (
        tf.ragged.constant([[0.0], []]),
        ValueError,
        "{}.to_tensor() if what is mis",
    ),
    "tensors of two lengths": (
        [tf.zeros([2]), tf.zeros([3])],
        ValueError,
        "{} is a list of tensors, but they cannot be stacked. Give them one shape and one dtype",
    ),
    "a vector": (X[:, 0], ValueError, SHAPE + "[3]. For one feature use {}[:, None]"),
    "a series": (pd.Series([0, 1]), ValueError, SHAPE + "[2]. For one feature use {}.to_frame()."),
    "a tensor of rank 1": (tf.zeros(3), ValueError, SHAPE + "[3]. For one feature use {}[:, None]"),
    "a number": (1.5, ValueError, SHAPE + "[]. For one number use [[{}]]."),
}


def refuses(read: Callable[[Any], Any], bad: tuple[Any, type[Exception], str], name: str) -> None:
    given, error, sentence = bad
    with pytest.raises(error, match=re.escape(sentence.replace("{}", name))):
        read(given)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("reader", READERS)
def test_everyone_who_reads_inputs_refuses_the_same_with_the_same_sentence(
    reader: str, bad: tuple[Any, type[Exception], str]
) -> None:
    refuses(READERS[reader], bad, "features" if reader == "GPHead.adapt" else "X")


NO_ROWS: dict[str, tuple[Any, type[Exception], str]] = {
    "images": (np.zeros([2, 3, 4]), ValueError, SHAPE + "[2, 3, 4]. One input is one row: flatten"),
    "no rows": (
        X[:0],
        ValueError,
        "{} must have shape [N, D] with at least one row and one column",
    ),
    "no columns": (pd.DataFrame(index=[0, 1]), ValueError, "and one column, but has [2, 0]."),
}


@pytest.mark.parametrize("bad", NO_ROWS.values(), ids=NO_ROWS)
@pytest.mark.parametrize("reader", [reader for reader in READERS if reader != "as_inputs"])
def test_what_keeps_data_wants_a_matrix_with_rows(
    reader: str, bad: tuple[Any, type[Exception], str]
) -> None:
    refuses(READERS[reader], bad, "features" if reader == "GPHead.adapt" else "X")
    assert as_inputs(bad[0]).shape == np.shape(bad[0])  # which may be predicted


@pytest.mark.parametrize(
    "read",
    [
        lambda X: as_inputs(X, 2),
        lambda X: as_rows(X, 2),
        lambda X: check_data((X, [0]), 2, 2),
        tf.function(lambda X: as_inputs(X, 2)),
    ],
    ids=["as_inputs", "as_rows", "check_data", "graph"],
)
def test_another_number_of_columns_is_refused_alike_in_training_and_prediction(read: Any) -> None:
    sentence = (
        "X has 3 columns, but the training data have 2. Pass the same features in the same order."
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read(tf.zeros([1, 3]))
