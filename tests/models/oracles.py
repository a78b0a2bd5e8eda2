"""What the conjugate models must equal: naive dense Gaussian algebra in the paper's units.

Nothing here uses the package's linear algebra. The pseudo-observations come from the paper's formulas,
the covariances from the user's kernel times scale², and one covariance of the size of the data is
inverted for each output. Everything is a differentiable function of the model's own variables.
"""

from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import SeparateIndependentInducingVariables
from gpflow.kernels import SeparateIndependent, SharedIndependent
from scipy.linalg import helmert

from gpflow_ilr.models import (
    ILRGPR,
    ILRNNGPR,
    ILRSGPR,
    DirichletGPR,
    DirichletNNGPR,
    DirichletSGPR,
)

K = 3
SMOOTHING = 0.97
ALPHA_EPSILON = 0.02
MODELS = {
    "ILRGPR": ILRGPR,
    "ILRSGPR": ILRSGPR,
    "DirichletGPR": DirichletGPR,
    "DirichletSGPR": DirichletSGPR,
}
NEIGHBOURS = {"ILRNNGPR": ILRNNGPR, "DirichletNNGPR": DirichletNNGPR}
NOISES = ("fixed", "shared", "per_output", "per_class")
EXACT = [(name, noise) for name in ("ILRGPR", "DirichletGPR") for noise in NOISES]
COLLAPSED = [(name, noise) for name in ("ILRSGPR", "DirichletSGPR") for noise in NOISES]
ONE_EACH = list(zip(MODELS, ("shared", "per_output", "fixed", "per_class"), strict=True))


def blobs(num_rows: int = 18, num_classes: int = K, seed: int = 0) -> tuple[Any, Any]:
    """Overlapping Gaussian classes in the plane, every class present."""
    rng = np.random.default_rng(seed)
    y = np.arange(num_rows) % num_classes
    centres = 1.2 * rng.standard_normal((num_classes, 2))
    return centres[y] + rng.standard_normal((num_rows, 2)), y


X, Y = blobs()
XNEW = np.random.default_rng(1).standard_normal((5, 2))
Z = X[:6] + 0.1


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(variance=0.6, lengthscales=[1.3, 0.8])


def build(
    name: str, noise: str = "fixed", data: Any = (X, Y), k: Any = None, **options: Any
) -> Any:
    """A model whose learned noises are all different, so that mixing them up would show."""
    options.setdefault("num_classes", K)
    options.setdefault(
        *(("smoothing", SMOOTHING) if name.startswith("ILR") else ("alpha_epsilon", ALPHA_EPSILON))
    )
    if name.endswith("SGPR"):
        options.setdefault("inducing_variable", Z)
    model = (MODELS | NEIGHBOURS)[name](data, k or kernel(), noise=noise, **options)
    if noise != "fixed":
        _spread(model.code.extra_noise, 3.0, 5.0)  # comparable with the base noise
    if noise == "per_class":
        _spread(model.code.class_factor, -2.0, 2.0)
    return model


def _spread(parameter: gpflow.Parameter, start: float, stop: float) -> None:
    steps = np.linspace(start, stop, parameter.shape.num_elements())
    parameter.unconstrained_variable.assign_add(np.reshape(steps, parameter.shape))


def one_hot(labels: Any, num_classes: int = K) -> Any:
    labels = np.asarray(labels)
    return labels if labels.ndim == 2 else np.eye(num_classes)[labels]


def scale_of(model: Any, smoothing: float = SMOOTHING) -> float:
    if "Dirichlet" in type(model).__name__:
        return 1.0
    return float(np.log(1 + model.code.num_classes * smoothing / (1 - smoothing)))


def pseudo_observations(model: Any, labels: Any, smoothing: float = SMOOTHING) -> tuple[Any, Any]:
    """Targets and noise variances, [N, P] each: the paper's, plus what the model has learned."""
    rows = one_hot(labels, model.code.num_classes)
    num_classes = rows.shape[1]
    if "Dirichlet" in type(model).__name__:
        alpha = rows + ALPHA_EPSILON
        targets = np.log(alpha) - 0.5 * np.log(1 / alpha + 1)
    else:
        targets = np.log(smoothing * rows + (1 - smoothing) / num_classes) @ helmert(num_classes).T
    V = tf.broadcast_to(model.code.noise_variance, [num_classes, targets.shape[1]])
    return targets, scale_of(model, smoothing) ** 2 * tf.matmul(tf.constant(rows, V.dtype), V)


class Prior(NamedTuple):
    """Covariances that the (approximate) prior of one output assigns to old and new rows."""

    old: Any
    cross: Any
    new: Any
    residual: Any


def priors(model: Any, X: Any, Xnew: Any, scale: float) -> list[Prior]:
    """The prior of each output; outputs with the same kernel and inducing inputs share it."""
    P = model.num_latent_gps
    k = model.kernel.kernel if isinstance(model.kernel, SharedIndependent) else model.kernel
    kernels = list(k.kernels) if isinstance(k, SeparateIndependent) else [k] * P
    inducing = getattr(model, "inducing_variable", None)
    separate = isinstance(inducing, SeparateIndependentInducingVariables)
    sets = list(inducing.inducing_variable_list) if separate else [inducing] * P
    known = {}
    for k, Zp in zip(kernels, sets, strict=True):
        if (id(k), id(Zp)) not in known:
            known[id(k), id(Zp)] = prior(k, getattr(Zp, "inducing_variable", Zp), X, Xnew, scale)
    return [known[id(k), id(Zp)] for k, Zp in zip(kernels, sets, strict=True)]


def prior(k: gpflow.kernels.Kernel, inducing: Any, X: Any, Xnew: Any, scale: float) -> Prior:
    """Exact: K. Collapsed: Q = K_fu K_uu⁻¹ K_uf between rows, with the residual diag(K − Q)."""
    if inducing is None:
        old, cross, residual = k(X), k(Xnew, X), tf.zeros(len(X), tf.float64)
    else:
        Z = tf.convert_to_tensor(inducing.Z)
        K_uu, K_uf = k(Z), k(Z, X)
        jitter = gpflow.default_jitter() * tf.reduce_mean(tf.linalg.diag_part(K_uu))
        solved = tf.linalg.solve(K_uu + jitter * tf.eye(len(Z), dtype=K_uu.dtype), K_uf)
        old, cross = tf.matmul(K_uf, solved, transpose_a=True), tf.matmul(k(Xnew, Z), solved)
        residual = k(X, full_cov=False) - tf.linalg.diag_part(old)
    return Prior(*(scale**2 * c for c in (old, cross, k(Xnew), residual)))


class Reference(NamedTuple):
    evidence: Any
    mean: Any
    covariance: Any


def mean_at(model: Any, X: Any, scale: float) -> Any:
    return tf.broadcast_to(scale * model.mean_function(X), [len(X), model.num_latent_gps])


def condition(prior: Prior, t: Any, v: Any) -> tuple[Any, Any]:
    C = prior.old + tf.linalg.diag(v)
    gain = tf.transpose(tf.linalg.solve(C, tf.transpose(prior.cross)))
    return tf.linalg.matvec(gain, t), prior.new - tf.matmul(gain, prior.cross, transpose_b=True)


def log_normal(t: Any, covariance: Any, v: Any) -> Any:
    """Log N(t | 0, covariance + diag v)."""
    C = covariance + tf.linalg.diag(v)
    fit = tf.reduce_sum(t * tf.linalg.solve(C, t[:, None])[:, 0])
    return -0.5 * (fit + tf.linalg.slogdet(C)[1] + len(t) * np.log(2 * np.pi))


def reference(
    model: Any, data: Any = (X, Y), Xnew: Any = XNEW, smoothing: float = SMOOTHING
) -> Reference:
    """Log evidence (or Titsias' bound), mean [n, P] and covariance [P, n, n] at new rows."""
    X, labels = data
    scale = scale_of(model, smoothing)
    targets, noise = pseudo_observations(model, labels, smoothing)
    t = targets - mean_at(model, X, scale)
    evidence, means, covariances = 0.0, [], []
    for p, output in enumerate(priors(model, X, Xnew, scale)):
        v = noise[:, p]
        evidence += log_normal(t[:, p], output.old, v) - 0.5 * tf.reduce_sum(output.residual / v)
        mean, covariance = condition(output, t[:, p], v)
        means.append(mean)
        covariances.append(covariance)
    mean = tf.stack(means, axis=1) + mean_at(model, Xnew, scale)
    return Reference(evidence, mean, tf.stack(covariances))


def reference_loo(model: Any, data: Any = (X, Y), smoothing: float = SMOOTHING) -> tuple[Any, Any]:
    """Mean and variance of f at each row, from a model without that row, [N, P] each."""
    X, labels = data
    scale = scale_of(model, smoothing)
    targets, noise = pseudo_observations(model, labels, smoothing)
    offset = mean_at(model, X, scale).numpy()
    t, noise = targets - offset, noise.numpy()
    means, variances = np.zeros(t.shape), np.zeros(t.shape)
    for p, output in enumerate(priors(model, X, X, scale)):
        for n in range(len(X)):
            rest = np.delete(np.arange(len(X)), n)
            C = output.old.numpy()[np.ix_(rest, rest)] + np.diag(noise[rest, p])
            cross = output.cross.numpy()[n, rest]
            gain = np.linalg.solve(C, cross)
            means[n, p] = offset[n, p] + gain @ t[rest, p]
            variances[n, p] = output.new[n, n] - gain @ cross
    return means, variances


def gradients(function: Any, variables: Any) -> list[Any]:
    """Gradient of a scalar, as arrays; what it does not depend on has a zero gradient."""
    with tf.GradientTape() as tape:
        value = function()
    found = tape.gradient(value, variables, unconnected_gradients="zero")
    return [tf.convert_to_tensor(gradient).numpy() for gradient in found]
