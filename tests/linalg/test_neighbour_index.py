"""An index over rows: what it finds, and how long it keeps what it has built."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.linalg import neighbour_index
from gpflow_ilr.linalg.neighbour_index import NeighbourIndex

N, D, COUNT = 60, 4, 7
X = tf.constant(np.random.default_rng(0).normal(size=(N, D)) + 3.0)
XNEW = tf.constant(np.random.default_rng(1).normal(size=(9, D)) + 3.0)
METRIC = tf.constant([1.0, 0.3, 0.7, 0.05], tf.float64)

WAYS = {
    "k-d tree": {"_TREE_COLUMNS": D},
    "faiss": {"_TREE_COLUMNS": 0},
    "faiss lists": {"_TREE_COLUMNS": 0, "_LISTS_FROM": 0},
    "tensorflow": {"_TREE_COLUMNS": 0},
}


@pytest.fixture(name="way", params=WAYS)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """One of the ways to search, made to serve few rows of few columns."""
    if "faiss" in request.param:
        pytest.importorskip("faiss")
    if request.param == "tensorflow":
        monkeypatch.setitem(sys.modules, "faiss", None)
    for name, value in WAYS[request.param].items():
        monkeypatch.setattr(neighbour_index, name, value)
    return request.param


@pytest.fixture(name="built")
def _built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of every index that is built."""
    built: list[int] = []
    search_in = neighbour_index._searcher

    def counting(X: np.ndarray) -> Callable[[np.ndarray, int], np.ndarray]:
        built.append(len(X))
        return search_in(X)

    monkeypatch.setattr(neighbour_index, "_searcher", counting)
    return built


def by_sorting(X: tf.Tensor, metric: tf.Tensor, Xnew: tf.Tensor, count: int) -> np.ndarray:
    differences = (np.asarray(Xnew)[:, None] - np.asarray(X)[None]) * np.asarray(metric)
    return np.argsort(np.sum(differences**2, axis=-1), axis=1)[:, :count]


@pytest.mark.parametrize("count", [1, COUNT, N])
def test_every_way_finds_what_sorting_finds(way: str, count: int) -> None:
    found = NeighbourIndex().nearest(0, X, METRIC, XNEW, count)
    assert found.dtype == tf.int32
    np.testing.assert_array_equal(found, by_sorting(X, METRIC, XNEW, count))


def test_every_way_finds_nothing_for_no_rows(way: str) -> None:
    assert NeighbourIndex().nearest(0, X, METRIC, XNEW[:0], COUNT).shape == (0, COUNT)


def test_the_ways_are_those_that_are_meant(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    for name in ("cKDTree", "nearest_rows", "_faiss_searcher"):
        original = getattr(neighbour_index, name)

        def noticed(*args, name=name, original=original):
            asked.append(name)
            return original(*args)

        monkeypatch.setattr(neighbour_index, name, noticed)
    NeighbourIndex().nearest(0, X, METRIC, XNEW, COUNT)
    expected = {"k-d tree": "cKDTree", "tensorflow": "nearest_rows"}.get(way, "_faiss_searcher")
    assert asked == [expected]


def test_lists_with_too_few_rows_are_not_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    for name, value in (WAYS["faiss lists"] | {"_PROBES": 1}).items():
        monkeypatch.setattr(neighbour_index, name, value)
    found = NeighbourIndex().nearest(0, X, METRIC, XNEW, N)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.tile(np.arange(N), (len(XNEW), 1)))


def test_graphs_compare_with_all_rows() -> None:
    index = NeighbourIndex()
    find = tf.function(lambda Xnew: index.nearest(0, X, METRIC, Xnew, COUNT), autograph=False)
    np.testing.assert_array_equal(find(XNEW), by_sorting(X, METRIC, XNEW, COUNT))
    assert not index.is_stale(0, 2.0 * METRIC + 1.0, 0.0)  # nothing was built


def test_fewer_rows_than_asked_for_are_all_rows(way: str) -> None:
    found = NeighbourIndex().nearest(0, X[:4], METRIC, XNEW, COUNT)
    np.testing.assert_array_equal(found, by_sorting(X[:4], METRIC, XNEW, 4))
    graph = tf.function(lambda: NeighbourIndex().nearest(0, X[:4], METRIC, XNEW, COUNT))
    np.testing.assert_array_equal(graph(), found)


def test_columns_of_no_weight_do_not_count(way: str) -> None:
    metric = METRIC * [1.0, 0.0, 1.0, 0.0]
    wild = tf.constant(1e6 * np.random.default_rng(2).normal(size=(N, D)) * [0, 1, 0, 1])
    found = NeighbourIndex().nearest(0, X + wild, metric, XNEW, COUNT)
    np.testing.assert_array_equal(found, by_sorting(X, metric, XNEW, COUNT))


def test_columns_without_weight_leave_a_tree_of_the_others(monkeypatch) -> None:
    monkeypatch.setattr(neighbour_index, "_TREE_COLUMNS", 1)
    monkeypatch.setattr(neighbour_index, "_faiss_searcher", None)  # which would fail
    metric = tf.constant([0.0, 0.0, 1.0, 0.0], tf.float64)
    found = NeighbourIndex().nearest(0, X, metric, XNEW, COUNT)
    np.testing.assert_array_equal(found, by_sorting(X, metric, XNEW, COUNT))


# How long it is kept


def test_the_index_is_kept_while_rows_and_metric_stay(built: list[int]) -> None:
    index = NeighbourIndex()
    for rows, count in ((XNEW, COUNT), (XNEW, COUNT), (XNEW, 3), (X[:5], COUNT), (XNEW, COUNT)):
        found = index.nearest(0, X, METRIC, rows, count)
        np.testing.assert_array_equal(found, by_sorting(X, METRIC, rows, count))
    assert built == [N]


def test_other_rows_are_another_index(built: list[int]) -> None:
    index = NeighbourIndex()
    index.nearest(0, X, METRIC, XNEW, COUNT)
    others = X[::-1]
    found = index.nearest(0, others, METRIC, XNEW, COUNT)
    np.testing.assert_array_equal(found, by_sorting(others, METRIC, XNEW, COUNT))
    assert built == [N, N]


def test_a_variable_that_got_other_rows_is_another_index(built: list[int]) -> None:
    index, variable = NeighbourIndex(), tf.Variable(X)
    index.nearest(0, variable, METRIC, XNEW, COUNT)
    index.nearest(0, variable, METRIC, XNEW, 3)
    assert built == [N]
    variable.assign(X[::-1])
    found = index.nearest(0, variable, METRIC, XNEW, COUNT)
    np.testing.assert_array_equal(found, by_sorting(X[::-1], METRIC, XNEW, COUNT))
    assert built == [N, N]


def test_a_variable_that_asks_gets_the_answer_for_its_present_values() -> None:
    index, asking = NeighbourIndex(), tf.Variable(XNEW)
    index.nearest(0, X, METRIC, asking, COUNT)
    asking.assign(XNEW[::-1])
    found = index.nearest(0, X, METRIC, asking, COUNT)
    np.testing.assert_array_equal(found, by_sorting(X, METRIC, XNEW[::-1], COUNT))


def moved(column: int, by: float) -> tf.Tensor:
    """METRIC, with the spread of a column changed by a share of the largest spread."""
    spread = np.std(X, axis=0)
    shares = spread * METRIC.numpy() / np.max(spread * METRIC.numpy())
    shares[column] += by
    return tf.constant(shares / spread)


@pytest.mark.parametrize("column", [1, 2, 3])
def test_the_index_is_built_again_once_a_column_has_changed_by_a_share(column, built) -> None:
    index, stale = NeighbourIndex(), 0.1
    first = index.nearest(0, X, METRIC, XNEW, COUNT, stale)
    a_little = moved(column, 0.9 * stale)
    assert not index.is_stale(0, a_little, stale)
    assert index.nearest(0, X, a_little, XNEW, COUNT, stale) is first
    assert built == [N]
    much = moved(column, 1.1 * stale)
    assert index.is_stale(0, much, stale)
    found = index.nearest(0, X, much, XNEW, COUNT, stale)
    np.testing.assert_array_equal(found, by_sorting(X, much, XNEW, COUNT))
    assert built == [N, N]
    index.nearest(0, X, a_little, XNEW, COUNT)  # which is not to be stale at all
    assert built == [N, N, N]


def test_units_of_columns_do_not_matter() -> None:
    units = np.array([1.0, 1e-6, 1e6, 1.0])
    index, stale = NeighbourIndex(), 0.1
    index.nearest(0, X * units, METRIC / units, XNEW * units, COUNT, stale)
    for column in range(1, D):
        assert not index.is_stale(0, moved(column, 0.9 * stale) / units, stale)
        assert index.is_stale(0, moved(column, 1.1 * stale) / units, stale)


def test_a_common_factor_leaves_the_index(built: list[int]) -> None:
    index = NeighbourIndex()
    index.nearest(0, X, METRIC, XNEW, COUNT)
    assert not index.is_stale(0, 4.0 * METRIC, 0.0)
    index.nearest(0, X, 4.0 * METRIC, XNEW, COUNT)
    assert built == [N]


def test_a_column_that_begins_to_count_is_another_metric() -> None:
    index = NeighbourIndex()
    index.nearest(0, X, METRIC * [1.0, 0.0, 1.0, 1.0], XNEW, COUNT)
    beginning = METRIC * [1.0, 1e-3, 1.0, 1.0]
    found = index.nearest(0, X, beginning, XNEW, COUNT)
    np.testing.assert_array_equal(found, by_sorting(X, beginning, XNEW, COUNT))
    assert index.is_stale(0, METRIC, 0.1)


def test_each_key_has_an_index_of_its_own(built: list[int]) -> None:
    index, other = NeighbourIndex(), METRIC[::-1]
    for _ in range(2):
        for key, metric in enumerate((METRIC, other)):
            found = index.nearest(key, X, metric, XNEW, COUNT)
            np.testing.assert_array_equal(found, by_sorting(X, metric, XNEW, COUNT))
    assert built == [N, N]
    assert index.is_stale(0, other, 0.1)
    assert not index.is_stale(1, other, 0.1)
    assert not index.is_stale(2, other, 0.1)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_build_their_own(copied, built: list[int], way: str) -> None:
    index = NeighbourIndex()
    index.nearest(0, X, METRIC, XNEW, COUNT)
    other = copied(index)
    found = other.nearest(0, X, METRIC, XNEW, COUNT)
    np.testing.assert_array_equal(found, by_sorting(X, METRIC, XNEW, COUNT))
    assert built == [N, N]


def test_rows_whose_distances_overflow_are_refused_with_a_remedy() -> None:
    far = tf.constant(1e160 * np.eye(3))
    with pytest.raises(ValueError, match=r"distances overflow\. Scale its columns"):
        NeighbourIndex().nearest(0, far, tf.ones(3, far.dtype), far, 2)
