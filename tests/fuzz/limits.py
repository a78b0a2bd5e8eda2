"""Nothing that is put in may hang: a limit on the time of each example."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

__all__ = ["LIMIT_SECONDS", "at_most", "say_hangs_to"]

LIMIT_SECONDS = 120.0
"""Of the processor, for an example: the slowest takes ten. Others may take most of the machine."""

_said_to = 2


def say_hangs_to(handle: int) -> None:
    """Where hangs outside Python are written: not where a test's output is caught, which dies with it.

    :param handle: of a file that is open.
    """
    global _said_to
    if _said_to == 2:
        _said_to = os.dup(handle)


@contextmanager
def at_most(seconds: float, what: str = "this", clock: float = 1800.0) -> Iterator[None]:
    """Fail where something takes longer; end the process where it does not come back to Python at all.

    :param seconds: of the processor, after which a test fails, by what ``except Exception`` does not
        catch.
    :param what: takes that long, for the message.
    :param clock: seconds after which the process ends, and says where it was.
    """

    def fail(*_: Any) -> None:
        pytest.fail(f"{what} did not end within {seconds:g} seconds of the processor")

    former = signal.signal(signal.SIGPROF, fail)
    # Again and again: TensorFlow calls Python where an exception is lost.
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    faulthandler.dump_traceback_later(clock, exit=True, file=_said_to)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGPROF, former)
