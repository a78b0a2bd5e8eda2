r"""The logistic-softmax link of the augmented models, and the two closed-form bounds it has.

The logistic-softmax model (LSM; Galy-Fajou et al., UAI 2019) and the bijective softmax (BSM;
Galy-Fajou's thesis, 2022) are one link with different constants. With latents f_1..f_L, weights r_j
and an offset d,

    p(y | f) = w_y ∏_j σ(f_j)^Y_j / (d + Σ_j r_j σ(f_j)),   w_y = r_y,  or d for the fixed class,

LSM has L = K, d = 0; BSM has L = K − 1 and d = σ(0) = ½, and its last class is fixed: it has no
latent, and its row of Y is zero. R = d + Σ_j r_j.

Writing 1/z as an integral over λ, the exponential as a sum over Poisson counts n_j and every
logistic function by a Pólya-Gamma variable ω_j makes the model conditionally conjugate. Under a
Gaussian q(f_j) = N(m_j, v_j) the best q(λ, n, ω) is known, and what remains is a bound on
E_q[log p(y | f)] in closed form, a function of

    c_j = √(m_j² + v_j)   and   ψ_j = exp(−m_j/2) / (2 cosh(c_j/2)), which stands for σ(−f_j).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from numpy.typing import NDArray

from gpflow_ilr.inputs.labels import check_num_classes

__all__ = ["LogisticSoftmaxLink"]

# Keeps √ and its slope finite at m = v = 0, in float32 too; far below every m² + v that matters.
_TINY = 1e-20

# Newton steps for the shape of q(λ); eight reach rounding for every s in [0, 1 − 1e-12].
_NEWTON_STEPS = 8


@dataclass(frozen=True)
class LogisticSoftmaxLink:
    """The link p(y | f) above: its probabilities, its two bounds, its pseudo-observations.

    :param weights: r_j > 0, one per latent.
    :param offset: d ≥ 0; positive if and only if the last class is fixed.
    """

    weights: tuple[float, ...]
    offset: float = 0.0

    @classmethod
    def logistic(
        cls, num_classes: int, class_scaling: Sequence[float] | None = None
    ) -> LogisticSoftmaxLink:
        """The link of LSM: one latent per class, p_k = θ_k σ(f_k) / Σ_j θ_j σ(f_j).

        :param num_classes: number of classes K.
        :param class_scaling: θ, one positive number per class; all ones when None.
        :raises ValueError: if K < 2 or `class_scaling` is not K positive numbers.
        """
        theta = _check_scaling(num_classes, class_scaling)
        return cls(theta)

    @classmethod
    def bijective(
        cls, num_classes: int, class_scaling: Sequence[float] | None = None
    ) -> LogisticSoftmaxLink:
        """The link of BSM: the last class has no latent but the constant θ_K σ(0).

        :param num_classes: number of classes K.
        :param class_scaling: θ, one positive number per class; all ones when None.
        :raises ValueError: if K < 2 or `class_scaling` is not K positive numbers.
        """
        theta = _check_scaling(num_classes, class_scaling)
        return cls(theta[:-1], 0.5 * theta[-1])

    @property
    def num_latent_gps(self) -> int:
        """Number of latents L."""
        return len(self.weights)

    @property
    def num_classes(self) -> int:
        """Number of classes K: one per latent, and the fixed one if there is an offset."""
        return self.num_latent_gps + (self.offset > 0)

    @property
    def class_weights(self) -> tuple[float, ...]:
        """w_k for every class: the weights r, then the offset d if the last class is fixed."""
        return (*self.weights, self.offset) if self.offset > 0 else self.weights

    @property
    def total(self) -> float:
        """R = d + Σ_j r_j."""
        return self.offset + sum(self.weights)

    def memberships(self, labels: NDArray[np.integer]) -> NDArray[np.float64]:
        """One-hot rows over the latents, [N, L]: the fixed class of BSM is a row of zeros.

        :param labels: class indices, [N].
        """
        return np.eye(self.num_classes, self.num_latent_gps)[labels]

    @check_shapes(
        "F: [batch..., L]",
        "return: [batch..., K]",
    )
    def log_probabilities(self, F: TensorType) -> tf.Tensor:
        """Log p(y = k | f) for all classes: the log-softmax of log r_j + log σ(f_j) and log d.

        :param F: latents.
        """
        return self._normaliser_terms(tf.math.log_sigmoid(F), tf.nn.log_softmax)

    @check_shapes(
        "m: [broadcast batch..., L]",
        "v: [broadcast batch..., L]",
        "Y: [broadcast batch..., K]",
        "return: [batch...]",
    )
    def marginal_bound(self, m: TensorType, v: TensorType, Y: TensorType) -> tf.Tensor:
        """Bound on E[log p(y | f)] with λ marginalised: the best q(n) is negative multinomial.

            log w_y + Σ_j Y_j (m_j/2 − log 2cosh(c_j/2)) − log(d + Σ_j r_j (1 − ψ_j))

        Equal to log p(y | f) at v = 0, and linear in Y.

        :param m: means of the latents.
        :param v: variances of the latents.
        :param Y: class memberships, rows on the simplex.
        """
        z = self._normaliser_terms(_log_one_minus_psi(m, v), tf.reduce_logsumexp)
        return self._label_term(m, v, Y) - z

    @check_shapes(
        "m: [broadcast batch..., L]",
        "v: [broadcast batch..., L]",
        "Y: [broadcast batch..., K]",
        "return: [batch...]",
    )
    def factorised_bound(self, m: TensorType, v: TensorType, Y: TensorType) -> tf.Tensor:
        """Bound on E[log p(y | f)] with q(λ) q(n), a gamma and Poissons: below the marginal one.

            log w_y + Σ_j Y_j (m_j/2 − log 2cosh(c_j/2))
                + s e^Ψ(α) + log Γ(α) + (1 − α) Ψ(α) − log R

        with s = Σ_j r_j ψ_j / R, Ψ the digamma function and α = 1 + s e^Ψ(α). This is the bound of
        the UAI 2019 paper and of AugmentedGaussianProcesses.jl.

        :param m: means of the latents.
        :param v: variances of the latents.
        :param Y: class memberships, rows on the simplex.
        """
        log_psi = _log_psi(m, v)
        r = tf.constant(self.weights, log_psi.dtype)
        s = tf.reduce_sum(r * tf.exp(log_psi), axis=-1) / self.total
        log_rest = self._normaliser_terms(_log_one_minus_psi(m, v), tf.reduce_logsumexp)
        # The bound is stationary in α, so no gradient need flow through it.
        alpha = _gamma_shape(*map(tf.stop_gradient, (s, tf.exp(log_rest) / self.total)))
        digamma = tf.math.digamma(alpha)
        entropy = tf.math.lgamma(alpha) + (1.0 - alpha) * digamma
        return self._label_term(m, v, Y) + s * tf.exp(digamma) + entropy - np.log(self.total)

    @check_shapes(
        "m: [broadcast batch..., L]",
        "v: [broadcast batch..., L]",
        "Y: [broadcast batch..., K]",
        "return[0]: [batch..., L]",
        "return[1]: [batch..., L]",
    )
    def pseudo_observations(
        self, m: TensorType, v: TensorType, Y: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """What the marginal bound makes of a label: one factor exp(κ f − ω f²/2) per latent.

            γ = E[n] = r ψ / (d + Σ_l r_l (1 − ψ_l))
            κ = (Y − γ)/2,   ω = (Y + γ) tanh(c/2) / (2c)

        These are the local updates of coordinate ascent. The slopes of the bound in m and v are
        κ − ω m and −ω/2, and Σ (κ f − ω f²/2) plus a constant is a bound for every other q(f) too.

        :param m: means of the latents.
        :param v: variances of the latents.
        :param Y: class memberships, rows on the simplex.
        :returns: κ and ω.
        """
        log_psi = _log_psi(m, v)
        Y = tf.cast(Y, log_psi.dtype)[..., : self.num_latent_gps]
        log_r = tf.constant(np.log(self.weights), log_psi.dtype)
        z = self._normaliser_terms(_log_one_minus_psi(m, v), tf.reduce_logsumexp)
        gamma = tf.exp(log_r + log_psi - z[..., None])
        c = _tilt(m, v)
        return 0.5 * (Y - gamma), (Y + gamma) * tf.tanh(0.5 * c) / (2.0 * c)

    def _normaliser_terms(
        self, log_share: tf.Tensor, reduce: Callable[..., tf.Tensor]
    ) -> tf.Tensor:
        """`reduce` of log r_j + log_share_j over the last axis, with log d appended if d > 0."""
        log_r = tf.constant(np.log(self.weights), log_share.dtype)
        terms = log_r + log_share
        if self.offset > 0:
            log_d = tf.fill(tf.shape(terms[..., :1]), tf.cast(np.log(self.offset), terms.dtype))
            terms = tf.concat([terms, log_d], axis=-1)
        return reduce(terms, axis=-1)

    def _label_term(self, m: TensorType, v: TensorType, Y: TensorType) -> tf.Tensor:
        """Log w_y + Σ_j Y_j (m_j/2 − log 2cosh(c_j/2)); the bracket is log ψ at −m."""
        log_psi = _log_psi(-m, v)
        Y = tf.cast(Y, log_psi.dtype)
        log_w = tf.constant(np.log(self.class_weights), log_psi.dtype)
        return tf.reduce_sum(Y * log_w, axis=-1) + tf.reduce_sum(
            Y[..., : self.num_latent_gps] * log_psi, axis=-1
        )


def _check_scaling(num_classes: int, class_scaling: Sequence[float] | None) -> tuple[float, ...]:
    num_classes = check_num_classes(num_classes)
    try:
        theta = np.ones(num_classes) if class_scaling is None else np.asarray(class_scaling, float)
    except (TypeError, ValueError):
        theta = np.empty(0)  # no numbers are refused as too few are
    if theta.shape != (num_classes,) or not np.all(np.isfinite(theta) & (theta > 0)):
        raise ValueError(
            f"class_scaling must be {num_classes} positive finite numbers, one per class, "
            f"but it is {class_scaling!r}; leave it out for the usual model."
        )
    return tuple(theta.tolist())


def _tilt(m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """The tilt c = √(m² + v), never quite 0, and finite; round-off below zero in v is cut."""
    squared = tf.square(m) + tf.maximum(v, 0.0) + _TINY
    return tf.sqrt(tf.minimum(squared, squared.dtype.max))


def _log_psi(m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """The logarithm −m/2 − log 2cosh(c/2) of ψ, without overflow or cancellation, slopes too."""
    c = _tilt(m, v)
    # Away from 0, −(c + m)/2 − log(1 + e^−c), where c + m = v/(c − m) for m < 0.
    c_plus_m = tf.where(m < 0, tf.maximum(v, 0.0) / (c + tf.abs(m)), c + m)
    far = -0.5 * c_plus_m - tf.nn.softplus(-c)
    # Near 0 the slopes of c/2 and log(1 + e^−c) cancel, but
    # log 2cosh(c/2) = log 2 + log(1 + 2 sinh²(c/4)).
    sinh = tf.sinh(0.25 * tf.minimum(c, 1.0))
    near = -0.5 * m - np.log(2.0) - tf.math.log1p(2.0 * tf.square(sinh))
    return tf.where(c < 1.0, near, far)


def _log_one_minus_psi(m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """The logarithm log(1 − ψ), finite even where 1 − ψ underflows."""
    log_psi = _log_psi(m, v)
    smallest = np.finfo(log_psi.dtype.as_numpy_dtype).tiny * 1e8
    return tf.math.log(-tf.math.expm1(tf.minimum(log_psi, -smallest)))


def _gamma_shape(s: tf.Tensor, rest: tf.Tensor) -> tf.Tensor:
    """The root of α = 1 + s e^Ψ(α), given s in [0, 1) and rest = 1 − s.

    As e^Ψ(α) ≈ α − ½, α ≈ (1 − s/2)/(1 − s): exact at s = 0 and to first order at s → 1. Newton's
    method then converges monotonically from below, α − 1 − s e^Ψ(α) being concave and increasing.
    """
    rest = tf.maximum(rest, 1e-12)
    alpha = (1.0 - 0.5 * s) / rest
    for _ in range(_NEWTON_STEPS):
        power = s * tf.exp(tf.math.digamma(alpha))
        slope = 1.0 - power * tf.math.polygamma(tf.ones_like(alpha), alpha)
        alpha = tf.maximum(alpha - (alpha - 1.0 - power) / tf.maximum(slope, rest), 1.0)
    return alpha
