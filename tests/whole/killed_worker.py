"""An experiment, one of whose runs is killed, as the kernel does it for want of memory.

Usage: ``python -m tests.whole.killed_worker FILE``: the third run is killed where FILE is new.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "paper"))

from results import Results
from runner import complete

__all__ = ["measure"]


def measure(run: dict[str, Any]) -> dict[str, Any]:
    """The process of a run, if it lives."""
    if run["seed"] == 2 and run["new"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"process": os.getpid()}


if __name__ == "__main__":
    path = Path(sys.argv[1])
    runs = [{"seed": seed, "new": not path.exists()} for seed in range(6)]
    sys.exit(0 if complete(Results(path, ("seed",)), runs, measure, apart=True) else 1)
