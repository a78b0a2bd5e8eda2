"""Every model in float32 is the model of float64, and survives what float64 survives.

Loss, gradient and probabilities are compared at one jitter for both precisions, so that rounding is all
that differs. Its bound is ε κ, the machine epsilon of float32 times the condition number of the matrix
that is factorised; the condition number is computed, not guessed.
"""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Kernel, Matern52
from gpflow.models import GPModel

import gpflow_ilr as gi
from gpflow_ilr.linalg.jitter import FLOAT32_JITTER
from tests.whole.two_precisions import (
    JITTER,
    VARIANCE,
    X_HARD,
    XNEW,
    Y_HARD,
    K,
    N,
    X,
    Z,
    hard_kernel,
    loss_and_gradient,
    precision,
    q,
)

NOISES = ("fixed", "shared", "per_output", "per_class")
EPSILON = float(np.finfo(np.float32).eps)
Y = np.arange(N) % K


def small_kernel() -> Kernel:
    return Matern52(variance=0.75, lengthscales=[1.25, 0.75])


def with_likelihood(likelihood: Any, k: Kernel, Z: Any) -> GPModel:
    L = likelihood.latent_dim
    return gpflow.models.SVGP(k, likelihood, Z, num_latent_gps=L, **q(Z, L))


Build = Callable[[tuple[Any, Any], Kernel, Any], GPModel]


CONJUGATE: dict[str, Build] = {
    f"{cls.__name__} {noise}": lambda data, k, Z, cls=cls, noise=noise: cls(
        data, k, *([Z] if "SGPR" in cls.__name__ else []), num_classes=K, noise=noise
    )
    for cls in (
        *(gi.ILRGPR, gi.DirichletGPR, gi.ILRSGPR, gi.DirichletSGPR),
        *(gi.ILRNNGPR, gi.DirichletNNGPR),
    )
    for noise in (NOISES if "SGPR" in cls.__name__ else NOISES[2:])
}


UNCOLLAPSED: dict[str, Build] = {
    "ILRSVGP": lambda _, k, Z: gi.ILRSVGP(k, Z, num_classes=K, **q(Z, K - 1)),
    "SoftmaxSVGP": lambda _, k, Z: gi.SoftmaxSVGP(k, Z, num_classes=K, **q(Z, K)),
    "SoftmaxSVGP unwhitened": lambda _, k, Z: gi.SoftmaxSVGP(
        k, Z, num_classes=K, whiten=False, **q(Z, K)
    ),
    "CodeSVGP ILR": lambda _, k, Z: gi.CodeSVGP(k, Z, gi.ILRCode(K), **q(Z, K - 1)),
    "CodeSVGP Dirichlet": lambda _, k, Z: gi.CodeSVGP(k, Z, gi.DirichletCode(K), **q(Z, K)),
}


AUGMENTED: dict[str, Build] = {
    "LogisticSoftmaxGP": lambda data, k, _: gi.LogisticSoftmaxGP(data, k, num_classes=K),
    "BijectiveSoftmaxGP": lambda data, k, _: gi.BijectiveSoftmaxGP(data, k, num_classes=K),
}


SPARSE_AUGMENTED: dict[str, Build] = {
    f"SVGP {cls.__name__} {bound}": lambda _, k, Z, cls=cls, bound=bound: with_likelihood(
        cls(K, bound=bound), k, Z
    )
    for cls in (gi.LogisticSoftmaxLikelihood, gi.BijectiveSoftmaxLikelihood)
    for bound in ("marginal", "factorised")
}


MODELS = CONJUGATE | UNCOLLAPSED | AUGMENTED | SPARSE_AUGMENTED


def probabilities(model: GPModel, Xnew: Any) -> tf.Tensor:
    return model.predict_y(tf.constant(Xnew, gpflow.default_float()))[0]


def sampled(model: GPModel, chains: Any = None) -> GPModel:
    """The model with samples: its own, or another's."""
    if chains is None:
        model.sample(num_samples=10, num_burnin=2)
    else:
        model.chains = chains
    return model


@pytest.mark.filterwarnings("ignore:The chains disagree")
@pytest.mark.parametrize("name", MODELS)
def test_loss_gradient_and_probabilities_are_those_of_float64_up_to_rounding(name: str) -> None:
    with precision(np.float64, JITTER):
        model = MODELS[name]((X, Y), small_kernel(), Z)
        loss, gradient = loss_and_gradient(model, (X, Y))
        chains = sampled(model).chains if name in AUGMENTED else None
        p = probabilities(model, XNEW)
        # No model factorises a matrix of a larger condition number.
        kappa = np.linalg.cond(small_kernel()(X))
    with precision(np.float32, JITTER):
        model = MODELS[name]((X, Y), small_kernel(), Z)
        loss32, gradient32 = loss_and_gradient(model, (X, Y))
        p32 = probabilities(sampled(model, chains) if chains else model, XNEW)
    assert loss32.dtype == gradient32.dtype == p32.dtype == tf.float32
    # A sum over rows and latents, each rounded; two solutions of linear systems lose 2 ε κ each.
    np.testing.assert_allclose(loss32, loss, rtol=N * K * EPSILON)
    error = np.linalg.norm(gradient32 - tf.cast(gradient, tf.float32)) / np.linalg.norm(gradient)
    # The bound of LSM and BSM is ascended until a step changes less than 1000 ε.
    assert error < 4 * EPSILON * (1000 if name in AUGMENTED else kappa)
    np.testing.assert_allclose(p32, p, rtol=0, atol=4 * EPSILON * kappa)


# ε κ: the eigenvalues of N rows are between jitter and N + jitter, relative to the variance.
HARD_ROUNDING = len(X_HARD) * EPSILON / FLOAT32_JITTER
HARD = [
    *("ILRGPR per_output", "DirichletGPR per_class", "ILRSGPR per_class", "ILRSGPR per_output"),
    *("ILRNNGPR per_output", "DirichletNNGPR per_class"),
    *("DirichletSGPR shared", *UNCOLLAPSED, *AUGMENTED, *SPARSE_AUGMENTED),
]


def test_hard_case_fails_with_the_jitter_of_float64() -> None:
    for dtype, jitter, succeeds in ((np.float32, 1e-6, False), (np.float64, 1e-6, True)):
        with precision(dtype):
            K = hard_kernel()(tf.constant(X_HARD, dtype))
            L = tf.linalg.cholesky(K + VARIANCE * jitter * tf.eye(60, dtype=dtype))
        assert bool(np.all(np.isfinite(L))) == succeeds


@pytest.mark.filterwarnings("ignore:The chains disagree")
@pytest.mark.parametrize("name", HARD)
def test_duplicated_inducing_inputs_and_rows_are_survived(name: str) -> None:
    # A stock SVGP has GPflow's jitter, which is absolute and the user's to choose.
    jitter = FLOAT32_JITTER * VARIANCE if name in SPARSE_AUGMENTED else 1e-6
    with precision(np.float32, jitter):
        model = MODELS[name]((X_HARD, Y_HARD), hard_kernel(), X_HARD)
        loss, gradient = loss_and_gradient(model, (X_HARD, Y_HARD))
        model = sampled(model) if name in AUGMENTED else model
        p = probabilities(model, X_HARD)
        # Neighbours have no covariances between rows.
        draws = model.predict_f_samples(
            tf.constant(X_HARD, tf.float32), 2, full_cov="NNGPR" not in name
        )
    for values in (loss, gradient, p, draws):
        assert np.all(np.isfinite(values))
    np.testing.assert_allclose(np.sum(p, axis=1), 1.0, atol=100 * EPSILON)
    if name in CONJUGATE:
        with precision(np.float64, FLOAT32_JITTER):
            model = MODELS[name]((X_HARD, Y_HARD), hard_kernel(), X_HARD)
            expected = probabilities(model, X_HARD)
        np.testing.assert_allclose(p, expected, rtol=0, atol=HARD_ROUNDING)


def test_warm_start_predicts_what_the_collapsed_model_does() -> None:
    with precision(np.float32):
        collapsed = MODELS["ILRSGPR fixed"]((X_HARD, Y_HARD), hard_kernel(), X_HARD)
        start = gi.ILRSVGP.from_collapsed(collapsed)
        p, expected = probabilities(start, X_HARD), probabilities(collapsed, X_HARD)
    np.testing.assert_allclose(p, expected, rtol=0, atol=HARD_ROUNDING)
