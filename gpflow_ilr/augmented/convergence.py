"""Have the chains converged? R-hat and effective sample sizes, after Vehtari et al. (2021).

Both are computed on rank-normalised draws of split chains, so that heavy tails do not hide a
disagreement and a trend within one chain counts as one. Bounded quantities, such as class
probabilities, and latents are treated alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow_probability as tfp
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import rankdata

__all__ = ["Convergence", "rhat", "effective_sample_size"]

Array = NDArray[np.float64]

# Columns worked on together; the autocovariances of one chunk are a few tens of megabytes.
_CHUNK_COLUMNS = 256

# Fewer samples in a chain leave no two values in a half chain to take a variance of.
_FEWEST_SAMPLES = 4

RHAT_LIMIT = 1.05
"""Above this R-hat the chains disagree and a warning is given."""

SUFFICIENT_ESS = 100
"""Effective samples per chain from which on R-hat and quantiles are reliable."""


def rhat(draws: Array) -> Array:
    """Split R-hat of rank-normalised draws, the larger one of location and spread: near 1 is good.

    :param draws: [num_chains, S, ...], S ≥ 4.
    :returns: one value per quantity, [...]; NaN if S < 4.
    """
    return _per_quantity(_rhat, draws)


def effective_sample_size(draws: Array) -> Array:
    """Number of independent draws that would estimate a mean as well as all chains together.

    :param draws: [num_chains, S, ...], S ≥ 4.
    :returns: one value per quantity, [...]; NaN if S < 4.
    """
    return _per_quantity(_effective_sample_size, draws)


def _per_quantity(statistic: Callable[[Array], Array], draws: Array) -> Array:
    """Apply `statistic`, from split chains [S/2, 2C, Q] to [Q], in chunks of columns."""
    num_chains, num_samples, *shape = draws.shape
    if num_samples < _FEWEST_SAMPLES:
        return np.full(shape, np.nan)
    half = num_samples // 2
    flat = np.moveaxis(draws.reshape(num_chains, num_samples, -1), 1, 0)
    # An odd sample in the middle belongs to neither half.
    split = np.concatenate([flat[:half], flat[-half:]], axis=1)
    chunks = range(0, split.shape[-1], _CHUNK_COLUMNS)
    values = [statistic(split[..., i : i + _CHUNK_COLUMNS]) for i in chunks]
    return np.concatenate(values).reshape(shape)


def _rank_normalised(x: Array) -> Array:
    """Normal scores of the ranks over all chains, [S, C, Q]."""
    size = x.shape[0] * x.shape[1]
    ranks = rankdata(x.reshape(size, -1), axis=0)
    return ndtri((ranks - 0.375) / (size + 0.25)).reshape(x.shape)


def _rhat(x: Array) -> Array:
    folded = np.abs(x - np.median(x, axis=(0, 1)))
    return np.maximum(_potential(_rank_normalised(x)), _potential(_rank_normalised(folded)))


def _potential(x: Array) -> Array:
    """√(var⁺ / W); TFP has Brooks and Gelman's (1 + 1/C) var⁺/W − (S − 1)/(CS) instead."""
    size, num_chains, _ = x.shape
    factor = tfp.mcmc.potential_scale_reduction(x).numpy() + (size - 1) / (num_chains * size)
    # A quantity that never moves anywhere agrees with itself.
    return np.where(np.ptp(x, axis=(0, 1)) == 0, 1.0, np.sqrt(factor / (1 + 1 / num_chains)))


def _effective_sample_size(x: Array) -> Array:
    """CS/τ, τ the time of autocorrelation, estimated as in Stan and ArviZ.

    Not by ``tfp.mcmc.effective_sample_size``, which weighs the lags in another way and has neither
    the monotone sequence nor the cap; and TFP's autocorrelations log a warning at every call.
    """
    x = _rank_normalised(x)
    size, num_chains, _ = x.shape
    spectrum = np.fft.rfft(x - np.mean(x, axis=0), n=2 * size, axis=0)
    covariance = np.mean(np.fft.irfft(np.abs(spectrum) ** 2, axis=0)[:size], axis=1) / size
    variance = covariance[0] + np.var(np.mean(x, axis=0), axis=0, ddof=1)
    with np.errstate(invalid="ignore"):
        correlation = 1.0 - (covariance[0] * size / (size - 1) - covariance) / variance
    correlation[0] = 1.0
    # Geyer: sums of neighbouring correlations are positive and falling; past the first one that is
    # not there is only noise, of which Stan keeps the first correlation, once, if it is positive.
    last = 2 * max(1, (size - 1) // 2)
    pairs = correlation[0:last:2] + correlation[1:last:2]
    kept = np.cumprod(pairs > 0, axis=0)
    kept[-1] = 0
    rest = np.take_along_axis(correlation, 2 * np.sum(kept, axis=0, keepdims=True), axis=0)[0]
    falling = np.sum(kept * np.minimum.accumulate(pairs, axis=0), axis=0)
    time = -1.0 + 2.0 * falling + np.maximum(rest, 0.0)
    total = num_chains * size
    # Antithetic chains may beat independence, but no finite run can show by how much.
    return np.where(variance == 0, total, total / np.maximum(time, 1.0 / np.log10(total)))


@dataclass(frozen=True)
class Convergence:
    """What the chains of a model say about themselves.

    :param num_chains: number of chains.
    :param num_samples: kept samples per chain.
    :param rhat: R-hat of the class probabilities at the training inputs, [N, K].
    :param ess: their effective sample sizes, [N, K].
    :param standard_error: Monte-Carlo standard errors of their means, [N, K].
    :param latent_rhat: R-hat of the latents at the training inputs, [N, L]. The latents of LSM
        share a direction that hardly changes the probabilities and mixes more slowly than they do.
    :param latent_ess: their effective sample sizes, [N, L].
    """

    num_chains: int
    num_samples: int
    rhat: Array
    ess: Array
    standard_error: Array
    latent_rhat: Array
    latent_ess: Array

    @classmethod
    def of(cls, probabilities: Array, latents: Array) -> Convergence:
        """Diagnose chains.

        :param probabilities: class probabilities, [num_chains, S, N, K].
        :param latents: latents, [num_chains, S, N, L].
        """
        ess = effective_sample_size(probabilities)
        return cls(
            num_chains=latents.shape[0],
            num_samples=latents.shape[1],
            rhat=rhat(probabilities),
            ess=ess,
            standard_error=np.std(probabilities, axis=(0, 1)) / np.sqrt(ess),
            latent_rhat=rhat(latents),
            latent_ess=effective_sample_size(latents),
        )

    @property
    def worst_rhat(self) -> float:
        """Largest R-hat of a class probability."""
        return float(np.max(self.rhat))

    @property
    def smallest_ess(self) -> float:
        """Smallest effective sample size of a class probability."""
        return float(np.min(self.ess))

    @property
    def converged(self) -> bool:
        """Whether no class probability has an R-hat above 1.05; False with too few samples."""
        return self.worst_rhat <= RHAT_LIMIT

    @property
    def samples_missing(self) -> int:
        """Samples per chain still to draw for 100 effective ones per chain, at the present rate."""
        if np.isnan(self.smallest_ess):
            return SUFFICIENT_ESS
        factor = SUFFICIENT_ESS * self.num_chains / self.smallest_ess
        return max(0, int(np.ceil(self.num_samples * (factor - 1.0))))

    def __str__(self) -> str:
        return (
            f"{self.num_chains} chains of {self.num_samples} samples; class probabilities: largest "
            f"R-hat {self.worst_rhat:.3f}, smallest effective sample size {self.smallest_ess:.0f}, "
            f"largest standard error {np.max(self.standard_error):.4f}; "
            f"latents: {np.max(self.latent_rhat):.3f}, {np.min(self.latent_ess):.0f}"
        )
