"""What ``calibrate`` costs, as a share of the fit that it follows.

In each round a new model is fitted and calibrated; the best round of either counts.
"""

import time
from collections.abc import Callable

import gpflow
import numpy as np
from contest import arguments

import gpflow_ilr as gi


def share(model: gi.ILRGPR | gi.ILRSGPR, iterations: int) -> tuple[float, float, int]:
    """Seconds of the fit and of ``calibrate``, and the number of evaluations of the fit."""
    start = time.perf_counter()
    result = gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": iterations}
    )
    middle = time.perf_counter()
    model.calibrate()
    return middle - start, time.perf_counter() - middle, result.nfev


def problem(rng: np.random.Generator, N: int, D: int, K: int) -> tuple[np.ndarray, np.ndarray]:
    """K classes around K centres, with overlap."""
    y = rng.integers(0, K, N)
    return 1.2 * rng.normal(size=(K, D))[y] + rng.normal(size=(N, D)), y


def main() -> None:
    options = arguments(__doc__, rounds=3)
    rng = np.random.default_rng(0)
    print(f"{'':<52} {'fit s':>8} {'evals':>6} {'calibrate s':>12} {'share':>7}")

    def show(name: str, model: Callable[[], gi.ILRGPR | gi.ILRSGPR]) -> None:
        rounds = [share(model(), iterations=100) for _ in range(options.rounds)]
        fit, calibrate, evaluations = (min(column) for column in zip(*rounds, strict=True))
        print(f"{name:<52} {fit:8.2f} {evaluations:6.0f} {calibrate:12.2f} {calibrate / fit:7.1%}")

    N, D, K = (200, 3, 4) if options.quick else (2000, 10, 10)
    exact = problem(rng, N, D, K)
    for ard in (False, True):
        show(
            f"ILRGPR N={N} K={K} {'one lengthscale for each column' if ard else ''}",
            lambda ard=ard: gi.ILRGPR(
                exact, gi.starting_kernel(exact[0], K, ard=ard), num_classes=K
            ),
        )
    N, D, K, M = (600, 4, 5, 20) if options.quick else (15_000, 16, 26, 200)
    data = problem(rng, N, D, K)
    Z = gi.kmeans_plusplus(data[0], M)
    for noise in ("fixed", "per_output"):
        show(
            f"ILRSGPR N={N} K={K} M={M} {noise}",
            lambda noise=noise: gi.ILRSGPR(
                data, gi.starting_kernel(data[0], K), Z, num_classes=K, noise=noise
            ),
        )


if __name__ == "__main__":
    main()
