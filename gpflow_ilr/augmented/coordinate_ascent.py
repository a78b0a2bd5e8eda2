r"""The evidence bound of a full logistic-softmax GP, maximised over everything but the kernel.

For latents f_j ~ N(μ_j, K_j) at the N training inputs the marginal bound of
:mod:`gpflow_ilr.augmented.link` makes every label one factor exp(κ_ij f − ω_ij f²/2) per latent.
Given these, q(f_j) is the posterior of a Gaussian regression; given q, κ and ω have a closed form.
Coordinate ascent alternates the two until nothing moves. What is left is a function of the kernel,

    bound = Σ_i h_i + Σ_j log ∫ N(f | μ_j, K_j) exp(κ_jᵀ f − ½ fᵀ diag(ω_j) f) df,

and since it is stationary in κ and ω its gradient is that of the integral alone. So q is never a
parameter: L-BFGS sees a deterministic function of a few hyperparameters, no alternation is to be
scheduled and no step length chosen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes

from gpflow_ilr.augmented.link import LogisticSoftmaxLink

__all__ = ["maximised_bound", "gaussian_posterior"]

# Keeps the extrapolation's length finite when the sweeps have come to rest; fits float32.
_TINY = 1e-30


@check_shapes(
    "K: [one_or_L, N, N]",
    "mu: [N, L]",
    "Y: [N, K]",
    "return: []",
)
def maximised_bound(
    link: LogisticSoftmaxLink,
    K: tf.Tensor,
    mu: tf.Tensor,
    Y: tf.Tensor,
    tolerance: float = 1e-6,
    max_sweeps: int = 500,
) -> tf.Tensor:
    """Lower bound on log p(y), maximised over q(f) and differentiable in K and μ.

    :param link: the model's link.
    :param K: prior covariances of the latents, jitter included; one for all, or one each.
    :param mu: prior means.
    :param Y: class memberships, rows on the simplex.
    :param tolerance: stop when no κ or √ω changes by more than this in a sweep, relative to its
        size or to one.
    :param max_sweeps: stop after this many sweeps in any case.
    """
    q = _ascend(link, tf.stop_gradient(K), tf.stop_gradient(mu), Y, tolerance, max_sweeps)
    # The bound at q, less the expectation under q of the factors that stand in for it.
    factors = q.kappa * q.m - 0.5 * q.omega * (tf.square(q.m) + q.v)
    h = link.marginal_bound(q.m, q.v, Y) - tf.reduce_sum(factors, axis=-1)
    h, kappa, omega = map(tf.stop_gradient, (h, q.kappa, q.omega))
    return tf.reduce_sum(h) + tf.reduce_sum(_log_integral(K, mu, kappa, omega))


@check_shapes(
    "K: [one_or_L, N, N]",
    "mu: [N, L]",
    "kappa: [N, L]",
    "omega: [N, L]",
    "return[0]: [N, L]",
    "return[1]: [N, L]",
)
def gaussian_posterior(
    K: tf.Tensor, mu: tf.Tensor, kappa: tf.Tensor, omega: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Means and variances of N(f_j | μ_j, K_j) exp(κ_jᵀ f − ½ fᵀ diag(ω_j) f), normalised.

    :param K: prior covariances; one for all latents, or one each.
    :param mu: prior means.
    :param kappa: linear coefficients.
    :param omega: precisions; 0 is allowed.
    """
    s, factor, b, Kb = _factorise(K, mu, kappa, omega)
    # S = K − Kᵀ s B⁻¹ s K = K − TᵀT
    T = tf.linalg.triangular_solve(factor, s[..., None] * K)
    mean = Kb - tf.linalg.matvec(T, tf.linalg.matvec(T, b), transpose_a=True)
    variance = tf.linalg.diag_part(K) - tf.reduce_sum(tf.square(T), axis=-2)
    return mu + tf.transpose(mean), tf.transpose(variance)


def _factorise(
    K: tf.Tensor, mu: tf.Tensor, kappa: tf.Tensor, omega: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """With latents first: s = √ω, the factor of B = I + diag(s) K diag(s), b = κ − ω μ, K b."""
    s = tf.sqrt(tf.transpose(omega))  # [L, N]
    B = s[:, :, None] * K * s[:, None, :]
    factor = tf.linalg.cholesky(tf.linalg.set_diag(B, tf.linalg.diag_part(B) + 1.0))
    b = tf.transpose(kappa - omega * mu)
    return s, factor, b, tf.linalg.matvec(K, b)


def _log_integral(K: tf.Tensor, mu: tf.Tensor, kappa: tf.Tensor, omega: tf.Tensor) -> tf.Tensor:
    """Log ∫ N(f | μ_j, K_j) exp(κ_jᵀ f − ½ fᵀ diag(ω_j) f) df for every latent, [L]."""
    s, factor, b, Kb = _factorise(K, mu, kappa, omega)
    w = tf.linalg.triangular_solve(factor, (s * Kb)[..., None])[..., 0]
    at_mean = tf.reduce_sum(kappa * mu - 0.5 * omega * tf.square(mu), axis=0)
    quadratic = tf.reduce_sum(b * Kb, axis=-1) - tf.reduce_sum(tf.square(w), axis=-1)
    log_det = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), axis=-1)
    return at_mean + 0.5 * quadratic - log_det


class _Sweep(NamedTuple):
    """Result of one sweep: q(f) by its marginals, and the factors that it makes of the labels."""

    m: tf.Tensor
    v: tf.Tensor
    kappa: tf.Tensor
    omega: tf.Tensor


def _ascend(
    link: LogisticSoftmaxLink,
    K: tf.Tensor,
    mu: tf.Tensor,
    Y: tf.Tensor,
    tolerance: float,
    max_sweeps: int,
) -> _Sweep:
    """The fixed point of coordinate ascent.

    Sweeps alone converge linearly and need hundreds when the kernel's variance is large, so after
    every second one κ and ω are extrapolated along the last two steps (the squared extrapolation of
    Varadhan and Roland, 2008), which takes tens.
    """

    def sweep(kappa: tf.Tensor, omega: tf.Tensor) -> _Sweep:
        m, v = gaussian_posterior(K, mu, kappa, omega)
        return _Sweep(m, v, *link.pseudo_observations(m, v, Y))

    def cycle(
        _: tf.Tensor, kappa: tf.Tensor, omega: tf.Tensor, __: _Sweep
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, _Sweep]:
        first = sweep(kappa, omega)
        second = sweep(first.kappa, first.omega)
        change = tf.maximum(
            _largest_change(first.kappa, second.kappa),
            _largest_change(tf.sqrt(first.omega), tf.sqrt(second.omega)),
        )
        x0 = tf.stack([kappa, omega])
        x1 = tf.stack([first.kappa, first.omega])
        x2 = tf.stack([second.kappa, second.omega])
        step, curvature = x1 - x0, x2 - 2.0 * x1 + x0
        length = tf.maximum(tf.norm(step) / tf.maximum(tf.norm(curvature), _TINY), 1.0)
        kappa, omega = tf.unstack(x0 + 2.0 * length * step + length**2 * curvature)
        return change, kappa, tf.maximum(omega, 0.1 * second.omega), second

    # A few thousand roundings is the least change that float32 can show.
    tolerance = max(tolerance, 1e3 * float(np.finfo(mu.dtype.as_numpy_dtype).eps))
    # Not from the prior's variance: from a broad q coordinate ascent finds a far worse optimum as
    # soon as the kernel's variance is 100 or more.
    start = _Sweep(mu, tf.zeros_like(mu), *link.pseudo_observations(mu, tf.zeros_like(mu), Y))
    *_, end = tf.while_loop(
        lambda change, *_: change > tolerance,
        cycle,
        (tf.constant(float("inf"), mu.dtype), start.kappa, start.omega, start),
        maximum_iterations=max_sweeps // 2,
    )
    return end


def _largest_change(old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """Largest change relative to the size of a value, or to one where values are smaller."""
    return tf.reduce_max(tf.abs(new - old) / (1.0 + tf.abs(old)))
