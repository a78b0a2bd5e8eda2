"""How many steps a warm start saves: an ILRSVGP from a fitted ILRSGPR against one from scratch.

Both train on minibatches, q(u) by natural gradients (or Adam) and all else by Adam. Counted are the
steps that the cold start needs until its ELBO on all rows is what the warm start has after s steps. The
collapsed fit is not free; the table says how many steps its seconds would have bought.
"""

import argparse
import time
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr.models.warm_start import scaled_kernel


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny shapes, to see that it runs")
    parser.add_argument("--data", type=Path, help="folder with letter.npz (X, y); else synthetic")
    parser.add_argument("--optimiser", choices=("natural", "adam"), default="natural")
    parser.add_argument("--steps", type=int, default=2000, help="steps of the cold start, at most")
    return parser.parse_args()


def problem(folder: Path | None, num_rows: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Inputs, labels and the number of classes: Letter, or clusters of its shape."""
    rng = np.random.default_rng(0)
    if folder is None:
        K, D = 26, 16
        centres = rng.normal(size=(3 * K, D))  # three clusters a class
        cluster = rng.integers(0, 3 * K, num_rows)
        return 1.5 * centres[cluster] + rng.normal(size=(num_rows, D)), cluster % K, K
    with np.load(folder / "letter.npz") as file:
        X, y = file["X"].astype(float), file["y"]
    rows = rng.permutation(len(X))[:num_rows]
    X = (X[rows] - X[rows].mean(0)) / X[rows].std(0)
    return X, y[rows], int(y.max()) + 1


class Training:
    """An ILRSVGP, its optimisers, and its ELBO on all rows."""

    def __init__(self, model: gi.ILRSVGP, data: tuple, batch: int, natural: bool) -> None:
        self.model, self.data, self.batch = model, data, batch
        rows = tf.data.Dataset.from_tensor_slices(data).shuffle(len(data[1]), seed=0).repeat()
        batches = iter(rows.batch(batch, drop_remainder=True))
        adam = gpflow.keras.tf_keras.optimizers.Adam(0.01)
        q = [(model.q_mu, model.q_sqrt)]
        if natural:
            gpflow.set_trainable(model.q_mu, False)
            gpflow.set_trainable(model.q_sqrt, False)
        natgrad = gpflow.optimizers.NaturalGradient(gamma=0.1)

        @tf.function(autograph=False)
        def step() -> None:
            rows = next(batches)
            if natural:
                natgrad.minimize(lambda: model.training_loss(rows), q)
            adam.minimize(lambda: model.training_loss(rows), model.trainable_variables)

        self.step = step
        self._elbo = tf.function(model.elbo, autograph=False)

    def elbo(self) -> float:
        """Blocks of rows are minibatches, so that their weighted average is the ELBO."""
        X, y = self.data
        blocks = range(0, len(X), self.batch)
        parts = [(X[i : i + self.batch], y[i : i + self.batch]) for i in blocks]
        return sum(len(part[0]) / len(X) * float(self._elbo(part)) for part in parts)


def main() -> None:
    options = parsed()
    N, M, batch, iterations = (500, 20, 100, 10) if options.quick else (15_000, 200, 1024, 60)
    waypoints = [0, 5, 10] if options.quick else [0, 50, 100, 200, 500]
    limit = min(options.steps, 60) if options.quick else options.steps
    every = 5 if options.quick else 25
    X, y, K = problem(options.data, N)
    N = len(X)
    Z = gi.kmeans_plusplus(X, M)
    data = (tf.constant(X), tf.constant(y.astype(np.int64)))

    start = time.perf_counter()
    collapsed = gi.ILRSGPR((X, y), gi.starting_kernel(X, K), Z.copy(), num_classes=K)
    gpflow.optimizers.Scipy().minimize(
        collapsed.training_loss, collapsed.trainable_variables, options={"maxiter": iterations}
    )
    collapsed.calibrate()
    fit_seconds = time.perf_counter() - start

    scale = float(collapsed.code.scale)
    kernel = scaled_kernel(gi.starting_kernel(X, K), scale**2)
    cold_model = gi.ILRSVGP(kernel, Z.copy(), num_classes=K, num_data=N)
    warm_model = gi.ILRSVGP.from_collapsed(collapsed)
    natural = options.optimiser == "natural"
    warm, cold = (Training(model, data, batch, natural) for model in (warm_model, cold_model))

    reached, times = {}, []
    for step in range(max(waypoints) + 1):
        if step in waypoints:
            reached[step] = warm.elbo()
        start = time.perf_counter()
        warm.step()
        times.append(time.perf_counter() - start)
    seconds = float(np.median(times))  # the first one traces
    trace = [cold.elbo()]
    while len(trace) * every <= limit and trace[-1] < max(reached.values()):
        for _ in range(every):
            cold.step()
        trace.append(cold.elbo())

    print(f"N={N}, K={K}, M={M}, batch {batch}, {options.optimiser}; L = {scale:.2f}")
    print(f"collapsed fit: {fit_seconds:.1f} s, the time of {fit_seconds / seconds:.0f} steps")
    print(f"ELBO of the cold start: {trace[0]:.1f}, after {every * (len(trace) - 1)} steps "
          f"{trace[-1]:.1f}")  # fmt: skip
    print(f"{'warm steps':>10} {'ELBO':>12} {'cold steps to reach it':>24}")
    for step, elbo in reached.items():
        needed = [every * i for i, value in enumerate(trace) if value >= elbo]
        print(f"{step:10d} {elbo:12.1f} {needed[0] if needed else f'more than {limit}':>24}")


if __name__ == "__main__":
    main()
