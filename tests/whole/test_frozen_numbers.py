"""Moving code about changes nothing: every model computes what it computed before."""

import numpy as np
import pytest

from tests.whole.frozen_numbers import numbers, read

pytestmark = pytest.mark.slow  # all of them are computed at once


@pytest.fixture(scope="module")
def found() -> dict[str, np.ndarray]:
    return numbers()


BEFORE = read()


@pytest.mark.parametrize("name", BEFORE)
def test_numbers_are_those_of_before(name: str, found: dict[str, np.ndarray]) -> None:
    assert set(found) == set(BEFORE)
    before = BEFORE[name]
    # Where a search ends is sharp to the root of rounding only, and λ scales what it predicts.
    searched = name.endswith((": calibrate", ": calibrated", ": validated", ": noise"))
    rounding = (1e-9 if searched else 1e-12) * max(1.0, abs(before).max())
    np.testing.assert_allclose(found[name], before, rtol=0, atol=rounding)
