"""An uncollapsed model that starts from a collapsed one predicts what that one predicts."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import kernels
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.kernels import (
    MultioutputKernel,
    SeparateIndependent,
    SharedIndependent,
    SquaredExponential,
)

from gpflow_ilr import ILRGPR, ILRSGPR, ILRSVGP, DirichletSGPR, Sobol
from gpflow_ilr.models.warm_start import scaled_kernel

K, N, M = 4, 40, 6
_RNG = np.random.default_rng(0)
Y = np.arange(N) % K
X = _RNG.standard_normal((N, 2)) + np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]])[Y]
XNEW = np.concatenate([X[:4] + 0.1, 5.0 * _RNG.standard_normal((4, 2))])  # near and far away


def kernel(variance: float = 0.3) -> SquaredExponential:
    return SquaredExponential(variance, lengthscales=[1.3, 0.8])


def collapsed(inducing: Any = None, k: Any = None, **options: Any) -> ILRSGPR:
    inducing = X[:M] + 0.1 if inducing is None else inducing
    return ILRSGPR((X, Y), k or kernel(), inducing, num_classes=K, **options)


def sets(sizes: Any = (M, M, M)) -> SeparateIndependentInducingVariables:
    points = [InducingPoints(X[i : i + size] + 0.1) for i, size in enumerate(sizes)]
    return SeparateIndependentInducingVariables(points)


def predictions(model: Any) -> list[Any]:
    def predict() -> list[tf.Tensor]:
        return [*model.predict_f(XNEW, full_cov=True), *model.predict_y(XNEW)]

    if isinstance(model.kernel, MultioutputKernel):  # GPflow's loops over outputs are slow eagerly
        predict = tf.function(predict, autograph=False)
    return [x.numpy() for x in predict()]


def assert_predicts_the_same(warm: Any, model: Any, atol: float = 1e-9) -> None:
    for ours, theirs in zip(predictions(warm), predictions(model), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=atol)


# Predictions


@pytest.mark.parametrize("noise", ["fixed", "shared", "per_output", "per_class"])
def test_warm_start_predicts_what_the_collapsed_model_predicts(noise):
    model = collapsed(noise=noise)
    warm = ILRSVGP.from_collapsed(model)
    assert isinstance(warm, ILRSVGP)
    assert_predicts_the_same(warm, model)


@pytest.mark.parametrize(
    "options",
    [
        {"k": SharedIndependent(kernel(), K - 1)},
        {"k": SeparateIndependent([kernel(0.2 + 0.1 * p) for p in range(K - 1)])},
        {"inducing": sets()},
        {"mean_function": gpflow.functions.Constant([0.3, -0.2, 0.1])},
        {"mean_function": gpflow.functions.Linear(np.full((2, 1), 0.1), [0.2])},
        {"k": kernel() + kernels.Linear([0.1, 0.2]) * kernels.Polynomial(2.0, 0.3)},
        {"k": kernels.Periodic(kernel())},
    ],
    ids=["shared", "separate", "sets", "constant-mean", "linear-mean", "sum-product", "periodic"],
)
def test_it_does_so_for_every_kernel_inducing_input_and_mean(options):
    model = collapsed(**options)
    assert_predicts_the_same(ILRSVGP.from_collapsed(model), model)


def test_it_does_so_where_the_jitter_matters():
    model = collapsed(X, SquaredExponential(0.3, lengthscales=3.0), smoothing=0.999)
    assert np.linalg.cond(model.kernel(X)) > 1e12
    p = predictions(model)[2]
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-8)):
        assert np.max(np.abs(predictions(model)[2] - p)) > 1e-3  # here it does
    assert_predicts_the_same(ILRSVGP.from_collapsed(model), model, atol=1e-6)


def test_q_is_the_collapsed_q_in_the_papers_units():
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-13)):
        model = collapsed(noise="per_output")
        warm = ILRSVGP.from_collapsed(model)
        root = np.linalg.cholesky(warm.kernel(model.inducing_variable.Z))
        mean, covariance = model.compute_qu()
        np.testing.assert_allclose(root @ warm.q_mu, mean, atol=1e-8)
        roots = root @ warm.q_sqrt
        np.testing.assert_allclose(roots @ tf.linalg.matrix_transpose(roots), covariance, atol=1e-8)


def test_a_calibrated_model_starts_at_its_calibration():
    model = collapsed()
    model.calibrate()
    assert_predicts_the_same(ILRSVGP.from_collapsed(model), model)


# The new model


def test_arguments_are_those_of_the_constructor():
    model, W = collapsed(), np.diag([1.0, 2.0, 3.0])
    warm = ILRSVGP.from_collapsed(model, mixing=True)
    assert warm.num_data == N
    np.testing.assert_array_equal(warm.likelihood.W, np.eye(K - 1))
    warm = ILRSVGP.from_collapsed(model, mixing=W, num_data=10 * N, nodes=Sobol(32))
    assert (warm.num_data, warm.likelihood.nodes) == (10 * N, Sobol(32))
    np.testing.assert_array_equal(warm.likelihood.W, W)
    assert ILRSVGP.from_collapsed(model).likelihood.W is None


def test_the_start_is_a_copy_with_the_same_trainable_parameters():
    k = kernel()
    gpflow.set_trainable(k.lengthscales, False)
    model = collapsed(k=k, mean_function=gpflow.functions.Constant([0.3, -0.2, 0.1]))
    before = predictions(model)
    warm = ILRSVGP.from_collapsed(model)
    names = {name: p.trainable for name, p in gpflow.utilities.parameter_dict(warm).items()}
    assert {name for name, trainable in names.items() if not trainable} == {
        ".kernel.lengthscales",
        ".mean_function.prod_1.c",  # the factor L
    }
    for parameter in warm.parameters:
        parameter.assign(1.1 * parameter)
    for ours, theirs in zip(predictions(model), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_warm_start_is_ahead_of_a_cold_one():
    model = collapsed()
    k = scaled_kernel(kernel(), float(model.code.scale) ** 2)
    cold = ILRSVGP(k, model.inducing_variable, num_classes=K, num_data=N)
    warm = ILRSVGP.from_collapsed(model)
    assert warm.elbo((X, Y)) > cold.elbo((X, Y)) + 10.0  # nats


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (lambda: DirichletSGPR((X, Y), kernel(), X[:M], num_classes=K), TypeError, "DirichletSGPR"),
        (lambda: ILRGPR((X, Y), kernel(), num_classes=K), TypeError, "got a ILRGPR"),
        (lambda: collapsed(sets((M, M - 1, M))), ValueError, "sets have 5, 6.*one size"),
    ],
    ids=["dirichlet", "exact", "unequal-sets"],
)
def test_what_cannot_be_a_start_is_refused(model, error, words):
    with pytest.raises(error, match=words):
        ILRSVGP.from_collapsed(model())


# Kernels


def _with_prior() -> Any:
    k = kernel()
    k.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    return k


def _bounded() -> Any:
    k, bounds = kernel(), tfp.bijectors.Sigmoid(np.float64(0.1), np.float64(1.0))
    k.variance = gpflow.Parameter(0.3, transform=bounds)
    return k


def _repeated(combine: Any) -> Any:
    k = kernel()
    return combine([k, k])


KERNELS = {
    "ard": kernel,
    "white": lambda: kernels.White(0.2),
    "linear-ard": lambda: kernels.Linear([0.3, 0.7]),
    "polynomial": lambda: kernels.Polynomial(2.0, variance=0.7, offset=0.4),
    "arc-cosine": lambda: kernels.ArcCosine(order=1, variance=0.7),
    "cosine": lambda: kernels.Cosine(0.5),
    "periodic": lambda: kernels.Periodic(kernel()),
    "change-points": lambda: kernels.ChangePoints([kernel(), kernel(0.9)], [0.5]),
    "sum": lambda: kernel() + kernels.Matern32(0.7) + kernels.Linear(),
    "product": lambda: kernel() * kernels.Matern32(0.7, lengthscales=0.5),
    "nested": lambda: kernel() * (kernels.Constant(0.4) + kernels.Polynomial()),
    "same-twice-summed": lambda: _repeated(kernels.Sum),
    "same-twice-multiplied": lambda: _repeated(kernels.Product),
    "variance-with-prior": _with_prior,
    "bounded-variance": _bounded,
}


@pytest.mark.parametrize("name", KERNELS)
def test_scaled_kernel_is_the_kernel_times_the_factor(name):
    original, k = KERNELS[name](), KERNELS[name]()
    inputs = X[:, :1] if name == "change-points" else X
    prior_density = [p.log_prior_density().numpy() for p in k.trainable_parameters]
    scaled = scaled_kernel(k, 17.0)
    np.testing.assert_allclose(scaled(inputs), 17.0 * original(inputs), rtol=1e-12)
    np.testing.assert_allclose(
        scaled(inputs, full_cov=False), 17.0 * original(inputs, full_cov=False), rtol=1e-12
    )
    assert len(scaled.trainable_parameters) == len(original.trainable_parameters)
    density = [p.log_prior_density().numpy() for p in scaled.trainable_parameters]
    np.testing.assert_allclose(np.sum(density), np.sum(prior_density))


def test_a_kernel_that_has_no_variance_is_scaled():
    k = kernels.Coregion(output_dim=3, rank=1)
    k.W.assign([[0.3], [0.7], [-0.2]])
    rows = np.arange(3.0)[:, None]
    expected = 17.0 * k(rows)
    np.testing.assert_allclose(scaled_kernel(k, 17.0)(rows), expected)


def test_kernels_that_several_outputs_share_are_scaled_once():
    k = kernel()
    expected = 17.0 * k(X)
    scaled = scaled_kernel(SeparateIndependent([k, k, kernel()]), 17.0)
    for part in scaled.kernels:
        np.testing.assert_allclose(part(X), expected, rtol=1e-12)
    shared = scaled_kernel(SharedIndependent(kernel(), 3), 17.0)
    assert shared.num_latent_gps == 3
    np.testing.assert_allclose(shared.kernel(X), expected, rtol=1e-12)
