"""Runs one after the other: what is done is skipped, what fails is said, and the rest goes on."""

import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from problem import LeftOutError
from results import Results, circumstances, now

__all__ = ["Measure", "Options", "complete"]

Measure = Callable[[dict[str, Any]], dict[str, Any]]
"""From what names a run to what came out."""

_RUNS_OF_A_PROCESS = 2


@dataclass(frozen=True)
class Options:
    """What the command line says.

    :param data_dir: where ``<name>.npz`` are.
    :param datasets: names; None for those of the experiment.
    :param models: names; None for all.
    :param seeds: how many splits.
    :param protocol: ``ours`` or ``paper``.
    :param quick: only to see that it runs.
    :param out: where results go.
    """

    data_dir: Path | None
    datasets: list[str] | None
    models: list[str] | None
    seeds: int
    protocol: str
    quick: bool
    out: Path

    def seed_range(self) -> range:
        """The seeds; one if it is to be quick."""
        return range(1 if self.quick else self.seeds)


def complete(
    results: Results,
    runs: Sequence[dict[str, Any]],
    measure: Measure,
    apart: bool = False,
) -> bool:
    """Measure the runs that have no result yet; whether all of them worked.

    :param results: where they go, each before the next begins.
    :param runs: what names each.
    :param measure: the outcome of a run; it is pickled if runs are apart.
    :param apart: in a process of their own, which gives back the memory that TensorFlow's graphs keep,
        and may be killed without an end to the others.
    """
    to_do = [run for run in runs if run not in results]
    print(f"{len(to_do)} of {len(runs)} runs to do, results in {results.path}", flush=True)
    worked, elsewhere = True, _Elsewhere() if apart else None
    for i, run in enumerate(to_do):
        results.refresh()
        if run in results:  # another process has done it
            continue
        shown = [key for key in results.key if key in run and key != "quick"]
        named = ", ".join(f"{key} {run[key]}" for key in shown)
        try:
            outcome = elsewhere(measure, run) if elsewhere else measure(run)
        except LeftOutError as reason:
            print(f"{named} is left out: {reason}", flush=True)
            continue
        except Exception:
            traceback.print_exc()
            print(f"{named} failed: see above; the others go on.", flush=True)
            worked = False
            continue
        results.add(run | outcome | {"date": now()} | circumstances())
        said = (f"{key} {value:.4g}" for key, value in outcome.items() if isinstance(value, float))
        print(f"[{i + 1}/{len(to_do)}] {named}: {', '.join(said)}", flush=True)
    return worked


class _Elsewhere:
    """Calls in another process, which is replaced after a few of them, and when it has died."""

    def __init__(self) -> None:
        self._pool = self._started()

    def _started(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=_RUNS_OF_A_PROCESS)

    def __call__(self, measure: Measure, run: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._pool.submit(measure, run).result()
        except BrokenProcessPool:
            self._pool = self._started()
            raise
