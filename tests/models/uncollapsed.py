"""What the tests of the uncollapsed models share: a small problem, and models away from the prior."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import SquaredExponential

from gpflow_ilr.likelihoods import ILRLikelihood, SoftmaxLikelihood
from gpflow_ilr.models import ILRSVGP, SoftmaxSVGP

K, N, M = 4, 12, 5
_RNG = np.random.default_rng(0)
X = np.round(8 * _RNG.standard_normal((N, 2))) / 8  # exact in float32
Y = np.arange(N) % K
XNEW = _RNG.standard_normal((6, 2))
Z = X[:M] + 0.1
MODELS = {"ILR": (ILRSVGP, ILRLikelihood, K - 1), "softmax": (SoftmaxSVGP, SoftmaxLikelihood, K)}


def kernel(variance: float = 0.8) -> SquaredExponential:
    return SquaredExponential(variance, lengthscales=[1.3, 0.8])


def with_random_q(model: Any, seed: int = 1) -> Any:
    """The same model away from the prior and from W = I, where gradients are not round-off."""
    rng = np.random.default_rng(seed)
    model.q_mu.assign(rng.standard_normal(model.q_mu.shape))
    roots = 0.3 * rng.standard_normal(model.q_sqrt.shape)
    if len(roots.shape) == 3:
        model.q_sqrt.assign(np.tril(roots, -1) + 0.7 * np.eye(M))
    else:
        model.q_sqrt.assign(0.2 + np.abs(roots))
    if getattr(model.likelihood, "W", None) is not None:
        model.likelihood.W.assign_add(0.4 * rng.standard_normal(model.likelihood.W.shape))
    return model


def ilr(inducing: Any = Z, k: Any = None, **options: Any) -> ILRSVGP:
    options = {"mixing": True, **options}
    return with_random_q(ILRSVGP(k or kernel(), inducing, num_classes=K, num_data=N, **options))


def gradients(model: Any, data: Any) -> list[Any]:
    with tf.GradientTape() as tape:
        loss = model.training_loss(data)
    return [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, model.trainable_variables)]


def assert_within_errors(value: Any, samples: Any) -> None:
    """Equal to the mean over the first axis of samples, up to five standard errors."""
    error = np.std(samples, axis=0) / np.sqrt(len(samples))
    assert np.max(np.abs(value - np.mean(samples, axis=0)) / error) < 5.0
