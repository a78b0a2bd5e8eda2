"""Every likelihood and every model of the package keeps GPflow's invariants, and none is forgotten.

The guard walks all subclasses that the package defines and fails when a concrete one is missing from
the lists below. A new class is added to a list by a factory that builds a small instance of it.
"""

import importlib
import inspect
import pkgutil
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel

import gpflow_ilr
from gpflow_ilr.augmented.likelihoods import BijectiveSoftmaxLikelihood, LogisticSoftmaxLikelihood
from gpflow_ilr.augmented.models import BijectiveSoftmaxGP, LogisticSoftmaxGP
from gpflow_ilr.codes import DirichletCode, ILRCode
from gpflow_ilr.expectations import Sobol
from gpflow_ilr.likelihoods import (
    CodeGaussian,
    CodeSoftmax,
    ILRLikelihood,
    SoftmaxLikelihood,
)
from gpflow_ilr.models import (
    ILRGPR,
    ILRNNGPR,
    ILRSGPR,
    ILRSVGP,
    CodeSVGP,
    DirichletGPR,
    DirichletNNGPR,
    DirichletSGPR,
    SoftmaxSVGP,
)

K, N = 3, 9
_RNG = np.random.default_rng(0)
Y = np.arange(N) % K
X = _RNG.standard_normal((N, 2)) + np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])[Y]
XNEW = _RNG.standard_normal((5, 2))
Z = X[:4] + 0.1
NODES = Sobol(4096)  # so many that sampling is the larger error


class Case(NamedTuple):
    """A class, how to build a small instance of it, and what its expectation is."""

    cls: type
    build: Callable[[], Any]
    bound: bool = False
    """Whether variational expectations are a lower bound, not the expectation itself."""
    tight: bool = True
    """Whether they are log_prob at zero variance."""


def mixed(likelihood: Any) -> Any:
    likelihood.W.assign_add(0.5 * np.random.default_rng(1).standard_normal(likelihood.W.shape))
    return likelihood


LIKELIHOODS = [
    Case(ILRLikelihood, lambda: mixed(ILRLikelihood(K, mixing=True, nodes=NODES))),
    Case(SoftmaxLikelihood, lambda: mixed(SoftmaxLikelihood(K, mixing=True, nodes=NODES))),
    Case(CodeSoftmax, lambda: CodeSoftmax(ILRCode(K, 0.9), NODES)),
    Case(CodeSoftmax, lambda: CodeSoftmax(DirichletCode(K), NODES)),
    Case(CodeGaussian, lambda: CodeGaussian(ILRCode(K, 0.9, noise="per_class"), NODES)),
    Case(CodeGaussian, lambda: CodeGaussian(DirichletCode(K, noise="per_output"), NODES)),
] + [
    Case(
        cls,
        lambda cls=cls, bound=bound: cls(
            K, bound=bound, class_scaling=[1.0, 2.0, 3.0], nodes=NODES
        ),
        bound=True,
        tight=bound == "marginal",
    )
    for cls in (LogisticSoftmaxLikelihood, BijectiveSoftmaxLikelihood)
    for bound in ("marginal", "factorised")
]


def kernel() -> SquaredExponential:
    return SquaredExponential(0.8, lengthscales=[1.3, 0.8])


def with_random_q(model: Any) -> Any:
    rng = np.random.default_rng(2)
    model.q_mu.assign(rng.standard_normal(model.q_mu.shape))
    model.q_sqrt.assign(np.tril(0.5 * rng.standard_normal(model.q_sqrt.shape)))
    return model


def sampled(model: Any) -> Any:
    with warnings.catch_warnings():  # such short chains disagree, which is no matter here
        warnings.simplefilter("ignore", UserWarning)
        model.sample(num_samples=20, num_burnin=20, num_chains=2)
    return model


MODELS = [
    Case(ILRGPR, lambda: ILRGPR((X, Y), kernel(), num_classes=K, noise="per_output")),
    Case(DirichletGPR, lambda: DirichletGPR((X, Y), kernel(), num_classes=K)),
    Case(ILRSGPR, lambda: ILRSGPR((X, Y), kernel(), Z, num_classes=K)),
    Case(DirichletSGPR, lambda: DirichletSGPR((X, Y), kernel(), Z, num_classes=K)),
    Case(ILRNNGPR, lambda: ILRNNGPR((X, Y), kernel(), num_classes=K, num_neighbours=5)),
    Case(
        DirichletNNGPR,
        lambda: DirichletNNGPR((X, Y), kernel(), num_classes=K, num_neighbours=5),
    ),
    Case(ILRSVGP, lambda: with_random_q(ILRSVGP(kernel(), Z, num_classes=K))),
    Case(SoftmaxSVGP, lambda: with_random_q(SoftmaxSVGP(kernel(), Z, num_classes=K))),
    Case(CodeSVGP, lambda: with_random_q(CodeSVGP(kernel(), Z, ILRCode(K)))),
    Case(LogisticSoftmaxGP, lambda: sampled(LogisticSoftmaxGP((X, Y), kernel(), num_classes=K))),
    Case(BijectiveSoftmaxGP, lambda: sampled(BijectiveSoftmaxGP((X, Y), kernel(), num_classes=K))),
]


def name_of(case: Any) -> str:
    return case.cls.__name__


# The guard


def descendants(cls: type) -> set[type]:
    children = set(cls.__subclasses__())
    return children.union(*(descendants(child) for child in children))


def concrete_classes(base: type, package: str) -> set[type]:
    """Subclasses that the package exports, and those that nothing in it derives from."""
    ours = {c for c in descendants(base) if f"{c.__module__}.".startswith(f"{package}.")}

    def is_exported(cls: type) -> bool:
        return getattr(sys.modules[package], cls.__name__, None) is cls

    return {
        cls
        for cls in ours
        if not inspect.isabstract(cls) and (is_exported(cls) or not descendants(cls) & ours)
    }


def forgotten(base: type, cases: list[Case], package: str = "gpflow_ilr") -> set[str]:
    return {c.__name__ for c in concrete_classes(base, package) - {case.cls for case in cases}}


def import_everything() -> None:
    for module in pkgutil.walk_packages(gpflow_ilr.__path__, "gpflow_ilr."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:  # an optional dependency that is not installed
            if error.name is None or error.name.startswith("gpflow_ilr"):
                raise


@pytest.mark.parametrize(("base", "cases"), [(Likelihood, LIKELIHOODS), (GPModel, MODELS)])
def test_no_class_is_forgotten(base, cases):
    import_everything()
    assert len(concrete_classes(base, "gpflow_ilr")) >= 5
    assert forgotten(base, cases) == set()


@pytest.mark.parametrize("case", LIKELIHOODS + MODELS, ids=name_of)
def test_every_case_builds_the_class_it_is_listed_for(case):
    assert type(case.build()) is case.cls


def test_the_guard_notices_a_class_that_is_not_listed():
    class Unlisted(ILRLikelihood):
        """Derives from a class that is listed, which must not hide it."""

    class UnlistedModel(CodeSVGP):
        """The same for a model."""

    class Unfinished(Likelihood):
        """Abstract, so there is nothing to test."""

    here = __name__
    assert forgotten(Likelihood, LIKELIHOODS, here) == {"Unlisted"}
    assert forgotten(GPModel, MODELS, here) == {"UnlistedModel"}
    assert forgotten(Likelihood, [*LIKELIHOODS, Case(Unlisted, Unlisted)], here) == set()
    assert inspect.isabstract(Unfinished)


# Invariants of likelihoods


class Problem(NamedTuple):
    likelihood: Any
    mean: Any
    variance: Any
    labels: Any
    samples: Any


def problem(case: Case) -> Problem:
    likelihood, rng = case.build(), np.random.default_rng(3)
    mean = rng.standard_normal((N, likelihood.latent_dim))
    variance = rng.uniform(0.1, 1.0, mean.shape)
    samples = mean + np.sqrt(variance) * rng.standard_normal((20_000, *mean.shape))
    return Problem(likelihood, mean, variance, Y[:, None], samples)


def errors_from(value: Any, samples: Any) -> Any:
    """By how many standard errors a value exceeds the mean over samples."""
    error = np.std(samples, axis=0) / np.sqrt(len(samples))
    return (np.asarray(value) - np.mean(samples, axis=0)) / error


@pytest.mark.parametrize("case", LIKELIHOODS, ids=name_of)
def test_at_zero_variance_the_variational_expectation_is_log_prob(case):
    likelihood, mean, _, labels, _ = problem(case)
    log_prob = likelihood.log_prob(X, mean, labels)
    expectation = likelihood.variational_expectations(X, mean, 0.0 * mean, labels)
    if case.tight:
        np.testing.assert_allclose(expectation, log_prob, rtol=1e-8)
    else:
        assert np.all(expectation < log_prob)


@pytest.mark.parametrize("case", LIKELIHOODS, ids=name_of)
def test_at_zero_variance_the_prediction_is_the_conditional_moment(case):
    likelihood, mean, _, _, _ = problem(case)
    p, variance = likelihood.predict_mean_and_var(X, mean, 0.0 * mean)
    np.testing.assert_allclose(p, likelihood.conditional_mean(X, mean), rtol=1e-7)
    np.testing.assert_allclose(variance, likelihood.conditional_variance(X, mean), rtol=1e-7)


@pytest.mark.parametrize("case", LIKELIHOODS, ids=name_of)
def test_the_variational_expectation_is_the_mean_of_log_prob_over_samples(case):
    likelihood, mean, variance, labels, samples = problem(case)
    repeated = np.broadcast_to(labels, (len(samples), *labels.shape))
    log_prob = likelihood.log_prob(None, samples, repeated)
    expectation = likelihood.variational_expectations(X, mean, variance, labels)
    errors = errors_from(expectation, log_prob)
    assert np.max(errors if case.bound else np.abs(errors)) < 5.0


@pytest.mark.parametrize("case", LIKELIHOODS, ids=name_of)
def test_the_predicted_mean_is_the_mean_over_samples(case):
    likelihood, mean, variance, labels, samples = problem(case)
    p, label_variance = likelihood.predict_mean_and_var(X, mean, variance)
    assert np.max(np.abs(errors_from(p, likelihood.conditional_mean(None, samples)))) < 5.0
    np.testing.assert_allclose(np.sum(p, axis=-1), 1.0)
    np.testing.assert_allclose(label_variance, p * (1 - p))
    density = likelihood.predict_log_density(X, mean, variance, labels)
    np.testing.assert_allclose(density, np.log(p.numpy()[np.arange(N), Y]))


# Invariants of models


@pytest.mark.parametrize("case", MODELS, ids=name_of)
def test_models_predict_probabilities_and_their_logarithms(case):
    model = case.build()
    p, variance = model.predict_y(XNEW)
    assert p.shape == (5, K)
    assert np.all(p > 0)
    np.testing.assert_allclose(np.sum(p, axis=-1), 1.0)
    np.testing.assert_allclose(variance, p * (1 - p))
    assert np.max(np.abs(p - 1.0 / K)) > 0.01  # it has learned something
    density = model.predict_log_density((XNEW, Y[:5]))
    np.testing.assert_allclose(density, np.log(p.numpy()[np.arange(5), Y[:5]]), rtol=1e-10)


@pytest.mark.parametrize("case", MODELS, ids=name_of)
def test_predictions_do_not_depend_on_batching_or_copying(case):
    model = case.build()
    p = model.predict_y(XNEW)[0]
    pieces = [model.predict_y(XNEW[:2])[0], model.predict_y(XNEW[2:])[0]]
    np.testing.assert_allclose(np.concatenate(pieces), p, rtol=1e-10)
    np.testing.assert_array_equal(model.predict_y(XNEW)[0], p)
    np.testing.assert_allclose(gpflow.utilities.deepcopy(model).predict_y(XNEW)[0], p, rtol=1e-10)
