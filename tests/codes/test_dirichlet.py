"""Claims about the Dirichlet code (GPD)."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_ilr.codes import (
    DirichletCode,
)
from tests.codes.error_rates import EPS, exact_error_rate


@pytest.mark.parametrize("alpha_epsilon", [1e-6, 1e-4, 0.01, 0.1, 2.0])
def test_gpd_matches_the_first_two_moments_of_the_gamma(alpha_epsilon: float) -> None:
    code = DirichletCode(4, alpha_epsilon)
    T, V = code.targets.numpy(), code.noise_variance.numpy()
    alpha = np.eye(4) + alpha_epsilon
    np.testing.assert_allclose(V, np.log(1 + 1 / alpha), rtol=64 * EPS)
    np.testing.assert_allclose(T, np.log(alpha) - np.log(1 + 1 / alpha) / 2, rtol=64 * EPS)
    # Gamma(α, 1) has mean α and variance α; so has the log-normal with these parameters.
    rtol = 64 * EPS * (1 + abs(T).max())
    np.testing.assert_allclose(np.exp(T + V / 2), alpha, rtol=rtol)
    np.testing.assert_allclose(np.expm1(V) * np.exp(2 * T + V), alpha, rtol=2 * rtol)
    np.testing.assert_array_equal(code.link, np.eye(4))
    assert code.scale == 1


@pytest.mark.parametrize("K", [2, 10, 100])
def test_gpd_error_rate_is_the_exact_one(K: int) -> None:
    for alpha_epsilon in (0.1, 0.001):
        code = DirichletCode(K, alpha_epsilon)
        exact = exact_error_rate(code)
        error = np.sqrt(exact * (1 - exact) / 40_000)
        assert abs(code.error_rate(40_000) - exact) < 4 * error


def test_gpd_error_rate_falls_with_alpha_epsilon_and_rises_with_the_number_of_classes() -> None:
    codes = [[DirichletCode(K, a) for a in (0.1, 0.01, 0.001, 0.0001)] for K in (2, 10, 100)]
    rates = np.array([[code.error_rate(20_000) for code in row] for row in codes])
    assert np.all(np.diff(rates, axis=1) < 0)
    assert np.all(np.diff(rates, axis=0) > 0)


@pytest.mark.parametrize("alpha_epsilon", [0.0, -0.1, np.inf, np.nan])
def test_bad_alpha_epsilon_gets_a_sentence(alpha_epsilon: float) -> None:
    with pytest.raises(ValueError, match=f"alpha_epsilon .* but is {alpha_epsilon}. The paper"):
        DirichletCode(3, alpha_epsilon)
