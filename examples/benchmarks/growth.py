"""Nearest neighbours from ten thousand to a million rows: seconds and memory as N and K grow.

Each size runs in a process of its own, so that its peak resident memory is its own. The kernel is
given: measured are the index, ``calibrate()`` (λ, from 512 rows left out), predictions of a thousand
rows at once, and of one row alone (the best of twenty).
"""

import multiprocessing
import resource
import time

import numpy as np
from contest import arguments


def measure(N: int, D: int, K: int, m: int) -> tuple[float, ...]:
    """Seconds to calibrate and to predict, milliseconds for one row, MiB in all and of the data."""
    import gpflow

    import gpflow_ilr as gi

    rng = np.random.default_rng(0)
    y = rng.integers(0, K, N)
    X = 1.5 * rng.normal(size=(K, D))[y] + rng.normal(size=(N, D))
    new = X[:: max(1, N // 1000)][:1000] + 0.1
    kernel = gpflow.kernels.Matern52(1.0 / K, lengthscales=np.full(D, 2.0))
    model = gi.ILRNNGPR((X, y), kernel, num_classes=K, num_neighbours=m)
    seconds = []
    for action in (
        lambda: model.predict_y(new[:1]),  # builds the index
        lambda: model.calibrate(max_rows=512),
        lambda: model.predict_y(new),
        *([lambda: model.predict_y(new[:1])] * 20),
    ):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return *seconds[:3], 1e3 * min(seconds[3:]), peak, (X.nbytes + y.nbytes) / 2**20


def main() -> None:
    options = arguments(__doc__)
    D, m = (4, 16) if options.quick else (16, 64)
    sizes = [1000, 4000] if options.quick else [10_000, 100_000, 1_000_000]
    classes = [2, 10] if options.quick else [2, 26, 1000]
    print(f"D={D}, {m} neighbours, float64")
    names = ("index s", "calibrate s", "1000 rows s", "one row ms", "peak MiB", "data MiB")
    print(f"{'K':>5} {'N':>9} " + " ".join(f"{name:>12}" for name in names))
    context = multiprocessing.get_context("spawn")
    for K in classes:
        rows = []
        for N in sizes:
            with context.Pool(1) as pool:
                rows.append(pool.apply(measure, (N, D, K, m)))
            print(f"{K:5d} {N:9d} " + " ".join(f"{x:12.2f}" for x in rows[-1]), flush=True)
        slopes = [
            np.polyfit(np.log(sizes), np.log(column), 1)[0] for column in zip(*rows, strict=True)
        ]
        print(f"{'':5} {'slope':>9} " + " ".join(f"{x:12.2f}" for x in slopes), flush=True)


if __name__ == "__main__":
    main()
