"""Expectations under a posterior: class probabilities and E[log p(y | f)], with their errors."""

from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf
from problems import problem

import gpflow_ilr as gi

__all__ = ["collapsed", "expectation", "posterior_of", "predict", "sampled", "with_error"]

CHECKED = 200


def collapsed(N: int, D: int, K: int, M: int) -> gi.ILRSGPR:
    """The model whose posterior everybody has."""
    X, y, _, Z = problem(N, D, K, M)
    return gi.ILRSGPR((X, y), gi.starting_kernel(X, K), Z, num_classes=K)


def posterior_of(model: gi.ILRSGPR, rows: int) -> tuple:
    """Its posterior and link, and new rows."""
    X = problem(rows, model.inducing_variable.Z.shape[1], model.code.num_classes, seed=2).X
    return model.posterior(), model.likelihood.link, tf.constant(X)


def _averages(
    mean: np.ndarray, var: np.ndarray, link: np.ndarray, count: int, seed: int
) -> np.ndarray:
    """Class probabilities by plain sampling."""
    rng, total = np.random.default_rng(seed), np.zeros((len(mean), len(link)))
    for chunk in np.array_split(np.arange(count), max(1, count // 500)):
        f = mean + np.sqrt(var) * rng.standard_normal((len(chunk), *mean.shape))
        total += tf.reduce_sum(tf.nn.softmax(f @ link.T), axis=0).numpy()
    return total / count


def with_error(posterior: tuple, truth_samples: int, predict: Callable) -> Callable[[], object]:
    """The RMSE against many samples, for some rows, beside the time for all of them."""
    latent, link, rows = posterior
    mean, var = (x.numpy() for x in latent.predict_f(rows[:CHECKED]))
    truth = _averages(mean, var, link.numpy(), truth_samples, seed=0)

    def turn() -> Callable[[], dict[str, float]]:
        p = predict(rows)
        return lambda: {"RMSE": float(np.sqrt(np.mean(np.square(p[:CHECKED] - truth))))}

    return turn


def predict(N: int, D: int, K: int, M: int, rows: int, truth: int) -> Callable[[], object]:
    """``posterior().predict_y``."""
    given = posterior_of(collapsed(N, D, K, M), rows)
    call = tf.function(lambda X: given[0].predict_y(X)[0], autograph=False)
    return with_error(given, truth, lambda X: call(X).numpy())


def sampled(
    N: int, D: int, K: int, M: int, rows: int, truth: int, samples: int = 256
) -> Callable[[], object]:
    """Samples of the same posterior, normalised and averaged by TensorFlow."""
    given = posterior_of(collapsed(N, D, K, M), rows)

    @tf.function(autograph=False)
    def block(X: tf.Tensor) -> tf.Tensor:
        mean, var = given[0].predict_f(X)
        draws = tf.random.normal([samples, *mean.shape], dtype=mean.dtype)
        f = mean + tf.sqrt(var) * draws
        return tf.reduce_mean(tf.nn.softmax(tf.einsum("snp,kp->snk", f, given[1])), axis=0)

    def call(X: tf.Tensor) -> np.ndarray:
        return np.concatenate([block(X[i : i + 1000]) for i in range(0, len(X), 1000)])

    return with_error(given, truth, call)


def expectation(K: int, rows: int, variance: float, nodes: int, by: str) -> Callable[[], object]:
    """E[log p(y | f)] of each row; latents of one variance v: Hᵀf has the same softmax as K logits.

    :param K: classes.
    :param rows: how many.
    :param variance: v.
    :param nodes: of the truth.
    :param by: ours, GPflow's or GPyTorch's.
    """
    rng = np.random.default_rng(1)
    ours = gi.ILRLikelihood(K, mixing=False)
    many = gi.ILRLikelihood(K, mixing=False, nodes=gi.Sobol(nodes, seed=1))
    mean, y = rng.normal(size=(rows, K - 1)), rng.integers(0, K, (rows, 1))
    logits = mean @ ours.link.numpy().T

    def of(likelihood: gpflow.likelihoods.Likelihood, mean: np.ndarray) -> Callable[[], np.ndarray]:
        call = tf.function(
            lambda mean, y: likelihood.variational_expectations(
                mean, mean, variance * tf.ones_like(mean), y
            ),
            autograph=False,
        )
        given = tf.constant(mean), tf.constant(y)
        return lambda: call(*given).numpy()

    parts = np.array_split(np.arange(rows), max(1, rows // 20))  # for the memory of many nodes
    blocks = [(mean[i], variance * np.ones((len(i), K - 1)), y[i]) for i in parts]
    truth = np.concatenate([many.variational_expectations(m, m, v, y) for m, v, y in blocks])
    if by == "ILRLikelihood":
        call = of(ours, mean)
    elif by == "Softmax":
        call = of(gpflow.likelihoods.Softmax(K), logits)
    else:
        from torch_models import expectation as torch_expectation

        def call() -> np.ndarray:
            return torch_expectation(logits, variance, y[:, 0])

    def turn() -> Callable[[], dict[str, float]]:
        found = call()
        return lambda: {"RMSE": float(np.sqrt(np.mean(np.square(found - truth))))}

    return turn
