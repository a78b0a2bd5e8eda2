"""Calibration from any start, with soft labels, saturated noises and rows that make no sense."""

import numpy as np
import pytest

from gpflow_ilr.calibration.criterion import MeanNLL
from gpflow_ilr.inputs import check_data
from tests.models.oracles import SMOOTHING, K, X, blobs, build

ILR = ["ILRGPR", "ILRSGPR"]
SOFT = np.random.default_rng(3).dirichlet(np.ones(K), size=len(X))
VALIDATION = blobs(40)


@pytest.mark.parametrize("data", [None, (VALIDATION[0], VALIDATION[1])], ids=["loo", "validation"])
@pytest.mark.parametrize("name", ILR)
def test_calibrate_with_soft_labels_does_not_depend_on_its_start(name, data):
    results = []
    for start in (0.3, 0.999999):
        model = build(name, "fixed", data=(X, SOFT))
        model.smoothing = start
        results.append(model.calibrate(data))
    for result in results[1:]:
        np.testing.assert_allclose(result.smoothing, results[0].smoothing, rtol=1e-6)
        assert result.nll_after <= result.nll_before
    rows = None if data is None else check_data(data, K)
    for other in (0.3, 0.8, 0.95, 0.99, 0.9999):
        model.smoothing = other
        reached = MeanNLL(model.held_out(rows), model.code.link)(model.code.scale)
        assert reached >= results[0].nll_after - 1e-5


@pytest.mark.parametrize("name", ILR)
def test_calibrating_twice_changes_nothing_wherever_the_noise_has_gone(name):
    model = build(name, "per_class")
    model.calibrate()
    model.code.class_factor.unconstrained_variable.assign([[60.0], [-60.0], [0.0]])
    model.code.extra_noise.unconstrained_variable.assign([[-1e4]])  # zero, by rounding
    first = model.calibrate()
    before = [variable.numpy() for variable in model.code.variables]
    assert model.calibrate().smoothing == first.smoothing
    for variable, value in zip(model.code.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


@pytest.mark.parametrize("name", ILR)
def test_validation_rows_are_checked_before_anything_changes(name):
    model = build(name)
    rows, labels = VALIDATION[0].copy(), VALIDATION[1]
    for data, message in [
        ((rows, labels, labels[:2]), "sample_weight must have one weight for each"),
        ((rows[:, 0], labels), "shape"),
        ((rows[:, :1], labels), "X has 1 columns, but the training data have 2"),
        ((np.where(rows == rows[3, 1], np.nan, rows), labels), "row 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.calibrate(data)
    assert model.smoothing == pytest.approx(SMOOTHING)
