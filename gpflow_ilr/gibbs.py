"""Exact sampling of the logistic-softmax models' latents by a blocked Gibbs sampler.

The augmentation of :mod:`gpflow_ilr.augmentation` gives, for latents f_j ~ N(μ_j, K_j) at the N
training inputs, conditionals that can all be drawn from directly. One sweep is

    λ_i  ~ Exponential(d + Σ_j r_j σ(f_ij))          n_ij ~ Poisson(λ_i r_j σ(−f_ij))
    ω_ij ~ PG(Y_ij + n_ij, f_ij)                      f_j  ~ N(S_j (κ_j + K_j⁻¹ μ_j), S_j)

with κ = (Y − n)/2 and S_j = (K_j⁻¹ + diag ω_j)⁻¹. λ and n are drawn jointly given f alone, which
mixes faster than keeping λ from the previous sweep, and the latents of one class are one block.

These sweeps have one weakness. Where all latents of LSM are negative, σ(f) ≈ exp(f) and a shift
common to them hardly changes the probabilities, but the counts explode and hold the latents where
they are: chains were seen to stay stuck for thousands of sweeps. So if the latents of LSM share a
kernel, a sweep ends with an elliptical slice step (Murray, Adams and MacKay, 2010) of their mean
function, which is independent of their differences under the prior. It needs no tuning, leaves
the posterior invariant and costs O(N²). BSM has its offset, and no such direction.

The sampler is NumPy in float64 at O(L N³) a sweep; nothing in it would gain from a graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, log_expit

from gpflow_ilr.augmentation import LogisticSoftmaxLink
from gpflow_ilr.polya_gamma import draw_polya_gamma

__all__ = ["GibbsSampler", "Chains"]

Array = NDArray[np.float64]

# LSM has no offset, so the rate of λ vanishes where all its latents are far below zero.
_SMALLEST_RATE = 1e-12

# Below this many rows a Cholesky factorisation is not worth a second thread.
_FEWEST_THREADED_ROWS = 500


class GibbsSampler:
    """The conditionals of p(F | y) for one model: what a sweep needs and never changes.

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
        # One-hot over the latents: the fixed class of BSM is a row of zeros.
        self.Y = np.eye(link.num_classes, link.num_latents)[labels]
        self.mean = np.asarray(mean, float)
        self.covariance = np.asarray(covariance, float)
        self._log_weights = np.log(link.weights)
        self._can_shift = link.offset == 0 and len(self.covariance) == 1
        try:
            self.cholesky = np.linalg.cholesky(self.covariance)
        except np.linalg.LinAlgError:
            raise ValueError(
                "The kernel matrix of the training inputs is not positive definite. Raise the "
                "jitter (gpflow.config.set_default_jitter), shorten the lengthscales, remove "
                "duplicate rows of X or use float64."
            ) from None

    def prior_draw(self, rng: np.random.Generator) -> Array:
        """Latents [N, L] from the prior.

        :param rng: source of randomness.
        """
        noise = rng.standard_normal(self.mean.T.shape)
        return self.mean + np.matmul(self.cholesky, noise[:, :, None])[..., 0].T

    def sweep(self, F: Array, rng: np.random.Generator) -> Array:
        """One sweep: latents [N, L] from the conditionals given the latents F [N, L].

        :param F: current state of the chain.
        :param rng: source of randomness.
        """
        r, d = np.array(self.link.weights), self.link.offset
        rate = np.maximum(d + expit(F) @ r, _SMALLEST_RATE)
        lambda_ = rng.exponential(1.0 / rate)
        # σ(−f), not σ(f): the counts stand for the failures of the logistic factors.
        n = rng.poisson(lambda_[:, None] * r * expit(-F))
        omega = draw_polya_gamma(self.Y + n, F, rng)
        F = self.draw_latents(0.5 * (self.Y - n), omega, rng)
        return self.shift_latents(F, rng) if self._can_shift else F

    def draw_latents(self, kappa: Array, omega: Array, rng: np.random.Generator) -> Array:
        """Draw f_j ~ N(S_j (κ_j + K_j⁻¹ μ_j), S_j) for all j; ω = 0 is allowed.

        With t = f⁰ + K κ, f⁰ from the prior, s = √ω and e standard normal, the draw is
        t − K s B⁻¹ (s t + e), B = I + diag(s) K diag(s): no inverse of K.

        :param kappa: linear coefficients, [N, L].
        :param omega: precisions, [N, L].
        :param rng: source of randomness.
        """
        num_latents, size = self.link.num_latents, len(kappa)
        t = self.prior_draw(rng) + np.matmul(self.covariance, kappa.T[:, :, None])[..., 0].T
        e = rng.standard_normal(kappa.shape)
        s = np.sqrt(omega)
        correction = np.empty((num_latents, size))
        covariances = np.broadcast_to(self.covariance, (num_latents, size, size))
        for j, K in enumerate(covariances):
            B = K * (s[:, j, None] * s[:, j])
            B.flat[:: size + 1] += 1.0
            factor = cho_factor(B, lower=True, overwrite_a=True, check_finite=False)
            correction[j] = s[:, j] * cho_solve(factor, s[:, j] * t[:, j] + e[:, j])
        return t - np.matmul(self.covariance, correction[:, :, None])[..., 0].T

    def shift_latents(self, F: Array, rng: np.random.Generator) -> Array:
        """Elliptical slice step of f̄ = Σ_j f_j / L, the differences f_j − f̄ being kept.

        For latents with a common K, f̄ − μ̄ ~ N(0, K/L) independently of the differences.

        :param F: current latents, [N, L].
        :param rng: source of randomness.
        """
        common = np.mean(F - self.mean, axis=1, keepdims=True)
        rest = F - common
        noise = rng.standard_normal(len(F))
        partner = (self.cholesky[0] @ noise)[:, None] / np.sqrt(self.link.num_latents)
        threshold = self._log_likelihood(F) - rng.exponential()
        angle = rng.uniform(0.0, 2.0 * np.pi)
        low, high = angle - 2.0 * np.pi, angle
        while True:
            proposal = rest + common * np.cos(angle) + partner * np.sin(angle)
            if self._log_likelihood(proposal) > threshold:
                return proposal
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = rng.uniform(low, high)

    def _log_likelihood(self, F: Array) -> float:
        """Log p(y | F) up to a constant, for a link without offset."""
        terms = self._log_weights + log_expit(F)
        top = terms.max(axis=1, keepdims=True)
        normaliser = np.log(np.exp(terms - top).sum(axis=1)).sum() + top.sum()
        return float((self.Y * terms).sum() - normaliser)


@dataclass
class Chains:
    """Markov chains of one sampler: their states, their random streams and what they have kept.

    All of it is NumPy, so chains can be pickled and continued elsewhere; a chain continued is
    bit for bit the chain that was never interrupted.

    :param sampler: the sampler whose sweeps the chains make.
    :param num_chains: number of chains, each started from a prior draw of its own.
    :param thinning: sweeps per kept sample.
    :param seed: seed of all chains; chain i is the same for any number of chains.
    """

    sampler: GibbsSampler
    num_chains: int
    thinning: int = 1
    seed: int = 0
    samples: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        streams = np.random.SeedSequence(self.seed).spawn(self.num_chains)
        self._rngs = [np.random.default_rng(stream) for stream in streams]
        self._states = [self.sampler.prior_draw(rng) for rng in self._rngs]
        self.samples = np.empty((self.num_chains, 0, *self._states[0].shape))

    def discard(self, num_sweeps: int, progress: bool = False) -> None:
        """Make sweeps and keep nothing: the burn-in.

        :param num_sweeps: sweeps per chain.
        :param progress: show a progress bar (needs tqdm).
        """
        with _single_blas_thread(len(self.sampler.Y)):
            for i, _ in _steps(self.num_chains, num_sweeps, "burn-in", progress):
                self._states[i] = self.sampler.sweep(self._states[i], self._rngs[i])

    def extend(self, num_samples: int, progress: bool = False) -> None:
        """Append samples to :attr:`samples` [num_chains, S, N, L].

        :param num_samples: samples to append per chain, `thinning` sweeps each.
        :param progress: show a progress bar (needs tqdm).
        """
        drawn = np.empty((self.num_chains, num_samples, *self._states[0].shape))
        with _single_blas_thread(len(self.sampler.Y)):
            for i, s in _steps(self.num_chains, num_samples, "sampling", progress):
                for _ in range(self.thinning):
                    self._states[i] = self.sampler.sweep(self._states[i], self._rngs[i])
                drawn[i, s] = self._states[i]
        self.samples = np.concatenate([self.samples, drawn], axis=1)


def _steps(num_chains: int, num_steps: int, what: str, progress: bool) -> Iterable[tuple[int, int]]:
    """Pairs (chain, step), chain by chain, under a progress bar if asked for."""
    steps = [(i, s) for i in range(num_chains) for s in range(num_steps)]
    if not progress:
        return steps
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError(
            "progress=True needs the package tqdm: pip install 'gpflow_ilr[augmented]', or leave "
            "progress out."
        ) from None
    return cast("Iterable[tuple[int, int]]", tqdm(steps, desc=what))


def _single_blas_thread(size: int) -> AbstractContextManager[object]:
    """Keep BLAS to one thread for matrices too small to gain from more.

    On a busy machine its threads wait for each other: a sweep of 2 ms was seen to take 200.
    """
    try:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError:
        return nullcontext()
    return cast(
        "AbstractContextManager[object]",
        threadpool_limits(limits=1 if size < _FEWEST_THREADED_ROWS else None, user_api="blas"),
    )
