"""CodeSoftmax reads its link from a code: the likelihoods without mixing, by another way."""

from typing import Any

import gpflow
import numpy as np
import pytest

from gpflow_ilr.codes import DirichletCode, ILRCode, LabelCode
from gpflow_ilr.expectations import GaussHermite, Sobol
from gpflow_ilr.likelihoods import (
    CodeGaussian,
    CodeSoftmax,
    ILRLikelihood,
    LinkedSoftmax,
    SoftmaxLikelihood,
)

PAIRS = [(ILRCode, ILRLikelihood), (DirichletCode, SoftmaxLikelihood)]


@pytest.mark.parametrize("K", [2, 3, 7])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize(("code", "kind"), PAIRS)
def test_it_is_the_likelihood_without_mixing_in_every_method(
    code: Any, kind: type[LinkedSoftmax], soft: bool, K: int, rng: np.random.Generator
) -> None:
    ours, reference = CodeSoftmax(code(K)), kind(K, mixing=False)
    assert (ours.num_classes, ours.num_latent_gps) == (K, reference.num_latent_gps)
    assert (ours.nodes, ours.bound_nodes) == (reference.nodes, reference.bound_nodes)
    F, V = rng.normal(size=(6, ours.latent_dim)), rng.uniform(0.1, 2.0, (6, ours.latent_dim))
    Y = rng.dirichlet(np.ones(K), size=6) if soft else np.arange(6)[:, None] % K
    for method, arguments in (
        ("log_prob", (F, Y)),
        ("conditional_mean", (F,)),
        ("conditional_variance", (F,)),
        ("predict_mean_and_var", (F, V)),
        ("predict_log_density", (F, V, Y)),
        ("variational_expectations", (F, V, Y)),
    ):
        values = (getattr(likelihood, method)(None, *arguments) for likelihood in (ours, reference))
        np.testing.assert_array_equal(*values)


@pytest.mark.parametrize("noise", ["fixed", "per_output"])
def test_latents_are_in_the_papers_units_so_that_the_scale_does_not_matter(noise: str) -> None:
    code = ILRCode(3, smoothing=0.9, noise=noise)
    likelihood, F = CodeSoftmax(code), np.array([[1.0, -2.0]])
    before = likelihood.conditional_mean(None, F)
    code.smoothing = 0.999
    np.testing.assert_array_equal(likelihood.conditional_mean(None, F), before)
    # Those of CodeGaussian are in the code's units, f/L.
    scaled = CodeGaussian(code).conditional_mean(None, F / code.scale)
    np.testing.assert_allclose(scaled, before, rtol=1e-12)


def test_the_link_is_read_from_the_code_at_each_call() -> None:
    class Turning(ILRCode):
        sign = 1.0

        @property
        def link(self) -> Any:
            return self.sign * super().link

    code = Turning(3)
    likelihood, F = CodeSoftmax(code), np.array([[1.0, -2.0]])
    before = likelihood.log_prob(None, F, np.array([[0]]))
    code.sign = -1.0
    np.testing.assert_array_equal(likelihood.link, code.link)
    np.testing.assert_array_equal(
        likelihood.log_prob(None, F, np.array([[0]])),
        CodeSoftmax(ILRCode(3)).log_prob(None, -F, np.array([[0]])),
    )
    assert likelihood.log_prob(None, F, np.array([[0]])) != before


@pytest.mark.parametrize("code", [ILRCode(3), DirichletCode(3)])
def test_an_svgp_trains_with_it(code: LabelCode) -> None:
    rng = np.random.default_rng(0)
    Y = np.arange(30)[:, None] % 3
    X = np.eye(3)[Y[:, 0]] + 0.2 * rng.normal(size=(30, 3))
    likelihood = CodeSoftmax(code)
    model = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(),
        likelihood,
        X[:6].copy(),
        num_latent_gps=likelihood.num_latent_gps,
    )
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure((X, Y)), model.trainable_variables, options={"maxiter": 25}
    )
    assert np.mean(np.argmax(model.predict_y(X)[0], axis=1) == Y[:, 0]) > 0.9


def test_nodes_serve_probabilities_and_bound_alike() -> None:
    likelihood = CodeSoftmax(ILRCode(3), nodes=GaussHermite(5))
    assert likelihood.nodes == likelihood.bound_nodes == GaussHermite(5)


@pytest.mark.parametrize("kind", [CodeSoftmax, CodeGaussian])
def test_what_is_no_code_and_no_node_rule_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"code must be a label code such as ILRCode.*it is 3"):
        kind(3)
    with pytest.raises(TypeError, match=r"nodes must be a node rule such as Sobol.*it is 64"):
        kind(ILRCode(3), nodes=64)
    assert kind(ILRCode(3), nodes=Sobol(64)).nodes == Sobol(64)
