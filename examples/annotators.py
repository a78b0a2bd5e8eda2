"""Several annotators who disagree: the share of votes as a soft label, instead of the majority's.

Five annotators label each of 150 rows of three overlapping classes, each by a draw from the row's true
class probabilities, which are known here. So it can be said how far predicted probabilities are from
them: the mean total variation distance ½ Σ_k |p_k − π_k| over test rows.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from scipy.special import softmax

import gpflow_ilr as gi

N, ANNOTATORS, K = 150, 5, 3
rng = np.random.default_rng(0)
centres = np.array([[0.0, 1.2], [-1.0, -0.6], [1.0, -0.6]])


def rows_and_probabilities(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three unit Gaussians, and what class they are by Bayes' rule."""
    X = centres[rng.integers(K, size=num_rows)] + rng.normal(size=(num_rows, 2))
    squared = np.sum((X[:, None] - centres) ** 2, axis=-1)
    return X, softmax(-0.5 * squared, axis=1)


X, truth = rows_and_probabilities(N)
X_test, truth_test = rows_and_probabilities(5_000)
votes = rng.multinomial(ANNOTATORS, truth)  # [N, K], rows sum to 5
one_vote = rng.permuted(np.repeat(np.tile(np.arange(K), N), votes.ravel()).reshape(N, -1), axis=1)

data = {
    "one annotator": (X, one_vote[:, 0]),
    "majority of five": (X, np.argmax(votes, axis=1)),
    "share of votes (soft)": (X, votes / ANNOTATORS),
    "each vote a row": (np.repeat(X, ANNOTATORS, axis=0), one_vote.ravel()),
}
print(f"{'labels':<24} distance from the truth     NLL   (the truth itself: ", end="")
print(f"{gi.metrics.negative_log_likelihood(truth_test, truth_test):.3f})")
for name, (rows, labels) in data.items():
    model = gi.ILRGPR((rows, labels), gi.starting_kernel(rows, K), num_classes=K, noise="shared")
    gi.training.fit(model)
    model.calibrate()
    p = model.predict_y(X_test)[0].numpy()
    distance = 0.5 * np.abs(p - truth_test).sum(axis=1).mean()
    nll = gi.metrics.negative_log_likelihood(p, truth_test)
    print(f"{name:<24} {distance:23.3f} {nll:7.3f}")
