"""Claims about choosing the sharpness, and the noise, from held-out predictions."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from gpflow_ilr.calibration import criterion as module
from gpflow_ilr.calibration.criterion import (
    NOISE_FACTOR,
    SMOOTHING_BOUNDS,
    Marginals,
    MeanNLL,
    choose_noise,
    choose_sharpness,
    label_nll,
)
from gpflow_ilr.codes import ILRCode, sharpness_of, smoothing_of
from gpflow_ilr.expectations import Sobol, expected_softmax


def link_of(K: int) -> tf.Tensor:
    return ILRCode(K).link


def mean_nll(held_out: Marginals, link: tf.Tensor, sharpness: float) -> float:
    return float(tf.reduce_mean(label_nll(held_out, link, tf.constant(sharpness, link.dtype))))


def sharpness_grid(K: int, size: int) -> np.ndarray:
    return np.geomspace(*(sharpness_of(value, K) for value in SMOOTHING_BOUNDS), size)


def draw(K: int, num_rows: int, sharpness: float, seed: int = 0) -> Marginals:
    """Predictions that are right: f is drawn from them, and labels from softmax(L C f)."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(num_rows, K - 1))
    variance = rng.uniform(0.01, 0.3, size=(num_rows, 1))
    f = mean + np.sqrt(variance) * rng.normal(size=mean.shape)
    pi = scipy.special.softmax(sharpness * f @ link_of(K).numpy().T, axis=1)
    labels = np.argmax(np.cumsum(pi, axis=1) > rng.uniform(size=(num_rows, 1)), axis=1)
    return Marginals(tf.constant(mean), tf.constant(variance), tf.constant(labels, tf.int32))


# --- The criterion ------------------------------------------------------------------------------


@pytest.mark.parametrize("sharpness", [0.01, 0.5, 1.0])
def test_nll_of_two_classes_is_the_integral(sharpness: float) -> None:
    held_out, link = draw(2, 20, 2.0), link_of(2)
    nll = label_nll(held_out, link, tf.constant(sharpness, tf.float64))
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    f = held_out.mean.numpy() + np.sqrt(held_out.variance) * nodes  # [20, 200]
    logits = sharpness * f[:, :, None] * link.numpy()[:, 0]
    pi = np.einsum("s,nsk->nk", weights / weights.sum(), scipy.special.softmax(logits, axis=2))
    expected = -np.log(pi[np.arange(20), held_out.labels])
    assert nll.shape == (20,)
    # 32 nodes instead of 200, for logits with standard deviations up to √2 √0.3 = 0.8.
    np.testing.assert_allclose(nll, expected, atol=1e-9)


def test_errors_of_the_searchs_nodes_average_out_over_rows() -> None:
    held_out, link, L = draw(3, 400, 4.0), link_of(3), 4.0
    p = expected_softmax(L * held_out.mean, L**2 * held_out.variance, link, Sobol(1024)).numpy()
    exact = -np.log(p[np.arange(400), held_out.labels])
    nll = label_nll(held_out, link, tf.constant(L, tf.float64)).numpy()
    errors = nll - exact
    assert abs(errors.mean()) < 4 * errors.std() / np.sqrt(400)
    assert abs(errors.mean()) < 1e-3


@pytest.mark.parametrize("K", [2, 4])
def test_nll_of_certain_predictions_is_that_of_the_softmax(
    K: int, rng: np.random.Generator
) -> None:
    mean, link = rng.normal(size=(6, K - 1)), link_of(K)
    log_pi = scipy.special.log_softmax(3.0 * mean @ link.numpy().T, axis=1)
    hard, soft = rng.integers(K, size=6), rng.dirichlet(np.ones(K), size=6)
    for labels, rows in [(tf.constant(hard, tf.int32), np.eye(K)[hard]), (tf.constant(soft), soft)]:
        held_out = Marginals(tf.constant(mean), tf.zeros([6, 1], tf.float64), labels)
        nll = label_nll(held_out, link, tf.constant(3.0, tf.float64))
        # A variance of zero is raised to the rounding error of one: √ε times the slope of nodes.
        np.testing.assert_allclose(nll, -np.sum(rows * log_pi, axis=1), atol=1e-12)


def test_outputs_may_share_their_variance() -> None:
    shared = draw(4, 30, 3.0)
    repeated = shared._replace(variance=tf.repeat(shared.variance, 3, axis=1))
    L = tf.constant(3.0, tf.float64)
    np.testing.assert_allclose(
        label_nll(shared, link_of(4), L), label_nll(repeated, link_of(4), L), rtol=1e-12
    )


def test_nll_of_a_hopeless_prediction_is_large_but_finite() -> None:
    link = link_of(3)
    wrong = Marginals(-1e6 * ILRCode(3).targets, tf.zeros([3, 1], tf.float64), tf.range(3))
    nll = label_nll(wrong, link, tf.constant(sharpness_of(SMOOTHING_BOUNDS[1], 3), tf.float64))
    assert np.isfinite(nll).all()
    assert np.all(nll > 500)


def held_out_case(K: int, separate: bool, soft: bool, num_rows: int) -> Marginals:
    """Predictions with a variance for each output or for all, and classes or distributions."""
    held_out, rng = draw(K, num_rows, 3.0), np.random.default_rng(1)
    if separate:
        variance = rng.uniform(0.01, 0.5, size=(num_rows, K - 1))
        held_out = held_out._replace(variance=tf.constant(variance))
    if soft:
        held_out = held_out._replace(labels=tf.constant(rng.dirichlet(np.ones(K), size=num_rows)))
    return held_out


MARGINALS = pytest.mark.parametrize(
    ("K", "separate", "soft"),
    [(2, False, False), (3, False, True), (3, True, False), (6, False, False), (6, True, True)],
)


@MARGINALS
def test_mean_nll_is_the_mean_of_the_labels_nll_for_every_sharpness(
    K: int, separate: bool, soft: bool
) -> None:
    held_out, link = held_out_case(K, separate, soft, 40), link_of(K)
    nll = MeanNLL(held_out, link)
    for L in [*sharpness_grid(K, 5), 0.0, 1.0]:
        expected = mean_nll(held_out, link, L)
        assert nll(L) == pytest.approx(expected, rel=1e-12)
        assert nll(tf.constant(L, tf.float64)) == nll(L)
    assert isinstance(nll(1.0), float)


def test_a_sharpness_of_python_is_not_rounded_to_single_precision() -> None:
    held_out, link = draw(3, 40, 3.0), link_of(3)
    assert MeanNLL(held_out, link)(0.3) == pytest.approx(mean_nll(held_out, link, 0.3), rel=1e-12)


# Rows are held in memory or not, and come all at once, one by one, or in uneven blocks.
@MARGINALS
@pytest.mark.parametrize("kept", [0, 10**9])
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_mean_nll_does_not_depend_on_what_is_kept(
    K: int, separate: bool, soft: bool, kept: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_out, link = held_out_case(K, separate, soft, 40), link_of(K)
    sharpnesses = np.array([0.3, 3.0])
    expected = [mean_nll(held_out, link, L) for L in sharpnesses]
    num_nodes = module.search_nodes(K - 1, 40)(K - 1, tf.float64)[1].shape[0]
    monkeypatch.setattr(module, "_KEPT_ELEMENTS", kept)
    monkeypatch.setattr(module, "_BLOCK_ELEMENTS", rows * num_nodes * K)
    visits = []
    original = module.logits_at_nodes

    def counted(mean: tf.Tensor, *arguments: object) -> tuple[tf.Tensor, tf.Tensor]:
        visits.append(mean.shape[0])
        return original(mean, *arguments)

    monkeypatch.setattr(module, "logits_at_nodes", counted)
    nll = MeanNLL(held_out, link)
    assert [nll(L) for L in sharpnesses] == pytest.approx(expected, rel=1e-12)
    # Once for all L, or once for each.
    assert max(visits) == rows
    assert sum(visits) == (40 if kept else 80)


@MARGINALS
@pytest.mark.parametrize("at_a_time", [1, 3, 100])
def test_many_sharpnesses_at_once_equal_one_after_the_other(
    K: int, separate: bool, soft: bool, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_out, link = held_out_case(K, separate, soft, 40), link_of(K)
    grid = sharpness_grid(K, 7)
    expected = [mean_nll(held_out, link, L) for L in grid]
    num_nodes = module.search_nodes(K - 1, 40)(K - 1, tf.float64)[1].shape[0]
    monkeypatch.setattr(module, "_BLOCK_ELEMENTS", at_a_time * 40 * num_nodes * K)
    np.testing.assert_allclose(MeanNLL(held_out, link).at(grid), expected, rtol=1e-12)


# --- Sharpness ----------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [2, 3, 6])
def test_chosen_sharpness_is_the_best_of_a_dense_grid(K: int) -> None:
    held_out, link = draw(K, 200, 3.0), link_of(K)
    L, nll = choose_sharpness(MeanNLL(held_out, link))
    grid = sharpness_grid(K, 60)
    values = np.array([mean_nll(held_out, link, x) for x in grid])
    best, step = int(np.argmin(values)), np.log(grid[1] / grid[0])
    assert nll == pytest.approx(mean_nll(held_out, link, L), rel=1e-12)
    # At most a search tolerance of 2e-3 in log L from the minimum, where the NLL is flat.
    assert nll < values[best] + 1e-5
    assert abs(np.log(L / grid[best])) < step + 4e-3


def test_chosen_sharpness_recovers_the_one_that_made_the_labels() -> None:
    held_out, link = draw(3, 2000, 4.0), link_of(3)
    L, nll = choose_sharpness(MeanNLL(held_out, link))
    # Standard error of a maximum-likelihood estimate of log L: one over the root of the curvature.
    h = 0.05
    ends = [mean_nll(held_out, link, L * np.exp(s * h)) for s in (-1, 1)]
    information = 2000 * (ends[0] + ends[1] - 2 * nll) / h**2
    assert abs(np.log(L / 4.0)) < 4 / np.sqrt(information)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("variance", [0.0, 1e-4, 1e-2])
def test_separable_data_get_the_bound(K: int, variance: float) -> None:
    y = np.arange(30) % K
    mean = tf.gather(ILRCode(K).targets, y)
    variances = tf.fill([30, 1], tf.constant(variance, tf.float64))
    L, nll = choose_sharpness(
        MeanNLL(Marginals(mean, variances, tf.constant(y, tf.int32)), link_of(K))
    )
    bound = sharpness_of(SMOOTHING_BOUNDS[1], K)
    assert np.log(bound / L) == pytest.approx(0, abs=1e-12)  # the NLL falls all the way
    assert 0 <= nll < 1e-3
    assert 0 < smoothing_of(L, K) < 1


@pytest.mark.parametrize(("wide", "spread", "narrow"), [(0.7, 0.25, 0.08), (10.0, 5.0, 0.3)])
def test_the_deeper_of_two_valleys_is_found(wide: float, spread: float, narrow: float) -> None:
    # Wide predictions, some of them wrong, are best at a small L; narrow ones, all right, at a large.
    mean = np.repeat([wide, narrow], 50)[:, None]
    variance = np.repeat([spread**2, (narrow / 10) ** 2], 50)[:, None]
    favoured = int(np.argmax(link_of(2)[:, 0]))
    labels = np.where(np.arange(100) < 8, 1 - favoured, favoured)
    held_out = Marginals(tf.constant(mean), tf.constant(variance), tf.constant(labels, tf.int32))
    values = [mean_nll(held_out, link_of(2), x) for x in sharpness_grid(2, 50)]
    assert choose_sharpness(MeanNLL(held_out, link_of(2)))[1] < min(values) + 1e-5


def test_a_present_sharpness_that_is_better_is_kept() -> None:
    held_out, link = draw(3, 200, 3.0), link_of(3)
    L, nll = choose_sharpness(MeanNLL(held_out, link))
    nearby = L * np.exp(np.linspace(-4e-3, 4e-3, 41))
    best = min(nearby, key=lambda x: mean_nll(held_out, link, x))
    kept, smallest = choose_sharpness(MeanNLL(held_out, link), tf.constant(best, tf.float64))
    assert kept == pytest.approx(best, rel=1e-12)
    assert smallest <= nll
    # One that is worse is not.
    assert choose_sharpness(MeanNLL(held_out, link), tf.constant(0.1, tf.float64)) == (L, nll)


def test_predictions_that_are_always_wrong_are_flattened() -> None:
    y = np.arange(30) % 3
    mean = -tf.gather(ILRCode(3).targets, y)
    held_out = Marginals(mean, tf.fill([30, 1], tf.constant(0.01, tf.float64)), tf.constant(y))
    L, nll = choose_sharpness(MeanNLL(held_out, link_of(3)))
    smallest = sharpness_of(SMOOTHING_BOUNDS[0], 3)
    assert smallest <= L < smallest * np.exp(4e-3)
    assert nll == pytest.approx(np.log(3), abs=2 * L)


def test_choice_is_deterministic_and_scales_with_the_latent() -> None:
    held_out, link = draw(3, 100, 3.0), link_of(3)
    first = choose_sharpness(MeanNLL(held_out, link))
    assert choose_sharpness(MeanNLL(held_out, link)) == first
    # f/2 wants 2 L: sharpness is a scale of the latent.
    halved = held_out._replace(mean=held_out.mean / 2, variance=held_out.variance / 4)
    L, nll = choose_sharpness(MeanNLL(halved, link))
    assert abs(np.log(L / first[0] / 2)) < 8e-3
    assert nll == pytest.approx(first[1], abs=1e-5)


def test_soft_labels_and_float32_are_welcome() -> None:
    held_out = draw(3, 100, 3.0)
    one_hot = held_out._replace(labels=tf.one_hot(held_out.labels, 3, dtype=tf.float64))
    expected = choose_sharpness(MeanNLL(held_out, link_of(3)))
    np.testing.assert_allclose(choose_sharpness(MeanNLL(one_hot, link_of(3))), expected, rtol=1e-12)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        single = Marginals(*(tf.cast(x, tf.float32) for x in held_out[:2]), held_out.labels)
        L, nll = choose_sharpness(MeanNLL(single, link_of(3)))
    assert abs(np.log(L / expected[0])) < 0.05  # where the NLL is flat to float32's rounding
    assert nll == pytest.approx(expected[1], rel=1e-5)


# --- Noise --------------------------------------------------------------------------------------


class Regression:
    """Leave-one-out predictions of exact GP regression on ILR codewords, for any noise."""

    def __init__(self, flipped: float, num_rows: int = 50) -> None:
        rng = np.random.default_rng(0)
        X = np.sort(rng.uniform(-3, 3, size=(num_rows, 1)), axis=0)
        self.y = (np.floor(X[:, 0]) % 3).astype(int)
        self.y[: int(flipped * num_rows)] = rng.integers(3, size=int(flipped * num_rows))
        self.K = gpflow.kernels.SquaredExponential(0.3, 0.5)(X).numpy()
        self.visited: list[float] = []

    def __call__(self, noise: float) -> Marginals:
        self.visited.append(noise)
        targets = ILRCode(3).targets.numpy()[self.y]
        C = np.linalg.inv(self.K + noise * np.eye(len(self.y)))
        precision = np.diag(C)[:, None]
        mean, variance = targets - C @ targets / precision, 1 / precision - noise
        return Marginals(tf.constant(mean), tf.constant(variance), tf.constant(self.y, tf.int32))


def test_chosen_noise_is_the_best_of_a_grid() -> None:
    regression, link, start = Regression(flipped=0.6), link_of(3), 0.02
    noise, L, nll = choose_noise(regression, link, start)
    assert all(0.99 / NOISE_FACTOR < x / start < 1.01 * NOISE_FACTOR for x in regression.visited)
    assert noise in regression.visited
    assert nll == pytest.approx(mean_nll(regression(noise), link, L), rel=1e-12)
    grid = np.geomspace(start / NOISE_FACTOR, start * NOISE_FACTOR, 8)
    values = [choose_sharpness(MeanNLL(regression(x), link))[1] for x in grid]
    # Labels of which most are random want noise, but not the most there is.
    assert start < noise < start * NOISE_FACTOR
    # The search stops at 0.05 in the logarithm of the noise, where the NLL is flat.
    assert nll < min(values) + 1e-4
