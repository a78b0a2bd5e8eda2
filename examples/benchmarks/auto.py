"""One call against boosted trees: accuracy, NLL, calibration and seconds on the same splits.

``gpflow_ilr.training.fit_auto`` gets raw rows and nothing else; its seconds include every choice. The
trees have 600 rounds at most and stop early on a tenth of the training rows; with ``--calibrate`` these
rows give them a temperature, too. ``ILRGPR`` is an exact model with one lengthscale and shared noise,
for up to 1,500 rows. Each contestant has a process of its own, and they take turns. Test rows choose
nothing.

    python examples/benchmarks/auto.py --data-dir DIR [--datasets letter magic ...] [--seeds 3]
        [--calibrate]

DIR has ``<name>.npz`` files with ``X`` and ``y``; any name will do. Without it scikit-learn's own sets
are used. Needs scikit-learn; LightGBM and CatBoost take part where they are installed.
"""

import argparse
import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from quality import Contestant, Split, compare
from trees import PACKAGES, Fitted, boosted

TEST_ROWS = {"letter": 5000, "magic": 5000, "htru2": 5000, "eeg": 4000, "drive": 10_000}
FEW_TEST_ROWS = 50  # of the paper's small sets; those of scikit-learn are halved
OWN_SETS = ("wine", "breast_cancer", "digits")
FEW_ROWS = 1500
TREES = ("HistGradientBoosting", "LightGBM", "CatBoost")


def load(name: str, data_dir: Path | None, seed: int) -> Split:
    """Raw rows and labels for training, then for testing."""
    path = None if data_dir is None else data_dir / f"{name}.npz"
    if path is not None and path.exists():
        with np.load(path) as arrays:
            X, y = arrays["X"].astype(float), arrays["y"]
        num_test = TEST_ROWS.get(name, FEW_TEST_ROWS if len(X) < FEW_ROWS else len(X) // 4)
    else:
        from sklearn import datasets

        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        num_test = len(X) - len(X) // 2
    order = np.random.default_rng(seed).permutation(len(X))
    test, train = np.split(order, [num_test])
    return X[train], y[train], X[test], y[test]


def automatic_fit(X: np.ndarray, y: np.ndarray, seconds: float = 120.0) -> Fitted:
    """``fit_auto``, which judges what it tries by rows of its own, or folds."""
    import gpflow_ilr as gi

    model = gi.training.fit_auto(X, y, num_classes=int(y.max()) + 1, max_seconds=seconds)
    print(f"    {model.report}".replace("\n", "\n    "), flush=True)
    return Fitted(lambda new: model.predict_y(new)[0].numpy(), model.report.chosen.nll)


def automatic(data: Split, **options: float) -> np.ndarray:
    return automatic_fit(*data[:2], **options).predict(data[2])


def trees(data: Split, **options: Any) -> np.ndarray:
    return boosted(*data[:2], **options).predict(data[2])


def exact(data: Split, iterations: int = 1000) -> np.ndarray:
    import gpflow_ilr as gi

    X, y, X_test, _ = data
    K, spread = int(y.max()) + 1, np.std(X, axis=0)
    scale = np.where(spread > 0.0, spread, 1.0)
    X, X_test = ((rows - np.mean(X, axis=0)) / scale for rows in (X, X_test))
    model = gi.ILRGPR((X, y), gi.starting_kernel(X, K), num_classes=K, noise="shared")
    gi.training.fit(model, max_iterations=iterations)
    model.calibrate()
    return model.predict_y(X_test)[0].numpy()


CONTESTANTS: dict[str, Contestant] = {
    "fit_auto": automatic,
    "ILRGPR": exact,
    **{by: functools.partial(trees, by=by) for by in TREES},
}
QUICK: dict[str, dict[str, float]] = {"fit_auto": {"seconds": 1.0}, "ILRGPR": {"iterations": 5}}


def takes_part(contestant: str, num_rows: int) -> bool:
    if contestant == "ILRGPR":
        return num_rows <= FEW_ROWS
    return importlib.util.find_spec(PACKAGES[contestant].partition(".")[0]) is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--datasets", nargs="+")
    parser.add_argument("--contestants", nargs="+", default=list(CONTESTANTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--calibrate", action="store_true", help="the trees, by a temperature")
    parser.add_argument("--quick", action="store_true", help="one set, one seed, short budgets")
    options = parser.parse_args()
    seeds = range(1 if options.quick else options.seeds)
    found = [] if options.data_dir is None else sorted(options.data_dir.glob("*.npz"))
    names = options.datasets or [p.stem for p in found if "X" in np.load(p).files] or OWN_SETS
    for name in names[:1] if options.quick else names:
        num_rows = len(load(name, options.data_dir, 0)[0])
        taking_part = {
            contestant: functools.partial(
                CONTESTANTS[contestant],
                **(QUICK.get(contestant, {"rounds": 5}) if options.quick else {}),
                **({"calibrate": True} if options.calibrate and contestant in TREES else {}),
            )
            for contestant in options.contestants
            if takes_part(contestant, num_rows)
        }
        compare(name, taking_part, load, [name, options.data_dir], seeds)


if __name__ == "__main__":
    main()
