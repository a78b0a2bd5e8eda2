"""What calibrate returns says when its promise cannot be trusted."""

import gpflow
import numpy as np
import pytest

import gpflow_ilr as gi
from gpflow_ilr.calibration import Calibration


def fitted(num_rows: int, num_columns: int, ard: bool, separable: bool = False) -> gi.ILRGPR:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, num_columns))
    y = (X[:, 0] + (0.0 if separable else 1.0) * rng.normal(size=num_rows) > 0).astype(int)
    X[:, 0] += 20.0 * y * separable
    return gi.ILRGPR((X, y), gi.starting_kernel(X, 2, ard=ard), num_classes=2)


def test_many_hyperparameters_and_few_rows_are_said_and_shown() -> None:
    found = fitted(90, 13, ard=True).calibrate()
    assert (found.num_hyperparameters, found.num_training_rows) == (14, 90)
    assert found.optimistic
    assert "14 hyperparameters that the 90 rows" in str(found)


def test_one_lengthscale_or_many_rows_are_trusted() -> None:
    assert not fitted(90, 13, ard=False).calibrate().optimistic
    assert not fitted(300, 13, ard=True).calibrate().optimistic
    assert "hyperparameters" not in str(fitted(90, 13, ard=False).calibrate())


def test_few_rows_of_the_criterion_are_not_few_training_rows() -> None:
    assert not fitted(300, 13, ard=True).calibrate(max_rows=20).optimistic


def test_hyperparameters_that_are_not_trained_do_not_count() -> None:
    model = fitted(90, 13, ard=True)
    gpflow.set_trainable(model.kernel, False)
    assert not model.calibrate().optimistic


def test_validation_rows_are_trusted() -> None:
    model = fitted(90, 13, ard=True)
    found = model.calibrate(model.data)
    assert not found.leave_one_out
    assert not found.optimistic


def test_inducing_inputs_count_where_leave_one_out_has_trained_them() -> None:
    X, y = fitted(90, 3, ard=False).data
    options = {"inducing_variable": X[:20], "num_classes": 2}
    kernel = gi.starting_kernel(X, 2)
    assert not gi.ILRSGPR((X, y), kernel, **options).calibrate().optimistic
    assert gi.ILRSGPR((X, y), kernel, objective="loo", **options).calibrate().optimistic


def test_a_smoothing_at_the_end_of_its_range_is_said_and_shown() -> None:
    found = fitted(60, 2, ard=False, separable=True).calibrate()
    assert found.smoothing_at_limit
    assert "end of its range" in str(found)
    assert not fitted(60, 2, ard=False).calibrate().smoothing_at_limit


def test_a_noise_at_the_end_of_its_range_is_said_and_shown() -> None:
    model = fitted(60, 2, ard=False)
    model.code.rescale_noise(1e-6)  # far below what the labels want
    found = model.calibrate(noise=True)
    assert found.noise_at_limit
    assert "calibrate(noise=True) again" in str(found)
    assert not model.calibrate().noise_at_limit


def test_a_noise_below_which_nothing_changes_is_said_and_shown() -> None:
    X, y = fitted(400, 1, ard=False).data
    model = gi.ILRSGPR(
        (X, y), gi.starting_kernel(X, 2), np.linspace(-2, 2, 4)[:, None], num_classes=2
    )
    found = model.calibrate(noise=True)
    assert found.noise_is_flat
    assert not found.noise_at_limit
    assert "Less noise than" in str(found)
    model.code.rescale_noise(0.1)
    assert model.calibrate().nll_after == pytest.approx(found.nll_after, abs=1.1e-3)
    assert not fitted(60, 2, ard=False).calibrate(noise=True).noise_is_flat


def test_the_string_has_what_was_done_in_one_line() -> None:
    found = Calibration(0.98, 0.5, 0.25, 0.017, 100, True, 100, 2)
    assert str(found) == ("λ = 0.98, noise 0.017: NLL 0.5000 → 0.2500, leave-one-out of 100 rows.")
    with pytest.raises(AttributeError):
        found.smoothing = 0.5


def test_the_number_of_neighbours_is_printed_where_there_is_one() -> None:
    found = Calibration(0.98, 0.5, 0.25, 0.017, 100, True, 100, 2, num_neighbours=32)
    assert "λ = 0.98, noise 0.017, 32 neighbours: NLL" in str(found)
    X, y = fitted(30, 2, ard=False).data
    model = gi.ILRNNGPR((X, y), gi.starting_kernel(X, 2), num_classes=2, num_neighbours=6)
    found = model.calibrate()
    assert found.num_neighbours == 6
    assert ", 6 neighbours: NLL" in str(found)
    assert fitted(30, 2, ard=False).calibrate().num_neighbours is None
