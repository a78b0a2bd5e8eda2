"""A set like HTRU2, simulated, for where that one cannot be had: few of many candidates are pulsars.

As there, a row is mean, standard deviation, excess kurtosis and skewness of two curves of a candidate:
its profile folded at the period, and its signal-to-noise over trial dispersions; and 9 % are pulsars. A
pulsar has a narrow pulse in the profile and a peak at some dispersion; interference has a broad wave in
the profile, and its peak at dispersion zero; the rest is noise. Faint pulsars look like noise.
"""

import numpy as np
from scipy.stats import kurtosis, skew

__all__ = ["pulsars"]

ROWS, SHARE, INTERFERENCE = 17_898, 0.0916, 0.3
BINS = np.arange(64)


def pulsars(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows [17898, 8] and classes [17898], of which 1 are pulsars.

    :param seed: of the simulation.
    """
    rng = np.random.default_rng(seed)
    is_pulsar = rng.uniform(size=ROWS) < SHARE
    interferes = ~is_pulsar & (rng.uniform(size=ROWS) < INTERFERENCE)
    brightness = rng.lognormal(1.9, 0.8, size=(ROWS, 1))

    def column(values: np.ndarray) -> np.ndarray:
        return values[:, None]

    pulse = _peak(rng.uniform(0, 64, ROWS), rng.lognormal(1.0, 0.5, ROWS))
    wave = 1.0 + np.cos(2 * np.pi * (BINS + column(rng.uniform(0, 64, ROWS))) / 64)
    at_dispersion = _peak(rng.uniform(8, 64, ROWS), rng.lognormal(1.6, 0.4, ROWS))
    at_zero = _peak(rng.normal(0, 3, ROWS), rng.lognormal(1.9, 0.4, ROWS))
    curves = [
        brightness * (column(is_pulsar) * one + 0.5 * column(interferes) * other)
        + rng.normal(size=(ROWS, 64))
        for one, other in ((pulse, wave), (at_dispersion, at_zero))
    ]
    gains = [rng.lognormal(2.0, 0.2, size=(ROWS, 1)) for _ in curves]  # receivers differ
    columns = [
        statistic(gain * (curve + 3.0), axis=1)
        for curve, gain in zip(curves, gains, strict=True)
        for statistic in (np.mean, np.std, kurtosis, skew)
    ]
    return np.stack(columns, axis=1), is_pulsar.astype(np.int64)


def _peak(centre: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Gaussian peaks [N, 64] of height one."""
    return np.exp(-0.5 * np.square((BINS - centre[:, None]) / width[:, None]))
