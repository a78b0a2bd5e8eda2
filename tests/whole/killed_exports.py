"""A program that exports two models by turns into one folder, until it is killed.

Usage: ``python -m tests.whole.killed_exports FOLDER [STEP]``: writes a line after each export. With a
step it kills itself before that one of those by which the second export takes the first one's place.
"""

import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import gpflow_ilr as gi
from gpflow_ilr.saving import export_saved_model
from tests.saving.models import MODELS, X, Y

__all__ = ["versions"]

STEPS = {"os.rename", "os.chmod", "ctypes.call_function", "shutil.rmtree"}


def versions() -> list[gi.ILRGPR]:
    """The first and the second, which predict something else."""
    second = MODELS["ILRGPR"]()
    second.data = (X, np.roll(Y, 1))
    return [MODELS["ILRGPR"](), second]


def kill_before(step: int, folder: Path) -> None:
    """Let this process kill itself before it moves or removes something for so many times.

    :param step: from 0 on.
    :param folder: only what names it counts.
    """
    seen = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in STEPS and str(folder) in str(arguments):
            seen.append(event)
            if len(seen) > step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


if __name__ == "__main__":
    folder, *steps = sys.argv[1:]
    for number, model in enumerate(itertools.cycle(versions())):
        if steps and number:
            kill_before(int(steps[0]), Path(folder))
        export_saved_model(model, Path(folder))
        print(number, flush=True)
        if steps and number:
            break
