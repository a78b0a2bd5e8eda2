"""The paper's models on scikit-learn's digits: accuracy, NLL and ECE of each, and a picture.

The uncollapsed models are not converged after the 50 iterations that each has, and GPD runs at its
default α_ε = 0.01, untuned: a demonstration, not a comparison. It takes a minute on two cores; the
picture is written to ``outputs/paper_models.png``.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import sys
import time
from pathlib import Path

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits, make_blobs
from sklearn.model_selection import train_test_split

import gpflow_ilr as gi
from gpflow_ilr import plotting

K = 10
# --quick: only to see that it runs
NUM_ROWS, NUM_INDUCING, ITERATIONS = (100, 20, 2) if "--quick" in sys.argv else (600, 100, 50)


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(
        X / 16.0, y, train_size=NUM_ROWS, random_state=0, stratify=y
    )
    Z = gi.kmeans_plusplus(X, NUM_INDUCING)
    data = (X, y)

    def kernel(code: int | gi.DirichletCode = K) -> gpflow.kernels.Kernel:
        return gi.starting_kernel(X, code)

    def wide() -> gpflow.kernels.Kernel:  # latents of uncollapsed models are logits: order ten
        start = gi.starting_kernel(X, K)
        start.variance.assign(10.0)
        return start

    gpd = gi.DirichletCode(K)
    models = {
        "Exact-ILR": gi.ILRGPR(data, kernel(), num_classes=K),
        "GPD (exact)": gi.DirichletGPR(data, kernel(gpd), num_classes=K),
        "Collapsed-ILR": gi.ILRSGPR(data, kernel(), Z, num_classes=K),
        "GPD (sparse)": gi.DirichletSGPR(data, kernel(gpd), Z, num_classes=K),
        "Uncollapsed-ILR": gi.ILRSVGP(wide(), Z, num_classes=K, num_data=len(X)),
        "SVGPC": gi.SoftmaxSVGP(wide(), Z, num_classes=K, num_data=len(X)),
        "LSM (sparse)": gpflow.models.SVGP(
            wide(), gi.LogisticSoftmaxLikelihood(K), Z, num_latent_gps=K
        ),
        "BSM (sparse)": gpflow.models.SVGP(
            wide(), gi.BijectiveSoftmaxLikelihood(K), Z, num_latent_gps=K - 1
        ),
    }

    print(f"{'model':<16} {'accuracy':>9} {'NLL':>7} {'ECE':>7} {'seconds':>8}")
    predictions = {}
    for name, model in models.items():
        start = time.perf_counter()
        has_rows = hasattr(model, "data")
        gi.training.fit(model, None if has_rows else (X, y), max_iterations=ITERATIONS)
        if hasattr(model, "calibrate"):  # λ from the same fit, by leave-one-out
            model.calibrate()
        p = model.predict_y(X_test)[0]
        print(
            f"{name:<16} {gi.metrics.accuracy(p, y_test):9.3f}"
            f" {gi.metrics.negative_log_likelihood(p, y_test):7.3f}"
            f" {gi.metrics.expected_calibration_error(p, y_test):7.3f}"
            f" {time.perf_counter() - start:8.1f}"
        )
        predictions[name] = p
    draw(predictions, y_test)


def draw(predictions: dict[str, tf.Tensor], y_test: np.ndarray) -> None:
    """First: what Exact-ILR believes about three overlapping classes. Then: reliability on digits."""
    figure, axes = plt.subplots(3, 3, figsize=(15, 12), layout="constrained")

    X, y = make_blobs(
        150, centers=[[0, 1.2], [-1, -0.6], [1, -0.6]], cluster_std=0.8, random_state=1
    )
    model = gi.ILRGPR((X, y), gi.starting_kernel(X, 3), num_classes=3, noise="shared")
    gi.training.fit(model)
    model.calibrate()
    ax = plotting.plot_decision_regions(model, X, y, ax=axes.flat[0])
    ax.set_title(f"Exact-ILR, λ = {model.smoothing:.2f} by leave-one-out")
    for ax, (name, p) in zip(axes.flat[1:], predictions.items(), strict=True):
        plotting.plot_reliability(p, y_test, ax=ax).set_title(f"{name} on digits")

    path = Path("outputs") / "paper_models.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=80)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
