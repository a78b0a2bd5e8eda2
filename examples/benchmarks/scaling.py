"""The collapsed bound from ten thousand to a million rows: time and memory as N grows.

Each N runs in a process of its own, so that its peak resident memory is its own. A small N has as many
more rounds as it has fewer rows: the best of three short ones measures the machine's moods.
"""

import multiprocessing
import resource
import time

import numpy as np
from contest import arguments


def measure(N: int, D: int, K: int, M: int, rounds: int) -> tuple[float, float, float]:
    """Seconds of the best value + gradient; peak memory and memory before the step, in MiB."""
    import tensorflow as tf
    from collapsed import value_and_gradient

    import gpflow_ilr as gi

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, D)), rng.integers(0, K, N)
    model = gi.ILRSGPR((tf.constant(X), y), gi.starting_kernel(X, K), X[:M].copy(), num_classes=K)
    del X, y
    step = value_and_gradient(model)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    step()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return min(seconds), peak, before


def main() -> None:
    options = arguments(__doc__, rounds=3)
    D, K, M = (4, 3, 20) if options.quick else (16, 10, 200)
    sizes = [1000, 4000] if options.quick else [10_000, 100_000, 1_000_000]
    print(f"value + gradient, D={D}, K={K}, M={M}, float64, fixed noise")
    print(f"{'N':>9} {'seconds':>9} {'peak MiB':>9} {'before':>9} {'of that the data':>17}")
    seconds = []
    context = multiprocessing.get_context("spawn")
    for N in sizes:
        with context.Pool(1) as pool:
            best, peak, before = pool.apply(measure, (N, D, K, M, options.rounds * sizes[-1] // N))
        seconds.append(best)
        data = N * (8 * D + 4 + 8) / 2**20
        print(f"{N:9d} {best:9.3f} {peak:9.0f} {before:9.0f} {data:17.0f}")
    slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    print(f"slope of log time in log N: {slope:.2f}")


if __name__ == "__main__":
    main()
