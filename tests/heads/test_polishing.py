"""Polished features: the start is the closed form, and what is kept is no worse."""

import numpy as np
import pytest

from gpflow_ilr import ILRSGPR, metrics
from gpflow_ilr.heads.collapsing import calibrate_on
from gpflow_ilr.heads.feature_model import feature_model
from gpflow_ilr.heads.fixed_posterior import FixedPosterior
from gpflow_ilr.heads.gp_layer import make_kernel
from gpflow_ilr.heads.polishing import polish_features, polished_snapshot
from gpflow_ilr.inputs.rows import check_data
from tests.heads.stacks import K, M, N, X, Y

RNG = np.random.default_rng(5)
X_VAL = RNG.normal(size=(60, 4))
Y_VAL = np.where(
    RNG.random(60) < 0.3, RNG.integers(0, K, 60), (X_VAL[:, 0] > 0) + (X_VAL[:, 1] > 0)
)
ROWS, UNSEEN = check_data((X, Y), K), check_data((X_VAL, Y_VAL), K)
FEW = {"max_steps": 4, "check_every": 2, "row_weights": 1.0}


def closed_form(kernel: str = "SquaredExponential") -> ILRSGPR:
    return feature_model(ROWS, K, kernel, M)


def nll(model: ILRSGPR) -> float:
    return metrics.negative_log_likelihood(model.predict_y(X_VAL)[0], Y_VAL)


def test_start_is_the_closed_form_and_what_is_kept_predicts_better() -> None:
    model = closed_form()
    svgp, result = polish_features(model, ROWS, UNSEEN, N, **FEW)
    assert result.nll_before == pytest.approx(nll(model), abs=1e-5)
    assert svgp is not None
    assert nll(svgp) <= result.nll_after + 1e-6 < result.nll_before
    assert nll(model) == pytest.approx(result.nll_before, abs=1e-5)  # which stays what it is


def test_a_start_that_held_out_rows_prefer_is_kept() -> None:
    model = closed_form()
    calibrate_on(model, (X_VAL, Y_VAL))
    wrong = check_data((X, (Y + 1) % K), K)
    svgp, result = polish_features(model, wrong, UNSEEN, N, **FEW)
    assert result.best_step == 0
    assert result.gain_error == 0.0
    assert svgp is None


def test_a_row_that_counts_for_half_is_a_row_of_weight_one_half() -> None:
    half = check_data((X, Y, np.full(N, 0.5)), K)
    one, other = (
        polish_features(closed_form(), rows, UNSEEN, N, **{**FEW, "row_weights": weight})[1]
        for rows, weight in ((ROWS, 0.5), (half, 1.0))
    )
    assert one.row_weight == 0.5
    assert one.nll_after == pytest.approx(other.nll_after, rel=1e-8)
    assert one.gain_error == pytest.approx(other.gain_error, rel=1e-6)


def test_held_out_rows_choose_the_weight_of_rows() -> None:
    weights = (1.0, 0.2)
    alone = [
        polish_features(closed_form(), ROWS, UNSEEN, N, **{**FEW, "row_weights": weight})[1]
        for weight in weights
    ]
    both = polish_features(closed_form(), ROWS, UNSEEN, N, **{**FEW, "row_weights": weights})[1]
    best = min(alone, key=lambda found: found.nll_after)
    assert (both.row_weight, both.nll_after) == (best.row_weight, best.nll_after)
    assert abs(alone[0].nll_after - alone[1].nll_after) > 1e-4  # so that there is a choice


def test_a_gain_within_its_standard_error_is_given_up() -> None:
    few = check_data((X_VAL[:3], Y_VAL[:3]), K)
    gains = []
    for rows in (few, UNSEEN):
        svgp, found = polish_features(closed_form(), ROWS, rows, N, **FEW)
        gains.append((found.nll_before - found.nll_after, found.gain_error))
        assert found.kept == (gains[-1][0] > gains[-1][1]) == (svgp is not None)
    assert gains[0][1] > gains[1][1] > 0.0


@pytest.mark.parametrize("weights", [(), 0.0, 1.5, (1.0, np.nan), "all"])
def test_weights_of_rows_that_make_no_sense_are_refused(weights: object) -> None:
    with pytest.raises(ValueError, match=r"row_weights must be a number above 0 and at most 1"):
        polish_features(closed_form(), ROWS, UNSEEN, N, row_weights=weights)


def test_points_that_span_linear_features_stay() -> None:
    model = closed_form("Linear")
    svgp, _ = polish_features(model, ROWS, UNSEEN, N, **FEW)
    assert svgp is not None
    np.testing.assert_array_equal(svgp.inducing_variable.Z, model.inducing_variable.Z)


def test_snapshot_predicts_the_same_without_a_mixing_matrix() -> None:
    svgp, _ = polish_features(closed_form(), ROWS, UNSEEN, N, **FEW)
    taken = polished_snapshot(svgp)
    assert taken.mixing is None
    posterior = FixedPosterior(make_kernel("SquaredExponential", 1.0, 1.0), K, (M, 4, K - 1, K - 1))
    posterior.assign(taken)
    np.testing.assert_allclose(posterior.predict_y(X_VAL)[0], svgp.predict_y(X_VAL)[0], rtol=1e-8)


def test_weights_of_held_out_rows_count_as_repetitions() -> None:
    counts = 1.0 + np.arange(60) % 2
    repeated = np.repeat(np.arange(60), counts.astype(int))
    weighted, often = (
        polish_features(closed_form(), ROWS, check_data(rows, K), N, **FEW)[1]
        for rows in ((X_VAL, Y_VAL, counts), (X_VAL[repeated], Y_VAL[repeated]))
    )
    assert weighted.nll_before == pytest.approx(often.nll_before, rel=1e-10)
    assert weighted.nll_after == pytest.approx(often.nll_after, rel=1e-8)
