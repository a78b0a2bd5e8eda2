"""Hangs are written to the standard error of pytest itself."""

import pytest

from tests.fuzz.limits import say_hangs_to


@pytest.fixture(autouse=True)
def _hangs_are_seen(capfd: pytest.CaptureFixture) -> None:
    with capfd.disabled():
        say_hangs_to(2)
