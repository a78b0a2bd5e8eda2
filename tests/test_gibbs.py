"""The Gibbs sampler against quadrature, against a sampler of another kind, and its chains."""

import pickle
import sys

import numpy as np
import pytest
from scipy.special import expit

from gpflow_ilr.augmentation import LogisticSoftmaxLink
from gpflow_ilr.convergence import effective_sample_size
from gpflow_ilr.gibbs import Chains, GibbsSampler
from gpflow_ilr.polya_gamma import draw_polya_gamma

THETA = (1.5, 0.5, 1.2)
ONE_POINT = ([[3.0]], [1])
TWO_POINTS = ([[4.0, 2.5], [2.5, 4.0]], [0, 2])
FIXED_CLASS = ([[3.0]], [2])

PROBLEMS = {
    "LSM": (LogisticSoftmaxLink.logistic(3), *ONE_POINT),
    "LSM scaled": (LogisticSoftmaxLink.logistic(3, THETA), *ONE_POINT),
    "LSM two points": (LogisticSoftmaxLink.logistic(2), [[4.0, 2.5], [2.5, 4.0]], [0, 1]),
    "BSM": (LogisticSoftmaxLink.bijective(3), *ONE_POINT),
    "BSM fixed class": (LogisticSoftmaxLink.bijective(3), *FIXED_CLASS),
    "BSM scaled": (LogisticSoftmaxLink.bijective(3, THETA), *ONE_POINT),
    "BSM two points": (LogisticSoftmaxLink.bijective(3), *TWO_POINTS),
}
COPIES = 150


def class_probabilities(link, F):
    """[..., L] to [..., K], without the package's own code."""
    weights = np.array(link.weights) * expit(F)
    if link.offset > 0:
        weights = np.concatenate([weights, np.full((*F.shape[:-1], 1), link.offset)], axis=-1)
    return weights / weights.sum(axis=-1, keepdims=True)


def statistics(link, F):
    """f, f² and p of one problem, F [..., N, L], as one vector."""
    values = [F, F**2, class_probabilities(link, F)]
    return np.concatenate([x.reshape(*F.shape[:-2], -1) for x in values], axis=-1)


def posterior_by_quadrature(link, K, y, mean):
    """Posterior means of the statistics, by a tensor Gauss–Hermite rule over all N·L latents."""
    size = len(y) * link.num_latents
    num_nodes = {1: 100, 2: 60, 3: 40, 4: 24}[size]
    x, w = np.polynomial.hermite_e.hermegauss(num_nodes)
    nodes = np.stack(np.meshgrid(*[x] * size, indexing="ij"), -1).reshape(-1, size)
    weights = np.prod(np.stack(np.meshgrid(*[w] * size, indexing="ij"), -1), -1).reshape(-1)
    white = nodes.reshape(-1, len(y), link.num_latents)
    F = mean + np.einsum("nm,sml->snl", np.linalg.cholesky(K), white)
    likelihood = np.prod(class_probabilities(link, F)[:, np.arange(len(y)), y], axis=1)
    weights = weights * likelihood / np.sum(weights * likelihood)
    return weights @ statistics(link, F)


def many_copies(link, K, y, mean=0.0, shared=True):
    """A sampler of independent copies of one small problem: each sweep draws from all of them."""
    K = np.kron(np.eye(COPIES), np.array(K))[None]
    labels = np.tile(y, COPIES)
    K = K if shared else np.repeat(K, link.num_latents, axis=0)
    return GibbsSampler(link, labels, K, np.full((len(labels), link.num_latents), mean))


def largest_z(sampler, expected, num_rows, num_sweeps=300, num_burnin=100):
    """Largest |z| of the statistics, with standard errors from the spread over copies."""
    chains = Chains(sampler, num_chains=1, seed=1)
    chains.discard(num_burnin)
    chains.extend(num_sweeps)
    F = chains.samples[0].reshape(num_sweeps, COPIES, num_rows, -1)
    per_copy = statistics(sampler.link, F).mean(axis=0)
    error = per_copy.mean(axis=0) - expected
    return np.max(np.abs(error) / (per_copy.std(axis=0, ddof=1) / np.sqrt(COPIES)))


@pytest.mark.parametrize("name", PROBLEMS)
def test_posterior_moments_equal_quadrature(name):
    link, K, y = PROBLEMS[name]
    expected = posterior_by_quadrature(link, K, y, 0.0)
    assert largest_z(many_copies(link, K, y), expected, len(y)) < 4


@pytest.mark.parametrize("name", ["LSM", "LSM two points"])
def test_separate_kernels_take_no_slice_step_and_have_the_same_posterior(name, monkeypatch):
    link, K, y = PROBLEMS[name]
    monkeypatch.delattr(GibbsSampler, "shift_latents")
    expected = posterior_by_quadrature(link, K, y, 0.0)
    assert largest_z(many_copies(link, K, y, shared=False), expected, len(y)) < 4


def test_posterior_moments_equal_quadrature_with_a_prior_mean():
    link, K, y = PROBLEMS["LSM"]
    expected = posterior_by_quadrature(link, K, y, -1.0)
    assert largest_z(many_copies(link, K, y, mean=-1.0), expected, len(y)) < 4


@pytest.mark.parametrize("name", ["LSM", "BSM"])
def test_the_comparison_would_notice_a_wrong_conditional(name):
    """Counts from σ(+f), as one published package has them, are off by tens of standard errors."""
    link, K, y = PROBLEMS[name]

    class WrongSampler(GibbsSampler):
        def sweep(self, F, rng):
            r, d = np.array(self.link.weights), self.link.offset
            n = rng.poisson(rng.exponential(1 / (d + expit(F) @ r))[:, None] * r * expit(F))
            omega = draw_polya_gamma(self.Y + n, F, rng)
            return self.draw_latents((self.Y - n) / 2, omega, rng)

    right = many_copies(link, K, y)
    wrong = WrongSampler(link, np.tile(y, COPIES), right.covariance, right.mean)
    assert largest_z(wrong, posterior_by_quadrature(link, K, y, 0.0), len(y)) > 10


def test_latents_are_drawn_from_their_gaussian_conditional(rng):
    x = np.linspace(0, 2, 4)
    K = 2.0 * np.exp(-((x[:, None] - x) ** 2)) + 1e-6 * np.eye(4)
    link = LogisticSoftmaxLink.bijective(3)
    mean = rng.normal(size=(4, 2))
    sampler = GibbsSampler(link, np.zeros(4, int), K[None], mean)
    kappa, omega = rng.normal(size=(4, 2)), rng.gamma(1.0, 1.0, (4, 2))
    omega[1] = 0.0
    draws = np.array([sampler.draw_latents(kappa, omega, rng) for _ in range(10_000)])
    for j in range(2):
        S = np.linalg.inv(np.linalg.inv(K) + np.diag(omega[:, j]))
        expected = S @ (kappa[:, j] + np.linalg.solve(K, mean[:, j]))
        centred = draws[:, :, j] - expected
        sd = np.sqrt(np.diag(S))
        assert np.all(np.abs(centred.mean(0)) < 4 * sd / 100)
        # The standard error of a Gaussian sample covariance.
        error = np.sqrt((S**2 + np.outer(np.diag(S), np.diag(S))) / 10_000)
        assert np.all(np.abs(centred.T @ centred / 10_000 - S) < 4 * error)


def blobs(rng, per_class=10):
    centres = np.array([[0.0, 1.0], [1.0, -0.5], [-1.0, -0.5]])
    X = np.concatenate([c + 0.7 * rng.standard_normal((per_class, 2)) for c in centres])
    squared = np.sum((X[:, None] - X) ** 2, axis=-1)
    return 4.0 * np.exp(-squared / 2) + 1e-6 * np.eye(len(X)), np.repeat(np.arange(3), per_class)


def elliptical_slice_chain(sampler, labels, num_iterations, rng):
    """Samples of all latents by an algorithm that knows only prior and likelihood."""
    rows = np.arange(len(labels))

    def log_likelihood(F):
        return np.sum(np.log(class_probabilities(sampler.link, F)[rows, labels]))

    F = sampler.prior_draw(rng)
    current = log_likelihood(F)
    kept = []
    for i in range(num_iterations):
        partner, threshold = sampler.prior_draw(rng), current - rng.exponential()
        angle = rng.uniform(0, 2 * np.pi)
        low, high = angle - 2 * np.pi, angle
        while (
            current := log_likelihood(G := F * np.cos(angle) + partner * np.sin(angle))
        ) < threshold:
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = rng.uniform(low, high)
        F = G
        if i % 5 == 0:
            kept.append(F)
    return np.array(kept)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LSM", "BSM"])
def test_class_probabilities_equal_those_of_an_independent_sampler(name, rng):
    K, y = blobs(rng)
    link = PROBLEMS[name][0]
    sampler = GibbsSampler(link, y, K[None], np.zeros((len(y), link.num_latents)))
    chains = Chains(sampler, num_chains=2)
    chains.discard(200)
    chains.extend(1500)
    slices = [elliptical_slice_chain(sampler, y, 12_000, rng)[400:] for _ in range(2)]
    estimates, errors = [], []
    for samples in (chains.samples, np.array(slices)):
        p = class_probabilities(link, samples)
        estimates.append(p.mean(axis=(0, 1)))
        errors.append(p.std(axis=(0, 1)) / np.sqrt(effective_sample_size(p)))
    difference, error = estimates[0] - estimates[1], np.hypot(*errors)
    assert np.sqrt(np.mean(error**2)) < 0.02
    assert np.sqrt(np.mean((difference / error) ** 2)) < 1.5
    assert np.max(np.abs(difference / error)) < 4.5


@pytest.fixture
def sampler(rng):
    K, y = blobs(rng, per_class=4)
    return GibbsSampler(LogisticSoftmaxLink.logistic(3), y, K[None], np.zeros((12, 3)))


def test_a_continued_chain_is_the_uninterrupted_one_even_through_a_pickle(sampler):
    whole = Chains(sampler, num_chains=2, seed=3)
    whole.discard(5)
    whole.extend(10)
    parts = Chains(sampler, num_chains=2, seed=3)
    parts.discard(2)
    parts.discard(3)
    parts.extend(4)
    parts = pickle.loads(pickle.dumps(parts))
    parts.extend(6)
    np.testing.assert_array_equal(parts.samples, whole.samples)


def test_a_chain_does_not_depend_on_the_others(sampler):
    one, three = (Chains(sampler, num_chains=n, seed=3) for n in (1, 3))
    for chains in (one, three):
        chains.extend(4)
    np.testing.assert_array_equal(one.samples[0], three.samples[0])
    assert np.all(np.any(three.samples[1:] != three.samples[:1], axis=(1, 2, 3)))


def test_thinning_keeps_every_so_many_th_sample(sampler):
    every, third = Chains(sampler, num_chains=1), Chains(sampler, num_chains=1, thinning=3)
    every.extend(9)
    third.extend(3)
    np.testing.assert_array_equal(third.samples[:, :], every.samples[:, 2::3])


def test_sampling_without_threadpoolctl_gives_the_same_samples(sampler, monkeypatch):
    chains = Chains(sampler, num_chains=1)
    chains.extend(3)
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    again = Chains(sampler, num_chains=1)
    again.extend(3)
    np.testing.assert_allclose(again.samples, chains.samples, rtol=1e-9)


def test_progress_bars_name_the_phase(sampler, capsys):
    pytest.importorskip("tqdm")
    chains = Chains(sampler, num_chains=2)
    chains.discard(1, progress=True)
    chains.extend(1, progress=True)
    shown = capsys.readouterr().err
    assert "burn-in" in shown
    assert "sampling" in shown


def test_progress_without_tqdm_says_what_to_install(sampler, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match="needs the package tqdm"):
        Chains(sampler, num_chains=1).extend(1, progress=True)


def test_an_indefinite_kernel_matrix_is_refused_with_a_remedy():
    link = LogisticSoftmaxLink.logistic(2)
    with pytest.raises(ValueError, match="not positive definite"):
        GibbsSampler(link, np.array([0, 1]), np.array([[[1.0, 2.0], [2.0, 1.0]]]), np.zeros((2, 2)))


def test_latents_far_below_zero_do_not_break_a_sweep(sampler, rng):
    F = sampler.sweep(np.full((12, 3), -500.0), rng)
    assert np.all(np.isfinite(F))
