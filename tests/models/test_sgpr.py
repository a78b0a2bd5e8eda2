"""The classes that users build are GPflow's SGPR on the paper's targets."""

from typing import Any

import gpflow
import numpy as np
import pytest
from check_shapes import disable_check_shapes
from gpflow.kernels import Constant
from scipy.linalg import helmert

from gpflow_ilr import ILRSGPR
from tests.models.oracles import (
    SMOOTHING,
    XNEW,
    K,
    X,
    Y,
    build,
    gradients,
    one_hot,
)

L = float(np.log(1 + K * SMOOTHING / (1 - SMOOTHING)))
SOFT = np.random.default_rng(3).dirichlet(np.ones(K), size=len(X))


def jitter_of(value: float) -> Any:
    return gpflow.config.as_context(gpflow.config.Config(jitter=value))


def sgpr_like(model: Any, rows: Any, p: slice | int = slice(None)) -> gpflow.models.SGPR:
    """GPflow's SGPR on the paper's targets (or one of them), with the model's own kernel and Z."""
    targets = np.log(SMOOTHING * rows + (1 - SMOOTHING) / K) @ helmert(K).T
    V = np.broadcast_to(model.code.noise_variance, [1, K - 1])[0, p]
    return gpflow.models.SGPR(
        (X, targets[:, p] if isinstance(p, slice) else targets[:, [p]]),
        Constant(L**2) * model.kernel,
        model.inducing_variable,
        noise_variance=L**2 * float(np.mean(V)),
    )


def paper_jitter(model: Any) -> Any:
    """GPflow's jitter is absolute, ours relative to the kernel: here both are the same."""
    return jitter_of(gpflow.default_jitter() * L**2 * float(model.kernel.variance.numpy()))


@pytest.mark.parametrize("noise", ["fixed", "shared"])
@pytest.mark.parametrize("labels", [Y, SOFT], ids=["hard", "soft"])
def test_ilrsgpr_is_gpflows_sgpr_on_the_papers_targets_with_kernel_scaled_by_L_squared(
    noise, labels
):
    model = build("ILRSGPR", noise, data=(X, labels))
    sgpr = sgpr_like(model, one_hot(labels))
    variables = [*model.kernel.trainable_variables, *model.inducing_variable.trainable_variables]
    with jitter_of(1e-13):  # ours follows the kernel's variance, SGPR's does not: nor its gradient
        ours = gradients(model.training_loss, variables)
        f, q = model.predict_f(XNEW, full_cov=True), model.compute_qu()
        np.testing.assert_allclose(model.elbo(), sgpr.elbo(), rtol=1e-10)
        np.testing.assert_allclose(-model.training_loss(), sgpr.elbo(), rtol=1e-10)
        for a, b in zip(f, sgpr.predict_f(XNEW, full_cov=True), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)
        for a, b in zip(ours, gradients(sgpr.training_loss, variables), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
        sgpr_mean, sgpr_covariance = sgpr.compute_qu()
    np.testing.assert_allclose(q[0], sgpr_mean, atol=1e-9)
    for p in range(K - 1):
        np.testing.assert_allclose(q[1][p], sgpr_covariance, atol=1e-9)


@pytest.mark.parametrize("labels", [Y, SOFT], ids=["hard", "soft"])
def test_per_output_noise_is_one_sgpr_for_each_output(labels):
    model = build("ILRSGPR", "per_output", data=(X, labels))
    sgprs = [sgpr_like(model, one_hot(labels), p) for p in range(K - 1)]
    mean, var = model.predict_f(XNEW)
    with paper_jitter(model):
        total = sum(float(sgpr.elbo()) for sgpr in sgprs)
        predictions = [sgpr.predict_f(XNEW) for sgpr in sgprs]
    np.testing.assert_allclose(model.elbo(), total, rtol=1e-10)
    np.testing.assert_allclose(mean, np.concatenate([p[0] for p in predictions], 1), atol=1e-9)
    np.testing.assert_allclose(var, np.concatenate([p[1] for p in predictions], 1), atol=1e-9)


def patches() -> tuple[Any, Any, Any]:
    """Small images, a convolutional kernel, and inducing patches."""
    rng = np.random.default_rng(4)
    images = rng.normal(size=(15, 16))
    base = gpflow.kernels.SquaredExponential(0.2, 2.0)
    kernel = gpflow.kernels.Convolutional(base, image_shape=[4, 4], patch_shape=[2, 2])
    return images, kernel, gpflow.inducing_variables.InducingPatches(rng.normal(size=(5, 4)))


def multiscale() -> tuple[Any, Any, Any]:
    """Inducing functions that are Gaussians of several widths."""
    rng = np.random.default_rng(5)
    kernel = gpflow.kernels.SquaredExponential(0.2, lengthscales=[1.0, 1.5])
    scales = rng.uniform(0.1, 0.5, size=(5, 2))
    inducing = gpflow.inducing_variables.Multiscale(rng.normal(size=(5, 2)), scales)
    return rng.normal(size=(15, 2)), kernel, inducing


@pytest.mark.parametrize("case", [patches, multiscale])
def test_inter_domain_inducing_variables_are_gpflows(case) -> None:
    inputs, kernel, inducing = case()
    labels = np.arange(15) % 3
    model = ILRSGPR((inputs, labels), kernel, inducing, num_classes=3)
    L = float(model.code.scale)
    if case is patches:
        scaled = gpflow.utilities.deepcopy(kernel)
        scaled.base_kernel.variance.assign(L**2 * 0.2)
    else:
        scaled = gpflow.kernels.SquaredExponential(L**2 * 0.2, lengthscales=[1.0, 1.5])
    targets = L * model.code.targets.numpy()[labels]
    variance = L**2 * float(model.code.noise_variance[0, 0])
    ours = model.elbo(), *model.predict_f(inputs)
    jitter = 1e-6 * L**2 * np.mean(np.diag(gpflow.covariances.Kuu(inducing, kernel)))
    # Our jitter is relative to the kernel's variance; GPflow's SGPR takes patches, but its check of
    # shapes does not.
    with jitter_of(jitter), disable_check_shapes():
        sgpr = gpflow.models.SGPR((inputs, targets), scaled, inducing, noise_variance=variance)
        theirs = sgpr.elbo(), *sgpr.predict_f(inputs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)
