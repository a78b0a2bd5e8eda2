"""The exact evidence: value and gradient against GPflow's GPR on the same targets."""

import gpflow
import numpy as np
from collapsed import value_and_gradient
from contest import arguments, best_times, report

import gpflow_ilr as gi


def main() -> None:
    options = arguments(__doc__)
    N, D, K = (200, 3, 4) if options.quick else (2000, 10, 10)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, D)), rng.integers(0, K, N)
    code = gi.ILRCode(K)
    T = code.targets.numpy()[y]

    def kernel() -> gpflow.kernels.Kernel:
        return gi.starting_kernel(X, K)

    contestants = {
        "GPflow GPR": value_and_gradient(
            gpflow.models.GPR((X, T), kernel(), noise_variance=code.noise_variance.numpy().item())
        ),
        "ILRGPR fixed noise": value_and_gradient(gi.ILRGPR((X, y), kernel(), num_classes=K)),
        "DirichletGPR": value_and_gradient(gi.DirichletGPR((X, y), kernel(), num_classes=K)),
    }
    print(f"value + gradient, N={N}, D={D}, K={K}, float64")
    times = best_times(contestants, options.rounds)
    report(times, "GPflow GPR")
    report(times, "ILRGPR fixed noise")


if __name__ == "__main__":
    main()
