"""R-hat and effective sample sizes against ArviZ, and on processes whose answers are known."""

import warnings

import numpy as np
import pytest
from scipy.signal import lfilter

from gpflow_ilr.augmented import convergence
from gpflow_ilr.augmented.convergence import Convergence, effective_sample_size, rhat


def autoregressive(rng, correlation, num_chains=4, num_samples=5000, num_quantities=20):
    """x_t = ρ x_{t−1} + √(1 − ρ²) e_t, stationary: its effective size is n (1 − ρ)/(1 + ρ)."""
    noise = rng.standard_normal((num_chains, num_samples + 200, num_quantities))
    x = lfilter([np.sqrt(1 - correlation**2)], [1, -correlation], noise, axis=1)
    return x[:, 200:]


@pytest.fixture(scope="module")
def arviz():
    with warnings.catch_warnings():
        # ArviZ announces its next version whenever it is imported.
        warnings.simplefilter("ignore", FutureWarning)
        import arviz

        return arviz


@pytest.mark.parametrize(("num_chains", "num_samples"), [(2, 1000), (4, 101), (3, 50), (2, 5)])
def test_rhat_is_the_rank_normalised_one_of_arviz(num_chains, num_samples, arviz, rng):
    draws = autoregressive(rng, 0.8, num_chains, num_samples, num_quantities=6)
    draws[0, :, :2] += 1.0
    draws[0, :, 2:4] *= 3.0
    # Ties, as probabilities that underflow have them.
    draws[..., 5] = np.maximum(draws[..., 5], 0.0)
    expected = [arviz.rhat(x, method="rank") for x in np.moveaxis(draws, -1, 0)]
    np.testing.assert_allclose(rhat(draws), expected, rtol=1e-12)


@pytest.mark.parametrize("correlation", [-0.9, -0.3, 0.0, 0.8, 0.99])
@pytest.mark.parametrize(("num_chains", "num_samples"), [(2, 1000), (4, 101), (1, 50)])
def test_effective_sample_size_is_the_bulk_one_of_arviz(
    correlation, num_chains, num_samples, arviz, rng
):
    draws = autoregressive(rng, correlation, num_chains, num_samples, num_quantities=6)
    draws[0, :, :2] += 1.0
    draws[..., 5] = np.maximum(draws[..., 5], 0.0)
    expected = [arviz.ess(x, method="bulk") for x in np.moveaxis(draws, -1, 0)]
    np.testing.assert_allclose(effective_sample_size(draws), expected, rtol=1e-10)


@pytest.mark.parametrize("correlation", [-0.3, 0.0, 0.5, 0.9])
def test_effective_sample_size_of_autoregressive_chains(correlation, rng):
    draws = autoregressive(rng, correlation)
    expected = 20_000 * (1 - correlation) / (1 + correlation)
    # An average over 20 independent quantities: 0.97 to 1.01 of it over eight seeds.
    np.testing.assert_allclose(np.mean(effective_sample_size(draws)), expected, rtol=0.05)


def test_chains_of_one_distribution_have_rhat_one(rng):
    assert np.max(rhat(rng.standard_normal((2, 1000, 50)))) < 1.02


@pytest.mark.parametrize("kind", ["location", "spread", "trend", "cauchy location"])
def test_disagreement_raises_rhat(kind, rng):
    draws = rng.standard_normal((2, 1000, 3))
    if kind == "location":
        draws[1] += 1.0
    elif kind == "spread":
        draws[1] *= 3.0
    elif kind == "trend":
        draws += np.linspace(0, 2, 1000)[:, None]
    else:
        draws = rng.standard_cauchy((2, 1000, 3))
        draws[1] += 2.0
    assert np.min(rhat(draws)) > 1.05


def test_quantities_keep_their_shape_and_do_not_depend_on_chunks(rng, monkeypatch):
    draws = rng.standard_normal((2, 101, 3, 5))
    whole = rhat(draws), effective_sample_size(draws)
    monkeypatch.setattr(convergence, "_CHUNK_COLUMNS", 4)
    assert whole[0].shape == whole[1].shape == (3, 5)
    np.testing.assert_array_equal(rhat(draws), whole[0])
    np.testing.assert_array_equal(effective_sample_size(draws), whole[1])


def test_a_constant_quantity_agrees_with_itself_and_every_draw_counts():
    assert rhat(np.ones((2, 10, 1))) == 1.0
    assert effective_sample_size(np.ones((2, 10, 1))) == 20


def test_chains_that_never_move_disagree_and_hardly_count(arviz):
    stuck = np.repeat([[[0.0]], [[1.0]]], 40, axis=1)
    assert rhat(stuck) == np.inf
    expected = arviz.ess(stuck[..., 0], method="bulk")
    assert expected < 3
    np.testing.assert_allclose(effective_sample_size(stuck), expected, rtol=1e-12)


def test_a_quantity_that_is_not_a_number_has_no_diagnostics(rng):
    draws = rng.standard_normal((2, 40, 2))
    draws[1, 7, 0] = np.nan
    assert np.isnan(rhat(draws)).tolist() == [True, False]
    assert np.isnan(effective_sample_size(draws)).tolist() == [True, False]


def test_too_few_samples_are_not_called_converged(rng):
    draws = rng.standard_normal((2, 3, 4, 2))
    report = Convergence.of(draws, draws)
    assert np.all(np.isnan(report.rhat))
    assert not report.converged
    assert report.samples_missing > 0


def test_report_names_its_worst_quantities_and_what_is_missing(rng):
    latents = autoregressive(rng, 0.9, num_chains=2, num_samples=400, num_quantities=6)
    latents = latents.reshape(2, 400, 3, 2)
    probabilities = 1 / (1 + np.exp(-latents))
    report = Convergence.of(probabilities, latents)
    assert report.smallest_ess == np.min(report.ess)
    assert report.worst_rhat == np.max(report.rhat)
    # 100 effective samples per chain at the present rate.
    needed = 400 * 200 / report.smallest_ess
    assert report.samples_missing == int(np.ceil(needed - 400))
    # Ranks do not change under a monotone map.
    np.testing.assert_allclose(report.ess, report.latent_ess)
    spread = np.std(probabilities, axis=(0, 1))
    np.testing.assert_allclose(report.standard_error, spread / np.sqrt(report.ess))
    assert f"{report.worst_rhat:.3f}" in str(report)
