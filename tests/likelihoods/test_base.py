"""SoftmaxOfLatents in GPflow's own models, with GPflow's own optimisers: what it does and refuses."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow.likelihoods import Likelihood
from scipy.special import log_softmax

from gpflow_ilr.codes import DirichletCode, ILRCode
from gpflow_ilr.expectations import MonteCarlo, Sobol
from gpflow_ilr.likelihoods import (
    CodeGaussian,
    CodeSoftmax,
    ILRLikelihood,
    LinkedSoftmax,
    SoftmaxLikelihood,
    SoftmaxOfLatents,
)


def circle(K: int, N: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Classes around the unit circle, as in the paper; with little noise they are separable."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, N)
    angle = 2.0 * np.pi * y / K
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1) + noise * rng.normal(size=(N, 2))
    return X, y[:, None].astype(np.float64)


def kernel(variance: float = 1.0) -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=0.5, variance=variance)


def svgp(
    likelihood: SoftmaxOfLatents,
    X: np.ndarray,
    M: int,
    variance: float = 1.0,
    num_latent_gps: int | None = None,
) -> gpflow.models.SVGP:
    return gpflow.models.SVGP(
        kernel(variance),
        likelihood,
        X[:M].copy(),
        num_latent_gps=num_latent_gps or likelihood.num_latent_gps,
        num_data=len(X),
    )


MODELS: dict[str, Callable[..., gpflow.models.GPModel]] = {
    "SVGP": lambda data, lik, L: svgp(lik, data[0], 6, num_latent_gps=L),
    "VGP": lambda data, lik, L: gpflow.models.VGP(data, kernel(), lik, num_latent_gps=L),
    "GPMC": lambda data, lik, L: gpflow.models.GPMC(data, kernel(), lik, num_latent_gps=L),
    "SGPMC": lambda data, lik, L: gpflow.models.SGPMC(
        data, kernel(), lik, num_latent_gps=L, inducing_variable=data[0][:6].copy()
    ),
}


@pytest.mark.parametrize("kind", [ILRLikelihood, SoftmaxLikelihood])
@pytest.mark.parametrize("name", MODELS)
def test_gpflow_models_train_and_predict_with_our_likelihoods(
    name: str, kind: type[LinkedSoftmax]
) -> None:
    X, Y = circle(3, 30, noise=0.2)
    likelihood = kind(3)
    model = MODELS[name]((X, Y), likelihood, likelihood.num_latent_gps)
    loss = model.training_loss_closure((X, Y)) if name == "SVGP" else model.training_loss
    before = loss().numpy()
    gpflow.optimizers.Scipy().minimize(
        loss, model.trainable_variables, options={"maxiter": 25}, compile=True
    )
    assert loss().numpy() < before - 10.0
    p, _ = model.predict_y(X)
    np.testing.assert_allclose(np.sum(p, axis=1), 1.0, rtol=1e-12)
    assert np.mean(np.argmax(p, axis=1) == Y[:, 0]) > 0.9
    log_density = model.predict_log_density((X, Y)).numpy().reshape(-1)
    np.testing.assert_allclose(log_density, np.log(p.numpy()[np.arange(30), Y[:, 0].astype(int)]))


@pytest.mark.parametrize("nodes", [None, MonteCarlo(num_samples=20)])
def test_adam_trains_on_minibatches(nodes: MonteCarlo | None) -> None:
    X, Y = circle(3, 60, noise=0.2)
    model = svgp(ILRLikelihood(3, nodes=nodes), X, 8)
    rows = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().shuffle(60, seed=0)
    loss = model.training_loss_closure(iter(rows.batch(20, drop_remainder=True)))
    adam = gpflow.keras.tf_keras.optimizers.Adam(0.1)
    adam.build(model.trainable_variables)
    step = tf.function(lambda: adam.minimize(loss, model.trainable_variables), autograph=False)
    before = model.elbo((X, Y)).numpy()
    for _ in range(60):
        step()
    assert model.elbo((X, Y)).numpy() > 0.6 * before  # both negative


def natural_gradient_losses(
    nodes: Sobol | None, steps: int
) -> tuple[np.ndarray, gpflow.models.SVGP]:
    X, Y = circle(4, 120, noise=0.5)
    model = svgp(ILRLikelihood(4, nodes=nodes), X, 10)
    loss = model.training_loss_closure((X, Y), compile=True)
    natural = gpflow.optimizers.NaturalGradient(gamma=1.0)
    step = tf.function(
        lambda: natural.minimize(loss, [(model.q_mu, model.q_sqrt)]), autograph=False
    )
    losses = [loss().numpy()]
    for _ in range(steps):
        step()
        losses.append(loss().numpy())
    return np.array(losses), model


def test_natural_gradients_of_full_step_converge_as_with_many_nodes() -> None:
    losses, _ = natural_gradient_losses(None, steps=12)
    many, _ = natural_gradient_losses(Sobol(1024), steps=12)
    np.testing.assert_allclose(losses, many, rtol=5e-3)
    assert abs(losses[-1] - losses[-2]) < 1e-3 * losses[-1]


def many_sample_elbo(
    model: gpflow.models.SVGP, X: np.ndarray, Y: np.ndarray
) -> tuple[float, float]:
    """The ELBO by plain sampling, with its standard error."""
    rng = np.random.default_rng(1)
    mean, var = (x.numpy() for x in model.predict_f(X))
    C, total, variance = model.likelihood.link.numpy(), 0.0, 0.0
    for m, v, y in zip(mean, var, Y[:, 0].astype(int), strict=True):
        g = rng.normal(size=(4000, len(m)))
        pair = [log_softmax((m + s * np.sqrt(v) * g) @ C.T, axis=-1)[:, y] for s in (1.0, -1.0)]
        draws = 0.5 * (pair[0] + pair[1])
        total, variance = total + draws.mean(), variance + draws.var() / len(draws)
    return total - model.prior_kl().numpy(), float(np.sqrt(variance))


def test_natural_gradients_do_not_exploit_the_nodes() -> None:
    X, Y = circle(4, 120, noise=0.5)
    losses, model = natural_gradient_losses(None, steps=12)
    truth, error = many_sample_elbo(model, X, Y)
    assert error < 1e-3 * abs(truth)
    assert -losses[-1] == pytest.approx(truth, rel=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("mixing", [False, True])
@pytest.mark.parametrize(("K", "N", "noise"), [(10, 150, 0.15), (26, 200, 0.1)])
def test_lbfgs_does_not_exploit_the_nodes(K: int, N: int, noise: float, mixing: bool) -> None:
    # Separable classes: plain averages over the same nodes report bounds 4 to 30 % too good here.
    X, Y = circle(K, N, noise)
    model = svgp(ILRLikelihood(K, mixing=mixing), X, 20, variance=4.0)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure((X, Y)), model.trainable_variables, options={"maxiter": 150}
    )
    truth, error = many_sample_elbo(model, X, Y)
    assert error < 1e-3 * abs(truth)
    assert model.elbo((X, Y)).numpy() == pytest.approx(truth, rel=5e-3)


def test_a_likelihood_layer_may_call_without_inputs() -> None:
    # GPflux's LikelihoodLayer calls predict_mean_and_var(None, mean, var) and
    # variational_expectations(None, mean, var, targets), by position.
    likelihood = ILRLikelihood(3)
    mean, var = tf.zeros([5, 2], tf.float64), tf.ones([5, 2], tf.float64)
    targets = tf.constant([[0], [1], [2], [0], [1]])

    @tf.function
    def layer(mean: tf.Tensor, var: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        loss = -tf.reduce_mean(likelihood.variational_expectations(None, mean, var, targets))
        return loss, likelihood.predict_mean_and_var(None, mean, var)[0]

    loss, p = layer(mean, var)
    assert loss > np.log(3.0)
    np.testing.assert_allclose(p, 1.0 / 3.0, atol=2e-3)


# Another number of latents


PUBLIC = {
    name: method
    for name, method in inspect.getmembers(Likelihood, inspect.isfunction)
    if not name.startswith("_") and {"F", "Fmu"} & set(inspect.signature(method).parameters)
}
"""Every method of GPflow's that is given latents."""

CASES: list[tuple[SoftmaxOfLatents, int, str]] = [
    (
        ILRLikelihood(3),
        3,
        "ILRLikelihood of 3 classes has 2 latents, but the model gives it 3. "
        "Build the model with num_latent_gps=2 (one less than classes).",
    ),
    (
        SoftmaxLikelihood(3),
        2,
        "SoftmaxLikelihood of 3 classes has 3 latents, but the model gives it 2. "
        "Build the model with num_latent_gps=3 (one for each class).",
    ),
    (
        ILRLikelihood(5, num_latent_gps=2),
        4,
        "ILRLikelihood of 5 classes has 2 latents, but the model gives it 4. "
        "Build the model with num_latent_gps=2 (the columns of its link matrix).",
    ),
    (
        CodeGaussian(ILRCode(3)),
        1,
        "CodeGaussian of 3 classes has 2 latents, but the model gives it 1. "
        "Build the model with num_latent_gps=2 (one less than classes).",
    ),
    (
        CodeSoftmax(DirichletCode(4)),
        3,
        "CodeSoftmax of 4 classes has 4 latents, but the model gives it 3. "
        "Build the model with num_latent_gps=4 (one for each class).",
    ),
]


def arguments(name: str, num_latent_gps: int, num_rows: int = 5) -> dict[str, Any]:
    """Arguments of a public method by name."""
    all_of_them = {
        "X": None,
        "Y": np.zeros((num_rows, 1), np.int32),
        **{latents: np.ones((num_rows, num_latent_gps)) for latents in ("F", "Fmu", "Fvar")},
    }
    return {k: all_of_them[k] for k in inspect.signature(PUBLIC[name]).parameters if k != "self"}


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize(("likelihood", "given", "sentence"), CASES, ids=lambda x: type(x).__name__)
def test_every_method_says_how_many_latents_a_model_should_have(
    likelihood: SoftmaxOfLatents, given: int, sentence: str, name: str
) -> None:
    assert len(PUBLIC) == 6
    method, wrong = getattr(likelihood, name), arguments(name, given)
    compiled = tf.function(lambda: method(*wrong.values()), autograph=False)
    for call in (lambda: method(*wrong.values()), lambda: method(**wrong), compiled):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            call()
    method(**arguments(name, likelihood.num_latent_gps))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_as_many_latents_as_classes_is_refused_with_advice(
    name: str, compiled: bool
) -> None:
    # The likeliest mistake of who puts ILRLikelihood where Softmax stood.
    X, Y = circle(3, 12, noise=0.2)
    model = MODELS[name]((X, Y), ILRLikelihood(3), 3)
    sentence = re.escape(CASES[0][2])
    data = ((X, Y),) if name == "SVGP" else ()
    loss = model.training_loss_closure(*data, compile=compiled)
    with pytest.raises(ValueError, match=sentence):
        loss()
    with pytest.raises(ValueError, match=sentence):
        tf.function(model.predict_y)(X) if compiled else model.predict_y(X)
    with pytest.raises(ValueError, match=sentence):
        model.predict_log_density((X, Y))
    if name in ("SVGP", "VGP"):
        with pytest.raises(ValueError, match=sentence):
            model.elbo(*data)


def test_a_model_that_counts_the_columns_of_its_labels_is_refused_with_advice() -> None:
    X, Y = circle(3, 12, noise=0.2)
    model = gpflow.models.VGP((X, Y), kernel(), ILRLikelihood(3))  # takes as many as Y has columns
    with pytest.raises(ValueError, match=r"gives it 1. Build the model with num_latent_gps=2"):
        model.elbo()


@pytest.mark.parametrize("name", PUBLIC)
def test_methods_keep_the_documentation_and_the_shape_checks_of_gpflow(name: str) -> None:
    ours, theirs = getattr(ILRLikelihood, name), getattr(Likelihood, name)
    assert ours is not theirs
    assert ours.__doc__ == theirs.__doc__
    assert inspect.signature(ours) == inspect.signature(theirs)
    if "Fvar" in inspect.signature(theirs).parameters:
        wrong = {**arguments(name, 2), "Fvar": np.ones((5, 3))}
        with pytest.raises(ShapeMismatchError):
            getattr(ILRLikelihood(3), name)(**wrong)


def test_latents_of_a_number_that_a_graph_does_not_know_yet_are_let_through() -> None:
    likelihood = ILRLikelihood(3)
    F = np.ones((5, 2))
    for shape in (None, [None, None]):
        spec = [tf.TensorSpec(shape, tf.float64)]
        mean = tf.function(lambda F: likelihood.conditional_mean(None, F), input_signature=spec)
        np.testing.assert_allclose(mean(F), likelihood.conditional_mean(None, F), rtol=1e-12)
