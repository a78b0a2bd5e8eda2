"""Exact E[π] and E[log π] for independent Gaussian logits, by one-dimensional integrals.

With independent standard Gumbel variables ε_k, softmax(g)_k is the probability that g_k + ε_k is the
largest, and log Σ exp g is E[max_k (g_k + ε_k)] less Euler's constant. For independent Gaussian g_k the
h_k = g_k + ε_k are independent too, with distribution functions F_k(u) = E[exp(−exp(g_k − u))], so

    E[π_k] = ∫ F_k'(u) Π_{j≠k} F_j(u) du,      E[log Σ exp g] = ∫ (1[u > 0] − Π_k F_k(u)) du − γ.

Nothing of this is used by the package, which makes it an oracle.
"""

import numpy as np

GAUSSIAN = np.linspace(-7.5, 7.5, 121)
WEIGHTS = np.exp(-0.5 * GAUSSIAN**2) / np.exp(-0.5 * GAUSSIAN**2).sum()


def expectations(mean: np.ndarray, var: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[softmax g] and E[log softmax g] for g ~ N(mean, diag var), both [N, K]."""
    results = [_row(m, v) for m, v in zip(mean, var, strict=True)]
    return np.stack([r[0] for r in results]), np.stack([r[1] for r in results])


def _row(mean: np.ndarray, var: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sd = np.sqrt(var)
    shift = np.max(mean)
    low = np.max(mean - 7.5 * sd) - shift - 4.0
    high = np.max(mean + 7.5 * sd) - shift + 36.0
    u, step = np.linspace(low, high, 401, retstep=True)
    log_rate = (mean - shift)[:, None, None] + sd[:, None, None] * GAUSSIAN[None, None, :]
    rate = np.exp(log_rate - u[None, :, None])  # [K, U, G]
    survival = np.exp(-rate)
    F = survival @ WEIGHTS  # [K, U]
    f = (rate * survival) @ WEIGHTS
    product = np.prod(F, axis=0)
    pi = np.sum(f * product / np.maximum(F, 1e-300), axis=1) * step
    # ∫ (1[u > 0] − P(u)) du by the trapezium rule on either side of zero is exact for the step if it is
    # taken by parts: high − ∫ P(u) du.
    lse = high - step * (np.sum(product) - 0.5 * (product[0] + product[-1])) - np.euler_gamma
    return pi, mean - shift - lse
