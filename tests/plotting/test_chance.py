"""The band of chance is exact: binomial where it is one, and kept by calibrated forecasters."""

import itertools

import numpy as np
import pytest
import scipy.stats

from gpflow_ilr.metrics import reliability_curve
from gpflow_ilr.plotting.chance import chance_band, hits_distribution
from tests.plotting.forecasts import drawn, perfect


@pytest.mark.parametrize("n", [1, 2, 3, 8, 1000])
def test_hits_of_equal_probabilities_are_binomial(n: int) -> None:
    expected = scipy.stats.binom.pmf(np.arange(n + 1), n, 0.3)
    np.testing.assert_allclose(hits_distribution(np.full(n, 0.3)), expected, atol=1e-14)


def test_hits_of_other_probabilities_are_sums_over_all_outcomes(rng: np.random.Generator) -> None:
    p = rng.uniform(size=7)
    expected = np.zeros(8)
    for outcome in itertools.product([0, 1], repeat=7):
        expected[sum(outcome)] += np.prod(np.where(outcome, p, 1.0 - p))
    np.testing.assert_allclose(hits_distribution(p), expected, atol=1e-15)


def test_certain_events_happen() -> None:
    np.testing.assert_allclose(
        hits_distribution(np.array([1.0, 0.0, 1.0])), [0, 0, 1, 0], atol=1e-15
    )


def test_bounds_are_quantiles_of_the_binomial() -> None:
    confidence, edges = np.full(50, 0.73), np.linspace(0.0, 1.0, 11)
    lower, upper = chance_band(confidence, edges, 0.9)
    hits = scipy.stats.binom(50, 0.73)
    assert (lower[7], upper[7]) == (hits.ppf(0.05) / 50, hits.ppf(0.95) / 50)
    assert np.isnan(np.delete(lower, 7)).all()
    assert np.isnan(np.delete(upper, 7)).all()


def test_confidences_at_an_edge_are_in_the_bin_of_the_curve() -> None:
    P = np.array([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])
    curve = reliability_curve(P, [0, 0, 1], 4)
    lower, _ = chance_band(P[:, 1], curve.edges, 0.9)
    np.testing.assert_array_equal(np.isfinite(lower), curve.count > 0)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("K", [2, 3])
def test_perfect_forecasters_stay_inside_as_often_as_promised(K: int, level: float) -> None:
    P, _ = perfect(2000, K)
    edges = np.linspace(0.0, 1.0, 11)
    confidence = P.max(axis=1) if K > 2 else P[:, 1]
    lower, upper = chance_band(confidence, edges, level)
    rng = np.random.default_rng(1)
    curves = [reliability_curve(P, drawn(P, rng)) for _ in range(400)]
    filled = curves[0].count > 0
    np.testing.assert_array_equal(filled, np.isfinite(lower))
    shares = np.array([curve.accuracy[filled] for curve in curves])
    inside = np.mean((shares >= lower[filled]) & (shares <= upper[filled]))
    # Five standard errors below; above, what whole numbers of hits add in bins of a hundred rows.
    error = np.sqrt(level * (1.0 - level) / shares.size)
    assert level - 5.0 * error < inside < level + 0.08


def test_an_overconfident_forecaster_leaves_the_band() -> None:
    P, y = perfect(2000, 3)
    sharper = P**2 / np.sum(P**2, axis=1, keepdims=True)
    curve = reliability_curve(sharper, y)
    lower, _ = chance_band(sharper.max(axis=1), curve.edges, 0.99)
    assert np.mean(curve.accuracy[curve.count > 50] < lower[curve.count > 50]) > 0.5
