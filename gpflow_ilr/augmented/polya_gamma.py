"""Pólya-Gamma variables: their mean, and draws of them.

PG(b, c) of Polson, Scott and Windle (2013) is what turns a logistic factor into a Gaussian one,

    σ(f)^a σ(−f)^n = 2^−(a+n) exp((a − n) f / 2) E_{ω ~ PG(a+n, 0)}[exp(−ω f² / 2)],

and so carries the Gibbs sampler of the logistic-softmax models (:mod:`gpflow_ilr.augmented.gibbs`).
The draws come from the optional package `polyagamma` (extra ``augmented``), which is exact; without
it they come, with a warning, from the variable's own series of gammas, cut after a fixed number of
terms: an approximation.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["polya_gamma_mean", "polya_gamma_by_series", "draw_polya_gamma"]

Array = NDArray[np.float64]

# Below this tilt tanh(c/2)/(2c) is its own Taylor series to double precision.
_SMALL_TILT = 1e-4


def polya_gamma_mean(b: Array, c: Array) -> Array:
    """E[PG(b, c)] = b tanh(c/2) / (2c), which tends to b/4 as c → 0.

    :param b: shape of the variable, ≥ 0.
    :param c: tilt of the variable; the distribution is even in it. Broadcasts with `b`.
    """
    c = np.abs(c)
    safe = np.maximum(c, _SMALL_TILT)
    return b * np.where(c < _SMALL_TILT, 0.25 - c**2 / 48.0, np.tanh(safe / 2.0) / (2.0 * safe))


def polya_gamma_by_series(
    b: Array, c: Array, rng: np.random.Generator, num_terms: int = 64
) -> Array:
    """Draw PG(b, c) from its series of gammas, cut after `num_terms` terms.

        ω = (1 / 2π²) Σ_k g_k / ((k − ½)² + c² / 4π²),   g_k ~ Gamma(b, 1)

    The terms left out are replaced by their mean, so the mean is exact; the variance they would
    have added is, at 64 terms, 1e-5 of the whole for |c| ≤ 10 and 1e-3 at |c| = 50.

    :param b: shapes, ≥ 0; a draw with b = 0 is 0.
    :param c: tilts, broadcast with `b`.
    :param rng: source of randomness.
    :param num_terms: number of gammas per draw.
    """
    b, c = np.broadcast_arrays(np.asarray(b, float), np.asarray(c, float))
    k = np.arange(1, num_terms + 1)
    rates = 2.0 * np.pi**2 * (k - 0.5) ** 2 + 0.5 * c[..., None] ** 2
    gammas = rng.standard_gamma(np.broadcast_to(b[..., None], rates.shape))
    drawn = np.sum(gammas / rates, axis=-1)
    return drawn + polya_gamma_mean(b, c) - b * np.sum(1.0 / rates, axis=-1)


@functools.cache
def _package_draw() -> Callable[..., Array] | None:
    """The package's sampler; None without the package, and a warning: once, for it is cached."""
    try:
        from polyagamma import random_polyagamma
    except ImportError:
        warnings.warn(
            "The package polyagamma is not installed, so Gibbs sampling is approximate: "
            "Pólya-Gamma variables are drawn from a series of 64 gammas. For exact sampling, pip "
            "install 'gpflow_ilr[augmented]'.",
            stacklevel=3,
        )
        return None
    return random_polyagamma


def draw_polya_gamma(b: Array, c: Array, rng: np.random.Generator) -> Array:
    """Draw PG(b, c): exactly when `polyagamma` is installed, else :func:`polya_gamma_by_series`.

    The first draw without the package warns. The two consume the generator differently, so a seed
    fixes the draws only for one of them.

    :param b: shapes, ≥ 0; a draw with b = 0 is 0.
    :param c: tilts, broadcast with `b`.
    :param rng: source of randomness.
    """
    random_polyagamma = _package_draw()
    if random_polyagamma is None:
        return polya_gamma_by_series(b, c, rng)
    b, c = np.broadcast_arrays(np.asarray(b, float), np.asarray(c, float))
    omega = np.zeros(b.shape)
    # The package refuses b = 0, where the variable is the constant 0.
    positive = b > 0
    omega[positive] = random_polyagamma(b[positive], c[positive], random_state=rng)
    return omega
