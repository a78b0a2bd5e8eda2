"""What a run is judged by, and how much of its calibration error is chance."""

import numpy as np

from gpflow_ilr import metrics

__all__ = ["chance_ece", "scores"]

_TINIEST = 1e-15  # trees and networks say 0 and 1; a GP's probabilities are far above it
_DRAWS = 200


def scores(p: np.ndarray, y: np.ndarray, seed: int = 0) -> dict[str, float]:
    """ACC, NLL and ECE of test rows, and the ECE that chance gives a perfect forecaster.

    :param p: class probabilities [n, K].
    :param y: classes [n].
    :param seed: of the simulation.
    """
    p = np.maximum(np.asarray(p, float), _TINIEST)
    p /= np.sum(p, axis=1, keepdims=True)
    floor, unusual = chance_ece(p, seed)
    return {
        "ACC": metrics.accuracy(p, y),
        "NLL": metrics.negative_log_likelihood(p, y),
        "ECE": metrics.expected_calibration_error(p, y),
        "ECE_chance": floor,
        "ECE_chance_95": unusual,
    }


def chance_ece(p: np.ndarray, seed: int = 0, draws: int = _DRAWS) -> tuple[float, float]:
    """The ECE of a perfectly calibrated forecaster with these probabilities: mean, 95 % quantile.

    Its labels are drawn from its own probabilities. With few test rows their bins stray from the
    diagonal by chance alone, and no model can be expected below that.

    :param p: class probabilities [n, K].
    :param seed: of the draws.
    :param draws: sets of labels.
    """
    rng = np.random.default_rng(seed)
    upto = np.cumsum(p, axis=1)
    errors = []
    for _ in range(draws):
        y = np.sum(rng.random([len(p), 1]) > upto, axis=1)
        errors.append(metrics.expected_calibration_error(p, np.minimum(y, p.shape[1] - 1)))
    return float(np.mean(errors)), float(np.quantile(errors, 0.95))
