"""Results that survive: one line of JSON for each run, on the disk before the next run begins.

A run is a data set × model × seed under a protocol, or whatever else names it. Lines are only ever
appended, and synced. A line that a kill has cut short is dropped when the file is read, and cut off
before the next one is written; finished runs are skipped.
"""

import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

# Last on the path: modules here win over those of the same name there.
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from machine import machine, now

try:
    import fcntl
except ImportError:  # Windows, where one process at a time must do
    fcntl = None

__all__ = ["BrokenResultsError", "Results", "UnwrittenResultsError", "circumstances", "now"]

PACKAGES = ("gpflow_ilr", "gpflow", "tensorflow", "numpy", "scikit-learn", "lightgbm", "catboost")


class BrokenResultsError(ValueError):
    """A file of results cannot be read, and a sentence says what to do."""


class UnwrittenResultsError(OSError):
    """A line cannot be written, and a sentence says what is lost and what is not."""


class Results:
    """The lines of one experiment.

    Several processes may add to one file: each takes turns, and sees what the others have finished.

    :param path: of the file; it need not exist.
    :param key: names of the fields that say which run a line is of.
    """

    def __init__(self, path: Path, key: tuple[str, ...]) -> None:
        self.path, self.key = path, key
        self.lines: list[dict[str, Any]] = []
        self.refresh()

    def refresh(self) -> None:
        """Read what is there now, whoever has written it.

        :raises BrokenResultsError: if another line than the last is broken.
        """
        whole = self.path.read_bytes() if self.path.exists() else b""
        self.lines = []
        for i, line in enumerate(whole[: whole.rfind(b"\n") + 1].splitlines()):
            try:
                self.lines.append(json.loads(line))
            except ValueError as error:  # of JSON, or of its characters
                raise BrokenResultsError(
                    f"Line {i + 1} of {self.path} is no JSON ({error}). Only the last can be cut short "
                    "by a kill: mend or remove it."
                ) from error
        self._done = {self._key_of(line) for line in self.lines}

    def _key_of(self, run: dict[str, Any]) -> tuple:
        return tuple(run.get(name) for name in self.key)

    def __contains__(self, run: dict[str, Any]) -> bool:
        return self._key_of(run) in self._done

    def add(self, run: dict[str, Any]) -> None:
        """Append a run, which is on the disk when this returns, unless another process was faster.

        :param run: what it was and what came out.
        :raises UnwrittenResultsError: if the disk is full, as a rule.
        """
        try:
            self._append(run)
        except OSError as error:
            raise UnwrittenResultsError(
                f"{self.path} takes no further line: {error.strerror}. Its {len(self.lines)} lines are "
                "kept: make room, and start again, which goes on after them."
            ) from error
        self.refresh()

    def _append(self, run: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a+b") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
            self.refresh()
            if run in self:
                return
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)  # what a kill has left of a line
            file.write(json.dumps(run, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


@cache
def circumstances() -> dict[str, Any]:
    """Versions and processor: what a figure depends on."""
    found = machine(PACKAGES)
    return {name: found[name] for name in ("processor", "cores", "versions", "commit")}
