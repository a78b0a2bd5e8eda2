"""Prediction sets from scores: which classes are in them, and how often the true one is."""

import numpy as np
import pytest
from scipy.stats import betabinom

from gpflow_ilr.calibration.prediction_sets import (
    KnownScores,
    check_level,
    check_score,
    class_scores,
    sets_by_each_row,
    sets_by_rank,
)

P = np.array([[0.5, 0.2, 0.3], [0.1, 0.1, 0.8]])


def known(scores, labels=None):
    labels = np.zeros(len(scores), int) if labels is None else np.asarray(labels)
    return KnownScores(np.asarray(scores, float), labels)


def test_plain_scores_are_what_is_left_of_one():
    np.testing.assert_allclose(class_scores(P, "plain"), 1.0 - P)


def test_adaptive_scores_are_the_mass_of_more_probable_classes():
    expected = [[0.0, 0.8, 0.5], [0.8, 0.9, 0.0]]  # of equal ones the first is the more probable
    np.testing.assert_allclose(class_scores(P, "adaptive"), expected)
    np.testing.assert_allclose(class_scores(P[:, None], "adaptive"), np.array(expected)[:, None])


def test_drawn_scores_have_a_share_of_the_class_itself():
    u = np.array([0.25, 1.0])
    ours = class_scores(P, "adaptive", u)
    np.testing.assert_allclose(ours, class_scores(P, "adaptive") + u[:, None] * P)


def test_true_classes_have_a_uniform_drawn_score():
    """If labels have the predicted probabilities, coverage of {k: score ≤ q} is q for every q."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet([0.3, 0.5, 1.0], size=20_000)
    y = (rng.random((len(p), 1)) > p.cumsum(axis=1)).sum(axis=1)
    scores = KnownScores.of(class_scores(p, "adaptive", rng.random(len(p))), y).scores
    distance = np.abs(np.sort(scores) - (np.arange(len(p)) + 0.5) / len(p)).max()
    assert distance < 1.63 / np.sqrt(len(p))  # Kolmogorov and Smirnov, one in a hundred


@pytest.mark.parametrize(
    ("num_rows", "level", "rank"),
    [(9, 0.9, 9), (10, 0.9, 10), (19, 0.9, 18), (20, 0.9, 19), (99, 0.55, 55), (3, 0.1, 1)],
)
def test_the_threshold_is_the_finite_sample_rank(num_rows, level, rank):
    scores = np.random.default_rng(num_rows).permutation(num_rows) + 1.0  # 1, …, N
    at, above = sets_by_rank(np.array([[float(rank)], [rank + 0.5]]), known(scores), level)
    assert at[0]
    assert not above[0]


def test_too_few_rows_for_the_level_leave_every_class_in_every_set():
    worst = np.full((2, 4), 1e9)
    assert np.all(sets_by_rank(worst, known(np.zeros(8)), 0.9))
    assert not np.any(sets_by_rank(worst, known(np.zeros(9)), 0.9))
    each = np.full((2, 8, 4), 1e9)
    assert np.all(sets_by_each_row(each, known(np.zeros(8)), 0.9))
    assert not np.any(sets_by_each_row(np.full((2, 9, 4), 1e9), known(np.zeros(9)), 0.9))


def test_class_conditional_sets_compare_with_rows_of_the_class():
    rng = np.random.default_rng(1)
    scores, labels = rng.random(60), rng.integers(0, 3, 60)
    new = rng.random((50, 3))
    ours = sets_by_rank(new, known(scores, labels), 0.8, class_conditional=True)
    for k in range(3):
        alone = sets_by_rank(new[:, [k]], known(scores[labels == k]), 0.8)
        np.testing.assert_array_equal(ours[:, [k]], alone)


def test_a_class_of_too_few_rows_is_in_every_class_conditional_set():
    labels = np.repeat([0, 1], [30, 8])  # and none of class 2
    sets = sets_by_rank(np.full((1, 3), 1e9), known(np.zeros(38), labels), 0.9, True)
    np.testing.assert_array_equal(sets, [[False, True, True]])


@pytest.mark.parametrize("class_conditional", [False, True])
def test_where_no_row_makes_a_difference_each_row_says_what_the_rank_says(class_conditional):
    rng = np.random.default_rng(2)
    rows = known(rng.random(40), rng.integers(0, 3, 40))
    new = rng.random((30, 3))
    each = np.repeat(new[:, None], 40, axis=1)
    np.testing.assert_array_equal(
        sets_by_each_row(each, rows, 0.75, class_conditional),
        sets_by_rank(new, rows, 0.75, class_conditional),
    )


@pytest.mark.parametrize("num_rows", [12, 45])
def test_coverage_is_the_level_for_exchangeable_scores(num_rows):
    """Over many draws of known and new rows the coverage is r/(N + 1): no less, and no more."""
    rng = np.random.default_rng(3)
    level, draws, new_rows = 0.8, 400, 25
    covered = 0
    for _ in range(draws):
        scores = rng.standard_normal(num_rows + new_rows)
        sets = sets_by_rank(scores[num_rows:, None], known(scores[:num_rows]), level)
        covered += np.count_nonzero(sets)
    rank = int(np.ceil(level * (num_rows + 1)))
    # Covered rows of one draw are beta-binomial: their new rows share the known ones.
    one = betabinom(new_rows, rank, num_rows + 1 - rank)
    assert abs(covered - draws * one.mean()) < 2.6 * np.sqrt(draws * one.var())


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 90, np.nan])
def test_a_level_that_no_set_can_have_is_refused(level):
    with pytest.raises(ValueError, match=r"level must lie .* but is .*Use 0\.9"):
        check_level(level)


def test_an_unknown_score_and_a_seed_without_draws_are_refused():
    with pytest.raises(ValueError, match=r"score must be 'adaptive' or 'plain', but is 'aps'"):
        check_score("aps")
    with pytest.raises(ValueError, match=r"seed=3 is of adaptive scores.* Leave it out"):
        check_score("plain", 3)
    check_score("adaptive", 3)
