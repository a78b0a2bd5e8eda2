"""Claims about the boundary for labels: what it accepts and how it refuses the rest."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from fractions import Fraction

import gpflow
import numpy as np
import pandas as pd
import pytest
import scipy.special
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import gpflow_ilr as gi
from gpflow_ilr.inputs.labels import (
    as_labels,
    check_one_kind,
    check_simplex_rows,
    label_rows,
    membership,
)

INTEGERS = [np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [np.dtype(name) for name in ("float16", "float32", "float64", "longdouble")]
NAN, INF = float("nan"), float("inf")


@st.composite
def hard_labels(draw: st.DrawFn) -> tuple[int, list[int]]:
    K = draw(st.integers(2, 7))
    return K, draw(st.lists(st.integers(0, K - 1), min_size=1, max_size=9))


def encodings(y: list[int], K: int) -> Iterator[object]:
    """The same labels in every form that is accepted."""
    one_hot = np.eye(K)[y]
    yield from (y, tuple(y), [float(c) for c in y], [[c] for c in y], one_hot.tolist())
    yield from (pd.Series(y), pd.Series(y, dtype="Int64"), pd.DataFrame(one_hot), np.ma.array(y))
    yield from (np.array(y, dtype=object), [Fraction(c) for c in y], [np.int8(c) for c in y])
    for dtype in INTEGERS + FLOATS:
        yield from (np.array(y, dtype), np.array(y, dtype)[:, None], one_hot.astype(dtype))
    for dtype in (tf.int32, tf.float32, tf.float64, tf.bfloat16):
        yield from (tf.cast(y, dtype), tf.cast(one_hot, dtype), tf.Variable(tf.cast(y, dtype)))
    yield from ([tf.constant(c) for c in y], one_hot.astype(bool), tf.cast(one_hot, tf.bool))
    if K == 2:
        yield from ([bool(c) for c in y], np.array(y, bool), np.array(y, bool)[:, None])


# --- as_labels accepts --------------------------------------------------------------------------


@given(hard_labels())
def test_every_encoding_of_the_same_labels_gives_the_same_labels(case: tuple) -> None:
    K, y = case
    for encoded in encodings(y, K):
        labels = as_labels(encoded, K, num_rows=len(y))
        assert labels.dtype == tf.int32
        np.testing.assert_array_equal(labels, y, err_msg=repr(encoded))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_soft_rows_are_kept_bit_by_bit(dtype: type, rng: np.random.Generator) -> None:
    rows = rng.dirichlet(np.ones(4), size=20).astype(dtype)
    labels = as_labels(rows, 4)
    assert labels.dtype == tf.float64
    np.testing.assert_array_equal(labels, rows.astype(np.float64))


def test_one_soft_row_among_one_hot_rows_makes_all_soft() -> None:
    rows = [[1, 0, 0], [0.5, 0.5, 0], [0, 0, 1]]
    np.testing.assert_array_equal(as_labels(rows, 3), rows)
    # Nearly one-hot is not one-hot.
    assert as_labels([[1 - 1e-9, 1e-9]], 2).shape == [1, 2]


def test_soft_rows_have_the_default_float() -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        assert as_labels([[0.25, 0.75]], 2).dtype == tf.float32
        assert membership(as_labels([0, 1], 2), 2).dtype == tf.float32
        assert label_rows([[0], [1]], 2).dtype == tf.float32
    assert label_rows([[0], [1]], 2, dtype=tf.float32).dtype == tf.float32


@pytest.mark.parametrize("K", [2, 100, 10_000])
def test_softmax_rows_of_any_float_are_on_the_simplex(K: int, rng: np.random.Generator) -> None:
    logits = 3 * rng.normal(size=[50, K])
    for dtype in (tf.bfloat16, tf.float16, tf.float32, tf.float64):
        rows = tf.nn.softmax(tf.cast(logits, dtype))
        assert as_labels(rows, K).shape == [50, K]
    # Float32 probabilities that were stored in float64 keep the round-off of float32.
    rows = scipy.special.softmax(logits.astype(np.float32), axis=1).astype(np.float64)
    assert as_labels(rows, K).shape == [50, K]


def test_the_tolerance_of_sums_is_two_millionths() -> None:
    check_simplex_rows(np.array([[0.5, 0.5 + 1.9e-6], [0.333333, 0.666666]]), "Rows")
    for off in (2.1e-6, -2.1e-6):
        with pytest.raises(ValueError, match=r"Rows with 2 columns .* row 1 sums to"):
            check_simplex_rows(np.array([[0.5, 0.5], [0.5, 0.5 + off]]), "Rows")


# --- as_labels refuses --------------------------------------------------------------------------

CORRUPTIONS = [-1, -0.5, 0.5, 1e-9, NAN, INF, -INF, 1e30]


@given(hard_labels(), st.data())
def test_one_corrupted_label_is_refused_with_its_row_and_value(
    case: tuple, data: st.DataObject
) -> None:
    K, y = case
    row = data.draw(st.integers(0, len(y) - 1))
    value = data.draw(st.sampled_from([*CORRUPTIONS, K, K + 0.5, K + 7]))
    corrupted = np.array(y, np.float64)
    corrupted[row] = value
    for encoded in (corrupted, corrupted[:, None], corrupted.tolist(), tf.constant(corrupted)):
        with pytest.raises(ValueError, match=re.escape(f"row {row} has label {float(value)}.")):
            as_labels(encoded, K)
    if float(value).is_integer() and abs(value) < 100:
        with pytest.raises(ValueError, match=re.escape(f"row {row} has label {value}.")):
            as_labels(corrupted.astype(np.int64), K)


@given(hard_labels(), st.data())
def test_one_corrupted_row_is_refused_with_its_number(case: tuple, data: st.DataObject) -> None:
    K, y = case
    row, column = data.draw(st.integers(0, len(y) - 1)), data.draw(st.integers(0, K - 1))
    value = data.draw(st.sampled_from([-1.0, 2.0, 0.5, NAN, INF, 1e-5]))
    corrupted = np.eye(K)[y]
    # Whatever the entry was, (1 → value) and (0 → value) both leave the simplex.
    corrupted[row, column] = value
    with pytest.raises(ValueError, match=f"must be rows on the simplex .* but row {row} "):
        as_labels(corrupted, K)


@pytest.mark.parametrize(
    ("y", "K", "sentence"),
    [
        ([1, 2, 3, 1], 3, "row 2 has label 3. Labels that run 1..3: subtract 1."),
        ([0, 3], 3, "row 1 has label 3. Raise num_classes if there are more classes"),
        ([1.0, -1.0], 2, "row 1 has label -1.0. Labels -1 and +1: use (y + 1) // 2."),
        ([0, -1, 5], 3, "row 1 has label -1. Drop or relabel rows whose negative label"),
        ([0, NAN], 3, "row 1 has label nan. Drop or relabel the rows without a label."),
        ([0.2, 0.7], 2, "row 0 has label 0.2. Soft labels are rows of 2 probabilities"),
        ([2**70], 3, "row 0 has label 1.1805916207174113e+21."),
        (np.array([2**64 - 1], np.uint64), 3, "row 0 has label 18446744073709551615."),
        (np.array([-128], np.int8), 300, "row 0 has label -128."),
        ([True, False], 3, "Booleans can name two classes, but num_classes=3"),
        ([0, True], 2, "must not mix booleans with numbers, but row 1 has True"),
        (["cat", "dog"], 2, "row 0 has 'cat' (str)"),
        ([0, "dog"], 2, "row 1 has 'dog' (str)"),
        (np.array(["0", "1"]), 2, "row 0 has '0' (dtype str32). Number the classes: classes, y ="),
        (tf.constant(["cat"]), 2, "row 0 has b'cat' (bytes)"),
        (pd.Series(["a", "b"], dtype="category"), 2, "row 0 has 'a' (str)"),
        (pd.Series([0, None], dtype="Int64"), 2, "row 1 has label nan"),
        ([0, None], 2, "row 1 has None (NoneType). Drop rows without a label."),
        ([0, 1j], 2, "row 1 has 1j (complex)"),
        (np.array([0, 1j]), 2, "row 0 has 0j (dtype complex128)"),
        (np.array(["2020-01-01"], "M8[D]"), 2, "(dtype datetime64[D])"),
        ([datetime.date(2020, 1, 1)], 2, "row 0 has datetime.date(2020, 1, 1) (date)"),
        (np.array([(0, 1)], [("a", int), ("b", int)]), 2, "row 0 has (0, 1) (dtype void128)"),
        (np.ma.array([0, 1, 1], mask=[0, 0, 1]), 2, "must not be masked, but row 2 is"),
        (np.ma.array(np.eye(2), mask=[[0, 0], [1, 0]]), 2, "must not be masked, but row 1 is"),
        (None, 2, "must be an array, a tensor or a list, but y is None (NoneType)"),
        ({0, 1}, 2, "must be an array, a tensor or a list, but y is {0, 1} (set)"),
        (iter([0, 1]), 2, "(list_iterator)"),
        (tf.ragged.constant([[0], [0, 1]]), 2, "(RaggedTensor)"),
        (tf.sparse.from_dense([[0, 1]]), 2, "(SparseTensor)"),
        ([[0, 1], [1]], 2, "rows of one shape, but row 1 has [1] where row 0 has [0, 1]"),
        (1, 2, "must have shape [N], [N, 1] or [N, 2] for num_classes=2, but y has shape []"),
        (np.zeros([2, 1, 1]), 2, "but y has shape [2, 1, 1]"),
        ([], 2, "need at least one row, but y has shape [0]"),
        (np.zeros([0, 3]), 3, "need at least one row, but y has shape [0, 3]"),
        (np.eye(4), 3, "rows [N, 3] for num_classes=3, but have shape [4, 4]"),
        ([[0, 1, 2]], 4, "rows [N, 4] for num_classes=4, but have shape [1, 3]"),
        ([[0, 0], [0, 1]], 2, "row 0 sums to 0: (0, 0)"),
        ([[0, 1], [1, 1]], 2, "row 1 sums to 2: (1, 1)"),
        (np.array([[True, True]]), 2, "row 0 sums to 2: (True, True)"),
        ([[0.5, 0.4]], 2, "row 0 sums to 0.9: (0.5, 0.4). A row is one label: divide weights"),
        ([[-0.7, -0.6]], 2, "row 0 has a negative entry: (-0.7, -0.6). Logits need a softmax"),
        ([[0.5, NAN]], 2, "row 0 is not finite: (0.5, nan)"),
        (np.full([1, 9], 0.5), 9, "(0.5, 0.5, 0.5, 0.5, 0.5, 0.5, ...)"),
        (tf.constant([0.0], tf.bfloat16), 300, "bfloat16 cannot name 300 classes, for it rounds"),
        (np.zeros(1, np.float16), 2050, "rounds integers above 2048. Pass integers."),
    ],
)
def test_sentences_name_row_value_and_remedy(y: object, K: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        as_labels(y, K)


@pytest.mark.parametrize(("dtype", "K"), [(np.float16, 2049), (np.float32, 2**24 + 1)])
def test_floats_may_name_as_many_classes_as_they_tell_apart(dtype: type, K: int) -> None:
    assert as_labels(np.array([K - 1], dtype), K).numpy() == [K - 1]


def test_a_wrong_number_of_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="X has 3 rows and y has 2"):
        as_labels([0, 1], 2, num_rows=3)
    with pytest.raises(ValueError, match=r"X has 4 rows and y has 3 .* Is y transposed\?"):
        as_labels(np.eye(3)[:, [0, 1, 2, 2]], 3, num_rows=4)


def test_symbolic_labels_are_refused_because_they_cannot_be_read() -> None:
    variable = tf.Variable([0, 1])
    for read in (
        lambda y: as_labels(y, 2),
        lambda y: as_labels([y[0], y[1]], 2),
        lambda _: as_labels(variable, 2),
    ):
        with pytest.raises(TypeError, match="Call it eagerly"):
            tf.function(read)(tf.constant([0, 1]))


def test_known_labels_may_be_read_while_a_graph_is_traced() -> None:
    captured = tf.constant([[0.0], [1.0]])
    np.testing.assert_array_equal(tf.function(lambda: as_labels(captured, 2))(), [0, 1])
    np.testing.assert_array_equal(tf.function(lambda: label_rows(captured, 2))(), np.eye(2))


# --- membership and label_rows ------------------------------------------------------------------


@given(hard_labels())
def test_membership_is_one_hot_for_hard_labels_and_nothing_for_soft_ones(case: tuple) -> None:
    K, y = case
    np.testing.assert_array_equal(membership(as_labels(y, K), K), np.eye(K)[y])
    soft = np.full([len(y), K], 1 / K)
    np.testing.assert_array_equal(membership(as_labels(soft, K), K), soft)


@pytest.mark.parametrize("labels", [[[0], [1]], [0.0, 1.0], [[0.5, 0.25, 0.25]], [["a"]]])
def test_membership_refuses_what_as_labels_does_not_return(labels: list) -> None:
    with pytest.raises(ValueError, match="Pass y through as_labels first"):
        membership(tf.constant(labels), 2)


MODES = {
    "eager": lambda f: f,
    "graph": tf.function,
    "xla": lambda f: tf.function(f, jit_compile=True),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("batch", [(6,), (2, 3), (1, 2, 3), (0,), ()])
@pytest.mark.parametrize("K", [2, 5])
def test_label_rows_reads_every_encoding_in_every_mode(
    mode: str, batch: tuple[int, ...], K: int, rng: np.random.Generator
) -> None:
    y = rng.integers(0, K, size=[*batch, 1])
    one_hot, soft = np.eye(K)[y[..., 0]], rng.dirichlet(np.ones(K), size=batch)
    dtypes = [tf.int32, tf.int64, tf.uint8, tf.float32, tf.float64, tf.bool]
    encoded = [tf.cast(one_hot, dtype) for dtype in dtypes]
    encoded += [tf.cast(y, dtype) for dtype in (dtypes if K == 2 else dtypes[:-1])]
    *hard_rows, soft_rows = MODES[mode](lambda Ys: [label_rows(Y, K) for Y in Ys])([*encoded, soft])
    np.testing.assert_array_equal(soft_rows, soft)
    for rows in hard_rows:
        np.testing.assert_array_equal(rows, one_hot)


INVALID = [
    [[0.0], [3.0]],
    [[0.0], [-1.0]],
    [[0.0], [1.5]],
    [[0.0], [NAN]],
    [[0.0], [INF]],
    [[0], [3]],
    [[0], [-1]],
    [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]],
    [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
    [[1.0, 0.0, 0.0], [0.5, 0.4, 0.0]],
    [[1.0, 0.0, 0.0], [1.5, -0.5, 0.0]],
    [[1.0, 0.0, 0.0], [NAN, 0.0, 1.0]],
    [[1, 0, 0], [1, 1, 0]],
]


@pytest.mark.parametrize("Y", INVALID, ids=str)
def test_an_invalid_label_is_a_sentence_an_assertion_or_nan_but_never_a_class(Y: list) -> None:
    Y = tf.constant(Y)
    with pytest.raises(ValueError, match=r"Labels .* must be .* row 1 |Labels must be .* row 1 "):
        label_rows(Y, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)Labels .*must be .*\[1\]"):
        MODES["graph"](lambda Y: label_rows(Y, 3))(Y)
    rows = MODES["xla"](lambda Y: label_rows(Y, 3))(Y)
    np.testing.assert_array_equal(rows, [[1.0, 0.0, 0.0], [NAN, NAN, NAN]])


def test_rows_under_several_leading_dimensions_are_named_by_all_indices() -> None:
    Y = np.zeros([2, 3, 1])
    Y[1, 2] = 7
    with pytest.raises(ValueError, match=re.escape("row (1, 2) has label 7.0.")):
        label_rows(Y, 3)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (tf.TensorSpec([None, None]), "last dimension of the labels must be static"),
        (tf.TensorSpec(None), "last dimension of the labels must be static"),
        (tf.TensorSpec([None, 2]), "but have shape [None, 2]"),
        (tf.TensorSpec([]), "but have shape []"),
        (tf.TensorSpec([None, 1], tf.string), "real numbers, but have dtype string"),
        (tf.TensorSpec([None, 1], tf.complex64), "real numbers, but have dtype complex64"),
        (tf.TensorSpec([None, 1], tf.bool), "Booleans can name two classes"),
    ],
)
def test_graphs_refuse_bad_shapes_and_dtypes_when_traced(
    spec: tf.TensorSpec, sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        tf.function(lambda Y: label_rows(Y, 3), input_signature=[spec]).get_concrete_function()


def test_soft_rows_are_differentiable_through_label_rows() -> None:
    for mode in MODES.values():
        with tf.GradientTape() as tape:
            Y = tf.constant([[0.25, 0.75]])
            tape.watch(Y)
            value = tf.reduce_sum(mode(lambda Y: label_rows(Y, 2, tf.float32))(Y) * [[2.0, 3.0]])
        np.testing.assert_array_equal(tape.gradient(value, Y), [[2.0, 3.0]])


def test_a_variable_of_labels_is_checked_in_a_graph() -> None:
    Y = tf.Variable([[0.0], [1.0]])
    rows = tf.function(lambda: label_rows(Y, 2))
    np.testing.assert_array_equal(rows(), np.eye(2))
    Y.assign([[0.0], [2.0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Labels must be integers 0\.\.1"):
        rows()


# --- labels by any name ---------------------------------------------------------------------------


def test_text_stands_beside_text_and_numbers_beside_numbers() -> None:
    numbers, text = np.array([3, 1]), np.array(["u", "v"])
    for one, other in (
        (numbers, numbers > 1),
        (numbers, numbers * 0.5),
        (text, text.astype(object)),
    ):
        check_one_kind(one, other, "y")
    sentence = (
        "classes has labels of dtype <U1, such as 'u', but the others are of dtype int64, such as 3"
    )
    with pytest.raises(ValueError, match=re.escape(sentence.replace("3", repr(numbers[0])))):
        check_one_kind(text, numbers, "classes")
    with pytest.raises(ValueError, match=r"^y has labels of dtype int64, .*one kind\.$"):
        check_one_kind(numbers, text.astype(object), "y")


# --- what a graph says ----------------------------------------------------------------------------


@pytest.mark.parametrize("compile", [True, False])
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_labels_from_one_get_the_same_advice_from_a_pipeline_as_from_an_array(
    compile: bool,  # noqa: A002 - GPflow's name
    dtype: type,
) -> None:
    X, y = np.linspace(0, 1, 6)[:, None], np.array([1, 2, 3, 1, 2, 3], dtype)
    advice = "Labels that run 1..3: subtract 1."
    with pytest.raises(ValueError, match=re.escape(advice)):
        as_labels(y, 3)
    model = gi.ILRSVGP(gpflow.kernels.Matern32(), X[:2], num_classes=3, num_data=6)
    batches = iter(tf.data.Dataset.from_tensor_slices((X, y)).repeat().batch(6))
    closure = model.training_loss_closure(batches, compile=compile)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=re.escape(advice)):
        closure()


@pytest.mark.parametrize(
    ("Y", "advice"),
    [
        ([[1], [2], [3]], "Labels that run 1..3: subtract 1."),
        ([[0.5, 0.4, 0.0]], "A row is one label: divide weights by their sum."),
        ([[-0.5, 1.5, 0.0]], "Logits need a softmax, log-probabilities an exp."),
    ],
)
def test_a_graph_gives_the_advice_of_the_sentence(Y: list, advice: str) -> None:
    Y = tf.constant(Y)
    with pytest.raises(ValueError, match=re.escape(advice)):
        label_rows(Y, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(advice)):
        MODES["graph"](lambda Y: label_rows(Y, 3))(Y)
