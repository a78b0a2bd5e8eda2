"""Memory: of this process, in MiB, at most since the peak was last forgotten; and of the machine.

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

__all__ = ["forget_peak", "of_machine", "peak"]


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


def of_machine(field: str = "MemAvailable") -> float | None:
    """GiB that a process may still have, or another field of Linux's table; None elsewhere."""
    found = _status(field, "/proc/meminfo")
    return None if found is None else round(found / 1024, 1)


def _status(field: str, table: str = "/proc/self/status") -> float | None:
    with suppress(OSError):
        for line in Path(table).read_text(encoding="ascii").splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1024
    return None
