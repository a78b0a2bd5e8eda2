"""A program that exports two models by turns into one folder, until it is killed.

Usage: ``python -m tests.whole.killed_exports FOLDER``: writes a line after each export.
"""

import itertools
import sys
from pathlib import Path

import numpy as np

import gpflow_ilr as gi
from gpflow_ilr.saving import export_saved_model
from tests.saving.models import MODELS, X, Y

__all__ = ["versions"]


def versions() -> list[gi.ILRGPR]:
    """The first and the second, which predict something else."""
    second = MODELS["ILRGPR"]()
    second.data = (X, np.roll(Y, 1))
    return [MODELS["ILRGPR"](), second]


if __name__ == "__main__":
    for number, model in enumerate(itertools.cycle(versions())):
        export_saved_model(model, Path(sys.argv[1]))
        print(number, flush=True)
