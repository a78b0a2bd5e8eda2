"""The modules of ``examples/paper``, which is no package, and its lines of results, for tests."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "paper"
MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__main__")

Import = Callable[[str], ModuleType]


def importing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    """Imports a module of the folder, which is on the path as it is when the folder is run."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield __import__
    for name in MODULES:  # names such as ``data`` are nobody else's business
        sys.modules.pop(name, None)
    plt.close("all")


def command(*arguments: object) -> int:
    """The exit code of ``python examples/paper``, in this process, under :func:`importing`."""
    namespace: dict = {"__name__": "paper_main", "__file__": str(FOLDER / "__main__.py")}
    exec(compile((FOLDER / "__main__.py").read_text(encoding="utf-8"), "main", "exec"), namespace)
    return namespace["main"]([str(argument) for argument in arguments])


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
