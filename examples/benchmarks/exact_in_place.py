"""The exact model in one matrix: seconds and peak memory, against LAPACK alone and against GPflow.

Each contestant has a process of its own, so that its peak is its own. Memory is what resident memory
rises above TensorFlow and the data, in matrices of N × N float64 numbers; times are ratios to one
``potrf`` and one ``trtri`` of the same size in the same run, by the clock and by what the processors
have worked. On a machine that others use, too, the latter counts, and ``OPENBLAS_NUM_THREADS=1``:
OpenBLAS' threads wait for each other, and take many times as long.
"""

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from contest import arguments

SIZES, QUICK = (5_000, 10_000, 20_000), (600,)
TRAINED, D, K, NEW = 5_000, 10, 10, 1_000


def problem(N: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """K classes around K centres, with overlap."""
    rng = np.random.default_rng(0)
    centres = 1.2 * rng.normal(size=(K, D))
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, N)
    return centres[y] + rng.normal(size=(N, D)), y


def lapack(N: int) -> Callable[[], object]:
    """One ``potrf`` and one ``trtri``, in place, of a matrix that is there already."""
    from scipy.linalg import get_lapack_funcs
    from threadpoolctl import threadpool_limits

    A = np.full((N, N), 0.5)
    np.fill_diagonal(A, 1.0)
    potrf, trtri = get_lapack_funcs(("potrf", "trtri"), dtype=A.dtype)

    def run() -> None:
        # OpenBLAS 0.3.30 ends the process at 16,000 rows, with more threads than one.
        with threadpool_limits(1 if N > 12_000 else None):
            potrf(A.T, lower=False, clean=False, overwrite_a=True)
        trtri(A.T, lower=False, overwrite_c=True)

    return run


def model(N: int) -> Any:
    import gpflow_ilr as gi

    X, y = problem(N)
    return gi.ILRGPR((X, y), gi.starting_kernel(X, K), num_classes=K)


def posterior_and_leave_one_out(N: int) -> Callable[[], object]:
    exact = model(N)

    def run() -> object:
        exact.predict_loo()
        return exact.posterior()

    return run


def predictions(N: int) -> Callable[[], object]:
    posterior, X = model(N).posterior(), problem(NEW, seed=1)[0]
    return lambda: posterior.predict_y(X)


def training(N: int, ours: bool) -> Callable[[], object]:
    """Value and gradient of the evidence, compiled as Scipy's optimiser has it."""
    import gpflow
    from collapsed import value_and_gradient

    exact = model(N)
    if ours:
        return value_and_gradient(exact)
    targets, noise = exact.code.targets.numpy()[problem(N)[1]], exact.code.noise_variance.numpy()
    data = exact.data[0], targets
    return value_and_gradient(gpflow.models.GPR(data, exact.kernel, noise_variance=noise.item()))


CONTESTANTS: dict[str, Callable[[int], Callable[[], object]]] = {
    "LAPACK potrf + trtri": lapack,
    "leave-one-out, then posterior": posterior_and_leave_one_out,
    f"predict_y of {NEW} rows": predictions,
    "calibrate()": lambda N: model(N).calibrate,
    "calibrate(noise=True)": lambda N: lambda: model(N).calibrate(noise=True),
    "evidence and gradient, GPflow GPR": lambda N: training(N, ours=False),
    "evidence and gradient, ILRGPR": lambda N: training(N, ours=True),
}


def measure(name: str, N: int, single: bool) -> np.ndarray:
    """Seconds by the clock and of all processors, and bytes that memory rises at most."""
    import gpflow

    gpflow.config.set_default_float(np.float32 if single else np.float64)
    CONTESTANTS[name](200)()  # what is loaded and started once
    run = CONTESTANTS[name](N)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak
    before, start = memory("VmRSS"), np.array([time.perf_counter(), time.process_time()])
    run()
    seconds = np.array([time.perf_counter(), time.process_time()]) - start
    return np.append(seconds, memory("VmHWM") - before)


def memory(field: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024.0 * next(int(x.split()[1]) for x in lines if x.startswith(field))


def probabilities(N: int, single: bool) -> np.ndarray:
    import gpflow

    gpflow.config.set_default_float(np.float32 if single else np.float64)
    exact = model(N)
    exact.calibrate()
    return exact.posterior().predict_y(problem(NEW, seed=1)[0])[0].numpy()


def apart(function: Callable[..., Any], *values: Any) -> Any:
    """The function's answer, from a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, values)


def main() -> None:
    options = arguments(__doc__, rounds=1)
    for N in QUICK if options.quick else SIZES:
        print(f"N={N}, D={D}, K={K}: one matrix is {8 * N * N / 1e9:.2f} GB in float64", flush=True)
        print(f"{'':<40} {'seconds':>9} {'ratio':>7} {'of work':>8} {'matrices':>9}")
        floor = None
        for name in CONTESTANTS:
            if "evidence" in name and TRAINED < N:
                continue
            for single in (False, True) if "posterior" in name else (False,):
                rounds = [apart(measure, name, N, single) for _ in range(options.rounds)]
                seconds, work, peak = np.min(rounds, axis=0)
                floor = (seconds, work) if floor is None else floor
                title = f"{name}, float32" if single else name
                ratios = f"{seconds / floor[0]:7.2f} {work / floor[1]:8.2f}"
                print(f"{title:<40} {seconds:9.2f} {ratios} {peak / (8 * N * N):9.2f}", flush=True)
    N = (QUICK if options.quick else SIZES)[0]
    single, double = (apart(probabilities, N, single) for single in (True, False))
    error = np.max(np.abs(single - double))
    print(f"float32, N={N}: probabilities of {NEW} rows differ by {error:.1e} at most")


if __name__ == "__main__":
    main()
