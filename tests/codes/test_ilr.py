"""Claims about label codes: sharpness, codewords, Proposition 1's noise, GPD's moments."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gpflow_ilr.codes import (
    MAX_SMOOTHING,
    DirichletCode,
    ILRCode,
    LabelCode,
    overlap_noise_variance,
    sharpness_of,
    smoothing_of,
)
from gpflow_ilr.inputs.labels import as_labels
from gpflow_ilr.simplex import ILR, aitchison_distance
from tests.codes.error_rates import EPS, exact_error_rate

SMOOTHINGS = [1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.9, 0.99, 0.999999, 1 - 1e-9, 1 - 1e-12]
smoothings = st.one_of(
    st.floats(1e-12, 0.999),
    st.floats(-12.0, -3.0).map(lambda x: 10.0**x),
    st.floats(-12.0, -3.0).map(lambda x: 1.0 - 10.0**x),
)


def exact_sharpness(smoothing: float, K: int) -> Decimal:
    """L = log(1 + Kλ/(1 − λ)) of the floating-point number λ, to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        return (1 + K * Decimal(smoothing) / (1 - Decimal(smoothing))).ln()


def exact_smoothing(sharpness: float, K: int) -> Decimal:
    """λ = (e^L − 1)/(e^L − 1 + K) of the floating-point number L, to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        odds = Decimal(sharpness).exp() - 1
        return odds / (odds + K)


def exact_lower_tail(z: float) -> Decimal:
    """Φ(−z) = ½ − φ(z) Σ_n z^(2n+1)/(2n+1)!!, to 60 digits before the cancellation."""
    with localcontext() as context:
        context.prec = 60
        x = Decimal(z)
        term, total = x, x
        for n in range(1, 2000):
            term *= x * x / (2 * n + 1)
            total += term
        pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
        return Decimal("0.5") - total * (-x * x / 2).exp() / (2 * pi).sqrt()


def smoothed_one_hot(smoothing: float, K: int) -> np.ndarray:
    """The paper's μ⁽ᵏ⁾ = λ e_k + (1 − λ)/K."""
    return smoothing * np.eye(K) + (1 - smoothing) / K


@pytest.mark.parametrize("K", [2, 3, 10, 1000])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_sharpness_and_its_inverse_are_right_to_rounding(smoothing: float, K: int) -> None:
    L = sharpness_of(smoothing, K)
    # Each has four operations with at most one rounding each, and none that amplifies it.
    assert abs(Decimal(L) / exact_sharpness(smoothing, K) - 1) < 4 * EPS
    assert abs(Decimal(smoothing_of(L, K)) / exact_smoothing(L, K) - 1) < 4 * EPS


@given(smoothings, st.integers(2, 1000))
def test_smoothing_survives_the_way_through_sharpness_and_through_a_code(
    smoothing: float, K: int
) -> None:
    L = sharpness_of(smoothing, K)
    # d log λ / d log L = (1 − λ) L e^L/(e^L − 1), which never exceeds 1 + log(1 + K).
    np.testing.assert_allclose(smoothing_of(L, K), smoothing, rtol=4 * EPS * (2 + np.log1p(K)))
    # A code keeps log L, of size up to 28, whose rounding is a relative error of L.
    rtol = 4 * EPS * 32 * (2 + np.log1p(K))
    code = ILRCode(K, smoothing=smoothing)
    np.testing.assert_allclose(code.smoothing, smoothing, rtol=rtol)
    code = ILRCode(K)
    code.smoothing = smoothing
    np.testing.assert_allclose(code.smoothing, smoothing, rtol=rtol)
    np.testing.assert_allclose(code.scale, L, rtol=32 * EPS)


def test_smoothing_is_no_part_of_the_tables() -> None:
    low, high = ILRCode(4, smoothing=0.01), ILRCode(4, smoothing=0.9999)
    np.testing.assert_array_equal(low.targets, high.targets)
    np.testing.assert_array_equal(low.noise_variance, high.noise_variance)
    assert low.scale < high.scale


def test_sharpness_is_trained_on_request_only() -> None:
    code = ILRCode(3)
    assert code.trainable_variables == ()
    code.learn_scale()
    assert [v is code.sharpness.unconstrained_variable for v in code.trainable_variables] == [True]
    gpd = DirichletCode(3)
    gpd.learn_scale()
    assert gpd.trainable_variables == ()


def test_a_learned_sharpness_is_bounded_and_can_always_come_back() -> None:
    code = ILRCode(3)
    code.learn_scale()
    np.testing.assert_allclose(code.smoothing, 0.99)
    for value in (-1e6, -30.0, 0.0, 30.0, 1e6):
        code.sharpness.unconstrained_variable.assign(value)
        assert 0 < code.sharpness.numpy() < sharpness_of(MAX_SMOOTHING, 3)
        with tf.GradientTape() as tape:
            scale = code.scale
        assert 0 < tape.gradient(scale, code.sharpness.unconstrained_variable) < np.inf
        code.sharpness.assign(code.sharpness)  # has an inverse
        np.testing.assert_allclose(code.scale, scale, rtol=1e-9)


def test_a_smoothing_that_cannot_be_learned_is_refused() -> None:
    above = 1 - 1e-10
    code = ILRCode(3, smoothing=above)
    with pytest.raises(
        ValueError, match=r"smoothing .* must be below 0.999999999 .*loo.*0.9999999999"
    ):
        code.learn_scale()
    code.smoothing = 0.99
    code.learn_scale()
    with pytest.raises(ValueError, match="must be below"):
        code.smoothing = above
    np.testing.assert_allclose(code.smoothing, 0.99)


@given(st.integers(2, 40))
def test_codewords_are_the_vertices_of_a_regular_simplex(K: int) -> None:
    T = ILRCode(K).targets.numpy()
    assert T.shape == (K, K - 1)
    # ⟨t_k, t_l⟩ = 1[k = l] − 1/K: equal norms, equal angles, centred; edges √2.
    np.testing.assert_allclose(T @ T.T, np.eye(K) - 1 / K, atol=4 * K * EPS)
    np.testing.assert_allclose(T.sum(axis=0), 0, atol=4 * K * EPS)


@pytest.mark.parametrize("K", [2, 3, 10])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_sharpness_times_codeword_is_the_papers_target(smoothing: float, K: int) -> None:
    code, mu = ILRCode(K, smoothing=smoothing), smoothed_one_hot(smoothing, K)
    L = sharpness_of(smoothing, K)
    # The logarithms of μ carry absolute errors of their own size.
    atol = 8 * EPS * (1 + abs(np.log((1 - smoothing) / K)))
    np.testing.assert_allclose(code.scale * code.targets, ILR(K).inverse(mu), atol=K * atol)
    delta = aitchison_distance(mu[0], mu[1:])
    np.testing.assert_allclose(delta, np.sqrt(2) * L, rtol=8 * EPS, atol=atol)


@given(st.data())
def test_decoding_inverts_coding_and_knows_no_order_of_classes(data: st.DataObject) -> None:
    K = data.draw(st.integers(2, 8))
    weights = data.draw(arrays(np.float64, K, elements=st.floats(-5, 5)))
    order = np.array(data.draw(st.permutations(range(K))))
    for code in (ILRCode(K, smoothing=0.9), DirichletCode(K, 0.01)):
        T, C = code.targets.numpy(), code.link.numpy()

        def decode(w: np.ndarray, code: LabelCode = code, T=T, C=C) -> np.ndarray:
            return scipy.special.softmax(code.scale.numpy() * C @ (w @ T))

        # Classes that trade places trade their probabilities, whatever the targets are mixed with.
        np.testing.assert_allclose(decode(weights[order]), decode(weights)[order], rtol=1e-10)
        assert [int(np.argmax(decode(row))) for row in np.eye(K)] == list(range(K))
    # The ILR code's own target decodes to the smoothed label itself.
    ilr = ILRCode(K, smoothing=0.9)
    pi = ILR(K).forward(ilr.scale * ilr.targets)
    np.testing.assert_allclose(pi, smoothed_one_hot(0.9, K), rtol=64 * K * EPS)


@st.composite
def soft_rows(draw: st.DrawFn) -> np.ndarray:
    K = draw(st.integers(2, 6))
    weights = draw(arrays(np.float64, (3, K), elements=st.floats(0, 1)))
    weights[:, 0] += 0.01
    rows = weights / weights.sum(axis=1, keepdims=True)
    rows[0] = np.full(K, 1 / K)  # not one-hot, so that the labels are soft
    return rows


@given(soft_rows(), smoothings)
def test_soft_labels_are_coded_as_ilr_of_the_smoothed_row(p: np.ndarray, smoothing: float) -> None:
    K = p.shape[1]
    code = ILRCode(K, smoothing=smoothing)
    targets = code.scale * (code.features(as_labels(p, K)) @ code.targets)
    expected = np.log(smoothing * p + (1 - smoothing) / K) @ scipy.linalg.helmert(K).T
    atol = 64 * K * EPS * (1 + abs(np.log((1 - smoothing) / K)))
    np.testing.assert_allclose(targets, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_one_hot_rows_have_one_hot_features(smoothing: float) -> None:
    code = ILRCode(3, smoothing=smoothing)
    hard = code.features(as_labels(np.eye(3), 3)).numpy()
    np.testing.assert_array_equal(hard, np.eye(3))
    # Among soft rows they stay soft: the ones are a quotient, to rounding; the zeros are exact.
    rows = np.concatenate([np.eye(3), [[0.5, 0.5, 0.0]]])
    soft = code.features(as_labels(rows, 3)).numpy()
    np.testing.assert_array_equal(soft[:3] == 0, np.eye(3) == 0)
    assert soft[3, 2] == 0
    np.testing.assert_allclose(soft[:3], np.eye(3), rtol=4 * EPS, atol=0)


@pytest.mark.parametrize("K", [2, 3, 10, 100])
@pytest.mark.parametrize("tolerance", [0.05, 0.01])
def test_proposition_1_by_simulation(K: int, tolerance: float, rng: np.random.Generator) -> None:
    code = ILRCode(K, smoothing=0.97, tolerance=tolerance)
    exact = exact_error_rate(code)
    assert exact <= tolerance * (1 + 1e-9)
    if K == 2:  # a single competitor: the union bound is an equality
        assert exact == pytest.approx(tolerance, rel=1e-9)
    num_samples = 40_000
    error = np.sqrt(exact * (1 - exact) / num_samples)
    simulated = code.error_rate(num_samples, seed=3)
    assert abs(simulated - exact) < 4 * error
    # In the paper's own terms: Z ~ N(m⁽¹⁾, σ²) leaves the cell V_1 of the nearest target.
    m = ILR(K).inverse(smoothed_one_hot(0.97, K)).numpy()
    sigma = sharpness_of(0.97, K) * np.sqrt(overlap_noise_variance(K, tolerance))
    Z = m[0] + sigma * rng.standard_normal((num_samples, K - 1))
    distance = np.sum(m**2, axis=1) - 2 * Z @ m.T
    outside = np.mean(np.argmin(distance, axis=1) != 0)
    assert abs(outside - exact) < 4 * error
    assert max(simulated, outside) <= tolerance + 4 * error


@pytest.mark.parametrize("K", [2, 3, 10, 100])
@pytest.mark.parametrize("tolerance", [0.4, 0.01, 1e-6, 1e-12, 1e-15])
def test_noise_puts_exactly_the_tolerance_into_the_lower_tail(K: int, tolerance: float) -> None:
    z = np.sqrt(0.5 / overlap_noise_variance(K, tolerance))  # δ/(2σ) = 1/(√2 σ/L)
    tail = (K - 1) * exact_lower_tail(z)
    # d log Φ(−z)/d log z = −z φ/Φ, which is about z² in the tail and small in the middle.
    assert abs(tail / Decimal(tolerance) - 1) < 8 * EPS * (1 + z**2)


def test_noise_shrinks_with_the_tolerance_and_with_the_number_of_classes() -> None:
    by_tolerance = [overlap_noise_variance(3, 10.0**-i) for i in range(1, 16)]
    by_classes = [overlap_noise_variance(K, 1e-6) for K in (2, 3, 10, 100, 1000)]
    assert np.all(np.diff(by_tolerance) < 0)
    assert np.all(np.diff(by_classes) < 0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"smoothing": 0.0}, r"smoothing \(λ\) must lie strictly between 0 and 1, but is 0.0"),
        ({"smoothing": 1.0}, r"smoothing .* but is 1.0"),
        ({"smoothing": -0.5}, r"smoothing .* but is -0.5"),
        ({"smoothing": np.nan}, r"smoothing .* but is nan"),
        ({"tolerance": 0.0}, r"tolerance \(ε\) must lie in \(0, 1\) .* but is 0.0"),
        ({"tolerance": 1.0}, r"tolerance .* but is 1.0"),
        ({"tolerance": -1e-6}, r"tolerance .* but is -1e-06"),
        ({"tolerance": np.nan}, r"tolerance .* but is nan"),
        ({"num_classes": 2, "tolerance": 0.5}, r"tolerance \(ε\) must lie in \(0, 0.5\)"),
        ({"noise": "free"}, r"noise must be one of .*'per_class'.* but is 'free'"),
        ({"noise_variance": 0.0}, r"noise_variance .* must be positive and finite, but is 0.0"),
        ({"noise_variance": np.inf}, r"noise_variance .* but is inf"),
        ({"noise_variance": np.nan}, r"noise_variance .* but is nan"),
        ({"num_classes": 1}, r"num_classes must be at least 2, but is 1"),
    ],
)
def test_bad_arguments_of_the_ilr_code_get_a_sentence(arguments: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ILRCode(**{"num_classes": 3, **arguments})


def test_setting_a_smoothing_out_of_range_is_refused_and_changes_nothing() -> None:
    code = ILRCode(3, smoothing=0.9)
    with pytest.raises(ValueError, match=r"smoothing .* but is 1"):
        code.smoothing = 1
    np.testing.assert_allclose(code.smoothing, 0.9, rtol=64 * EPS)
