"""Moving code about changes nothing: every model computes what it computed before."""

import numpy as np
import pytest

from tests.whole.frozen_numbers import numbers, read


@pytest.fixture(scope="module")
def found() -> dict[str, np.ndarray]:
    return numbers()


@pytest.mark.parametrize("name", read())
def test_numbers_are_those_of_before(name: str, found: dict[str, np.ndarray]) -> None:
    assert set(found) == set(read())
    before = read()[name]
    np.testing.assert_allclose(found[name], before, rtol=0, atol=1e-12 * max(1, abs(before).max()))
