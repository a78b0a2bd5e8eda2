"""Whether an ILRSVGP gains by learning its mixing matrix W: ``mixing=True`` against ``False``.

Both arms start from one calibrated ILRSGPR (W = I), with the same minibatches and steps: q(u) by
natural gradients, kernel and W by Adam; inducing inputs stay. W can rescale the latents too, so
both have the kernel variance on an exp transform, where Adam moves it fast. Tables: means over
splits and the paired difference, True less False, of test NLL, accuracy and ECE, of a training
row's ELBO (2048 nodes), its rise over the last quarter, and the prior standard deviation of W f.
"""

import argparse
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_ilr as gi

COLUMNS = ("NLL", "accuracy", "ECE", "ELBO/N", "last rise", "amplitude")
# Training rows (as many test rows; None is half of all), batch (None is all), M, steps, splits.
TASKS = {
    "glass": (None, None, 50, 800, 5),
    "letter": (2000, 256, 60, 600, 3),
    "wine": (None, None, 50, 800, 5),
    "thyroid": (None, None, 50, 800, 5),
}


def split(file: Path, size: int | None, seed: int) -> tuple[tuple, tuple, int]:
    """Training and test rows, standardised by the former, and the number of classes."""
    with np.load(file) as arrays:
        X, y = arrays["X"].astype(float), arrays["y"].astype(np.int64)
    size, rows = size or len(X) // 2, np.random.default_rng(seed).permutation(len(X))
    train, test = rows[:size], rows[size : 2 * size]
    X = (X - X[train].mean(0)) / np.maximum(X[train].std(0), 1e-6)
    return (X[train], y[train]), (X[test], y[test]), int(y.max()) + 1


def elbo(model: gi.ILRSVGP, data: tuple, chunk: int = 200) -> float:
    """ELBO of a row; chunks are minibatches, so that their weighted average is that of all rows."""
    own, model.likelihood.bound_nodes = model.likelihood.bound_nodes, gi.Sobol(2048, seed=1)
    parts = [tuple(a[i : i + chunk] for a in data) for i in range(0, len(data[0]), chunk)]
    total = sum(len(part[0]) * float(model.elbo(part)) for part in parts)
    model.likelihood.bound_nodes = own
    return total / len(data[0]) ** 2


def scores(model: gi.ILRSVGP, train: tuple, test: tuple, before: float = np.nan) -> list[float]:
    """The numbers of ``COLUMNS``; ``before`` is an earlier ELBO of a row."""
    W, pi, bound = model.likelihood.W, model.predict_y(test[0])[0].numpy(), elbo(model, train)
    spread = 1.0 if W is None else np.sum(np.square(W.numpy())) / W.shape[0]
    names = ("negative_log_likelihood", "accuracy", "expected_calibration_error")
    measured = (getattr(gi.metrics, name)(pi, test[1]) for name in names)
    return [*measured, bound, bound - before, np.sqrt(model.kernel.variance.numpy() * spread)]


def arm(start: gi.ILRSGPR, mixing: bool, batch: int | None, steps: int, data: tuple) -> tuple:
    """Scores before and after training from the fitted collapsed model."""
    (X, y), N = data[0], len(data[0][0])
    model = gi.ILRSVGP.from_collapsed(start, mixing=mixing, num_data=N)
    exp = gpflow.utilities.positive(base="exp")
    model.kernel.variance = gpflow.Parameter(model.kernel.variance.numpy(), transform=exp)
    for fixed in (model.q_mu, model.q_sqrt, model.inducing_variable):  # q has its own optimiser
        gpflow.set_trainable(fixed, False)
    natural = gpflow.optimizers.NaturalGradient(0.1)
    adam = gpflow.keras.tf_keras.optimizers.Adam(0.02)

    @tf.function(autograph=False)
    def step(rows: tuple) -> None:
        natural.minimize(lambda: model.training_loss(rows), [(model.q_mu, model.q_sqrt)])
        adam.minimize(lambda: model.training_loss(rows), model.trainable_variables)

    first, before, rng = scores(model, *data), np.nan, np.random.default_rng(0)
    for i in range(steps):
        before = elbo(model, data[0]) if i == steps * 3 // 4 else before
        rows = rng.choice(N, batch or N, replace=False)
        step((tf.constant(X[rows]), tf.constant(y[rows])))
    return first, scores(model, *data, before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of <name>.npz")
    parser.add_argument("--seeds", type=int, help="splits of each set, at most")
    parser.add_argument("--quick", action="store_true", help="few steps, to see that it runs")
    options = parser.parse_args()
    for name, (size, batch, M, steps, seeds) in TASKS.items():
        size, M, steps = (size and 300, 20, 8) if options.quick else (size, M, steps)
        results = []
        for seed in range(min(seeds, options.seeds or seeds)):
            train, test, K = split(options.data_dir / f"{name}.npz", size, seed)
            kernel, Z = gi.starting_kernel(train[0], K), gi.kmeans_plusplus(train[0], M, seed)
            model = gi.ILRSGPR(train, kernel, Z, num_classes=K, noise="shared")
            gpflow.set_trainable(model.inducing_variable, False)
            gi.training.fit(model, max_iterations=60)
            model.calibrate()
            arms = [arm(model, mixing, batch, steps, (train, test)) for mixing in (True, False)]
            results.append([*arms[0], arms[1][1]])  # the start, True, False
            print(name, seed, *np.round(results[-1], 4).tolist(), flush=True)
        S, (start, true, false) = len(results), np.moveaxis(np.array(results), 1, 0)
        print(f"{name}, {S} splits\n{'':>14}", *(f"{column:>10}" for column in COLUMNS))
        error = (true - false).std(0, ddof=1) / np.sqrt(S) if S > 1 else np.full(6, np.nan)
        rows = {"start": start, "True": true, "False": false, "difference": true - false}
        for row, x in [*((row, x.mean(0)) for row, x in rows.items()), ("its SE", error)]:
            print(f"{row:>14}", *(f"{value:10.4f}" for value in x), flush=True)


if __name__ == "__main__":
    main()
