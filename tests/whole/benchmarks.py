"""The modules of ``examples/benchmarks``, which is no package, and results like its own, for tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "benchmarks"
MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__main__")

Import = Callable[[str], ModuleType]


def importing(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> Iterator[Import]:
    """Imports a module of the folder, which is on the path as it is when the folder is run."""
    for folder in (*folders, FOLDER):
        monkeypatch.syspath_prepend(str(folder))
    yield __import__
    others = [path.stem for folder in folders for path in folder.glob("*.py")]
    for name in (*MODULES, *others):
        sys.modules.pop(name, None)
    plt.close("all")


def outcome_of(seconds: float) -> dict:
    """What one contestant has after a turn."""
    return {
        "turns": [seconds, seconds],
        "best": seconds,
        "median": seconds,
        "quartiles": [seconds, seconds],
        "work": seconds,
        "rise": 1.0,
        "peak": 2.0,
        "first": None,
        "figures": {"RMSE": 0.5},
    }


def result_of(processor: str, factor: float, threads: int = 2) -> dict:
    """What a scaling study on some machine has found."""
    peer = {"skipped": "gpytorch is not installed"}
    contests = [
        {
            "shape": {"N": N},
            "against": dict.fromkeys(("floor", "ours", "peer"), "floor"),
            "outcomes": {
                "floor": outcome_of(1.0),
                "ours": outcome_of(factor * N),
                "peer": peer,
            },
        }
        for N in (10, 1000)
    ]
    machine = {"processor": processor, "load": 0.1, "commit": "abc", "versions": {"numpy": "1.26"}}
    common = {"says": "Rows grow.", "over": "N", "quick": False, "threads": threads}
    said = {"command": "python examples/benchmarks rows-scaling", "date": "2026-01-02T03:04:05"}
    return {"rows-scaling": {**common, **said, "machine": machine, "contests": contests}}
