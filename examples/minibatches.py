"""Minibatches: natural gradients for q(u) and Adam for the rest, against Adam for everything.

Both train the uncollapsed model by the same batches from the same start. ``fit`` looks at validation
rows every 25 steps, stops when they gain no more, and keeps the best parameters that it has seen.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import sys

from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

import gpflow_ilr as gi

K, STEPS = 5, 10 if "--quick" in sys.argv else 500  # --quick: only to see that it runs

X, y = make_classification(
    14_000,
    n_features=6,
    n_informative=6,
    n_redundant=0,
    n_classes=K,
    n_clusters_per_class=6,
    class_sep=1.5,
    flip_y=0.02,
    random_state=0,
)
X, X_test, y, y_test = train_test_split(X, y, test_size=4_000, random_state=0)
X_val, X_test, y_val, y_test = train_test_split(X_test, y_test, test_size=0.5, random_state=0)
Z = gi.kmeans_plusplus(X, 100)

for method in ("natural", "adam"):
    kernel = gi.starting_kernel(X, K)
    kernel.variance.assign(10.0)  # latents of uncollapsed models are logits: of order ten
    model = gi.ILRSVGP(kernel, Z, num_classes=K, num_data=len(X))
    result = gi.training.fit(
        model,
        (X, y),  # or a tf.data.Dataset of batches, for rows that do not fit in memory
        method=method,
        batch_size=256,
        validation=(X_val, y_val),
        check_every=25,
        max_iterations=STEPS,
    )
    p, _ = model.predict_y(X_test)
    print(result)
    print("  NLL of the validation rows after", end="")
    print(*(f" {step}: {nll:.3f}" for step, nll in result.validation[::4]), sep=",")
    print(
        f"  test rows: accuracy {gi.metrics.accuracy(p, y_test):.3f}"
        f"  NLL {gi.metrics.negative_log_likelihood(p, y_test):.3f}"
        f"  ECE {gi.metrics.expected_calibration_error(p, y_test):.3f}"
    )
