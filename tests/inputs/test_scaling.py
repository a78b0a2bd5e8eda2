"""Claims about scaling: wild values spoil nothing, and it is the same wherever it runs."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gpflow.utilities import deepcopy
from scipy.stats import norm
from sklearn.preprocessing import QuantileTransformer

from gpflow_ilr.inputs.scaling import SCALINGS, NormalQuantiles, Scaling, Standardised

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
