"""Small models of every kind, for tests of their files."""

import warnings
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
from gpflow.models import GPModel

import gpflow_ilr as gi

__all__ = ["MODELS", "X", "Y", "Z", "kernel", "perturbed_q"]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = RNG.integers(0, 3, 30)
Z = X[:6]


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern32() + gpflow.kernels.Linear(active_dims=[0])


def short_chains(model: GPModel) -> GPModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of chains so short
        model.sample(num_samples=6, num_burnin=2)
    return model


def svgp(likelihood: Any) -> GPModel:
    return perturbed_q(
        gpflow.models.SVGP(kernel(), likelihood, Z, num_latent_gps=likelihood.latent_dim)
    )


def perturbed_q(model: GPModel) -> GPModel:
    model.q_mu.assign(np.random.default_rng(1).normal(size=model.q_mu.shape))
    return model


MODELS: dict[str, Callable[[], GPModel]] = {
    "ILRGPR": lambda: gi.ILRGPR((X, Y), kernel(), num_classes=3, noise="shared"),
    "DirichletGPR": lambda: gi.DirichletGPR((X, Y), kernel(), num_classes=3),
    "ILRSGPR": lambda: gi.ILRSGPR((X, Y), kernel(), Z, num_classes=3, noise="per_class"),
    "DirichletSGPR": lambda: gi.DirichletSGPR((X, Y), kernel(), Z, num_classes=3),
    "ILRNNGPR": lambda: gi.ILRNNGPR((X, Y), kernel(), num_classes=3, num_neighbours=9),
    "ILRSVGP": lambda: perturbed_q(gi.ILRSVGP(kernel(), Z, num_classes=3)),
    "SoftmaxSVGP": lambda: perturbed_q(gi.SoftmaxSVGP(kernel(), Z, num_classes=3)),
    "CodeSVGP": lambda: perturbed_q(gi.CodeSVGP(kernel(), Z, gi.ILRCode(3))),
    "LogisticSoftmaxGP": lambda: short_chains(
        gi.LogisticSoftmaxGP((X, Y), kernel(), num_classes=3)
    ),
    "BijectiveSoftmaxGP": lambda: short_chains(
        gi.BijectiveSoftmaxGP((X, Y), kernel(), num_classes=3)
    ),
    "SVGP LSM": lambda: svgp(gi.LogisticSoftmaxLikelihood(3)),
    "SVGP BSM": lambda: svgp(gi.BijectiveSoftmaxLikelihood(3)),
}
