"""Exact sampling of the logistic-softmax models' latents, by Gibbs sampling.

It is exact with the package `polyagamma` (extra ``augmented``); without it the Pólya-Gamma variables
of the first two moves are approximate (:mod:`gpflow_ilr.augmented.polya_gamma`), and a warning says so.

A sweep takes the latents f_j ~ N(μ_j, K_j) at the N training inputs through up to three moves, each
of which leaves the posterior p(F | y) invariant. Every move but the last ends in draws from Gaussian
conditionals f_j ~ N(S_j (κ_j + K_j⁻¹ μ_j), S_j), S_j = (K_j⁻¹ + diag ω_j)⁻¹: O(N³) for each latent.

*Jointly.* The augmentation of :mod:`gpflow_ilr.augmented.link`, with all latents independent given
the auxiliary variables:

    λ_i ~ Exponential(d + Σ_j r_j σ(f_ij)),   n_ij ~ Poisson(λ_i r_j σ(−f_ij)),
    ω_ij ~ PG(Y_ij + n_ij, f_ij),   κ = (Y − n)/2

λ and n are drawn together given f alone, which mixes faster than keeping λ from the last sweep. The
move has a weakness in LSM, which has no offset d: where all its latents are negative, σ(f) ≈ exp(f),
the counts n explode like exp(−f) and hold the latents where they are. Chains were seen to stay in
one place for thousands of sweeps.

*In turn.* One latent, the others given, enters the likelihood as σ(f)^Y / (A + r σ(f)) with
A = d + Σ_{l≠j} r_l σ(f_l), which up to a constant is σ(f + a) if Y = 1 and σ(f + a) + e^a σ(−f − a)
if Y = 0, a = log(1 + r/A). Given which of the two terms, z = 1 or 0, it is logistic in f + a:

    z = 1 if Y = 1, else z ~ Bernoulli(σ(f)),   ω ~ PG(1, f + a),   κ = z − ½ − ω a

There are no counts, and ω is of the order of ¼ at most, wherever the latents are.

*Shifted together*, in LSM with a shared kernel: a step of elliptical slice sampling (Murray, Adams
and MacKay, 2010) for the mean function of the latents, which under the prior is independent of their
differences, and in which the likelihood is nearly flat. It costs O(N²).

On Wine with a learned kernel the smallest effective sample size of a class probability in 4000
sweeps of LSM was 11 with the first move alone, 12 with the third one added, and 338 with all three;
for BSM it was 240 with the first and 516 with the first two, for twice the work.
The sampler is NumPy in float64; nothing in it would gain from a graph.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, log_expit

from gpflow_ilr.augmented.link import LogisticSoftmaxLink
from gpflow_ilr.augmented.polya_gamma import draw_polya_gamma

__all__ = ["GibbsSampler"]

Array = NDArray[np.float64]

# LSM has no offset, so the rate of λ vanishes where all its latents are far below zero; of the largest
# weight, so that counts are numbers that NumPy can draw.
_SMALLEST_RATE = 1e-12


class GibbsSampler:
    """The moves of p(F | y) for one model: what a sweep needs and never changes.

    :param link: the model's link.
    :param labels: class index of every row, [N].
    :param covariance: K_j at the training inputs with jitter, [L, N, N], or [1, N, N] if shared.
    :param mean: prior means of the latents, [N, L].
    :raises ValueError: if a covariance is not positive definite.
    """

    def __init__(
        self,
        link: LogisticSoftmaxLink,
        labels: NDArray[np.integer],
        covariance: Array,
        mean: Array,
    ) -> None:
        self.link = link
        self.Y = link.memberships(labels)
        self.mean = np.asarray(mean, float)
        self.covariance = np.asarray(covariance, float)
        try:
            self.cholesky = np.linalg.cholesky(self.covariance)
        except np.linalg.LinAlgError:
            raise ValueError(
                "The kernel matrix of the training inputs is not positive definite. Raise the "
                "jitter (gpflow.config.set_default_jitter), shorten the lengthscales, remove "
                "duplicate rows of X or use float64."
            ) from None

    def _prior_of(self, j: int) -> tuple[Array, Array, Array]:
        """Mean, covariance and its Cholesky factor of latent j."""
        kernel = j if len(self.covariance) > 1 else 0
        return self.mean[:, j], self.covariance[kernel], self.cholesky[kernel]

    def prior_draw(self, rng: np.random.Generator) -> Array:
        """Latents [N, L] from the prior.

        :param rng: source of randomness.
        """
        draws = []
        for j in range(self.link.num_latent_gps):
            mean, _, cholesky = self._prior_of(j)
            draws.append(mean + cholesky @ rng.standard_normal(len(mean)))
        return np.stack(draws, axis=1)

    def sweep(self, F: Array, rng: np.random.Generator) -> Array:
        """All moves that the model needs, once each.

        :param F: current latents, [N, L].
        :param rng: source of randomness.
        :raises ValueError: if a latent is not finite.
        """
        if not np.all(np.isfinite(F)):
            raise ValueError(
                "The chain has latents that are not finite. Lower the kernel's variance, standardise "
                "X, and check the mean function."
            )
        F = self.draw_in_turn(self.draw_jointly(F, rng), rng)
        can_shift = self.link.offset == 0 and len(self.covariance) == 1
        return self.shift_together(F, rng) if can_shift else F

    def draw_jointly(self, F: Array, rng: np.random.Generator) -> Array:
        """All latents given λ, n and ω, which are given F.

        :param F: current latents, [N, L].
        :param rng: source of randomness.
        """
        r, d = np.array(self.link.weights), self.link.offset
        rate = np.maximum(d + expit(F) @ r, _SMALLEST_RATE * r.max())
        lambda_ = rng.exponential(1.0 / rate)
        # σ(−f), not σ(f): the counts stand for the failures of the logistic factors.
        n = rng.poisson(lambda_[:, None] * r * expit(-F))
        omega = draw_polya_gamma(self.Y + n, F, rng)
        kappa = 0.5 * (self.Y - n)
        draws = [
            self.draw_latent(j, kappa[:, j], omega[:, j], rng)
            for j in range(self.link.num_latent_gps)
        ]
        return np.stack(draws, axis=1)

    def draw_in_turn(self, F: Array, rng: np.random.Generator) -> Array:
        """One latent after the other, given all others and its own z and ω.

        :param F: current latents, [N, L].
        :param rng: source of randomness.
        """
        F = F.copy()
        log_r = np.log(self.link.weights)
        log_d = np.log(self.link.offset) if self.link.offset > 0 else -np.inf
        log_shares = log_r + log_expit(F)
        for j in range(self.link.num_latent_gps):
            log_A = np.logaddexp.reduce(np.delete(log_shares, j, axis=1), axis=1, initial=log_d)
            a = np.logaddexp(0.0, log_r[j] - log_A)
            z = np.maximum(self.Y[:, j], rng.random(len(F)) < expit(F[:, j]))
            omega = draw_polya_gamma(np.ones(len(F)), F[:, j] + a, rng)
            F[:, j] = self.draw_latent(j, z - 0.5 - omega * a, omega, rng)
            log_shares[:, j] = log_r[j] + log_expit(F[:, j])
        return F

    def draw_latent(self, j: int, kappa: Array, omega: Array, rng: np.random.Generator) -> Array:
        """Draw f_j ~ N(S_j (κ + K_j⁻¹ μ_j), S_j), S_j = (K_j⁻¹ + diag ω)⁻¹; ω = 0 is allowed.

        With f⁰ from the prior, s = √ω and e standard normal, the draw is
        f⁰ + K s B⁻¹ (κ/s − s f⁰ − e), B = I + diag(s) K diag(s); where s = 0, κ shifts f⁰ by K κ. No
        inverse of K; and no K κ of counts of 1e12, whose rounding would move the latents.

        :param j: which latent.
        :param kappa: linear coefficients, [N].
        :param omega: precisions, [N].
        :param rng: source of randomness.
        """
        mean, K, cholesky = self._prior_of(j)
        noise, e = rng.standard_normal((2, len(mean)))
        s = np.sqrt(omega)
        f = mean + cholesky @ noise + K @ np.where(s > 0, 0.0, kappa)
        B = K * (s[:, None] * s)
        B.flat[:: len(s) + 1] += 1.0
        factor = cho_factor(B, lower=True, overwrite_a=True, check_finite=False)
        target = np.divide(kappa, s, out=np.zeros_like(s), where=s > 0)
        return f + K @ (s * cho_solve(factor, target - s * f - e, check_finite=False))

    def shift_together(self, F: Array, rng: np.random.Generator) -> Array:
        """Elliptical slice step of f̄ = Σ_j f_j / L, the differences f_j − f̄ being kept.

        For latents with a common K, f̄ − μ̄ ~ N(0, K/L) independently of the differences.

        :param F: current latents, [N, L].
        :param rng: source of randomness.
        """
        common = np.mean(F - self.mean, axis=1, keepdims=True)
        rest = F - common
        noise = rng.standard_normal(len(F))
        partner = (self.cholesky[0] @ noise)[:, None] / np.sqrt(self.link.num_latent_gps)
        threshold = self._log_likelihood(F) - rng.exponential()
        angle = rng.uniform(0.0, 2.0 * np.pi)
        low, high = angle - 2.0 * np.pi, angle
        # Latents of 1e9 have likelihoods whose rounding is larger than what the slice may lose.
        while high - low > np.finfo(float).eps:
            proposal = rest + common * np.cos(angle) + partner * np.sin(angle)
            if self._log_likelihood(proposal) > threshold:
                return proposal
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = rng.uniform(low, high)
        return F

    def _log_likelihood(self, F: Array) -> float:
        """Log p(y | F) up to a constant, for a link without offset."""
        terms = np.log(self.link.weights) + log_expit(F)
        top = terms.max(axis=1, keepdims=True)
        normaliser = np.log(np.exp(terms - top).sum(axis=1)).sum() + top.sum()
        return float((self.Y * terms).sum() - normaliser)
