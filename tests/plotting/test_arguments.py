"""What cannot be drawn is refused by the name of the argument, with its value and the fix."""

import re

import numpy as np
import pytest

from gpflow_ilr.plotting.arguments import check_share, names_of


def test_names_are_those_given_or_numbers() -> None:
    assert names_of(None, 2, "class ") == ["class 0", "class 1"]
    assert names_of(np.array(["a", "b"]), 2) == ["a", "b"]
    for wrong in (["a"], "ab"):
        with pytest.raises(
            ValueError, match=f"must be 2 names, .* but is {re.escape(repr(wrong))}"
        ):
            names_of(wrong, 2)


@pytest.mark.parametrize("value", [0.0, 1.0, 90, np.nan])
def test_a_share_lies_between_zero_and_one(value: float) -> None:
    assert check_share("level", 0.5) == 0.5
    with pytest.raises(ValueError, match=f"level must lie .* but is {value!r}"):
        check_share("level", value)
