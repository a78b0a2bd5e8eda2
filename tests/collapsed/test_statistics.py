"""Claims about the sufficient statistics of the collapsed bound: sums, gradients, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import covariances
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel, Linear, Matern52, SquaredExponential

from gpflow_ilr.collapsed.statistics import (
    GroupStatistics,
    RowGroups,
    Rows,
    chunk_of_sums,
    default_chunk,
    group_statistics,
)
from gpflow_ilr.inputs import LabelledRows
from gpflow_ilr.linalg.evidence import relative_inverse_cholesky

EPS = np.finfo(np.float64).eps
N, D, M, K = 23, 2, 6, 4
CHUNKS = [1, 7, N, 1000, None]


class Problem(NamedTuple):
    """Rows with labels, a kernel, inducing inputs, and a linear function whose values are features."""

    kernel: Kernel
    inducing: InducingVariables
    X: tf.Tensor
    labels: tf.Tensor
    slope: tf.Variable
    num_groups: int

    @property
    def variables(self) -> list[tf.Variable]:
        modules = (self.kernel, self.inducing)
        return [v for m in modules for v in m.trainable_variables] + [self.slope]

    def features(self, X: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        one_hot = tf.one_hot(labels, K, dtype=X.dtype)
        return tf.concat([one_hot, -tf.matmul(X, self.slope)], axis=1)

    def statistics(self, chunk: int | None = 7, known: GroupStatistics | None = None):
        L_inv = relative_inverse_cholesky(self.K_uu(), "K_uu")
        classes = None if self.num_groups == 1 else self.labels.numpy()
        groups = RowGroups(classes, self.X.shape[0], self.num_groups)
        return group_statistics(
            self.kernel,
            self.inducing,
            L_inv,
            Rows(LabelledRows(self.X, self.labels), groups),
            self.features,
            chunk,
            known,
        )

    def K_uu(self) -> tf.Tensor:
        return covariances.Kuu(self.inducing, self.kernel)

    def brute_force(self) -> GroupStatistics:
        """All rows at once, and their gradient by autodiff."""
        K_uu = self.K_uu()
        jitter = gpflow.config.default_jitter() * tf.reduce_mean(tf.linalg.diag_part(K_uu))
        L = tf.linalg.cholesky(K_uu + jitter * tf.eye(M, dtype=K_uu.dtype))
        A = tf.linalg.triangular_solve(L, covariances.Kuf(self.inducing, self.kernel, self.X))
        diagonal = self.kernel(self.X, full_cov=False)
        E = self.features(self.X, self.labels)
        if self.num_groups == 1:
            rows = tf.ones([1, self.X.shape[0]], A.dtype)
        else:
            rows = tf.transpose(tf.one_hot(self.labels, self.num_groups, dtype=A.dtype))
        return GroupStatistics(
            tf.reduce_sum(rows, axis=1),
            tf.linalg.matvec(rows, diagonal),
            tf.einsum("gn,mn,nc->gmc", rows, A, E),
            tf.einsum("gn,mn,kn->gmk", rows, A, A),
            tf.einsum("gn,nc,nd->gcd", rows, E, E),
        )

    def rows(self, part: slice) -> Problem:
        return self._replace(X=self.X[part], labels=self.labels[part])


def kernel_of(name: str) -> Kernel:
    return {
        "ard": lambda: SquaredExponential(variance=1.7, lengthscales=[0.6, 0.9]),
        "sum": lambda: Matern52(lengthscales=0.5, active_dims=[0]) + Linear(0.7, active_dims=[1]),
        "product": lambda: SquaredExponential(lengthscales=0.8) * Matern52(1.3, active_dims=[1]),
    }[name]()


def problem(kernel: Kernel | str = "ard", num_groups: int = 1, num_rows: int = N) -> Problem:
    rng = np.random.default_rng(0)
    dtype = gpflow.default_float()
    labels = rng.choice([0, 1, 3], size=num_rows, p=[0.6, 0.3, 0.1])  # class 2 has no rows
    return Problem(
        kernel_of(kernel) if isinstance(kernel, str) else kernel,
        InducingPoints(rng.uniform(-2, 2, size=(M, D))),
        tf.constant(rng.uniform(-2, 2, size=(num_rows, D)), dtype),
        tf.constant(labels, tf.int32),
        tf.Variable(rng.normal(size=(D, 2)), dtype=dtype),
        num_groups,
    )


def weigh(statistics: GroupStatistics) -> tf.Tensor:
    """A scalar with unequal, asymmetric adjoints of all five sums, of about equal influence."""
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=s.shape).astype(s.dtype.as_numpy_dtype) for s in statistics]
    return tf.add_n([tf.reduce_sum(w * s) for w, s in zip(weights, statistics, strict=True)])


def value_and_gradients(p: Problem, compute: Callable[[], GroupStatistics]) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        value = weigh(compute())
    return [value, *tape.gradient(value, p.variables)]


def error(ours: list[tf.Tensor], theirs: list[tf.Tensor]) -> float:
    """The largest error, each tensor relative to its largest entry."""
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(ours, theirs, strict=True)]
    assert all(a.shape == b.shape for a, b in pairs)
    return max(np.max(abs(a - b)) / np.max(abs(b)) for a, b in pairs if np.any(b))


# --- Sums and gradients -------------------------------------------------------------------------


@pytest.mark.parametrize("num_groups", [1, K])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_sums_equal_brute_force_for_any_chunk(chunk: int | None, num_groups: int) -> None:
    p = problem(num_groups=num_groups)
    ours, theirs = p.statistics(chunk), p.brute_force()
    assert [s.shape for s in ours] == [s.shape for s in theirs]
    assert error(list(ours), list(theirs)) < 1e-12
    if num_groups > 1:  # the class without rows
        assert all(np.all(s[2].numpy() == 0) for s in ours)


@pytest.mark.parametrize(
    ("kernel", "chunk", "num_groups"),
    [
        ("ard", 1, K),
        ("ard", 7, 1),
        ("ard", 7, K),
        ("ard", 1000, K),
        ("sum", 7, 1),
        ("sum", 7, K),
        ("product", 7, 1),
        ("product", 7, K),
    ],
)
def test_gradient_equals_autodiff_of_brute_force(kernel: str, chunk: int, num_groups: int) -> None:
    p = problem(kernel, num_groups)
    ours = value_and_gradients(p, lambda: p.statistics(chunk))
    assert len(ours) == 1 + len(p.variables)
    assert error(ours, value_and_gradients(p, p.brute_force)) < 1e-10


@pytest.mark.parametrize("lengthscale", [3.0, 30.0])
def test_gradient_of_an_ill_conditioned_problem_loses_what_its_condition_number_asks(
    lengthscale: float,
) -> None:
    p = problem(SquaredExponential(lengthscales=lengthscale))
    condition = np.linalg.cond(p.K_uu() + gpflow.config.default_jitter() * np.eye(M))
    assert condition > 1e3
    ours = value_and_gradients(p, p.statistics)
    # Reached: 2e-14 for a condition of 4e3 and 7e-12 for 6e6, which is 0.02 EPS times the condition.
    assert error(ours, value_and_gradients(p, p.brute_force)) < 1e-14 + EPS * condition


def test_frozen_parameters_have_no_gradient_and_others_keep_theirs() -> None:
    p = problem()
    everything = value_and_gradients(p, p.statistics)
    names = [id(v) for v in p.variables]
    gpflow.set_trainable(p.kernel.lengthscales, False)
    gpflow.set_trainable(p.inducing, False)
    kept = [everything[0], *(everything[1 + names.index(id(v))] for v in p.variables)]
    assert len(kept) == 3  # the value, the kernel's variance and the slope
    assert error(value_and_gradients(p, p.statistics), kept) < 1e-14


@pytest.mark.parametrize("graph", [False, True])
def test_the_whitening_may_be_all_there_is_to_differentiate(graph: bool) -> None:
    p = problem()
    gpflow.set_trainable(p.kernel, False)
    gpflow.set_trainable(p.inducing, False)
    p = p._replace(slope=tf.constant(p.slope))
    L_inv = relative_inverse_cholesky(p.K_uu(), "K_uu")
    rows = Rows(LabelledRows(p.X, p.labels), RowGroups(None, N, 1))

    def value(L_inv: tf.Tensor) -> tf.Tensor:
        return weigh(group_statistics(p.kernel, p.inducing, L_inv, rows, p.features, 7))

    def gradient() -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(L_inv)
            total = value(L_inv)
        return tape.gradient(total, L_inv)

    dL_inv = (tf.function(gradient, autograph=False) if graph else gradient)()
    # The statistics are quadratic in L_inv: central differences are exact but for rounding.
    step = np.tril(np.random.default_rng(2).normal(size=(M, M)))
    difference = (value(L_inv + step) - value(L_inv - step)) / 2
    np.testing.assert_allclose(np.sum(dL_inv * step), difference, rtol=1e-11)


@pytest.mark.parametrize("num_groups", [1, K])
def test_known_statistics_are_returned_and_have_the_same_gradient(num_groups: int) -> None:
    p = problem(num_groups=num_groups)
    known = GroupStatistics(*(tf.constant(s) for s in p.statistics()))
    for ours, given in zip(p.statistics(known=known), known, strict=True):
        np.testing.assert_array_equal(ours, given)
    expected = value_and_gradients(p, p.statistics)
    assert error(value_and_gradients(p, lambda: p.statistics(known=known)), expected) < 1e-13


@pytest.mark.parametrize(
    ("num_groups", "jit_compile"), [(1, False), (1, True), (K, False)], ids=str
)
def test_graph_and_xla_equal_eager(num_groups: int, jit_compile: bool) -> None:
    p = problem("ard", num_groups)
    compiled = tf.function(
        lambda: value_and_gradients(p, p.statistics), autograph=False, jit_compile=jit_compile
    )
    assert error(compiled(), value_and_gradients(p, p.statistics)) < 1e-12


@pytest.mark.parametrize("num_groups", [1, K])
def test_float32_is_right_to_its_own_precision(num_groups: int) -> None:
    results = []
    for dtype in (np.float64, np.float32):
        with gpflow.config.as_context(gpflow.config.Config(float=dtype, jitter=1e-4)):
            p = problem(num_groups=num_groups)
            results.append(value_and_gradients(p, p.statistics))
            assert all(r.dtype == dtype for r in results[-1])
    # Sums over N rows with terms of either sign, times the condition number of K_uu.
    condition = np.linalg.cond(problem().K_uu())
    assert error(results[1], results[0]) < 2 * N * condition * np.finfo(np.float32).eps


# --- Merging ------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_groups", [1, K])
def test_statistics_of_parts_add_up_and_are_taken_back(num_groups: int) -> None:
    whole = problem(num_groups=num_groups)
    first, second = whole.rows(slice(0, 9)), whole.rows(slice(9, None))
    together, both = whole.statistics(), first.statistics() + second.statistics()
    assert isinstance(both, GroupStatistics)
    assert error(list(both), list(together)) < 1e-14
    for left, right in [(second, first), (first, second)]:
        rest = together - left.statistics()
        assert isinstance(rest, GroupStatistics)
        # Cancellation: errors are relative to the sums that are subtracted.
        for a, b, size in zip(rest, right.statistics(), together, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-14 * np.max(abs(size)))
    gradients = value_and_gradients(whole, lambda: first.statistics() + second.statistics())
    assert error(gradients, value_and_gradients(whole, whole.statistics)) < 1e-13


def test_groups_visit_every_row_of_their_class_once() -> None:
    labels = np.array([3, 0, 1, 0, 3, 3])
    groups = RowGroups(labels, 6, 5)
    np.testing.assert_array_equal(groups.offsets, [0, 2, 3, 3, 6, 6])
    rows = Rows(LabelledRows(tf.zeros([6, 1]), tf.range(6)), groups)
    taken = [rows.part(*groups.offsets[g : g + 2]).labels for g in range(5)]
    assert [list(t.numpy()) for t in taken] == [[1, 3], [2], [], [0, 4, 5], []]


# --- Memory -------------------------------------------------------------------------------------


class Recording(SquaredExponential):
    """A kernel that notes, also in graphs, how many rows it is asked about at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        noted = tf.numpy_function(self._note, [tf.shape(X if X2 is None else X2)[0]], tf.int32)
        with tf.control_dependencies([noted]):
            return super().K(X, X2)

    def _note(self, rows: np.ndarray) -> np.ndarray:
        self.rows.append(int(rows))
        return rows


@pytest.mark.parametrize(("num_groups", "graph"), [(1, False), (K, False), (K, True)])
def test_no_more_than_a_chunk_of_rows_is_ever_in_the_kernel(num_groups: int, graph: bool) -> None:
    kernel = Recording()
    p = problem(kernel, num_groups)
    chunk = 5
    counts = [N] if num_groups == 1 else np.bincount(p.labels, minlength=K)
    visits = sum(-(-int(n) // chunk) for n in counts)

    def visited(known: GroupStatistics | None = None) -> list[int]:
        def run() -> list[tf.Tensor]:
            return value_and_gradients(p, lambda: p.statistics(chunk, known))

        run = tf.function(run, autograph=False) if graph else run
        kernel.rows.clear()
        run()
        rows = list(kernel.rows)
        rows.remove(M)  # K_uu
        return [n for n in rows if n > 0]

    rows = visited()
    assert max(rows) == chunk
    assert (len(rows), sum(rows)) == (2 * visits, 2 * N)  # once forward, once backward
    rows = visited(known=p.statistics(chunk))
    assert (len(rows), sum(rows)) == (visits, N)  # the gradient's visit only


def graph_nodes(function: Callable[[], object]) -> Iterator[tuple[str, list[list[int]]]]:
    """Operations of a traced function and of all functions it calls, with their output shapes."""
    graph = tf.function(function, autograph=False).get_concrete_function().graph
    definition = graph.as_graph_def(add_shapes=True)
    bodies = [definition.node, *(f.node_def for f in definition.library.function)]
    for node in (node for body in bodies for node in body):
        shapes = node.attr["_output_shapes"].list.shape
        yield node.op, [[d.size for d in shape.dim] for shape in shapes]


def grows_with_rows(function: Callable[[], object], num_rows: int) -> bool:
    """Whether tensors with all rows exist beside inputs and labels, or a loop keeps its past."""
    inputs = [[num_rows], [num_rows, D]]
    nodes = list(graph_nodes(function))
    large = any(num_rows in s and s not in inputs for _, shapes in nodes for s in shapes)
    return large or any(op == "TensorListPushBack" for op, _ in nodes)


@pytest.mark.parametrize("num_groups", [1, K])
def test_no_tensor_has_a_column_for_every_row(num_groups: int) -> None:
    p = problem(num_groups=num_groups)
    assert not grows_with_rows(lambda: value_and_gradients(p, lambda: p.statistics(5)), N)
    # Controls: all rows at once, and a loop over chunks that autodiff differentiates.
    assert grows_with_rows(lambda: value_and_gradients(p, p.brute_force), N)

    def loop() -> tf.Tensor:
        with tf.GradientTape() as tape:
            total = tf.while_loop(
                lambda i, _: i < N,
                lambda i, s: (i + 5, s + tf.reduce_sum(p.kernel(p.X[i : i + 5]) ** 2)),
                (0, tf.zeros([], tf.float64)),
            )[1]
        return tape.gradient(total, p.kernel.trainable_variables)

    assert grows_with_rows(loop, N)


def test_rows_of_one_chunk_need_no_loop() -> None:
    p = problem()

    def loops(chunk: int) -> int:
        return sum("While" in op for op, _ in graph_nodes(lambda: p.statistics(chunk)))

    assert loops(N) < loops(N - 1)


def test_groups_that_fit_the_cache_are_one_chunk_each() -> None:
    kernel = Recording()
    p = problem(kernel, K)
    p = p._replace(labels=K - 1 - p.labels)  # none of the second class, most of the last
    p.statistics(None)
    counts = np.bincount(p.labels)
    assert [rows for rows in kernel.rows if rows > 0] == [M, *counts[counts > 0]]


def test_chunks_fit_the_cache_and_are_not_tiny() -> None:
    assert default_chunk(200, 10**6) * 200 * 8 <= 8 * 2**20
    assert default_chunk(200, 10**6) > default_chunk(400, 10**6)
    assert default_chunk(10**9, 10**6) >= 64


def test_chunks_of_many_inducing_inputs_are_worth_a_visit_to_their_sum() -> None:
    assert chunk_of_sums(200, 10**6) == default_chunk(200, 10**6)
    assert chunk_of_sums(5000, 10**6) == 2500
    assert chunk_of_sums(5000, 100) == 100


def test_chunks_are_even() -> None:
    assert default_chunk(200, 100) == 100
    chunk = default_chunk(200, 15_000)
    assert -(-15_000 // chunk) * chunk - 15_000 < chunk // 10
