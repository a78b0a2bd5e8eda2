"""The collapsed bound: value and gradient at the shape of the Letter data.

Peers: one TF matrix product [M, N]·[N, M] (the floor), GPflow's SGPR with a single shared noise, and
GPyTorch's batch SGPR with learned additional noise, as the paper's own code has it.
"""

from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf
from contest import arguments, best_times, report

import gpflow_ilr as gi


def value_and_gradient(model: gpflow.models.GPModel) -> Callable[[], object]:
    @tf.function(autograph=False)
    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        return loss, tape.gradient(loss, model.trainable_variables)

    return step


def gpytorch_sgpr(
    X: np.ndarray, T: np.ndarray, Z: np.ndarray, noise: float
) -> Callable[[], object]:
    """GPyTorch's SGPR with a batch dimension over outputs: one GP for each column of T."""
    import gpytorch
    import torch

    torch.set_default_dtype(torch.float64)
    targets = torch.tensor(T.T.copy())
    batch = torch.Size([len(targets)])
    likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(
        torch.full_like(targets, noise), learn_additional_noise=True, batch_shape=batch
    )

    class SGPR(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(torch.tensor(X), targets, likelihood)
            self.mean_module = gpytorch.means.ZeroMean(batch_shape=batch)
            base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
            self.covar_module = gpytorch.kernels.InducingPointKernel(
                base, torch.tensor(Z), likelihood
            )

        def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = SGPR()
    model.train()
    likelihood.train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    inputs = torch.tensor(X)

    def step() -> object:
        model.zero_grad()
        loss = -objective(model(inputs), targets).sum()
        loss.backward()
        return loss

    return step


def main() -> None:
    options = arguments(__doc__, rounds=40)
    N, D, K, M = (600, 4, 5, 20) if options.quick else (15_000, 16, 26, 200)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, D)), rng.integers(0, K, N)
    Z = X[:M] + 0.01 * rng.normal(size=(M, D))
    A, B = tf.constant(rng.normal(size=(M, N))), tf.constant(rng.normal(size=(N, M)))

    def ilr(noise: str) -> Callable[[], object]:
        kernel = gi.starting_kernel(X, K)
        return value_and_gradient(gi.ILRSGPR((X, y), kernel, Z, num_classes=K, noise=noise))

    code = gi.ILRCode(K)
    T = code.targets.numpy()[y]
    noise = code.noise_variance.numpy().item()
    contestants = {
        "matmul [M, N]·[N, M]": lambda: tf.matmul(A, B),
        "ILRSGPR per-output noise": ilr("per_output"),
        "ILRSGPR shared noise": ilr("shared"),
        "ILRSGPR per-class noise": ilr("per_class"),
        "DirichletSGPR per-output noise": value_and_gradient(
            gi.DirichletSGPR((X, y), gi.starting_kernel(X, K), Z, num_classes=K, noise="per_output")
        ),
        "GPflow SGPR shared noise": value_and_gradient(
            gpflow.models.SGPR((X, T), gi.starting_kernel(X, K), Z, noise_variance=noise)
        ),
    }
    once = ()
    try:
        contestants["GPyTorch SGPR per-output noise"] = gpytorch_sgpr(X, T, Z, noise)
        once = ("GPyTorch SGPR per-output noise",)
    except ImportError:
        print("GPyTorch is not installed: pip install -e '.[benchmarks]'\n")
    print(f"value + gradient, N={N}, D={D}, K={K}, M={M}, float64")
    times = best_times(contestants, options.rounds, once)
    for reference in (
        "matmul [M, N]·[N, M]",
        "ILRSGPR per-output noise",
        "GPflow SGPR shared noise",
    ):
        report(times, reference)


if __name__ == "__main__":
    main()
