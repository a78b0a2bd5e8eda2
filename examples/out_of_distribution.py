"""Does it notice what it was never shown? Digits 8 and 9, and noise, to classifiers of 0 to 7.

The epistemic entropy is the part of a label's uncertainty that more data would remove, so it should be
large for rows of no known class. AUROC: the probability that an unknown row has a larger score than a
test row of a known class; 0.5 is guessing. The peer is a network with a softmax layer.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from scipy.stats import entropy
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import gpflow_ilr as gi

X, y = load_digits(return_X_y=True)
X = X / 16
known, K = y < 8, 8
X_train, X_test, y_train, y_test = train_test_split(
    X[known], y[known], train_size=600, random_state=0, stratify=y[known]
)
shuffled = np.random.default_rng(0).permuted(X_test, axis=1)  # the pixels of each row by themselves
unknown = {"digits 8 and 9": X[~known], "shuffled pixels": shuffled}

model = gi.ILRGPR((X_train, y_train), gi.starting_kernel(X, K), num_classes=K)
gi.training.fit(model)
model.calibrate()
network = MLPClassifier((64, 32), max_iter=1000, random_state=0).fit(X_train, y_train)

accuracy = gi.metrics.accuracy(model.predict_y(X_test)[0], y_test)
print(f"accuracy on known digits: GP {accuracy:.3f}, network {network.score(X_test, y_test):.3f}\n")

posterior = model.posterior()
scores = {
    "GP, epistemic entropy": lambda rows: posterior.predict_entropy(rows).epistemic,
    "GP, total entropy": lambda rows: posterior.predict_entropy(rows).total,
    "network, entropy": lambda rows: entropy(network.predict_proba(rows), axis=1),
    "network, 1 − confidence": lambda rows: 1 - network.predict_proba(rows).max(axis=1),
}
print(f"{'AUROC':<24}", *(f"{name:>16}" for name in unknown))
for name, score in scores.items():
    areas = []
    for rows in unknown.values():
        is_unknown = np.repeat([0, 1], [len(X_test), len(rows)])
        areas.append(roc_auc_score(is_unknown, np.concatenate([score(X_test), score(rows)])))
    print(f"{name:<24}", *(f"{area:16.3f}" for area in areas))
