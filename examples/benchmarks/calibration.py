"""What ``calibrate`` costs, as a share of the fit that it follows."""

import time

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


def main() -> None:
    options = arguments(__doc__)
    rng = np.random.default_rng(0)
    print(f"{'':<34} {'fit s':>8} {'evals':>6} {'calibrate s':>12} {'share':>7}")

    def show(name: str, model: gi.ILRGPR | gi.ILRSGPR) -> None:
        fit, calibrate, evaluations = share(model, iterations=100)
        print(f"{name:<34} {fit:8.2f} {evaluations:6d} {calibrate:12.2f} {calibrate / fit:7.1%}")

    def problem(N: int, D: int, K: int) -> tuple[np.ndarray, np.ndarray]:
        """K classes around K centres, with overlap."""
        y = rng.integers(0, K, N)
        return 1.2 * rng.normal(size=(K, D))[y] + rng.normal(size=(N, D)), y

    N, D, K, M = (600, 4, 5, 20) if options.quick else (15_000, 16, 26, 200)
    X, y = problem(N, D, K)
    for noise in ("fixed", "per_output"):
        Z = gi.kmeans_plusplus(X, M)
        model = gi.ILRSGPR((X, y), gi.starting_kernel(X, K), Z, num_classes=K, noise=noise)
        show(f"ILRSGPR N={N} K={K} M={M} {noise}", model)
    N, D, K = (200, 3, 4) if options.quick else (2000, 10, 10)
    X, y = problem(N, D, K)
    show(f"ILRGPR N={N} K={K}", gi.ILRGPR((X, y), gi.starting_kernel(X, K), num_classes=K))


if __name__ == "__main__":
    main()
