"""Class probabilities for 100,000 rows against sampling and normalising, as GPyTorch's users do.

Both contestants start from the same trained posterior's shape. The error of each is measured against
100,000 samples on a subset of rows.
"""

import numpy as np
import tensorflow as tf
from contest import arguments, best_times, report

import gpflow_ilr as gi


def main() -> None:
    options = arguments(__doc__)
    N, D, K, M, rows, samples = (
        (600, 4, 5, 20, 1000, 256) if options.quick else (15_000, 16, 26, 200, 100_000, 256)
    )
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(K, D))
    y = rng.integers(0, K, N)
    X = 1.2 * centres[y] + rng.normal(size=(N, D))
    X_new = 1.2 * centres[rng.integers(0, K, rows)] + rng.normal(size=(rows, D))
    model = gi.ILRSGPR((X, y), gi.starting_kernel(X, K), X[:M].copy(), num_classes=K)
    posterior = model.posterior()
    predict = tf.function(lambda X: posterior.predict_y(X)[0], autograph=False)
    X_tensor = tf.constant(X_new)
    mean, var = (x.numpy() for x in posterior.predict_f(X_tensor[:200]))
    link = model.likelihood.link.numpy()
    contestants = {"posterior().predict_y": lambda: predict(X_tensor)}
    try:
        contestants[f"GPyTorch, {samples} samples"] = gpytorch_predict(X, X_new, M, K, samples)
    except ImportError:
        print("GPyTorch is not installed: pip install -e '.[benchmarks]'\n")
    print(f"class probabilities of {rows} rows, N={N}, D={D}, K={K}, M={M}, float64")
    times = best_times(contestants, min(options.rounds, 3))
    report(times, "posterior().predict_y")

    def average(count: int) -> np.ndarray:
        total = np.zeros((len(mean), K))
        for chunk in np.array_split(np.arange(count), max(1, count // 500)):
            f = mean + np.sqrt(var) * rng.standard_normal((len(chunk), *mean.shape))
            logits = f @ link.T
            p = np.exp(logits - logits.max(-1, keepdims=True))
            total += (p / p.sum(-1, keepdims=True)).sum(0)
        return total / count

    truth = average(2000 if options.quick else 100_000)
    ours = predict(X_tensor[:200]).numpy()
    for name, p in (("predict_y", ours), (f"{samples} samples", average(samples))):
        print(f"RMSE of {name} against 100,000 samples: {np.sqrt(np.mean((p - truth) ** 2)):.2e}")


def gpytorch_predict(X: np.ndarray, X_new: np.ndarray, M: int, K: int, samples: int):
    """GPyTorch's recipe for Dirichlet classification: sample the batch posterior, normalise."""
    import gpytorch
    import torch

    torch.set_default_dtype(torch.float64)
    inducing = torch.tensor(X[:M].copy())

    class Variational(gpytorch.models.ApproximateGP):
        """A sparse posterior over K outputs with M inducing inputs: cheap to evaluate in GPyTorch."""

        def __init__(self) -> None:
            batch = torch.Size([K])
            q = gpytorch.variational.CholeskyVariationalDistribution(M, batch_shape=batch)
            strategy = gpytorch.variational.VariationalStrategy(self, inducing, q)
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ZeroMean(batch_shape=batch)
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = Variational().eval()
    inputs = torch.tensor(X_new)

    def step() -> object:
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            total = []
            for block in inputs.split(5000):
                latent = model(block)
                f = torch.distributions.Normal(latent.mean, latent.stddev).rsample((samples,))
                total.append(torch.softmax(f, dim=1).mean(0))
            return torch.cat(total, dim=1)

    return step


if __name__ == "__main__":
    main()
