"""Claims about the Dirichlet code (GPD)."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.special

from gpflow_ilr.codes import (
    DirichletCode,
    ILRCode,
    LabelCode,
)

EPS = np.finfo(np.float64).eps


def exact_error_rate(code: LabelCode) -> float:
    """P(argmax of the logits is not class 0 | class 0), by quadrature over the true class' noise.

    Both links make the logits of z, up to a common term, independent Gaussians: for ILR Z = H(e_k +
    σ g), whose logits HᵀZ are those of e_k + σ g; for GPD they are z itself. Hence
    P(right) = E_g Φ((gap + s_0 g)/s_1)^(K−1) with the gap of the means.
    """
    K, V = code.num_classes, np.sqrt(code.noise_variance.numpy())
    if isinstance(code, ILRCode):
        gap, own, other = 1.0, V[0, 0], V[0, 0]
    else:
        T = code.targets.numpy()
        gap, own, other = T[0, 0] - T[0, 1], V[0, 0], V[0, 1]
    g = np.linspace(-12.0, 12.0, 20_001)  # the trapezoidal rule is spectrally accurate here
    log_right = (K - 1) * scipy.special.log_ndtr((gap + own * g) / other)
    density = np.exp(-0.5 * g**2) / np.sqrt(2 * np.pi)
    return float(np.sum(density * -np.expm1(log_right)) * (g[1] - g[0]))


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
