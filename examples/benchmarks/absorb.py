"""A stream of rows absorbed in one pass: against the matrix products that it takes, and as N grows.

With M = 5,000 inducing inputs, the floor are the triangular product L⁻¹K and the symmetric product AAᵀ,
each of half the flops of a full product of that size. Full products are timed in turn with the batches
of the pass, so that a busy machine is as busy for both. Then M = 200 and up to ten million generated
rows, each N in a process of its own, so that its peak resident memory is its own.
"""

import multiprocessing
import resource
import time

import numpy as np
from contest import arguments


def seconds() -> np.ndarray:
    """Seconds on the wall, and of all cores."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return np.array([time.perf_counter(), usage.ru_utime + usage.ru_stime])


def stream(N: int, D: int, K: int, batch: int):
    """Rows that are generated as they are read."""
    import tensorflow as tf

    def rows(i):
        X = tf.random.stateless_normal([batch, D], [i, 0], dtype=tf.float32)
        X = X[: tf.minimum(batch, tf.cast(N - i * batch, tf.int32))]
        return X, tf.argmax(X[:, :K], axis=1)

    return tf.data.Dataset.range(-(-N // batch)).map(rows)


def model_of(D: int, K: int, M: int):
    import gpflow_ilr as gi

    rng = np.random.default_rng(0)
    X = rng.normal(size=(max(M, 1000), D))
    data = X[:1000], np.argmax(X[:1000, :K], axis=1)
    return gi.ILRSGPR(data, gi.starting_kernel(X, K), X[:M].copy(), num_classes=K)


def against_products(N: int, D: int, K: int, M: int, batch: int) -> None:
    import tensorflow as tf

    model = model_of(D, K, M)
    square, rows = (tf.constant(np.random.default_rng(1).normal(size=[M, n])) for n in (M, M // 2))
    marks, products = [], []

    def between(num_rows: int, _: float) -> None:
        start = seconds()
        marks.append((num_rows, start))
        float(tf.matmul(square, rows)[0, 0])
        products.append(seconds() - start)

    begin = seconds()
    model.absorb(stream(N, D, K, batch), batch_size=batch, sample_size=1000, progress=between)
    (first, start), (last, stop) = marks[0], marks[-1]
    spent = (stop - start - np.sum(products[:-1], axis=0)) / (last - first)
    full = 2 * np.median(products, axis=0) / rows.shape[1]
    print(f"absorb, N={N}, D={D}, K={K}, M={M}, batches of {batch}, float64")
    print(f"{'microseconds a row':<44} {'wall':>9} {'all cores':>9}")
    for name, values in (
        ("the pass", 1e6 * spent),
        ("two full products [M, M]·[M, n]", 1e6 * full),
        ("the pass / full products", spent / full),
        ("the pass / triangular + symmetric products", spent / (0.5 * full)),
    ):
        print(f"{name:<44} {values[0]:9.2f} {values[1]:9.2f}")
    print(f"whole pass, with its trace and the products: {seconds()[0] - begin[0]:.0f} s")
    start = seconds()
    model.predict_y(np.zeros((1, D)))
    print(f"posterior and first prediction: {seconds()[0] - start[0]:.1f} s\n", flush=True)


def measure(N: int, D: int, K: int, M: int) -> tuple[float, float]:
    """Seconds of the pass, with its trace, and peak memory in MiB."""
    model = model_of(D, K, M)
    start = time.perf_counter()
    model.absorb(stream(N, D, K, 2**15))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return time.perf_counter() - start, peak


def main() -> None:
    options = arguments(__doc__)
    context = multiprocessing.get_context("spawn")
    shape = (4096, 4, 3, 200, 512) if options.quick else (100_000, 16, 10, 5000, 5000)
    with context.Pool(1) as pool:
        pool.apply(against_products, shape)
    D, K, M = (4, 3, 20) if options.quick else (16, 10, 200)
    sizes = [10_000, 100_000] if options.quick else [100_000, 1_000_000, 10_000_000]
    print(f"absorb, D={D}, K={K}, M={M}, a generated tf.data stream")
    print(f"{'N':>9} {'seconds':>9} {'rows/s':>9} {'peak MiB':>9} {'the rows, MiB':>14}")
    times, peaks = [], []
    for N in sizes:
        with context.Pool(1) as pool:
            spent, peak = pool.apply(measure, (N, D, K, M))
        times.append(spent)
        peaks.append(peak)
        row = f"{N:9d} {spent:9.1f} {N / spent:9.0f} {peak:9.0f} {N * 8 * (D + 1) / 2**20:14.0f}"
        print(row, flush=True)
    for name, values in (("time", times), ("memory", peaks)):
        slope = np.polyfit(np.log(sizes), np.log(values), 1)[0]
        print(f"slope of log {name} in log N: {slope:.2f}")


if __name__ == "__main__":
    main()
