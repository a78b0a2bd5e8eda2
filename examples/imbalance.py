"""Rare classes: keep the probabilities calibrated, and let the decision know what errors cost.

Weights that balance classes in training give recall of rare classes, and the probabilities of a world
in which all are as frequent; ``undo_class_weights`` brings them back to this one. Without weights the
probabilities are right from the start, and the decision can ask for the same recall: divide them by the
classes' frequencies. For other costs, take the action of least expected cost.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import gpflow_ilr as gi
from gpflow_ilr.calibration import balanced_class_weights, undo_class_weights

K = 3
X, y = make_classification(
    20_000,
    n_features=4,
    n_informative=4,
    n_redundant=0,
    n_classes=K,
    n_clusters_per_class=2,
    weights=[0.9, 0.08, 0.02],
    class_sep=0.8,
    flip_y=0.0,
    random_state=0,
)
X, X_test, y, y_test = train_test_split(X, y, train_size=1_500, random_state=0, stratify=y)
frequency = np.bincount(y) / len(y)
print("training rows of each class:", *np.bincount(y))

Z = gi.kmeans_plusplus(X, 100)
model = gi.ILRSGPR((X, y), gi.starting_kernel(X, K), Z, num_classes=K, noise="shared")
gi.training.fit(model, max_iterations=100)
model.calibrate()
P = {"ILRSGPR": model.predict_y(X_test)[0].numpy()}
weights = balanced_class_weights(y, K)
# Weights come after training: the evidence would take a weight of 17 for 17 rows.
model.data = (X, y, weights[y])
model.calibrate()
P["… balanced by weights"] = model.predict_y(X_test)[0].numpy()
P["… and corrected"] = undo_class_weights(P["… balanced by weights"], weights).numpy()
for name, weight in {"logistic, cubic": None, "… balanced in training": "balanced"}.items():
    logistic = LogisticRegression(class_weight=weight, max_iter=1000)
    peer = make_pipeline(PolynomialFeatures(3), StandardScaler(), logistic).fit(X, y)
    P[name] = peer.predict_proba(X_test)
print("share of each class among test rows:", *(np.bincount(y_test) / len(y_test)).round(4))
print(f"\n{'':<24}    NLL   mean probability      recall, argmax p      recall, argmax p/frequency")
for name, p in P.items():
    by_argmax = recall_score(y_test, np.argmax(p, axis=1), average=None)
    by_cost = recall_score(y_test, np.argmax(p / frequency, axis=1), average=None)
    numbers = ("  ".join(f"{v:.3f}" for v in part) for part in (p.mean(axis=0), by_argmax, by_cost))
    print(
        f"{name:<24} {gi.metrics.negative_log_likelihood(p, y_test):6.3f}  ", "    ".join(numbers)
    )
