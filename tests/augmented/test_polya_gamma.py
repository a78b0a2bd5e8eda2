"""Pólya-Gamma draws against the distribution's closed-form Laplace transform and moments."""

import sys

import numpy as np
import pytest

from gpflow_ilr.augmented import polya_gamma
from gpflow_ilr.augmented.polya_gamma import (
    draw_polya_gamma,
    polya_gamma_by_series,
    polya_gamma_mean,
)

SHAPES_AND_TILTS = [(1.0, 0.0), (1.0, 2.5), (4.0, -1.0), (2.0, 9.0), (37.0, 0.3)]
NUM_DRAWS = 20_000


def laplace(t, b, c):
    """E[exp(−t ω)] for ω ~ PG(b, c): (cosh(c/2) / cosh(√((c²/2 + t)/2)))^b."""
    return (np.cosh(c / 2) / np.cosh(np.sqrt((c**2 / 2 + t) / 2))) ** b


def variance(b, c):
    """Var[PG(b, c)] = b (sinh c − c) sech²(c/2) / (4c³), and b/24 at c = 0."""
    c = abs(c)
    return b / 24 if c == 0 else b * (np.sinh(c) - c) / (np.cosh(c / 2) ** 2 * 4 * c**3)


def z_score(values, expected):
    return (np.mean(values) - expected) / (np.std(values) / np.sqrt(len(values)))


@pytest.fixture
def without_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "polyagamma", None)
    polya_gamma._package_draw.cache_clear()
    yield
    polya_gamma._package_draw.cache_clear()


@pytest.mark.parametrize(("b", "c"), SHAPES_AND_TILTS)
def test_mean_is_minus_the_slope_of_the_log_laplace_transform(b, c):
    h = 1e-5
    slope = (np.log(laplace(h, b, c)) - np.log(laplace(0.0, b, c))) / h
    np.testing.assert_allclose(polya_gamma_mean(b, c), -slope, rtol=1e-4)


def test_mean_is_smooth_and_even_at_zero_tilt():
    c = np.array([0.0, 1e-9, 9.99e-5, 1.001e-4, 1e-3])
    np.testing.assert_allclose(polya_gamma_mean(2.0, c), 0.5 - c**2 / 24, rtol=1e-12)
    np.testing.assert_array_equal(polya_gamma_mean(2.0, -c), polya_gamma_mean(2.0, c))


@pytest.mark.parametrize("draw", [draw_polya_gamma, polya_gamma_by_series])
@pytest.mark.parametrize(("b", "c"), SHAPES_AND_TILTS)
def test_draws_have_the_moments_and_laplace_transform_of_the_distribution(draw, b, c, rng):
    omega = draw(np.full(NUM_DRAWS, b), c, rng)
    mean = polya_gamma_mean(b, c)
    assert np.all(omega > 0)
    assert abs(z_score(omega, mean)) < 4
    assert abs(z_score((omega - mean) ** 2, variance(b, c))) < 4
    for t in (0.5, 5.0):
        assert abs(z_score(np.exp(-t * omega), laplace(t, b, c))) < 4


@pytest.mark.parametrize("b", [1.0, 2.0, 15.0, 50.0, 300.0, 1e8])
@pytest.mark.parametrize("c", [24.0, 26.0, -40.0, 300.0, 690.0, 710.0, 1e3, 1e6])
@pytest.mark.parametrize("package", [True, False])
def test_draws_of_large_tilts_have_the_moments_of_the_distribution(
    b, c, package, rng, request, recwarn
):
    if not package:
        request.getfixturevalue("without_package")
    omega = draw_polya_gamma(np.full(NUM_DRAWS, b), c, rng)
    mean = polya_gamma_mean(b, c)
    assert abs(z_score(omega, mean)) < 4
    # b (sinh c − c)/(4c³ cosh²(c/2)) for c too large for sinh, its relative error 2c e^−c.
    assert abs(z_score((omega - mean) ** 2, b / (2.0 * abs(c) ** 3))) < 4


def test_the_inverse_gaussian_distribution_takes_over_without_a_step():
    """(cosh(c/2)/cosh √((c²/2 + t)/2))^b beside exp(b/2 (c − √(c² + 2t))), that of its limit."""
    c, t = 25.0, np.array([0.5, 5.0, 50.0])
    for b in (1.0, 7.0, 50.0):
        limit = np.exp(0.5 * b * (c - np.sqrt(c**2 + 2.0 * t)))
        np.testing.assert_allclose(laplace(t, b, c), limit, rtol=b * 1e-10)


@pytest.mark.parametrize(("b", "c"), [(1.0, np.nan), (1.0, np.inf), (np.nan, 1.0), (np.inf, 1.0)])
def test_what_is_not_finite_is_refused(b, c, rng):
    with pytest.raises(ValueError, match=r"not finite.*Lower the kernel's variance"):
        draw_polya_gamma(np.array([1.0, b]), np.array([1.0, c]), rng)


@pytest.mark.parametrize("draw", [draw_polya_gamma, polya_gamma_by_series])
def test_shape_zero_gives_zero(draw, rng):
    omega = draw(np.array([[0.0, 1.0], [2.0, 0.0]]), np.array([3.0, -1.0]), rng)
    np.testing.assert_array_equal(omega == 0, [[True, False], [False, True]])


def test_the_package_is_used_when_it_is_there(rng):
    package = pytest.importorskip("polyagamma")
    b, c = np.array([1.0, 3.0]), np.array([0.5, 2.0])
    expected = package.random_polyagamma(b, c, random_state=np.random.default_rng(0))
    np.testing.assert_array_equal(draw_polya_gamma(b, c, rng), expected)


@pytest.mark.usefixtures("without_package")
def test_the_series_is_used_without_the_package_and_warns_once(rng):
    b, c = np.array([1.0, 3.0]), np.array([0.5, 2.0])
    expected = polya_gamma_by_series(b, c, np.random.default_rng(0))
    with pytest.warns(UserWarning, match=r"approximate.*pip install 'gpflow_ilr\[augmented\]'"):
        omega = draw_polya_gamma(b, c, rng)
    np.testing.assert_array_equal(omega, expected)
    # Warnings are errors here, so a second one would fail the test.
    draw_polya_gamma(b, c, rng)


def test_series_keeps_the_mean_exact_with_a_single_term(rng):
    omega = polya_gamma_by_series(np.full(NUM_DRAWS, 2.0), 3.0, rng, num_terms=1)
    assert abs(z_score(omega, polya_gamma_mean(2.0, 3.0))) < 4


def test_draws_carry_the_logistic_identity(rng):
    """σ(f)^a σ(−f)^n = 2^−(a+n) exp((a − n) f/2) E[exp(−ω f²/2)], ω ~ PG(a + n, 0)."""
    f, a, n = 1.3, 1, 2
    omega = draw_polya_gamma(np.full(NUM_DRAWS, float(a + n)), 0.0, rng)
    sigma = 1 / (1 + np.exp(-f))
    values = 2.0 ** -(a + n) * np.exp((a - n) * f / 2 - omega * f**2 / 2)
    assert abs(z_score(values, sigma**a * (1 - sigma) ** n)) < 4
