"""Pólya-Gamma variables: their mean, and draws of them.

PG(b, c) of Polson, Scott and Windle (2013) is what turns a logistic factor into a Gaussian one,

    σ(f)^a σ(−f)^n = 2^−(a+n) exp((a − n) f / 2) E_{ω ~ PG(a+n, 0)}[exp(−ω f² / 2)],

and so carries the Gibbs sampler of the logistic-softmax models (:mod:`gpflow_ilr.augmented.gibbs`).
The draws come from the optional package `polyagamma` (extra ``augmented``), which is exact; without
it they come, with a warning, from the variable's own series of gammas, cut after a fixed number of
terms: an approximation.

For large tilts the density is a single term of its series, that of the inverse Gaussian distribution
of mean b/(2c) and shape b²/4: the next term is smaller by (b + 2) e^−c. There the draws are inverse
Gaussian, whoever draws the others. Version 2.0.2 of the package has a mean 2.75 times too large from
|c| = 28 on (for b from 15 to 50; later for others), is NaN for |c| > 700, and never returns for NaN.
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

# Above this tilt the variable is inverse Gaussian: its mean is right to 3e-11, its variance to 1e-9.
_LARGE_TILT = 25.0


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
    have added is, at 64 terms, 1e-5 of the whole for |c| ≤ 10, 1e-3 at |c| = 50 and half of it at
    1,000, where :func:`draw_polya_gamma` does not use the series.

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
    fixes the draws only for one of them. Tilts above 25 need neither.

    :param b: shapes, ≥ 0; a draw with b = 0 is 0.
    :param c: tilts, broadcast with `b`.
    :param rng: source of randomness.
    :raises ValueError: if a shape or a tilt is not finite.
    """
    b, c = np.broadcast_arrays(np.asarray(b, float), np.asarray(c, float))
    if not (np.all(np.isfinite(b)) and np.all(np.isfinite(c))):
        raise ValueError(
            "Pólya-Gamma variables of shapes or tilts that are not finite cannot be drawn: the "
            "latents have run away. Lower the kernel's variance or standardise X."
        )
    package = _package_draw()
    omega = np.zeros(b.shape)
    # The package refuses b = 0, where the variable is the constant 0.
    far = (b > 0) & (np.abs(c) > _LARGE_TILT)
    near = (b > 0) & ~far
    if package is None:
        omega[near] = polya_gamma_by_series(b[near], c[near], rng)
    else:
        omega[near] = package(b[near], c[near], random_state=rng)
    omega[far] = rng.wald(b[far] / (2.0 * np.abs(c[far])), np.square(b[far]) / 4.0)
    return omega
