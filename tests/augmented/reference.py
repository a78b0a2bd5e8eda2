"""Coordinate ascent for the augmented models, written out in NumPy from its formulas.

Nothing here is shared with the package, and the auxiliary variables are explicit: the tests compare
the package's closed forms and GPflow's natural gradients with this.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, gammaln

SETTINGS = {"LSM": (3, 0.0), "BSM": (2, 0.5)}
"""Number of latents and offset d, for three classes."""


def three_blobs(num_rows=45, seed=0):
    """Inputs [N, 2] and labels [N] of three overlapping classes."""
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 1.0], [1.0, -0.5], [-1.0, -0.5]])
    y = np.arange(num_rows) % 3
    return centres[y] + 0.6 * rng.standard_normal((num_rows, 2)), y


def squared_exponential(X, X2, variance, lengthscale):
    squared = np.sum((X[:, None] - X2[None]) ** 2, axis=-1)
    return variance * np.exp(-squared / (2 * lengthscale**2))


def local_updates(m, v, Y, d, bound):
    """E[n], E[ω] and the bound ℓ_i, from the optimal q(λ, n, ω) with r = 1."""
    R = d + m.shape[1]
    c = np.sqrt(m**2 + v)
    psi = np.exp(-m / 2) / (2 * np.cosh(c / 2))
    log_w = np.where(Y.sum(axis=1) > 0, 0.0, np.log(d) if d > 0 else 0.0)
    label = log_w + np.sum(Y * (m / 2 - np.log(2 * np.cosh(c / 2))), axis=1)
    if bound == "marginal":
        rate = d + np.sum(1 - psi, axis=1)
        gamma = psi / rate[:, None]
        ell = label - np.log(rate)
    else:
        s = psi.sum(axis=1) / R
        alpha = np.array(
            [
                brentq(lambda a, s=s: a - 1 - s * np.exp(digamma(a)), 1, 1 / (1 - s), xtol=1e-13)
                for s in s
            ]
        )
        gamma = np.exp(digamma(alpha))[:, None] * psi / R
        entropy = gammaln(alpha) + (1 - alpha) * digamma(alpha)
        ell = label + s * np.exp(digamma(alpha)) + entropy - np.log(R)
    return gamma, (Y + gamma) * np.tanh(c / 2) / (2 * c), ell


def coordinate_ascent(K_mm, K_mn, k_nn, Y, d, num_sweeps, bound="marginal", variance=None):
    """ELBOs after 0, 1, … sweeps of q(u_j) = N(μ_j, Σ_j), all started as N(0, `variance` or K_mm)."""
    num_latent_gps = Y.shape[1]
    A = np.linalg.solve(K_mm, K_mn).T
    rest = k_nn - np.sum(A * K_mn.T, axis=1)
    P = np.linalg.inv(K_mm)
    start = K_mm if variance is None else variance * np.eye(len(K_mm))
    mu, Sigma = np.zeros((num_latent_gps, len(K_mm))), np.stack([start] * num_latent_gps)
    elbos = []
    for _ in range(num_sweeps + 1):
        m = (A @ mu.T).reshape(-1, num_latent_gps)
        v = rest[:, None] + np.stack([np.sum((A @ S) * A, axis=1) for S in Sigma], axis=1)
        gamma, omega, ell = local_updates(m, v, Y, d, bound)
        kl = sum(
            0.5 * (np.trace(P @ S) + u @ P @ u - len(u))
            + 0.5 * (np.linalg.slogdet(K_mm)[1] - np.linalg.slogdet(S)[1])
            for u, S in zip(mu, Sigma, strict=True)
        )
        elbos.append(ell.sum() - kl)
        Sigma = np.stack([np.linalg.inv(P + (A.T * w) @ A) for w in omega.T])
        mu = np.stack([S @ A.T @ k for S, k in zip(Sigma, (Y - gamma).T / 2, strict=True)])
    return np.array(elbos)
