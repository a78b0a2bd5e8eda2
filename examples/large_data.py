"""Fifty thousand rows: a kernel from 1,500 of them, predictions from all.

An exact model of a sample finds the kernel. Then all rows count, in two ways: by sums over inducing
inputs (``absorb`` takes arrays, memory maps, tf.data and files, in one pass), or by neighbours.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import sys
import time

import numpy as np
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

import gpflow_ilr as gi

N = 3_000 if "--quick" in sys.argv else 50_000  # --quick: only to see that it runs
K, SAMPLE, INDUCING = 5, min(N // 10, 1_500), min(N // 20, 500)

X, y = make_classification(
    N + 5_000,
    n_features=6,
    n_informative=6,
    n_redundant=0,
    n_classes=K,
    n_clusters_per_class=6,
    class_sep=1.5,
    flip_y=0.02,
    random_state=0,
)
X, X_test, y, y_test = train_test_split(X, y, test_size=5_000, random_state=0)


def report(name: str, start: float, model: gi.ILRGPR | gi.ILRSGPR | gi.ILRNNGPR) -> None:
    p, _ = model.predict_y(X_test)
    accuracy, nll = gi.metrics.accuracy(p, y_test), gi.metrics.negative_log_likelihood(p, y_test)
    print(f"{name:<28} {accuracy:8.3f} {nll:7.3f} {time.perf_counter() - start:8.1f}", flush=True)


print(f"{'':<28} accuracy     NLL  seconds")
start = time.perf_counter()
exact = gi.ILRGPR((X[:SAMPLE], y[:SAMPLE]), gi.starting_kernel(X, K), num_classes=K, noise="shared")
gi.training.fit(exact, max_iterations=30)
exact.calibrate()
report(f"exact, {SAMPLE:,} rows", start, exact)

start = time.perf_counter()
Z = gi.greedy_variance(X[: 10 * INDUCING], INDUCING, exact.kernel)
sample = (X[:SAMPLE], y[:SAMPLE])
noise = float(np.mean(exact.code.noise_variance))
sparse = gi.ILRSGPR(sample, exact.kernel, Z, num_classes=K, noise_variance=noise)
sparse.absorb((X, y))  # one pass, in memory that does not grow with N
sparse.calibrate()
report(f"inducing inputs, {N:,} rows", start, sparse)

start = time.perf_counter()
near = gi.ILRNNGPR((X, y), exact.kernel, num_classes=K, noise_variance=noise)
near.criterion_rows = np.arange(SAMPLE, N)  # rows that have not trained the kernel
near.calibrate(noise=True, neighbours=True)
report(f"{near.num_neighbours} neighbours of {N:,} rows", start, near)
