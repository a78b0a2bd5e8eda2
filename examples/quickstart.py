"""Train every model on scikit-learn's digits, compare accuracy, NLL and ECE, and draw a picture.

Run with ``python examples/quickstart.py``; the picture is written to ``outputs/quickstart.png``.
"""

import time
from pathlib import Path

import gpflow
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, make_blobs
from sklearn.model_selection import train_test_split

import gpflow_ilr as gi

K, NUM_INDUCING = 10, 100


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X / 16.0, y, train_size=600, random_state=0, stratify=y)
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
    curves = {}
    for name, model in models.items():
        start = time.perf_counter()
        has_rows = hasattr(model, "data")
        gi.training.fit(model, None if has_rows else (X, y), max_iterations=50)
        if hasattr(model, "calibrate"):  # λ from the same fit, by leave-one-out
            model.calibrate()
        p = model.predict_y(X_test)[0]
        print(
            f"{name:<16} {gi.metrics.accuracy(p, y_test):9.3f}"
            f" {gi.metrics.negative_log_likelihood(p, y_test):7.3f}"
            f" {gi.metrics.expected_calibration_error(p, y_test):7.3f}"
            f" {time.perf_counter() - start:8.1f}"
        )
        curves[name] = gi.metrics.reliability_curve(p, y_test)
    draw(curves)


def draw(curves: dict) -> None:
    """Left: what Exact-ILR believes about three overlapping classes. Right: reliability."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")

    X, y = make_blobs(
        150, centers=[[0, 1.2], [-1, -0.6], [1, -0.6]], cluster_std=0.8, random_state=1
    )
    model = gi.ILRGPR((X, y), gi.starting_kernel(X, 3), num_classes=3, noise="shared")
    gi.training.fit(model)
    model.calibrate()
    axis = np.linspace(-6.0, 6.0, 121)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    p = model.predict_y(grid.reshape(-1, 2))[0].numpy().reshape(121, 121, 3)
    colours = np.array([[0.85, 0.2, 0.2], [0.2, 0.6, 0.25], [0.2, 0.35, 0.85]])
    # White where all classes are equally likely, full colour where one is certain.
    confidence = ((p.max(-1) - 1 / 3) * 1.5)[..., None]
    image = 1.0 - confidence * (1.0 - colours[p.argmax(-1)])
    left.imshow(image, extent=(-6, 6, -6, 6), origin="lower")
    left.scatter(*X.T, c=colours[y], s=12, edgecolors="black", linewidths=0.4)
    left.set_title(f"Exact-ILR, λ = {model.smoothing:.2f} by leave-one-out")

    right.plot([0, 1], [0, 1], color="0.7", linestyle="--")
    for name, curve in curves.items():
        filled = curve.count > 0
        right.plot(curve.confidence[filled], curve.accuracy[filled], marker="o", ms=3, label=name)
    right.set(xlabel="confidence", ylabel="accuracy", title="Reliability on digits")
    right.legend(fontsize=8)

    path = Path("outputs") / "quickstart.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
