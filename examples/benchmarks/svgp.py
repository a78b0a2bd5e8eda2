"""One step of minibatch training: ELBO and gradient of a batch, and how exact the ELBO is.

Peers: GPflow's SVGP with Softmax at its default 100 samples, and GPyTorch's SVGP with
SoftmaxLikelihood at its default number of samples. The second table has the error of the expectation
E[log p(y | f)], on which the ELBO rests, for logits that are the same for all contestants.
"""

from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf
from contest import arguments, best_times, report

import gpflow_ilr as gi


def value_and_gradient(
    model: gpflow.models.SVGP, data: tuple[tf.Tensor, tf.Tensor]
) -> Callable[[], object]:
    @tf.function(autograph=False)
    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = model.training_loss(data)
        return loss, tape.gradient(loss, model.trainable_variables)

    return step


def gpytorch_svgp(
    X: np.ndarray, y: np.ndarray, Z: np.ndarray, K: int, num_data: int
) -> Callable[[], object]:
    """GPyTorch's SVGP with K independent latents, one kernel and one set of inducing inputs."""
    import gpytorch
    import torch

    torch.set_default_dtype(torch.float64)

    class SVGP(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            batch = torch.Size([K])
            q = gpytorch.variational.CholeskyVariationalDistribution(len(Z), batch_shape=batch)
            strategy = gpytorch.variational.VariationalStrategy(self, torch.tensor(Z), q)
            super().__init__(
                gpytorch.variational.IndependentMultitaskVariationalStrategy(strategy, num_tasks=K)
            )
            self.mean_module = gpytorch.means.ZeroMean(batch_shape=batch)
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = SVGP().train()
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_features=K, num_classes=K).train()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=num_data)
    inputs, labels = torch.tensor(X), torch.tensor(y)

    def step() -> object:
        model.zero_grad()
        likelihood.zero_grad()
        loss = -objective(model(inputs), labels)
        loss.backward()
        return loss

    return step


def gpytorch_expectation(mean: np.ndarray, variance: float, y: np.ndarray) -> np.ndarray:
    """GPyTorch's estimate of E[log p(y | f)] for latents that are logits, without mixing weights."""
    import gpytorch
    import torch
    from linear_operator.operators import DiagLinearOperator

    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(
        num_classes=mean.shape[1], mixing_weights=False
    ).train()
    latent = gpytorch.distributions.MultitaskMultivariateNormal(
        torch.tensor(mean), DiagLinearOperator(torch.full([mean.size], variance))
    )
    return likelihood.expected_log_prob(torch.tensor(y), latent).detach().numpy()


def show_errors(K: int, num_rows: int, peers: bool) -> None:
    """RMSE of E[log p(y | f)] for one row, in nats."""
    rng = np.random.default_rng(1)
    ours, softmax = gi.ILRLikelihood(K, mixing=False), gpflow.likelihoods.Softmax(K)
    reference = gi.ILRLikelihood(K, mixing=False, nodes=gi.Sobol(2**14, seed=1))
    mean, y = rng.normal(size=(num_rows, K - 1)), rng.integers(0, K, (num_rows, 1))
    # Latents of one variance v: Hᵀf has the same softmax as K independent logits of variance v.
    logits = mean @ ours.link.numpy().T
    print(f"RMSE of E[log p(y | f)], K={K}, {num_rows} rows")
    print(f"{'variance':>9} {'ILR':>9} {'Softmax':>9} {'GPyTorch':>9}   nodes: {ours.bound_nodes}, "
          f"{softmax.num_monte_carlo_points} samples, default samples")  # fmt: skip
    for v in (0.1, 1.0, 9.0):
        truth, found = np.zeros(num_rows), []
        for rows in np.array_split(np.arange(num_rows), max(1, num_rows // 20)):  # memory
            var = np.full((len(rows), K - 1), v)
            truth[rows] = reference.variational_expectations(None, mean[rows], var, y[rows])
        wide = np.full((num_rows, K), v)
        found.append(ours.variational_expectations(None, mean, wide[:, 1:], y).numpy())
        found.append(softmax.variational_expectations(logits, logits, wide, y).numpy())
        if peers:
            found.append(gpytorch_expectation(logits, v, y[:, 0]))
        print(f"{v:9.1f}", *(f"{np.sqrt(np.mean((x - truth) ** 2)):9.1e}" for x in found))


def main() -> None:
    options = arguments(__doc__)
    N, D, K, M, batch = (600, 4, 5, 20, 64) if options.quick else (15_000, 16, 26, 200, 1024)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(batch, D)), rng.integers(0, K, batch)
    Z = rng.normal(size=(M, D))
    data = (tf.constant(X), tf.constant(y[:, None]))

    def svgp(likelihood: gpflow.likelihoods.Likelihood) -> Callable[[], object]:
        model = gpflow.models.SVGP(
            gpflow.kernels.SquaredExponential(),
            likelihood,
            Z,
            num_latent_gps=likelihood.latent_dim,
            num_data=N,
        )
        return value_and_gradient(model, data)

    softmax = (
        f"GPflow SVGP, Softmax, {gpflow.likelihoods.Softmax(K).num_monte_carlo_points} samples"
    )
    contestants = {
        "ILRSVGP": value_and_gradient(
            gi.ILRSVGP(
                gpflow.kernels.SquaredExponential(), Z, num_classes=K, num_data=N, mixing=True
            ),
            data,
        ),
        "GPflow SVGP, ILRLikelihood(mixing=False)": svgp(gi.ILRLikelihood(K, mixing=False)),
        "GPflow SVGP, ILRLikelihood": svgp(gi.ILRLikelihood(K)),
        softmax: svgp(gpflow.likelihoods.Softmax(K)),
    }
    print(f"ELBO + gradient, batch of {batch} rows, D={D}, K={K}, M={M}, float64")
    report(best_times(contestants, options.rounds), softmax)
    peers = True
    try:
        # A contest of its own: PyTorch's threads spin on into the turn of whoever comes next.
        gpytorch = "GPyTorch SVGP, SoftmaxLikelihood"
        pair = {"ILRSVGP": contestants["ILRSVGP"], gpytorch: gpytorch_svgp(X, y, Z, K, N)}
        report(best_times(pair, options.rounds), gpytorch)
    except ImportError:
        peers = False
        print("GPyTorch is not installed: pip install -e '.[benchmarks]'\n")
    show_errors(K, 40 if options.quick else 400, peers)


if __name__ == "__main__":
    main()
