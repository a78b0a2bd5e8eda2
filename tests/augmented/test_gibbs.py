"""The Gibbs sampler against quadrature and against a sampler of another kind."""

import numpy as np
import pytest
from scipy.special import expit, log_expit, softmax

from gpflow_ilr.augmented.chains import Chains
from gpflow_ilr.augmented.convergence import effective_sample_size
from gpflow_ilr.augmented.gibbs import GibbsSampler
from gpflow_ilr.augmented.link import LogisticSoftmaxLink
from gpflow_ilr.augmented.polya_gamma import draw_polya_gamma
from tests.augmented.reference import squared_exponential, three_blobs

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
COPIES = 100


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
    size = len(y) * link.num_latent_gps
    num_nodes = {1: 100, 2: 60, 3: 40, 4: 24}[size]
    x, w = np.polynomial.hermite_e.hermegauss(num_nodes)
    nodes = np.stack(np.meshgrid(*[x] * size, indexing="ij"), -1).reshape(-1, size)
    weights = np.prod(np.stack(np.meshgrid(*[w] * size, indexing="ij"), -1), -1).reshape(-1)
    white = nodes.reshape(-1, len(y), link.num_latent_gps)
    F = mean + np.einsum("nm,sml->snl", np.linalg.cholesky(K), white)
    likelihood = np.prod(class_probabilities(link, F)[:, np.arange(len(y)), y], axis=1)
    weights = weights * likelihood / np.sum(weights * likelihood)
    return weights @ statistics(link, F)


def many_copies(link, K, y, mean=0.0, shared=True):
    """A sampler of independent copies of one small problem: each sweep draws from all of them."""
    K = np.kron(np.eye(COPIES), np.array(K))[None]
    labels = np.tile(y, COPIES)
    K = K if shared else np.repeat(K, link.num_latent_gps, axis=0)
    return GibbsSampler(link, labels, K, np.full((len(labels), link.num_latent_gps), mean))


def largest_z(sampler, expected, num_rows, num_sweeps=200, num_burnin=50):
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


@pytest.mark.parametrize(
    ("name", "moves"),
    [
        ("LSM scaled", ["draw_jointly"]),
        ("LSM scaled", ["draw_in_turn"]),
        ("LSM two points", ["draw_in_turn", "shift_together"]),
        ("BSM scaled", ["draw_jointly"]),
        ("BSM two points", ["draw_in_turn"]),
    ],
)
def test_every_move_has_the_posterior_by_itself(name, moves, monkeypatch):
    def sweep(self, F, rng):
        for move in moves:
            F = getattr(self, move)(F, rng)
        return F

    monkeypatch.setattr(GibbsSampler, "sweep", sweep)
    link, K, y = PROBLEMS[name]
    expected = posterior_by_quadrature(link, K, y, 0.0)
    assert largest_z(many_copies(link, K, y), expected, len(y)) < 4


def test_further_moves_free_latents_that_joint_draws_hold_fast(monkeypatch):
    """With a wide kernel: effective sizes 120 to 180 of 1000 against 4 to 7, over three seeds."""
    X, y = three_blobs(num_rows=30)
    K = squared_exponential(X, X, 50.0, 3.0) + 5e-5 * np.eye(30)
    sampler = GibbsSampler(LogisticSoftmaxLink.logistic(3), y, K[None], np.zeros((30, 3)))

    def smallest_size():
        chains = Chains(sampler, num_chains=2)
        chains.discard(100)
        chains.extend(500)
        return np.min(effective_sample_size(chains.samples))

    with_all_moves = smallest_size()
    monkeypatch.setattr(GibbsSampler, "sweep", GibbsSampler.draw_jointly)
    assert with_all_moves > 5 * smallest_size()


def test_separate_kernels_have_the_posterior_of_a_shared_one():
    link, K, y = PROBLEMS["LSM two points"]
    expected = posterior_by_quadrature(link, K, y, 0.0)
    assert largest_z(many_copies(link, K, y, shared=False), expected, len(y)) < 4


def test_posterior_moments_equal_quadrature_with_a_prior_mean():
    link, K, y = PROBLEMS["LSM"]
    expected = posterior_by_quadrature(link, K, y, -1.0)
    assert largest_z(many_copies(link, K, y, mean=-1.0), expected, len(y)) < 4


def log_scores(link, F):
    """Log w_k σ(f_k) of every class, where σ underflows too: [..., K]."""
    scores = np.log(link.weights) + log_expit(F)
    fixed = np.full((*F.shape[:-1], link.num_classes - link.num_latent_gps), link.offset)
    return np.concatenate([scores, np.log(fixed)], axis=-1)


WIDE = np.array([[1.0, 0.5], [0.5, 1.0]])


@pytest.mark.parametrize("variance", [2e5, 1e6, 1e10])
@pytest.mark.parametrize("name", ["logistic", "bijective"])
def test_probabilities_under_a_kernel_of_large_variance_are_those_of_weighted_prior_draws(
    name, variance, rng
):
    link, y = getattr(LogisticSoftmaxLink, name)(3), [0, 1]
    draws = np.linalg.cholesky(variance * WIDE) @ rng.standard_normal((200_000, 2, 3))
    p = softmax(log_scores(link, draws[..., : link.num_latent_gps]), axis=-1)
    weights = np.prod(p[:, [0, 1], y], axis=1)
    expected = np.einsum("s,snk->nk", weights / np.sum(weights), p)
    chains = Chains(many_copies(link, variance * WIDE, y), num_chains=1, seed=1)
    chains.discard(100)
    chains.extend(400)
    F = chains.samples[0].reshape(400, COPIES, 2, -1)
    per_copy = softmax(log_scores(link, F), axis=-1).mean(axis=0)
    error = per_copy.std(axis=0, ddof=1) / np.sqrt(COPIES)
    assert np.max(error) < 0.025
    of_weights = 0.5 * np.sqrt(np.sum(weights**2)) / np.sum(weights)
    assert np.max(np.abs(per_copy.mean(axis=0) - expected) / np.hypot(error, of_weights)) < 4


@pytest.mark.parametrize("name", ["LSM", "BSM"])
def test_the_comparison_would_notice_a_wrong_conditional(name):
    """Counts from σ(+f), as one published package has them, are off by over ten standard errors."""
    link, K, y = PROBLEMS[name]

    class WrongSampler(GibbsSampler):
        def sweep(self, F, rng):
            r, d = np.array(self.link.weights), self.link.offset
            n = rng.poisson(rng.exponential(1 / (d + expit(F) @ r))[:, None] * r * expit(F))
            omega, kappa = draw_polya_gamma(self.Y + n, F, rng), (self.Y - n) / 2
            draws = [self.draw_latent(j, kappa[:, j], omega[:, j], rng) for j in range(len(r))]
            return np.stack(draws, axis=1)

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
    for j in range(2):
        draws = [sampler.draw_latent(j, kappa[:, j], omega[:, j], rng) for _ in range(10_000)]
        S = np.linalg.inv(np.linalg.inv(K) + np.diag(omega[:, j]))
        expected = S @ (kappa[:, j] + np.linalg.solve(K, mean[:, j]))
        centred = np.array(draws) - expected
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
    sampler = GibbsSampler(link, y, K[None], np.zeros((len(y), link.num_latent_gps)))
    chains = Chains(sampler, num_chains=2)
    chains.discard(200)
    chains.extend(800)
    slices = [elliptical_slice_chain(sampler, y, 6000, rng)[240:] for _ in range(2)]
    estimates, errors = [], []
    for samples in (chains.samples, np.array(slices)):
        p = class_probabilities(link, samples)
        estimates.append(p.mean(axis=(0, 1)))
        errors.append(p.std(axis=(0, 1)) / np.sqrt(effective_sample_size(p)))
    difference, error = estimates[0] - estimates[1], np.hypot(*errors)
    assert np.sqrt(np.mean(error**2)) < 0.02
    assert np.sqrt(np.mean((difference / error) ** 2)) < 1.5
    assert np.max(np.abs(difference / error)) < 4.5


def test_an_indefinite_kernel_matrix_is_refused_with_a_remedy():
    link = LogisticSoftmaxLink.logistic(2)
    with pytest.raises(ValueError, match="not positive definite"):
        GibbsSampler(link, np.array([0, 1]), np.array([[[1.0, 2.0], [2.0, 1.0]]]), np.zeros((2, 2)))


def test_latents_far_below_zero_do_not_break_a_sweep(rng):
    K, y = blobs(rng, per_class=4)
    sampler = GibbsSampler(LogisticSoftmaxLink.logistic(3), y, K[None], np.zeros((12, 3)))
    F = sampler.sweep(np.full((12, 3), -500.0), rng)
    assert np.all(np.isfinite(F))


def test_latents_that_are_not_finite_are_refused(rng):
    sampler = GibbsSampler(
        LogisticSoftmaxLink.logistic(2), np.arange(2), np.eye(2)[None], np.zeros((2, 2))
    )
    with pytest.raises(ValueError, match="latents that are not finite"):
        sampler.sweep(np.array([[0.0, np.nan], [1.0, 2.0]]), rng)
