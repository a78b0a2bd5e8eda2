"""``ILRClassifier`` with its defaults against scikit-learn's classifiers with theirs.

Five small sets: half of Iris, of Wine and of breast cancer, 600 rows of digits and 1,000 of an
imbalanced ``make_classification`` with six classes; the rest are test rows. Rows of logistic
regression, of the Gaussian process and of the support vector machine are standardised.

    python examples/benchmarks/estimator.py [--datasets iris wine ...] [--seeds 5] [--first-seed 10]

Seeds 0 to 4 are those of the reported figures; defaults are designed on others.
"""

import argparse
import functools

import numpy as np
from quality import Split, compare
from sklearn import datasets
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

ROWS = {"iris": 75, "wine": 89, "breast_cancer": 284, "digits": 600, "make_classification": 1000}
"""Sets, and how many rows each has for training."""

PEERS = {
    "LogisticRegression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000)),
    "GaussianProcess": make_pipeline(
        StandardScaler(), GaussianProcessClassifier(1.0 * RBF(4.0), random_state=0)
    ),
    "calibrated SVC": make_pipeline(StandardScaler(), CalibratedClassifierCV(SVC())),
    "HistGradientBoosting": HistGradientBoostingClassifier(random_state=0),
    "RandomForest": RandomForestClassifier(random_state=0),
}


def load(name: str, seed: int) -> Split:
    """A stratified split, as far as the rows allow."""
    if name == "make_classification":
        X, y = datasets.make_classification(
            3000,
            20,
            n_informative=8,
            n_redundant=4,
            n_classes=6,
            weights=[0.4, 0.25, 0.15, 0.1, 0.06, 0.04],
            random_state=0,
        )
    else:
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = np.split(order, [ROWS[name]])
    return X[train], y[train], X[test], y[test]


def ours(data: Split, time_limit: float) -> np.ndarray:
    """Ours, with nothing said but how long it may take."""
    from gpflow_ilr.sklearn import ILRClassifier

    X, y, X_test, _ = data
    model = ILRClassifier(time_limit=time_limit, random_state=0).fit(X, y)
    print(f"    {model.report_}".replace("\n", "\n    "), flush=True)
    return model.predict_proba(X_test)


def theirs(data: Split, name: str) -> np.ndarray:
    """One of scikit-learn's."""
    X, y, X_test, _ = data
    return PEERS[name].fit(X, y).predict_proba(X_test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--datasets", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="one set, one seed, one second")
    options = parser.parse_args()
    limit = 1.0 if options.quick else 120.0
    contestants = {
        "ILRClassifier": functools.partial(ours, time_limit=limit),
        **{name: functools.partial(theirs, name=name) for name in PEERS},
    }
    seeds = range(options.first_seed, options.first_seed + (1 if options.quick else options.seeds))
    for name in ["iris"] if options.quick else options.datasets:
        means = compare(name, contestants, load, [name], seeds)
        nll = {contestant: mean["NLL"] for contestant, mean in means.items()}
        best = min(PEERS, key=nll.__getitem__)
        print(f"{name}: NLL {nll['ILRClassifier'] / nll[best]:.2f} times that of {best}\n")


if __name__ == "__main__":
    main()
