"""Resident memory of this process, in MiB: at most, since the peak was last forgotten.

Linux can forget a peak. Elsewhere it is that of the whole life of the process, and what a turn needs
is not more than it says.
"""

import sys
from contextlib import suppress
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None

__all__ = ["forget_peak", "peak"]


def forget_peak() -> float:
    """What is resident now, from where a peak is counted."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _status("VmRSS") or peak()


def peak() -> float:
    """The most that was resident."""
    if (found := _status("VmHWM")) is not None:
        return found
    if resource is None:
        return float("nan")
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _status(field: str) -> float | None:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1024
    return None
