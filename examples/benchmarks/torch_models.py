"""GPyTorch's models, as its documentation has them: batches of independent outputs, its defaults."""

from collections.abc import Callable
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator.operators import DiagLinearOperator
from problems import problem

__all__ = ["exact_dirichlet", "expectation", "predict", "sgpr", "svgp"]

torch.set_default_dtype(torch.float64)


class _Prior:
    """Zero mean, and one squared exponential for all outputs."""

    def __init__(self, outputs: int, **given: Any) -> None:
        super().__init__(**given)
        self.mean_module = gpytorch.means.ZeroMean(batch_shape=torch.Size([outputs]))
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x: torch.Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class _Exact(_Prior, gpytorch.models.ExactGP):
    pass


class _Variational(_Prior, gpytorch.models.ApproximateGP):
    """A sparse posterior over K outputs.

    :param tasks: whether outputs are of one likelihood.
    """

    def __init__(self, Z: np.ndarray, K: int, tasks: bool) -> None:
        of = gpytorch.variational
        q = of.CholeskyVariationalDistribution(len(Z), batch_shape=torch.Size([K]))
        strategy = of.VariationalStrategy(self, torch.tensor(Z), q)
        if tasks:
            strategy = of.IndependentMultitaskVariationalStrategy(strategy, num_tasks=K)
        super().__init__(K, variational_strategy=strategy)


def _step(model: Any, objective: Any, inputs: torch.Tensor, targets: Any) -> Callable[[], object]:
    """Value and gradient."""
    model.train()
    objective.likelihood.train()

    def turn() -> object:
        objective.zero_grad()
        loss = -objective(model(inputs), targets).sum()
        loss.backward()
        return loss

    return turn


def sgpr(N: int, D: int, K: int, M: int) -> Callable[[], object]:
    """Batch SGPR with learned additional noise, on ILR's targets, as the paper's own code has it."""
    import gpflow_ilr as gi

    X, y, _, Z = problem(N, D, K, M)
    code = gi.ILRCode(K)
    T = torch.tensor(code.targets.numpy()[y].T.copy())
    likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(
        torch.full_like(T, code.noise_variance.numpy().item()),
        learn_additional_noise=True,
        batch_shape=T.shape[:1],
    )
    inputs = torch.tensor(X)
    model = _Exact(K - 1, train_inputs=inputs, train_targets=T, likelihood=likelihood)
    model.covar_module = gpytorch.kernels.InducingPointKernel(
        model.covar_module, torch.tensor(Z), likelihood
    )
    return _step(model, gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model), inputs, T)


def exact_dirichlet(N: int, D: int, K: int) -> Callable[[], object]:
    """GPyTorch's exact Dirichlet classification."""
    given = problem(N, D, K)
    likelihood = gpytorch.likelihoods.DirichletClassificationLikelihood(
        torch.tensor(given.y), learn_additional_noise=True, dtype=torch.float64
    )
    inputs, T = torch.tensor(given.X), likelihood.transformed_targets
    model = _Exact(K, train_inputs=inputs, train_targets=T, likelihood=likelihood)
    return _step(model, gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model), inputs, T)


def svgp(N: int, D: int, K: int, M: int, batch: int) -> Callable[[], object]:
    """SVGP with K latents and SoftmaxLikelihood, at its default number of samples."""
    X, y, _, Z = problem(N, D, K, M, batch)
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_features=K, num_classes=K)
    model = _Variational(Z, K, tasks=True)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=N)
    return _step(model, objective, torch.tensor(X), torch.tensor(y))


def expectation(mean: np.ndarray, variance: float, y: np.ndarray) -> np.ndarray:
    """E[log p(y | f)] for latents that are logits, without mixing weights."""
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(
        num_classes=mean.shape[1], mixing_weights=False
    ).train()
    covariance = DiagLinearOperator(torch.full([mean.size], variance))
    latent = MultitaskMultivariateNormal(torch.tensor(mean), covariance)
    return likelihood.expected_log_prob(torch.tensor(y), latent).detach().numpy()


def predict(
    N: int, D: int, K: int, M: int, rows: int, truth: int, samples: int = 256
) -> Callable[[], object]:
    """Its recipe for probabilities: sample the batch posterior, normalise, average.

    The posterior is that of the others: ILR latents f of equal variances have the softmax of K
    independent logits with means Hf, so that errors are of the same probabilities.
    """
    import expectations

    import gpflow_ilr as gi

    collapsed = expectations.collapsed(N, D, K, M)
    ours = gi.ILRSVGP.from_collapsed(collapsed)
    model = _Variational(ours.inducing_variable.Z.numpy(), K, tasks=False).eval()
    model.covar_module.outputscale = float(ours.kernel.variance.numpy())
    model.covar_module.base_kernel.lengthscale = float(ours.kernel.lengthscales.numpy())
    strategy = model.variational_strategy
    strategy.variational_params_initialized.fill_(1)
    q = strategy._variational_distribution
    with torch.no_grad():
        H = ours.likelihood.link.numpy()
        q.variational_mean.copy_(torch.tensor(H @ ours.q_mu.numpy().T))
        q.chol_variational_covar.copy_(torch.tensor(ours.q_sqrt.numpy()[0]))

    def call(X: Any) -> np.ndarray:
        total = []
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            for block in torch.tensor(X.numpy()).split(5000):
                latent = model(block)
                f = torch.distributions.Normal(latent.mean, latent.stddev).rsample((samples,))
                total.append(torch.softmax(f, dim=1).mean(0))
        return torch.cat(total, dim=1).T.numpy()

    return expectations.with_error(expectations.posterior_of(collapsed, rows), truth, call)
