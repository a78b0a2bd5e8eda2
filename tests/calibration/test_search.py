"""Claims about choosing the sharpness, and the noise, from held-out predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gpflow
import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.special
import tensorflow as tf

from gpflow_ilr.calibration.criterion import LeftOutAtNoise, Marginals, MeanNLL
from gpflow_ilr.calibration.search import (
    FLAT_NLL,
    NEIGHBOUR_COUNTS,
    NOISE_FACTOR,
    SMOOTHING_BOUNDS,
    choose_neighbours,
    choose_noise,
    choose_sharpness,
    noise_at_limit,
    sharpness_at_limit,
)
from gpflow_ilr.codes import ILRCode, sharpness_of, smoothing_of
from tests.calibration.held_out import draw, link_of, mean_nll, sharpness_grid


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


class Wide:
    """Two classes: as many rows whose log-odds are certain as rows where they are anything.

    The certain ones want an L of about 14, at which the others' standard deviations are as given.
    """

    def __init__(self, sd: float, num_rows: int = 60) -> None:
        rng = np.random.default_rng(0)
        self.contrast = float(link_of(2)[1, 0] - link_of(2)[0, 0])
        self.sd = np.where(np.arange(num_rows) % 2, sd / (14.0 * abs(self.contrast)), 1e-3)
        self.mean = rng.normal(size=num_rows) * np.maximum(self.sd, 0.1)
        odds = 14.0 * self.contrast * (self.mean + self.sd * rng.normal(size=num_rows))
        self.labels = (rng.uniform(size=num_rows) < scipy.special.expit(odds)).astype(np.int32)
        mean, variance = tf.constant(self.mean[:, None]), tf.constant(self.sd[:, None] ** 2)
        self.marginals = Marginals(mean, variance, tf.constant(self.labels))

    def nll(self, L: float) -> float:
        """By SciPy's adaptive quadrature, from outside of the package."""
        scale = L * self.contrast * np.where(self.labels, 1.0, -1.0)

        def integrand(g: float) -> np.ndarray:
            p = scipy.special.expit(scale * (self.mean + self.sd * g))
            return p * np.exp(-0.5 * g**2) / np.sqrt(2.0 * np.pi)

        steps = np.clip(-self.mean / self.sd, -10.0, 10.0)  # where a row's σ rises
        p, _ = scipy.integrate.quad_vec(integrand, -10.0, 10.0, epsabs=1e-11, points=steps)
        return float(-np.mean(np.log(p)))


@pytest.mark.parametrize("sd", [7.5, 20.0, 30.0])
def test_sharpness_of_wide_latents_of_two_classes_is_that_of_quadrature(sd: float) -> None:
    wide = Wide(sd)
    criterion = MeanNLL(wide.marginals, link_of(2))
    for L in (1.0, 7.0, 14.0, 20.0):
        assert criterion(L) == pytest.approx(wide.nll(L), rel=0, abs=1e-9)
    L, nll = choose_sharpness(criterion)
    best = scipy.optimize.minimize_scalar(
        lambda log_L: wide.nll(np.exp(log_L)), bounds=np.log([3.0, 20.7]), method="bounded"
    )
    assert 5.0 < L < 20.0  # not at its bound
    assert nll < best.fun + 1e-6
    assert abs(np.log(L) - best.x) < 4e-3


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


class Regression:
    """Leave-one-out predictions of exact GP regression on ILR codewords, for any noise."""

    def __init__(self, flipped: float, num_rows: int = 50) -> None:
        rng = np.random.default_rng(0)
        X = np.sort(rng.uniform(-3, 3, size=(num_rows, 1)), axis=0)
        self.y = (np.floor(X[:, 0]) % 3).astype(int)
        self.y[: int(flipped * num_rows)] = rng.integers(3, size=int(flipped * num_rows))
        self.K = gpflow.kernels.SquaredExponential(0.3, 0.5)(X).numpy()
        self.visited: list[float] = []

    def __call__(self, noises: Sequence[float]) -> list[Marginals]:
        return [self.at(noise) for noise in noises]

    def at(self, noise: float) -> Marginals:
        self.visited.append(noise)
        targets = ILRCode(3).targets.numpy()[self.y]
        C = np.linalg.inv(self.K + noise * np.eye(len(self.y)))
        precision = np.diag(C)[:, None]
        mean, variance = targets - C @ targets / precision, 1 / precision - noise
        return Marginals(tf.constant(mean), tf.constant(variance), tf.constant(self.y, tf.int32))


@pytest.mark.parametrize("start", [3e-3, 0.02, 0.3])
def test_chosen_noise_is_the_best_of_a_grid_and_takes_few_predictions(start: float) -> None:
    regression, link = Regression(flipped=0.6), link_of(3)
    noise, L, nll, flat = choose_noise(regression, link, start)
    assert not flat
    assert len(regression.visited) <= 9
    assert all(0.99 / NOISE_FACTOR < x / start < 1.01 * NOISE_FACTOR for x in regression.visited)
    assert noise in regression.visited
    assert nll == pytest.approx(mean_nll(regression.at(noise), link, L), rel=1e-12)
    grid = np.geomspace(start / NOISE_FACTOR, start * NOISE_FACTOR, 8)
    values = [choose_sharpness(MeanNLL(regression.at(x), link))[1] for x in grid]
    # Labels of which most are random want noise, but not the most there is.
    assert 0.02 < noise < 2.0
    # The search stops where a parabola promises less than 1e-4.
    assert nll < min(values) + 1e-4


def falling(slope: float) -> LeftOutAtNoise:
    """Predictions with errors that grow as some power of the noise."""
    held_out = draw(3, 200, 3.0)
    errors = tf.constant(np.random.default_rng(1).standard_normal(held_out.mean.shape))

    def at(noise: float) -> Marginals:
        return held_out._replace(mean=held_out.mean + errors * (noise / 1e-3) ** slope)

    return lambda noises: [at(noise) for noise in noises]


def test_where_the_criterion_levels_off_the_largest_noise_that_is_as_good_is_taken() -> None:
    predictions, link, start = falling(slope=2.0), link_of(3), 1e-3
    chosen = choose_noise(predictions, link, start)
    assert chosen.flat
    assert not noise_at_limit(chosen.noise, start)
    least = choose_sharpness(MeanNLL(*predictions([start / NOISE_FACTOR]), link))[1]
    assert least < chosen.nll < least + FLAT_NLL
    more = choose_sharpness(MeanNLL(*predictions([chosen.noise * 10]), link))[1]
    assert more > least + FLAT_NLL


def test_a_criterion_that_falls_all_the_way_is_followed_to_the_end_of_the_range() -> None:
    start = 1e-3
    chosen = choose_noise(falling(slope=0.1), link_of(3), start)
    assert not chosen.flat
    assert noise_at_limit(chosen.noise, start)


class Neighbours:
    """Predictions with errors that depend on the number of neighbours."""

    def __init__(self, error: Callable[[int], float]) -> None:
        self.error, self.held_out = error, draw(3, 60, 3.0)
        self.errors = np.random.default_rng(1).standard_normal(self.held_out.mean.shape)
        self.asked: list[list[int]] = []

    def at(self, m: int) -> Marginals:
        return self.held_out._replace(mean=self.held_out.mean + self.error(m) * self.errors)

    def __call__(self, counts: Sequence[int]) -> list[Marginals]:
        self.asked.append(list(counts))
        return [self.at(m) for m in counts]

    def best_of(self, counts: Sequence[int]) -> int:
        nll = {m: choose_sharpness(MeanNLL(self.at(m), link_of(3)))[1] for m in counts}
        return min(m for m in counts if nll[m] <= min(nll.values()) + FLAT_NLL)


ALL = list(NEIGHBOUR_COUNTS)


@pytest.mark.parametrize("best", ALL)
def test_chosen_neighbours_are_the_best_inside_and_at_the_ends(best: int) -> None:
    predictions = Neighbours(lambda m: 0.3 * abs(np.log2(m / best)))
    assert choose_neighbours(predictions, link_of(3), 1000, 64) == best
    # Those that cost more are asked for only where the last one was the best.
    assert predictions.asked == [ALL[:5], *([[256]] if best >= 128 else [])]


def test_of_numbers_that_are_as_good_the_smallest_is_taken() -> None:
    assert choose_neighbours(Neighbours(lambda m: 0.0), link_of(3), 1000, 64) == 8
    level = Neighbours(lambda m: max(0.0, 0.5 - m / 64))
    assert choose_neighbours(level, link_of(3), 1000, 64) == level.best_of(ALL) == 32


@pytest.mark.parametrize(
    ("num_rows", "present", "asked"),
    [
        (1, 64, [1]),
        (5, 64, [4]),
        (5, 2, [2]),
        (17, 64, [8, 16]),
        (18, 64, [8, 16, 17]),
        (1000, 40, [8, 16, 32, 40, 64, 128]),
        (1000, 300, [8, 16, 32, 64, 128, 256, 300]),
    ],
)
def test_the_present_number_is_tried_and_none_beyond_the_rows(num_rows, present, asked) -> None:
    predictions = Neighbours(lambda m: 0.5 * abs(np.log2(m / present)))
    chosen = choose_neighbours(predictions, link_of(3), num_rows, present)
    assert predictions.asked[0] == asked
    assert chosen == predictions.best_of(asked) == min(present, asked[-1])


@pytest.mark.parametrize("K", [2, 5])
def test_the_ends_of_the_range_of_the_smoothing_are_told_apart(K: int) -> None:
    low, high = (sharpness_of(value, K) for value in SMOOTHING_BOUNDS)
    assert all(sharpness_at_limit(L, K) for L in (low, 1.002 * low, high / 1.002, high))
    assert not any(
        sharpness_at_limit(L, K) for L in (1.02 * low, sharpness_of(0.9, K), high / 1.02)
    )


def test_the_ends_of_the_range_of_the_noise_are_told_apart() -> None:
    assert all(
        noise_at_limit(0.02 * factor, 0.02) for factor in (1.05 / NOISE_FACTOR, NOISE_FACTOR)
    )
    assert not any(noise_at_limit(0.02 * factor, 0.02) for factor in (0.02, 1.0, 50.0))
