"""Calibration chooses the number of neighbours, and the noise with it."""

from typing import Any

import numpy as np
import pytest
from gpflow.kernels import SquaredExponential

from gpflow_ilr.calibration.criterion import MeanNLL
from gpflow_ilr.calibration.search import FLAT_NLL
from tests.calibration.test_calibrate import (
    ILR,
    VALIDATION,
)
from tests.models.oracles import (
    SMOOTHING,
    K,
    X,
    Y,
    blobs,
    build,
)

MANY = blobs(48)[0], np.where(np.arange(48) % 6, np.sum(blobs(48)[0] > 0, axis=1), 2)


def neighbours_model(num_neighbours: int, labels: Any = MANY[1], **options: Any) -> Any:
    k = SquaredExponential(0.5, lengthscales=[1.3, 0.8])
    return build("ILRNNGPR", data=(MANY[0], labels), k=k, num_neighbours=num_neighbours, **options)


def best_nll(num_neighbours: int) -> float:
    """At the best L; each row left out, by brute force."""
    return neighbours_model(num_neighbours).calibrate(max_rows=None).nll_after


@pytest.mark.parametrize("present", [3, 20, 64])
def test_calibrate_finds_the_number_of_neighbours_with_the_smallest_leave_one_out_nll(present):
    model = neighbours_model(present)
    result = model.calibrate(neighbours=True)
    counts = sorted({8, 16, 32, min(present, len(MANY[0]) - 1)})
    values = {m: best_nll(m) for m in counts}
    flat = [m for m in counts if values[m] <= min(values.values()) + FLAT_NLL]
    assert result.num_neighbours == model.num_neighbours == flat[0]
    np.testing.assert_allclose(result.nll_after, values[flat[0]], rtol=1e-9)
    np.testing.assert_allclose(result.nll_before, neighbours_model(present).calibrate().nll_before)
    again = model.calibrate(neighbours=True)
    assert (again.num_neighbours, again.smoothing) == (result.num_neighbours, result.smoothing)


@pytest.mark.parametrize(("soft", "start"), [(False, 0.3), (False, 0.999), (True, 0.3)])
def test_neighbours_and_noise_together_are_never_worse_than_before(soft, start):
    rng = np.random.default_rng(3)
    labels = rng.dirichlet(np.ones(K), size=len(MANY[0])) if soft else MANY[1]
    model = neighbours_model(5, labels, smoothing=start)
    result = model.calibrate(noise=True, neighbours=True)
    assert result.nll_after <= result.nll_before
    held_out = MeanNLL(model.held_out(None), model.code.link)
    np.testing.assert_allclose(held_out(model.code.scale), result.nll_after, rtol=1e-9)
    np.testing.assert_allclose(result.noise_variance, model.code.noise_variance[0, 0])
    assert result.num_neighbours == model.num_neighbours


@pytest.mark.parametrize("noise", ["shared", "fixed"])
def test_the_noise_of_neighbours_is_chosen_by_the_same_criterion(noise):
    model = neighbours_model(8, noise=noise)
    alone = neighbours_model(8, noise=noise).calibrate()
    result = model.calibrate(noise=True)
    assert not result.noise_at_limit
    assert result.nll_after <= alone.nll_after + 1e-9
    held_out = MeanNLL(model.held_out(None), model.code.link)
    np.testing.assert_allclose(held_out(model.code.scale), result.nll_after, rtol=1e-9)
    for factor in (0.6, 1.6):  # no neighbour is better
        model.code.rescale_noise(factor)
        assert model.calibrate().nll_after >= result.nll_after - 1e-4
        model.code.rescale_noise(1 / factor)


@pytest.mark.parametrize("num_rows", [1, 9])
def test_where_all_rows_are_best_they_stay_all_rows(num_rows):
    model = build("ILRNNGPR", data=(X[:num_rows], Y[:num_rows]), num_neighbours=64)
    result = model.calibrate(neighbours=True)
    assert result.num_neighbours == model.num_neighbours == 64
    assert result.nll_after <= result.nll_before


@pytest.mark.parametrize("name", ILR)
def test_neighbours_of_other_models_cannot_be_chosen(name):
    model = build(name)
    with pytest.raises(
        ValueError, match=f"this is a {name}. Leave neighbours out, or build an ILR"
    ):
        model.calibrate(neighbours=True)
    np.testing.assert_allclose(model.smoothing, SMOOTHING)


def test_neighbours_are_not_chosen_by_validation_rows():
    model = neighbours_model(8)
    with pytest.raises(ValueError, match=r"neighbours=True\) uses leave-one-out and takes no data"):
        model.calibrate(VALIDATION, neighbours=True)
    assert model.num_neighbours == 8
    # Which choose the smoothing alone.
    assert model.calibrate(VALIDATION).num_neighbours == 8


@pytest.mark.parametrize("noise", ["per_output", "per_class"])
def test_neighbours_are_chosen_whatever_the_noise_but_the_noise_is_not(noise):
    model = neighbours_model(8, noise=noise)
    result = model.calibrate(neighbours=True)
    assert result.nll_after <= result.nll_before
    with pytest.raises(ValueError, match="one noise for all outputs"):
        model.calibrate(noise=True, neighbours=True)
