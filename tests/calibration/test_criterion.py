"""Claims about the NLL of held-out labels as a function of the sharpness."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from gpflow_ilr.calibration import criterion as module
from gpflow_ilr.calibration.criterion import Marginals, MeanNLL, label_nll
from gpflow_ilr.calibration.search import SMOOTHING_BOUNDS
from gpflow_ilr.codes import ILRCode, sharpness_of
from gpflow_ilr.expectations import Sobol, expected_softmax
from tests.calibration.held_out import draw, link_of, mean_nll, sharpness_grid


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
    np.testing.assert_allclose(nll, expected, atol=1e-9)


@pytest.mark.parametrize("sharpness", [1.0, 12.0, 60.0])
def test_nll_of_two_classes_is_right_for_wide_latents(sharpness: float) -> None:
    held_out, link = draw(2, 20, 2.0), link_of(2)
    f = held_out.mean.numpy() + np.sqrt(held_out.variance) * np.linspace(-9.0, 9.0, 20_001)
    weights = np.exp(-0.5 * np.linspace(-9.0, 9.0, 20_001) ** 2)
    pi = scipy.special.softmax(sharpness * f[:, :, None] * link.numpy()[:, 0], axis=2)
    p = np.einsum("s,nsk->nk", weights / weights.sum(), pi)[np.arange(20), held_out.labels]
    nll = label_nll(held_out, link, tf.constant(sharpness, tf.float64))
    np.testing.assert_allclose(nll, -np.log(p), atol=1e-9)
    assert MeanNLL(held_out, link)(sharpness) == pytest.approx(-np.log(p).mean(), abs=1e-9)


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
    assert np.all(nll > 1e6)  # no floor: a better prediction has a better NLL
    sharpness = sharpness_of(SMOOTHING_BOUNDS[1], 3)
    assert MeanNLL(wrong, link)(sharpness) == pytest.approx(np.mean(nll), rel=1e-9)


def held_out_case(K: int, separate: bool, soft: bool, num_rows: int) -> Marginals:
    """Predictions with a variance for each output or for all, and classes or distributions."""
    held_out, rng = draw(K, num_rows, 3.0), np.random.default_rng(1)
    if separate:
        variance = rng.uniform(0.01, 0.5, size=(num_rows, K - 1))
        held_out = held_out._replace(variance=tf.constant(variance))
    if soft:
        held_out = held_out._replace(labels=tf.constant(rng.dirichlet(np.ones(K), size=num_rows)))
    return held_out


def nodes_or_scales(K: int) -> int:
    if K == 2:
        return module.NUM_SCALES
    return int(module.search_nodes(K - 1, 40)(K - 1, tf.float64)[1].shape[0])


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


# Rows are held in memory or not, and come all at once, one by one, or in uneven chunks.
@MARGINALS
@pytest.mark.parametrize("kept", [0, 10**9])
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_mean_nll_does_not_depend_on_what_is_kept(
    K: int, separate: bool, soft: bool, kept: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_out, link = held_out_case(K, separate, soft, 40), link_of(K)
    sharpnesses = np.array([0.3, 3.0])
    expected = [mean_nll(held_out, link, L) for L in sharpnesses]
    num_nodes = nodes_or_scales(K)
    monkeypatch.setattr(module, "_KEPT_ELEMENTS", kept)
    monkeypatch.setattr(module, "_CHUNK_ELEMENTS", rows * num_nodes * K)
    visits = []
    name = "log_odds" if K == 2 else "logits_at_nodes"
    original = getattr(module, name)

    def counted(mean: tf.Tensor, *arguments: object) -> tuple[tf.Tensor, tf.Tensor]:
        visits.append(mean.shape[0])
        return original(mean, *arguments)

    monkeypatch.setattr(module, name, counted)
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
    num_nodes = nodes_or_scales(K)
    monkeypatch.setattr(module, "_CHUNK_ELEMENTS", at_a_time * 40 * num_nodes * K)
    np.testing.assert_allclose(MeanNLL(held_out, link).at(grid), expected, rtol=1e-12)
