"""Which rows to label next: those with the largest epistemic entropy, against rows at random.

Both begin with the same 20 labelled digits and get labels of ten more at a time, from a pool of 1,000.
Accuracy on test rows, mean over starts; the curves are drawn to ``outputs/active_learning.png``.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import gpflow_ilr as gi

SEEDS, ROUNDS = (1, 2) if "--quick" in sys.argv else (3, 9)  # --quick: only to see that it runs
X, y = load_digits(return_X_y=True)


def accuracies(seed: int, by_entropy: bool) -> list[float]:
    """Accuracy after each round."""
    rng = np.random.default_rng(seed)
    pool, X_test, labels, y_test = train_test_split(X / 16, y, train_size=1000, random_state=seed)
    chosen = list(rng.permutation(len(pool))[:20])
    curve = []
    for _ in range(ROUNDS):
        data = (pool[chosen], labels[chosen])  # here an annotator is asked
        model = gi.ILRGPR(data, gi.starting_kernel(pool, 10), num_classes=10)
        gi.training.fit(model, max_iterations=30, compile=False)  # few rows: not worth compiling
        model.calibrate()
        curve.append(gi.metrics.accuracy(model.predict_y(X_test)[0], y_test))
        rest = np.setdiff1d(np.arange(len(pool)), chosen)
        score = model.predict_entropy(pool[rest]).epistemic if by_entropy else rng.random(len(rest))
        chosen.extend(rest[np.argsort(score)[-10:]])
    return curve


curves = {
    name: np.array([accuracies(seed, by_entropy) for seed in range(SEEDS)])
    for name, by_entropy in {"at random": False, "epistemic entropy": True}.items()
}
labelled = 20 + 10 * np.arange(ROUNDS)
print("labelled rows    ", *(f"{n:5d}" for n in labelled))
for name, curve in curves.items():
    print(f"{name:<17}", *(f"{accuracy:.3f}" for accuracy in curve.mean(axis=0)))
    plt.plot(labelled, curve.mean(axis=0), marker="o", label=name)
    plt.fill_between(labelled, curve.min(axis=0), curve.max(axis=0), alpha=0.2)

plt.gca().set(xlabel="labelled rows", ylabel="accuracy", title=f"mean and range of {SEEDS} starts")
plt.legend()
Path("outputs").mkdir(exist_ok=True)
plt.savefig("outputs/active_learning.png", dpi=110)
print("wrote outputs/active_learning.png")
