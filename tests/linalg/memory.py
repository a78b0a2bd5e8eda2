"""Peak memory of a call, without what the process held before."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def _kilobytes(field: str) -> int:
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def peak_bytes(function: Callable[[], Any]) -> int:
    """How far resident memory rises above where it was, at most, while a function runs.

    :param function: what to run.
    """
    try:
        _RESET.write_text("5", encoding="ascii")  # the peak is the present again
    except OSError:
        pytest.skip("the peak of resident memory cannot be reset here")
    before = _kilobytes("VmRSS")
    function()
    return 1024 * (_kilobytes("VmHWM") - before)


def resident_bytes() -> int:
    """Resident memory of this process now."""
    return 1024 * _kilobytes("VmRSS")
