"""Nearest rows where values are known: an index that is built once for some rows and a metric.

A k-d tree (SciPy) for few columns, where it is exact and soon built; else faiss, if it is
installed: all rows compared by matrix products up to some ten thousand, inverted lists beyond; else
TensorFlow's own products. Measured (``python examples/benchmarks neighbours``, two cores),
in milliseconds for 65 neighbours of a row: 10⁴ rows of 48 columns, tree 0.5, all compared 0.08; 10⁶
rows of 8 columns, tree 2.0, all compared 6.2, lists 0.6 (and all found); 10⁶ rows of 48, 15.9, 4.6
and 0.2 (99.7 % found), TensorFlow 11. Graphs of neighbours (HNSW) answer in 0.1 to 0.2, but take 87
s to build where lists take 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.spatial import cKDTree

from gpflow_ilr.linalg.nearest import nearest_rows

__all__ = ["NeighbourIndex"]

_TREE_COLUMNS = 6
_LISTS_FROM = 50_000
_PROBES = 32

Search = Callable[[np.ndarray, int], np.ndarray]


class NeighbourIndex:
    """Finds nearest rows, and keeps what it has built for as long as rows and metric stay.

    Copies and saved files leave behind what was built: it is built again when it is needed.
    """

    def __init__(self) -> None:
        self._built: dict[int, _Built] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_built": {}}

    def nearest(
        self,
        key: int,
        X: tf.Tensor,
        metric: tf.Tensor,
        Xnew: tf.Tensor,
        count: int,
        stale: float = 0.0,
    ) -> tf.Tensor:
        """Numbers of the rows of X nearest to each of some others, nearest first, [n, count].

        :param key: of which of several indices this is a question.
        :param X: [N, D].
        :param metric: what each column is multiplied with, [D].
        :param Xnew: [n, D].
        :param count: how many, at most N; fewer where there are fewer rows.
        :param stale: how much the metric may have changed since the index was built.
        """
        count = min(count, X.shape[0])
        if not tf.executing_eagerly():
            return nearest_rows(X * metric, Xnew * metric, count)
        built = self._built.get(key)
        if built is None or not built.is_of(X) or built.is_stale(metric, stale):
            built = self._built[key] = _Built(X, metric)
        return built.nearest(Xnew, count)

    def is_stale(self, key: int, metric: tf.Tensor, stale: float) -> bool:
        """Whether an index was built for a metric that has changed since.

        :param key: of which of several indices this is a question.
        :param metric: the present metric, [D].
        :param stale: how much it may have changed.
        """
        return key in self._built and self._built[key].is_stale(metric, stale)


class _Built:
    """What answers questions about some rows in some metric."""

    def __init__(self, X: tf.Tensor, metric: tf.Tensor) -> None:
        self._X, self._values = X, np.asarray(X)
        self._metric = np.asarray(metric)
        self._columns = self._metric > 0.0
        with np.errstate(over="ignore"):  # the search refuses such rows
            self._spread = np.std(self._values, axis=0)
        self._search = _searcher(self._scaled(self._values))
        self._answered: tuple[Any, int, tf.Tensor] | None = None

    def is_of(self, X: tf.Tensor) -> bool:
        """Whether these are the rows; a variable may have got others."""
        if isinstance(X, tf.Variable):
            return np.array_equal(self._values, X.numpy())
        return X is self._X

    def is_stale(self, metric: tf.Tensor, stale: float) -> bool:
        """Whether the weight of a column has changed by more than a share of the largest weight.

        Columns count by what they contribute to distances, and a common factor changes no neighbour.
        """
        new = self._weights(np.asarray(metric))
        return bool(np.max(np.abs(new - self._weights(self._metric))) > stale)

    def _weights(self, metric: np.ndarray) -> np.ndarray:
        """The spread of each column in some metric, as a share of the largest."""
        spread = metric * self._spread
        return spread / max(np.max(spread), np.finfo(spread.dtype).tiny)

    def nearest(self, Xnew: tf.Tensor, count: int) -> tf.Tensor:
        Xnew = tf.convert_to_tensor(Xnew)  # a variable may get other values
        # In training the same rows ask again and again. One tuple: other threads may ask, too.
        kept = self._answered
        if kept is not None and kept[0] is Xnew and kept[1] == count:
            return kept[2]
        found = self._search(self._scaled(np.asarray(Xnew)), count)
        if np.max(found, initial=0) >= len(self._values):  # the tree's mark for none
            raise ValueError(
                "X has rows so far apart that their distances overflow. Scale its columns, for "
                "example with gpflow_ilr.inputs.scaling.Standardised."
            )
        answer = tf.constant(np.reshape(found, [-1, count]), tf.int32)
        self._answered = (Xnew, count, answer)
        return answer

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        """The columns that count, scaled by the metric."""
        return np.ascontiguousarray(X[:, self._columns] * self._metric[self._columns])


def _searcher(X: np.ndarray) -> Search:
    if X.shape[1] <= _TREE_COLUMNS:
        tree = cKDTree(X)
        return lambda rows, count: tree.query(rows, count, workers=-1)[1]
    try:
        import faiss
    except ModuleNotFoundError:
        rows_of_all = tf.constant(X)
        return lambda rows, count: nearest_rows(rows_of_all, tf.constant(rows), count).numpy()
    return _faiss_searcher(faiss, X)


def _faiss_searcher(faiss: Any, X: np.ndarray) -> Search:
    """All rows compared, or where they are many, those of the nearest lists."""
    centre = np.mean(X, axis=0)  # float32 keeps most digits near the origin
    rows = (X - centre).astype(np.float32)
    index: Any = faiss.IndexFlatL2(X.shape[1])
    if len(X) >= _LISTS_FROM:
        num_lists = int(np.sqrt(len(X)))
        index = faiss.IndexIVFFlat(index, X.shape[1], num_lists)
        index.nprobe = _PROBES
        index.train(rows[:: 1 + len(X) // (100 * num_lists)])
    index.add(rows)

    def search(new: np.ndarray, count: int) -> np.ndarray:
        new = (new - centre).astype(np.float32)
        found = index.search(new, count)[1]
        few = np.any(found < 0, axis=1)  # its lists have fewer rows than that
        if np.any(few):
            every_list = faiss.SearchParametersIVF(nprobe=index.nlist)
            found[few] = index.search(new[few], count, params=every_list)[1]
        return found

    return search
