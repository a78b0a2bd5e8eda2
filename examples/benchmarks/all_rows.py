"""All rows: neighbours and the exact model with a kernel from a sample, beside CatBoost.

Columns are standardised and clipped at their 0.1 % and 99.9 % quantiles (training rows). The kernel
comes from the evidence of an exact model of a sample (its family is given, see ``KERNELS``); noise, λ
and the number of neighbours come from leave-one-out. CatBoost has 600 trees and stops early on a
tenth of the training rows. Seconds are from raw rows to predictions of the test rows. Test rows choose
nothing.

    python examples/benchmarks/all_rows.py --data-dir DIR [--datasets letter eeg magic] [--seeds 3]

DIR has ``<name>.npz`` files with ``X`` and ``y``. Without it scikit-learn's digits are used.
"""

import argparse
import functools
from pathlib import Path
from typing import Any

import numpy as np
from quality import Contestant, Split, compare
from trees import boosted

TEST_ROWS = {"letter": 5000, "magic": 5000, "eeg": 4000}

# Family, a lengthscale for each column or one, noise, rows that the kernel comes from and that are left
# out: more where CatBoost's seconds are no limit.
KERNELS = dict.fromkeys(("letter", "digits"), ("SquaredExponential", False, "fixed", 1500, 2048))
OTHER = ("Matern52", True, "shared", 3000, 4096)


def load(name: str, data_dir: Path | None, seed: int) -> Split:
    """Rows and labels for training, then for testing."""
    if data_dir is None:
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
    else:
        with np.load(data_dir / f"{name}.npz") as arrays:
            X, y = arrays["X"].astype(float), arrays["y"]
    order = np.random.default_rng(seed).permutation(len(X))
    test, train = np.split(order, [TEST_ROWS.get(name, len(X) // 4)])
    low, high = np.quantile(X[train], [0.001, 0.999], axis=0)
    X = np.clip(X, low, high)
    spread = np.std(X[train], axis=0)
    X = (X - np.mean(X[train], axis=0)) / np.where(spread > 0.0, spread, 1.0)
    return X[train], y[train], X[test], y[test]


def fitted_to_sample(X: np.ndarray, y: np.ndarray, name: str, most: int) -> Any:
    """An exact model of the first rows, with the kernel of the evidence."""
    import gpflow

    import gpflow_ilr as gi

    family, ard, noise, num_rows, _ = KERNELS.get(name, OTHER)
    rows = X[: min(num_rows, most)], y[: min(num_rows, most)]
    K = int(y.max()) + 1
    start = gi.starting_kernel(rows[0], K, getattr(gpflow.kernels, family), ard)
    model = gi.ILRGPR(rows, start, num_classes=K, noise=noise)
    gi.training.fit(model, max_iterations=30)
    return model


def neighbours(data: Split, name: str, most: int, choose: bool) -> np.ndarray:
    import gpflow_ilr as gi

    X, y, X_test, _ = data
    sample = fitted_to_sample(X, y, name, most)
    K, noise = sample.code.num_classes, float(sample.code.noise_variance[0, 0])
    model = gi.ILRNNGPR((X, y), sample.kernel, num_classes=K, noise_variance=noise)
    found = model.calibrate(noise=True, neighbours=choose, max_rows=KERNELS.get(name, OTHER)[-1])
    print(f"    {found}".replace("\n", "\n    "), flush=True)
    return model.predict_y(X_test)[0].numpy()


def exact(data: Split, name: str, most: int) -> np.ndarray:
    """Noise and λ are those of 64 neighbours, where leave-one-out is cheap."""
    import gpflow_ilr as gi

    X, y, X_test, _ = data
    sample = fitted_to_sample(X, y, name, most)
    K, noise = sample.code.num_classes, float(sample.code.noise_variance[0, 0])
    near = gi.ILRNNGPR((X, y), sample.kernel, num_classes=K, noise_variance=noise)
    found = near.calibrate(noise=True, max_rows=KERNELS.get(name, OTHER)[-1])
    print(f"    {found}".replace("\n", "\n    "), flush=True)
    chosen = {"noise_variance": found.noise_variance, "smoothing": found.smoothing}
    model = gi.ILRGPR((X, y), sample.kernel, num_classes=K, **chosen)
    return model.posterior().predict_y(X_test)[0].numpy()


def catboost(data: Split, name: str, most: int) -> np.ndarray:
    return boosted(*data[:2], by="CatBoost").predict(data[2])


CONTESTANTS: dict[str, Contestant] = {
    "64 neighbours": functools.partial(neighbours, choose=False),
    "neighbours": functools.partial(neighbours, choose=True),
    "exact": exact,
    "CatBoost": catboost,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--datasets", nargs="+", default=["letter", "eeg", "magic"])
    parser.add_argument("--contestants", nargs="+", default=list(CONTESTANTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one seed, a small sample")
    options = parser.parse_args()
    seeds, most = (range(1), 300) if options.quick else (range(options.seeds), 10**9)
    datasets = options.datasets if options.data_dir else ["digits"]
    for name in datasets:
        contestants = {
            contestant: functools.partial(CONTESTANTS[contestant], name=name, most=most)
            for contestant in options.contestants
        }
        compare(name, contestants, load, [name, options.data_dir], seeds)


if __name__ == "__main__":
    main()
