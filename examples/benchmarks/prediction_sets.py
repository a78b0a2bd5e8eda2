"""Prediction sets: how often they hold the true class, and how large they are, beside MAPIE's.

Scaling, kernel, noise and λ come from rows that are set aside. Each split is a random order of the
others: rows to train on, rows to calibrate on, rows to test on. ``split`` (and MAPIE, which is given
the same probabilities) learns from the first and measures by the second; the jackknives learn from
both and leave each row out in turn. So the hyperparameters have seen none of the rows, whose order is
exchangeable by construction: what a method promises must hold for the mean over splits, but for
chance. With ``--own-kernel`` a jackknife has kernel, noise and λ from the very rows that it leaves
out, as after ``fit`` and ``calibrate``, with one lengthscale and with one for each column (ARD).

Beside each coverage stands the band where 99 of 100 such means would be if the promise held exactly:
covered test rows of one split are beta-binomial, since they share the rows that they are measured by.
Only the lower end is promised to sets by class, and to adaptive scores without draws, which have ties;
that of ``jackknife+`` belongs to 2 · level − 1. ``jackknife`` promises nothing: its band is that
of a split with as many rows.

    python examples/benchmarks/prediction_sets.py [--data-dir DIR] [--datasets wine glass]
        [--splits 200] [--own-kernel]

DIR has ``<name>.npz`` files with ``X`` and ``y``, for Glass and Letter; the others are scikit-learn's.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import betabinom

import gpflow_ilr as gi

try:
    from mapie.classification import SplitConformalClassifier
except ImportError:
    SplitConformalClassifier = None

# Rows set aside, to train on, to calibrate on, to test on.
SIZES = {
    "wine": (58, 50, 40, 30),
    "glass": (64, 60, 50, 40),
    "digits": (400, 500, 200, 30),
    "letter": (1500, 500, 300, 30),
}

Data = tuple[np.ndarray, np.ndarray]


def load(name: str, data_dir: Path | None) -> Data:
    if name in ("wine", "digits"):
        from sklearn import datasets

        return getattr(datasets, f"load_{name}")(return_X_y=True)
    with np.load(data_dir / f"{name}.npz") as arrays:
        return arrays["X"].astype(float), arrays["y"].astype(np.int64)


class Split(NamedTuple):
    """Rows of one random order."""

    train: Data
    calibration: Data
    test: Data


def splits(name: str, data: Data, count: int) -> tuple[Data, Iterator[Split]]:
    """Rows that are set aside, and splits of all others; all are scaled by the former."""
    X, y = data
    sizes = SIZES[name]
    order = np.random.default_rng(0).permutation(len(X))
    aside, pool = order[: sizes[0]], order[sizes[0] :]
    spread = X[aside].std(axis=0)
    X = (X - X[aside].mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)

    def drawn() -> Iterator[Split]:
        for seed in range(count):
            rows = np.random.default_rng(seed + 1).permutation(pool)[: sum(sizes[1:])]
            parts = np.split(rows, np.cumsum(sizes[1:3]))
            yield Split(*((X[part], y[part]) for part in parts))

    return (X[aside], y[aside]), drawn()


def fitted(data: Data, K: int, ard: bool = False) -> gi.ILRGPR:
    kernel = gi.starting_kernel(data[0], K, ard=ard)
    # Fewer nodes than usual: jackknife+ has a prediction for each pair of rows.
    model = gi.ILRGPR(data, kernel, num_classes=K, noise="shared", nodes=gi.Sobol(64))
    gi.training.fit(model, max_iterations=50)
    model.calibrate()
    return model


class Table:
    """Probabilities of rows that go by their numbers: the classifier that MAPIE is given."""

    def __init__(self, p: np.ndarray) -> None:
        self.p, self.classes_ = p, np.arange(p.shape[1])

    def fit(self, X: Any, y: Any) -> "Table":
        """Nothing to fit; MAPIE wants to see that it could."""
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Probabilities of the rows with these numbers."""
        return self.p[X[:, 0].astype(int)]

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Their most probable classes."""
        return self.predict_proba(X).argmax(axis=1)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def mapie_sets(
    p_cal: np.ndarray,
    y_cal: np.ndarray,
    p_test: np.ndarray,
    level: float,
    score: str,
    options: dict[str, Any],
) -> np.ndarray:
    """MAPIE's split-conformal sets from the probabilities of our model."""
    p = np.concatenate([p_cal, p_test])
    rows = np.arange(len(p), dtype=float)[:, None]
    mapie = SplitConformalClassifier(
        Table(p / p.sum(axis=1, keepdims=True)),
        confidence_level=level,
        conformity_score=score,
        random_state=0,
    )
    mapie.conformalize(rows[: len(y_cal)], y_cal)
    return mapie.predict_set(rows[len(y_cal) :], conformity_score_params=options)[1][:, :, 0]


def with_kept(model: gi.ILRGPR, data: Data) -> gi.ILRGPR:
    """A model of other rows with the same hyperparameters."""
    return gi.ILRGPR(
        data,
        model.kernel,
        num_classes=model.code.num_classes,
        smoothing=model.smoothing,
        noise_variance=float(model.code.noise_variance[0, 0]),
        nodes=model.likelihood.nodes,
    )


Made = Iterator[tuple[str, int, Any]]
"""What made them, by how many rows, and sets [n, K]."""


def by_calibration_rows(model: gi.ILRGPR, split: Split, level: float, seed: int) -> Made:
    rows, X = split.calibration, split.test[0]
    part = with_kept(model, split.train).posterior()
    for name, options in {
        "plain": {"score": "plain"},
        "adaptive": {},
        "adaptive, drawn": {"seed": seed},
        "plain, by class": {"score": "plain", "class_conditional": True},
    }.items():
        yield f"split, {name}", len(rows[0]), part.predict_set(X, level, data=rows, **options)
    if SplitConformalClassifier is not None:
        p_cal, p_test = (part.predict_y(x)[0].numpy() for x in (rows[0], X))
        for name, options in {
            "lac": {},
            "aps": {"include_last_label": True},
            "aps, drawn": {"include_last_label": "randomized"},
        }.items():
            sets = mapie_sets(p_cal, rows[1], p_test, level, name[:3], options)
            yield f"MAPIE, {name}", len(rows[0]), sets


def by_leaving_out(model: gi.ILRGPR, X: np.ndarray, level: float) -> Made:
    posterior = model.posterior()
    for method in ("jackknife", "jackknife+"):
        for score in ("plain", "adaptive"):
            sets = posterior.predict_set(X, level, method, score=score)
            yield f"{method}, {score}", model.num_data, sets


def by_own_kernel(rows: Data, X: np.ndarray, K: int, level: float) -> Made:
    for ard in (False, True):
        model = fitted(rows, K, ard)
        for score in ("plain", "adaptive"):
            name = f"jackknife, own {'ARD ' if ard else ''}kernel, {score}"
            yield name, model.num_data, model.predict_set(X, level, score=score)


def band(method: str, level: float, num_known: int, num_test: int, count: int) -> list[float]:
    """Where the mean coverage of so many splits is in 99 of 100 cases, if exactly as promised."""
    promised = 2.0 * level - 1.0 if method.startswith("jackknife+") else level
    rank = min(int(np.ceil(round(promised * (num_known + 1), 9))), num_known)
    one = betabinom(num_test, rank, num_known + 1 - rank)
    half = 2.576 * one.std() / np.sqrt(count)
    return [(one.mean() + side * half) / num_test for side in (-1.0, 1.0)]


def report(runs: dict[str, list], known: dict[str, int], y: np.ndarray, level: float) -> None:
    """A line for each method: coverage and its band, sizes, empty sets, the worst class."""
    count, num_test = y.shape
    print(f"{'':<33} {'coverage':>8} {'promised':>13} {'size':>6} {'empty':>6} {'worst class':>11}")
    for method, sets in runs.items():
        S = np.stack(sets)  # [splits, rows, K]
        covered = np.take_along_axis(S, y[:, :, None], axis=2)[..., 0]
        worst = min(covered[y == k].mean() for k in np.unique(y))
        low, high = band(method, level, known[method], num_test, count)
        exactly = method.endswith(("plain", "lac", "drawn")) and "+" not in method
        promised = f"{low:.3f}–{high:.3f}" if exactly else f"≥ {low:.3f}"
        sizes = S.sum(axis=2)
        print(
            f"{method:<33} {covered.mean():8.4f} {promised:>13} {sizes.mean():6.3f} "
            f"{np.mean(sizes == 0):6.3f} {worst:11.3f}",
            flush=True,
        )


def measure(name: str, data: Data, count: int, level: float, own: bool) -> None:
    start, K = time.perf_counter(), int(data[1].max()) + 1
    aside, drawn = splits(name, data, count)
    model = fitted(aside, K)
    runs: dict[str, list] = {}
    known: dict[str, int] = {}
    labels, correct = [], []
    for seed, split in enumerate(drawn):
        X, y = split.test
        rows = tuple(map(np.concatenate, zip(split.train, split.calibration, strict=True)))
        all_rows = with_kept(model, rows)
        made = [
            *by_calibration_rows(model, split, level, seed),
            *by_leaving_out(all_rows, X, level),
            *(by_own_kernel(rows, X, K, level) if own else ()),
        ]
        for method, size, sets in made:
            runs.setdefault(method, []).append(np.asarray(sets))
            known[method] = size
        labels.append(y)
        correct.append(np.argmax(all_rows.predict_y(X)[0], axis=1) == y)
    print(
        f"\n{name}: {count} splits; rows aside, to train, to calibrate, to test {SIZES[name]}; "
        f"accuracy {np.mean(correct):.3f}; {time.perf_counter() - start:.0f} s"
    )
    report(runs, known, np.stack(labels), level)
    if SplitConformalClassifier is not None:
        same = np.stack(runs["split, plain"]) == np.stack(runs["MAPIE, lac"])
        print(f"memberships where plain scores and MAPIE's lac agree: {np.mean(same):.6f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, help="folder of glass.npz and letter.npz")
    parser.add_argument("--datasets", nargs="+", choices=SIZES)
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--level", type=float, default=0.9)
    parser.add_argument("--own-kernel", action="store_true", help="a fit for every split, too")
    parser.add_argument("--quick", action="store_true", help="five splits of Wine")
    arguments = parser.parse_args()
    names = arguments.datasets or [
        n for n in SIZES if arguments.data_dir or n in ("wine", "digits")
    ]
    names, count = (["wine"], 5) if arguments.quick else (names, arguments.splits)
    if SplitConformalClassifier is None:
        print("MAPIE is not installed (pip install mapie): its lines are left out.")
    for name in names:
        measure(name, load(name, arguments.data_dir), count, arguments.level, arguments.own_kernel)


if __name__ == "__main__":
    main()
