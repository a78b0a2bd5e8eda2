"""Claims about scaling: wild values spoil nothing, and it is the same wherever it runs."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gpflow.utilities import deepcopy
from scipy.spatial.distance import pdist
from scipy.stats import norm
from sklearn.preprocessing import QuantileTransformer

from gpflow_ilr.inputs.scaling import (
    ONE_SCALE,
    SCALINGS,
    NormalQuantiles,
    OneScale,
    Scaling,
    Standardised,
    suitable_scalings,
)

OUTER = norm.ppf(1.0 - 0.0005)


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    """A Gaussian column, one with long tails, one with few values, a constant one."""
    return np.stack(
        [
            5.0 + 3.0 * rng.normal(size=4000),
            np.exp(2.0 * rng.normal(size=4000)),
            rng.integers(0, 7, 4000).astype(float),
            np.full(4000, 2.5),
        ],
        axis=1,
    )


def test_standardised_columns_have_mean_zero_and_variance_one(X: np.ndarray) -> None:
    scaled = Standardised(X)(X).numpy()
    np.testing.assert_allclose(scaled.mean(0), 0.0, atol=1e-12)
    np.testing.assert_allclose(scaled.std(0), [1.0, 1.0, 1.0, 0.0], atol=1e-12)
    inside = np.abs(X[:, 0] - 5.0) < 6.0
    np.testing.assert_allclose(
        np.polyfit(X[inside, 0], scaled[inside, 0], 1, full=True)[1], 0.0, atol=1e-20
    )


@pytest.mark.parametrize("scaling", SCALINGS.values(), ids=SCALINGS)
def test_a_few_glitches_hardly_change_anything(scaling: type[Scaling], X: np.ndarray) -> None:
    with_glitches = X.copy()
    with_glitches[:4, 0] = 7e5
    ours, expected = (scaling(rows)(X[4:]).numpy()[:, 0] for rows in (with_glitches, X))
    assert np.corrcoef(ours, expected)[0, 1] > 0.999
    assert 0.85 < np.std(ours) / np.std(expected) < 1.15
    assert np.max(np.abs(scaling(with_glitches)(with_glitches))) < 30.0


def pixels(rng: np.random.Generator, num_rows: int = 400) -> np.ndarray:
    """Columns in one unit: four bright ones, and two borders that are dark in most rows."""
    bright = 5.0 + 3.0 * rng.normal(size=(num_rows, 4))
    border = 4.0 * (rng.random((num_rows, 2)) < 0.02)
    return np.concatenate([bright, border], axis=1)


def test_one_scale_keeps_distances_in_proportion_and_their_mean(rng: np.random.Generator) -> None:
    X = pixels(rng)
    scaled, standardised = (scaling(X)(X).numpy() for scaling in (OneScale, Standardised))
    np.testing.assert_allclose(scaled.mean(0), 0.0, atol=1e-12)
    inside = np.all(np.abs(X[:, :4] - 5.0) < 6.0, axis=1)  # where nothing was cut off
    ratio = pdist(scaled[inside]) / pdist(X[inside])
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-10)
    squares, expected = (np.mean(pdist(rows) ** 2) for rows in (scaled, standardised))
    assert squares == pytest.approx(expected)


@pytest.mark.parametrize("column", [0, 5], ids=["bright", "border"])
def test_a_glitch_in_few_rows_does_not_hide_other_columns_from_one_scale(
    column: int, rng: np.random.Generator
) -> None:
    X = pixels(rng)
    with_glitches = X.copy()
    with_glitches[:2, column] = 7e5
    others = [i for i in range(6) if i != column]
    ours, expected = (OneScale(rows)(X[2:]).numpy()[:, others] for rows in (with_glitches, X))
    ratio = np.std(ours, axis=0) / np.std(expected, axis=0)
    assert np.all((ratio > 0.7) & (ratio < 1.1))
    assert OneScale(with_glitches).is_suitable


def test_one_scale_is_for_columns_of_one_unit_that_differ(
    X: np.ndarray, rng: np.random.Generator
) -> None:
    assert set(suitable_scalings(pixels(rng))) == set(SCALINGS)
    in_other_units = pixels(rng) * [1.0, 1.0, 1000.0, 1.0, 1.0, 1.0]
    alike = rng.normal(size=(300, 5))
    one_column, constant = X[:, :1], np.ones([9, 3])
    for rows in (in_other_units, alike, one_column, constant):
        assert set(suitable_scalings(rows)) == set(SCALINGS) - {ONE_SCALE}
    np.testing.assert_array_equal(OneScale(constant)(constant), 0.0)


def test_normal_quantiles_are_those_of_scikit_learn_but_for_the_tails(X: np.ndarray) -> None:
    theirs = QuantileTransformer(n_quantiles=1000, output_distribution="normal", subsample=None)
    columns = X[:, :3]
    expected = theirs.fit_transform(columns)
    ours = NormalQuantiles(columns)(columns).numpy()
    np.testing.assert_allclose(ours[:, :2], np.clip(expected[:, :2], -OUTER, OUTER), atol=1e-6)
    inner = (columns[:, 2] > 0) & (columns[:, 2] < 6)
    np.testing.assert_allclose(ours[inner, 2], expected[inner, 2], atol=1e-6)


def test_equal_values_have_the_middle_of_their_ranks_and_none_is_beyond_the_outermost() -> None:
    X = np.array([0.0, 1.0, 1.0, 1.0, 2.0])[:, None]
    scaled = NormalQuantiles(X)([[1.0], [-9.0], [9.0], [0.5], [1.5]]).numpy()[:, 0]
    assert scaled[0] == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(scaled[1:3], [-OUTER, OUTER], atol=1e-6)
    assert -3.0 < scaled[3] < 0.0 < scaled[4] < 3.0
    assert scaled[3] == pytest.approx(-scaled[4], abs=1e-12)


@pytest.mark.parametrize("scaling", SCALINGS.values(), ids=SCALINGS)
def test_graphs_batches_and_copies_scale_alike(scaling: type[Scaling], X: np.ndarray) -> None:
    fitted, new = scaling(X[:300]), X[300:306].reshape(2, 3, 4)
    expected = fitted(new)
    compiled = tf.function(fitted, autograph=False)
    np.testing.assert_allclose(compiled(tf.constant(new)), expected, atol=1e-14)
    np.testing.assert_array_equal(deepcopy(fitted)(new), expected)
    np.testing.assert_array_equal(tf.reshape(fitted(new.reshape(6, 4)), new.shape), expected)


@pytest.mark.parametrize("scaling", SCALINGS.values(), ids=SCALINGS)
def test_other_columns_and_missing_values_are_refused(
    scaling: type[Scaling], X: np.ndarray
) -> None:
    with pytest.raises(ValueError, match="3 columns, but the training data have 4"):
        scaling(X)(X[:, :3])
    X[7, 1] = np.nan
    with pytest.raises(ValueError, match="must be finite"):
        scaling(X)
