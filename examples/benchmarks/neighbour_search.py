"""Which library finds nearest neighbours best: time to build, to ask, and the share that is found.

Rows have eight dimensions that matter, as standardised tables do: D = 8 has nothing else, D = 48 mixes
them linearly and adds a little noise to each column. Each contestant runs in a process of its own;
one that is not installed is skipped. ``pip install faiss-cpu hnswlib pynndescent`` for all of them.
"""

import importlib.util
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from contest import arguments

Search = Callable[[np.ndarray, int], np.ndarray]


def kd_tree(X: np.ndarray) -> Search:
    from scipy.spatial import cKDTree

    tree = cKDTree(X)
    return lambda rows, m: tree.query(rows, m, workers=-1)[1]


def sklearn_tree(algorithm: str) -> Callable[[np.ndarray], Search]:
    def build(X: np.ndarray) -> Search:
        from sklearn.neighbors import NearestNeighbors

        index = NearestNeighbors(algorithm=algorithm, n_jobs=-1).fit(X)
        return lambda rows, m: index.kneighbors(rows, m, return_distance=False)

    return build


def faiss_index(description: str) -> Callable[[np.ndarray], Search]:
    def build(X: np.ndarray) -> Search:
        import faiss

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

    return build


def hnsw(X: np.ndarray) -> Search:
    import hnswlib

    index = hnswlib.Index("l2", X.shape[1])
    index.init_index(len(X), ef_construction=100, M=16)
    index.add_items(X)
    index.set_ef(128)
    return lambda rows, m: index.knn_query(rows, m)[0]


def descent(X: np.ndarray) -> Search:
    from pynndescent import NNDescent

    index = NNDescent(X.astype(np.float32), n_neighbors=32)
    index.prepare()
    return lambda rows, m: index.query(rows.astype(np.float32), m)[0]


def brute_force(X: np.ndarray) -> Search:
    import tensorflow as tf

    from gpflow_ilr.linalg.nearest import nearest_rows

    inputs = tf.constant(X)
    return lambda rows, m: nearest_rows(inputs, tf.constant(rows), m).numpy()


CONTESTANTS: dict[str, tuple[str, Callable[[np.ndarray], Search]]] = {
    "SciPy cKDTree": ("scipy", kd_tree),
    "scikit-learn kd_tree": ("sklearn", sklearn_tree("kd_tree")),
    "scikit-learn ball_tree": ("sklearn", sklearn_tree("ball_tree")),
    "scikit-learn brute": ("sklearn", sklearn_tree("brute")),
    "faiss Flat": ("faiss", faiss_index("Flat")),
    "faiss IVF1024": ("faiss", faiss_index("IVF1024,Flat")),
    "faiss HNSW32": ("faiss", faiss_index("HNSW32")),
    "hnswlib": ("hnswlib", hnsw),
    "pynndescent": ("pynndescent", descent),
    "TensorFlow, brute force": ("gpflow_ilr", brute_force),
}


def rows_of(N: int, D: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal((N, 8))
    if D == 8:
        return hidden
    mix = np.random.default_rng(0).standard_normal((8, D)) / np.sqrt(8)
    return hidden @ mix + 0.1 * rng.standard_normal((N, D))


def measure(name: str, N: int, D: int, m: int, num_queries: int) -> tuple[float, ...]:
    """Seconds to build, milliseconds a row in a batch, milliseconds for one row alone, recall."""
    X, queries = rows_of(N, D, 1), rows_of(num_queries, D, 2)
    start = time.perf_counter()
    search = CONTESTANTS[name][1](X)
    build = time.perf_counter() - start
    search(queries[:2], m)  # compiles, where something is compiled
    start = time.perf_counter()
    found = search(queries, m)
    batch = (time.perf_counter() - start) / num_queries
    alone = []
    for i in range(10):
        start = time.perf_counter()
        search(queries[i : i + 1], m)
        alone.append(time.perf_counter() - start)
    right = 0
    some = range(0, num_queries, max(1, num_queries // 20))
    for i in some:
        true = np.argpartition(np.sum((X - queries[i]) ** 2, axis=1), m)[:m]
        right += len(np.intersect1d(true, found[i]))
    return build, 1e3 * batch, 1e3 * min(alone), right / (m * len(some))


def main() -> None:
    options = arguments(__doc__)
    m, num_queries = (16, 50) if options.quick else (65, 1000)
    sizes = [2000] if options.quick else [10_000, 1_000_000]
    context = multiprocessing.get_context("spawn")
    for N in sizes:
        for D in (8, 48):
            print(f"\nN = {N}, D = {D}, {m} neighbours of {num_queries} rows")
            print(f"{'':<26} {'build s':>9} {'ms a row':>9} {'alone ms':>9} {'found':>7}")
            for name, (package, _) in CONTESTANTS.items():
                if importlib.util.find_spec(package) is None:
                    print(f"{name:<26} not installed")
                    continue
                if name == "pynndescent" and N > 100_000:
                    print(f"{name:<26} takes more than ten minutes to build")
                    continue
                with ProcessPoolExecutor(1, context) as pool:
                    figures = pool.submit(measure, name, N, D, m, num_queries).result()
                print("{:<26} {:9.2f} {:9.3f} {:9.2f} {:7.1%}".format(name, *figures), flush=True)


if __name__ == "__main__":
    main()
