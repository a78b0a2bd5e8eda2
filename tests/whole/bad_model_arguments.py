"""The part of the table of wrong inputs that is about codes, node rules, likelihoods and models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gpflow
import numpy as np

import gpflow_ilr as gi
from tests.whole.bad_arguments import (
    CHECKPOINTS,
    WITH_NAN,
    Bad,
    Entry,
    classes,
    collapsed,
    counts,
    data,
    exact,
    functions,
    one_of,
    seeds,
    svgp,
    with_columns,
)
from tests.whole.test_guard import XNEW, K, X, Y, Z, kernel

NODES = Bad("nodes", 64, "64", "Sobol(num_nodes=64)")
NOISE = one_of("noise", "share", "'shared'")
OBJECTIVE = one_of("objective", "evidnce", "'evidence' or 'loo'")
MIXING = Bad("mixing", "yes", "'yes'", "Pass True")
ILR_CODE = [
    *(one_of("smoothing", value, "0.99 is a good start") for value in (0.0, 1.0, "a", None)),
    *(one_of("tolerance", value, "1e-6") for value in (0.0, 1.0, "a", None)),
    *(one_of("noise_variance", value, "Proposition 1 gives") for value in (0.0, -1.0, "a")),
    NOISE,
]
DIRICHLET_CODE = [
    *(one_of("alpha_epsilon", value, "0.1 to 0.0001") for value in (0.0, "a", None)),
    NOISE,
]
SCALING = [
    Bad("class_scaling", value, repr(value), "leave it out") for value in ([1, 2], "a", [1, 2, -3])
]


def kernels() -> Iterator[Bad]:
    for value in (None, "rbf", gpflow.kernels.Matern52):
        yield Bad("kernel", value, repr(value), "gpflow.kernels.SquaredExponential()")


def fitting_kernels() -> Iterator[Bad]:
    yield from kernels()
    matern = gpflow.kernels.Matern52
    too_many = matern(lengthscales=[1.0, 1.0, 1.0])
    yield Bad("kernel", too_many, "3 lengthscales", "Pass one, or 2")
    yield Bad("kernel", matern() + matern(active_dims=[5]), "up to 5", "columns up to 1")


def inducing() -> Iterator[Bad]:
    name = "inducing_variable"
    yield Bad(name, None, "None", "an array")
    yield Bad(name, 5, "the number 5", "kmeans_plusplus(X, 5)")
    yield Bad(name, Z[:, 0], "[4]", "inducing_variable[:, None]")
    yield Bad(name, Z[:0], "[0, 2]", "at least one row")
    yield Bad(name, WITH_NAN, "row 3, column 1 is nan", "Impute or drop")


def mean_functions() -> Iterator[Bad]:
    yield from functions("zero", "mean_function")
    yield from functions(1.0, "mean_function")


def keeps_rows(cls: Callable[..., Any], *bad: Bad, **more: Any) -> Entry:
    right = {"data": (X, Y), "kernel": None, "num_classes": K, **more}
    shared = [*data(), *fitting_kernels(), *classes(), *mean_functions()]
    return Entry(cls, lambda: right | {"kernel": kernel()}, [*shared, *bad])


def has_inducing(cls: Callable[..., Any], *bad: Bad) -> Entry:
    other = Bad("inducing_variable", Z[:, :1], "[4, 1]", "Pass rows like those of X")
    bad = (*inducing(), other, *counts("chunk_size"), *bad)
    return keeps_rows(cls, *bad, inducing_variable=Z)


def variational(cls: Callable[..., Any], right: dict[str, Any], *bad: Bad) -> Entry:
    shared = [*fitting_kernels(), *inducing(), *mean_functions(), *counts("num_data"), NODES]
    return Entry(cls, lambda: {"kernel": kernel(), "inducing_variable": Z} | right, [*shared, *bad])


def label_likelihood(cls: Callable[..., Any], *bad: Bad) -> Entry:
    return Entry(cls, lambda: {"num_classes": K}, [*classes(), NODES, *bad])


def expectations_of(likelihood: Any) -> Entry:
    F = np.zeros([2, likelihood.latent_dim])
    return Entry(
        likelihood.variational_expectations,
        lambda: {"X": XNEW[:2], "Fmu": F, "Fvar": F + 1.0, "Y": [[0], [1]]},
        [
            Bad("Y", [["a"], ["b"]], "'a'", "np.unique", "Labels"),
            Bad("Y", [[1], [3]], "row 1 has label 3", "subtract 1", "Labels"),
            Bad("Y", [[np.nan], [0]], "nan", "relabel", "Labels"),
            Bad("Y", [0, 1], "[2]", "[N, 1]", "Labels"),
        ],
    )


SHARED = Bad(
    "kernel",
    gpflow.kernels.SharedIndependent(gpflow.kernels.Matern52(lengthscales=[1.0, 1.0, 1.0]), K - 1),
    "3 lengthscales",
    "or 2",
)
LATENTS = [Bad("num_latent_gps", 5, "5", "as mixing"), *counts("num_latent_gps"), MIXING]
BOUND = one_of("bound", "x", "'marginal' or 'factorised'")

ENTRIES: dict[str, Entry] = {
    "ILR": Entry(gi.ILR, dict, list(classes())),
    "ILRCode": Entry(gi.ILRCode, lambda: {"num_classes": K}, [*classes(), *ILR_CODE]),
    "DirichletCode": Entry(
        gi.DirichletCode, lambda: {"num_classes": K}, [*classes(), *DIRICHLET_CODE]
    ),
    "GaussHermite": Entry(
        gi.GaussHermite,
        dict,
        [*counts("num_nodes"), Bad("num_nodes", 371, "371", "Use 370")],
    ),
    "Sobol": Entry(
        gi.Sobol, dict, [*counts("num_nodes"), Bad("num_nodes", 7, "7", "use 8"), *seeds()]
    ),
    "MonteCarlo": Entry(gi.MonteCarlo, dict, [*counts("num_samples"), *seeds()]),
    # Likelihoods
    "ILRLikelihood": label_likelihood(gi.ILRLikelihood, *LATENTS),
    "SoftmaxLikelihood": label_likelihood(gi.SoftmaxLikelihood, *LATENTS),
    "LogisticSoftmaxLikelihood": label_likelihood(gi.LogisticSoftmaxLikelihood, *SCALING, BOUND),
    "BijectiveSoftmaxLikelihood": label_likelihood(gi.BijectiveSoftmaxLikelihood, *SCALING, BOUND),
    "CodeGaussian": Entry(
        gi.CodeGaussian,
        lambda: {"code": gi.ILRCode(K)},
        [*(one_of("code", value, "ILRCode(num_classes=3)") for value in (3, None, "ilr")), NODES],
    ),
    "ILRLikelihood.variational_expectations": expectations_of(gi.ILRLikelihood(K)),
    "LogisticSoftmaxLikelihood.variational_expectations": expectations_of(
        gi.LogisticSoftmaxLikelihood(K)
    ),
    # Models
    "ILRGPR": keeps_rows(gi.ILRGPR, *ILR_CODE, OBJECTIVE, NODES, SHARED),
    "DirichletGPR": keeps_rows(gi.DirichletGPR, *DIRICHLET_CODE, OBJECTIVE, NODES),
    "ILRSGPR": has_inducing(gi.ILRSGPR, *ILR_CODE, OBJECTIVE, NODES),
    "DirichletSGPR": has_inducing(gi.DirichletSGPR, *DIRICHLET_CODE, OBJECTIVE, NODES),
    "ILRNNGPR": keeps_rows(gi.ILRNNGPR, *ILR_CODE, NODES, *counts("num_neighbours")),
    "DirichletNNGPR": keeps_rows(
        gi.DirichletNNGPR, *DIRICHLET_CODE, NODES, *counts("num_neighbours")
    ),
    "ILRSVGP": variational(gi.ILRSVGP, {"num_classes": K}, *classes(), *LATENTS),
    "SoftmaxSVGP": variational(gi.SoftmaxSVGP, {"num_classes": K}, *classes(), *LATENTS),
    "CodeSVGP": variational(
        gi.CodeSVGP, {"code": gi.ILRCode(K)}, one_of("code", 3, "ILRCode(num_classes=3)")
    ),
    "LogisticSoftmaxGP": Entry(
        gi.LogisticSoftmaxGP,
        lambda: {"data": (X, Y), "num_classes": K},
        [*data(), *list(fitting_kernels())[1:], *classes(), *mean_functions(), *SCALING],
    ),
    "BijectiveSoftmaxGP": Entry(
        gi.BijectiveSoftmaxGP,
        lambda: {"data": (X, Y), "num_classes": K},
        [*data(), *list(fitting_kernels())[1:], *classes(), *mean_functions(), *SCALING],
    ),
    # What models do
    "ILRGPR.calibrate": Entry(
        exact().calibrate, dict, [*data(), with_columns(), *counts("max_rows")]
    ),
    "ILRGPR.predict_f_samples": Entry(
        exact().predict_f_samples, lambda: {"Xnew": XNEW}, list(counts("num_samples"))
    ),
    "ILRSVGP.elbo": Entry(
        svgp().elbo,
        dict,
        [
            with_columns(),
            Bad("data", (X, Y[:3]), "(3, 1)", "as many labels as rows", "X"),
            Bad("data", (X, Y + 1), "label 3", "subtract 1", "Labels"),
            Bad("data", (X, None), "None", "an array, a tensor or a list", "Labels"),
            Bad("data", (X, 0), "y is 0", "Pass a list or array", "Labels"),
        ],
    ),
    "ILRSGPR.absorb": Entry(
        collapsed().absorb,
        lambda: {"dataset": (X, Y)},
        [
            *CHECKPOINTS,
            Bad("dataset", None, "NoneType", "from_generator"),
            Bad("dataset", "nowhere.npz", "'nowhere.npz'", "iterdir"),
            Bad("dataset", (X[:, :1], Y), "1 columns", "Pass the same features"),
        ],
    ),
    "LogisticSoftmaxGP.sample": Entry(
        gi.LogisticSoftmaxGP((X, Y), num_classes=K).sample,
        dict,
        list(counts("num_samples", "num_chains", "thinning")),
    ),
}
