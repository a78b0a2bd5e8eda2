"""Forecasts that are perfectly calibrated: labels are drawn from the probabilities."""

import numpy as np


def perfect(N: int, K: int, seed: int = 0, spread: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities [N, K] and labels [N] drawn from them."""
    rng = np.random.default_rng(seed)
    logits = spread * rng.normal(size=[N, K])
    P = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return P, drawn(P, rng)


def drawn(P: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Labels [N] from probabilities [N, K], by Gumbel's trick."""
    return np.argmax(np.log(P) + rng.gumbel(size=P.shape), axis=1)
