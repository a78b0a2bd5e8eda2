"""Fit, predict probabilities, compare with two peers, draw one picture; under a minute on two cores.

Run with ``python examples/quickstart.py``; the picture is written to ``outputs/quickstart.png``.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported: no log lines
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # boosting on a busy machine: 3 s, not minutes
try:  # but for those of the import itself, which it prints whatever the level
    stderr = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    import tensorflow  # noqa: F401
finally:
    os.dup2(stderr, 2)

import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpflow_ilr import metrics
from gpflow_ilr.plotting import plot_reliability
from gpflow_ilr.sklearn import ILRClassifier

rows, seconds = (100, 1) if "--quick" in sys.argv else (600, 30)  # --quick: to see that it runs

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, train_size=rows, random_state=0, stratify=y)

classifiers = {
    "ILRClassifier": ILRClassifier(time_limit=seconds, random_state=0),
    "LogisticRegression": make_pipeline(StandardScaler(), LogisticRegression()),
    "HistGradientBoosting": HistGradientBoostingClassifier(random_state=0),
}
figure, axes = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
print(f"{'classifier':<22}{'accuracy':>9}{'NLL':>8}{'ECE':>8}{'seconds':>9}")
for ax, (name, classifier) in zip(axes, classifiers.items(), strict=True):
    start = time.perf_counter()
    p = classifier.fit(X, y).predict_proba(X_test)  # [N, 10]
    took = time.perf_counter() - start
    accuracy, nll = metrics.accuracy(p, y_test), metrics.negative_log_likelihood(p, y_test)
    ece = metrics.expected_calibration_error(p, y_test)
    print(f"{name:<22}{accuracy:9.3f}{nll:8.3f}{ece:8.3f}{took:9.1f}", flush=True)
    plot_reliability(p, y_test, ax=ax).set_title(f"{name}: NLL {nll:.3f}, ECE {ece:.3f}")

Path("outputs").mkdir(exist_ok=True)
figure.savefig("outputs/quickstart.png", dpi=110)
print("wrote outputs/quickstart.png; classifiers['ILRClassifier'].report_ says what was tried")
