"""Nearest neighbours: libraries that find them, and our model that predicts from them."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from contest import AbsentError
from machine import threads
from problems import problem

__all__ = ["model", "search"]

Search = Callable[[np.ndarray, int], np.ndarray]


def kd_tree(X: np.ndarray) -> Search:
    from scipy.spatial import cKDTree

    tree = cKDTree(X)
    return lambda rows, m: tree.query(rows, m, workers=threads())[1]


def sklearn_index(X: np.ndarray, algorithm: str) -> Search:
    from sklearn.neighbors import NearestNeighbors

    index = NearestNeighbors(algorithm=algorithm, n_jobs=threads()).fit(X)
    return lambda rows, m: index.kneighbors(rows, m, return_distance=False)


def faiss_index(X: np.ndarray, description: str) -> Search:
    import faiss

    if description.startswith("IVF"):
        description = f"IVF{min(1024, len(X) // 40)},Flat"  # lists of fewer rows cannot be trained
    index = faiss.index_factory(X.shape[1], description)
    rows = X.astype(np.float32)
    if not index.is_trained:
        index.train(rows[:: max(1, len(rows) // 100_000)])
    index.add(rows)
    if description.startswith("IVF"):
        faiss.extract_index_ivf(index).nprobe = 32
    elif description.startswith("HNSW"):
        index.hnsw.efSearch = 128
    return lambda rows, m: index.search(rows.astype(np.float32), m)[1]


def hnswlib(X: np.ndarray) -> Search:
    import hnswlib

    index = hnswlib.Index("l2", X.shape[1])
    index.init_index(len(X), ef_construction=100, M=16)
    index.set_num_threads(threads())
    index.add_items(X)
    index.set_ef(128)
    return lambda rows, m: index.knn_query(rows, m)[0]


def pynndescent(X: np.ndarray) -> Search:
    from pynndescent import NNDescent

    if len(X) > 100_000:
        raise AbsentError("it takes more than ten minutes to build")
    index = NNDescent(X.astype(np.float32), n_neighbors=32, n_jobs=threads())
    index.prepare()
    return lambda rows, m: index.query(rows.astype(np.float32), m)[0]


def brute_force(X: np.ndarray) -> Search:
    import tensorflow as tf

    from gpflow_ilr.linalg.nearest import nearest_rows

    inputs = tf.constant(X)
    return lambda rows, m: nearest_rows(inputs, tf.constant(rows), m).numpy()


def ours(X: np.ndarray) -> Search:
    import tensorflow as tf

    from gpflow_ilr.linalg.neighbour_index import NeighbourIndex

    index, inputs = NeighbourIndex(), tf.constant(X)
    metric = tf.ones([X.shape[1]], inputs.dtype)

    def search(rows: np.ndarray, m: int) -> np.ndarray:
        return index.nearest(0, inputs, metric, tf.constant(rows), m).numpy()

    search(X[:1], 1)  # builds it
    return search


BY_NAME: dict[str, Callable[[np.ndarray], Search]] = {
    "ours": ours,
    "kd_tree": kd_tree,
    "sklearn kd_tree": partial(sklearn_index, algorithm="kd_tree"),
    "sklearn ball_tree": partial(sklearn_index, algorithm="ball_tree"),
    "sklearn brute": partial(sklearn_index, algorithm="brute"),
    "faiss Flat": partial(faiss_index, description="Flat"),
    "faiss IVF": partial(faiss_index, description="IVF"),
    "faiss HNSW": partial(faiss_index, description="HNSW32"),
    "hnswlib": hnswlib,
    "pynndescent": pynndescent,
    "brute force": brute_force,
}


def rows_of(N: int, D: int, seed: int) -> np.ndarray:
    """Eight dimensions matter, as in standardised tables; more are mixtures with a little noise."""
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal((N, 8))
    if D == 8:
        return hidden
    mix = np.random.default_rng(0).standard_normal((8, D)) / np.sqrt(8)
    return hidden @ mix + 0.1 * rng.standard_normal((N, D))


def search(N: int, D: int, m: int, queries: int, by: str) -> Callable[[], object]:
    """Many rows at once; also what it takes to build, and for one row, and the share that is found."""
    X, rows = rows_of(N, D, 1), rows_of(queries, D, 2)
    BY_NAME[by](X[:200])  # what is loaded once is no part of building
    start = time.perf_counter()
    find = BY_NAME[by](X)
    figures = {"build s": time.perf_counter() - start}
    find(rows[:2], m)  # compiles, where something is compiled
    alone = []
    for i in range(10):
        start = time.perf_counter()
        find(rows[i : i + 1], m)
        alone.append(time.perf_counter() - start)
    some = range(0, queries, max(1, queries // 20))
    true = [np.argpartition(np.sum((X - rows[i]) ** 2, axis=1), m)[:m] for i in some]

    def turn() -> Callable[[], dict[str, float]]:
        found = find(rows, m)
        right = sum(len(np.intersect1d(t, found[i])) for t, i in zip(true, some, strict=True))
        return lambda: figures | {"alone ms": 1e3 * min(alone), "found": right / (m * len(true))}

    return turn


def model(N: int, D: int, K: int, action: str, m: int = 64, **_: int) -> Callable[[], object]:
    """``ILRNNGPR`` with a given kernel: its index, calibration, a thousand rows, or one."""
    import gpflow

    import gpflow_ilr as gi

    given, new = problem(N, D, K), problem(1000, D, K, seed=2).X
    kernel = gpflow.kernels.Matern52(1.0 / K, lengthscales=np.full(D, 2.0))

    def made() -> Any:
        return gi.ILRNNGPR(given[:2], kernel, num_classes=K, num_neighbours=min(m, N // 2))

    near = made()
    return {
        "index": lambda: made().predict_y(new[:1]),
        "calibrate": lambda: near.calibrate(max_rows=512),
        "rows": lambda: near.predict_y(new),
        "row": lambda: near.predict_y(new[:1]),
    }[action]
