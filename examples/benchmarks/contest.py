"""A fair contest: each contestant in a process of its own, and turns that alternate.

A contestant is a function of a shape that sets up and returns ``turn``, a function without arguments,
whose first call traces graphs and warms caches and is not counted, unless it takes so long that it is
the only one. Turns alternate, so that a busy machine's moods are spread over all. Whoever needs a
package, data or memory that is missing is left out, with a word; whoever fails says so, and the others
go on.
"""

import gc
import importlib
import logging
import math
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import memory
import numpy as np
from machine import threads

__all__ = ["AbsentError", "Benchmark", "Contestant", "Workers", "contest", "limit_threads", "of"]

Turn = Callable[[], object]
"""What it returns is of no interest, unless it is a function: called when the clock has stopped, it
gives figures by name, ``seconds`` and ``work`` if the clocks are to count for nothing, and a ``curve``,
which is kept as it is."""

Outcome = dict[str, Any]

_PAUSE = 0.02
"""Seconds in which the threads of one contestant cease to spin before the next has its turn."""

SLOW = 60.0
"""Seconds of a first turn that counts and has no successor: its traces are a small part of it."""


class AbsentError(Exception):
    """Who raises it cannot take part, and says why; nothing has failed."""


@dataclass(frozen=True)
class Contestant:
    """Who takes part.

    :param setup: ``module:function``, so that nothing is imported but in its own process.
    :param options: of the function, beside the shape.
    :param rounds: at most, for those that are slow; None for all.
    :param warmed: whether the first turn may be left out of account.
    :param up_to: the largest size of a scaling study at which it takes part.
    :param against: whom its ratio is to, if it is not the reference of the benchmark.
    """

    setup: str
    options: dict[str, Any] = field(default_factory=dict)
    rounds: int | None = None
    warmed: bool = True
    up_to: float = math.inf
    against: str | None = None

    def turn(self, shape: dict[str, Any]) -> Turn:
        """Set up."""
        module, _, function = self.setup.partition(":")
        return getattr(importlib.import_module(module), function)(**shape, **self.options)


def of(
    setup: str,
    rounds: int | None = None,
    warmed: bool = True,
    up_to: float = math.inf,
    against: str | None = None,
    **options: Any,
) -> Contestant:
    """A contestant, with the options of its function."""
    return Contestant(setup, options, rounds, warmed, up_to, against)


@dataclass(frozen=True)
class Benchmark:
    """A table of contestants, and what they are compared at.

    :param says: what is measured, in a sentence.
    :param contestants: by name.
    :param reference: the one that ratios are to.
    :param full: shapes, each of which is a contest.
    :param quick: tiny ones, to see that it runs.
    :param rounds: turns of each contestant.
    :param over: the entry of shapes that grows, if it is a scaling study.
    :param fresh: whether every turn has a process of its own, because the first is what counts.
    :param alone: whether the others have no processes meanwhile, because memory suffices for one of
        them: turns of one contestant follow on each other.
    """

    says: str
    contestants: dict[str, Contestant]
    reference: str
    full: Sequence[dict[str, Any]]
    quick: Sequence[dict[str, Any]]
    rounds: int = 7
    over: str | None = None
    fresh: bool = False
    alone: bool = False


def limit_threads(threads: int) -> None:
    """The same number of threads for all: processes that start later inherit it."""
    for name in ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "TF_NUM_INTRAOP", "TF_NUM_INTEROP"):
        os.environ[f"{name}_THREADS"] = str(threads)


def contest(
    benchmark: Benchmark,
    shape: dict[str, Any],
    rounds: int,
    workers: "Workers",
    warmed: bool = True,
) -> dict[str, Outcome]:
    """Times, memory and figures of each contestant at one shape.

    :param benchmark: who takes part.
    :param shape: what functions are called with.
    :param rounds: turns of each.
    :param workers: the processes.
    :param warmed: whether first turns may be left out of account; to be quick, they are the only ones.
    """
    everybody = list(benchmark.contestants)
    found: dict[str, Outcome] = {}
    for names in [[name] for name in everybody] if benchmark.alone else [everybody]:
        found |= _among(names, benchmark, shape, rounds, workers, warmed)
    return found


def _among(
    names: list[str],
    benchmark: Benchmark,
    shape: dict[str, Any],
    rounds: int,
    workers: "Workers",
    warmed: bool,
) -> dict[str, Outcome]:
    """The outcomes of those whose turns alternate."""
    entrants = {name: benchmark.contestants[name] for name in names}
    turns: dict[str, list[Outcome]] = {name: [] for name in names}
    warm: dict[str, Outcome] = {}
    out: dict[str, Outcome] = {}
    enough: set[str] = set()

    def ask(name: str, *, begin: bool = False) -> Outcome:
        entrant = entrants[name]
        answer = workers.ask(name, entrant, shape if begin else None)
        if not answer.keys().isdisjoint(("skipped", "failed")):
            out[name] = answer
            workers.close(name, entrant)
        return answer

    for name, entrant in entrants.items():
        if benchmark.over is not None and shape[benchmark.over] > entrant.up_to:
            out[name] = {"skipped": "not at this size"}
            continue
        if not benchmark.fresh:
            ask(name, begin=True)
            if name not in out and warmed and entrant.warmed:
                warm[name] = ask(name)
                if warm[name].get("seconds", 0.0) > SLOW:
                    turns[name].append(warm.pop(name))
                    enough.add(name)
    for i in range(rounds):
        for name, entrant in entrants.items():
            if name in out or name in enough or i >= (entrant.rounds or rounds):
                continue
            if benchmark.fresh:
                ask(name, begin=True)
            if name not in out:
                time.sleep(_PAUSE)
                turns[name].append(ask(name))
            if benchmark.fresh:
                workers.close(name, entrant)
    for name, entrant in entrants.items():
        workers.close(name, entrant)
    return {
        name: out[name] if name in out else _summary(turns[name], warm.get(name)) for name in names
    }


def _summary(turns: list[Outcome], warm: Outcome | None) -> Outcome:
    """Best, median and quartiles of seconds; the best of work; the most of memory; other medians.

    ``spread`` has the least and the largest of the others where they differ.
    """
    seconds = [turn["seconds"] for turn in turns]
    # Memory that was had once is had again for free.
    every = turns if warm is None else [*turns, warm]
    lower, median, upper = np.quantile(seconds, [0.25, 0.5, 0.75])
    names = turns[0].keys() - {"seconds", "work", "rise", "peak", "curve"}
    figures = {name: [float(turn[name]) for turn in turns] for name in sorted(names)}
    curves = [turn["curve"] for turn in turns if "curve" in turn]
    return {
        "turns": seconds,
        "first": None if warm is None else warm["seconds"],
        "best": min(seconds),
        "median": median,
        "quartiles": [lower, upper],
        "work": min(turn["work"] for turn in turns),
        "rise": max(turn["rise"] for turn in every),
        "peak": max(turn["peak"] for turn in every),
        "figures": {name: float(np.median(values)) for name, values in figures.items()},
        "spread": {
            name: [min(values), max(values)]
            for name, values in figures.items()
            if min(values) < max(values)
        },
    } | ({"curves": curves} if curves else {})


class Workers:
    """Processes of contestants: one for each, or, to be quick, one for each module of them."""

    def __init__(self, quick: bool) -> None:
        self._quick, self._all = quick, {}

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._all.values():
            worker.close()

    def _key(self, name: str, contestant: Contestant) -> str:
        return contestant.setup.partition(":")[0] if self._quick else name

    def ask(self, name: str, contestant: Contestant, shape: dict[str, Any] | None) -> Outcome:
        """The outcome of a set-up, empty if it went well, or of a turn if there is no shape."""
        key = self._key(name, contestant)
        if key not in self._all:
            self._all[key] = _Worker()
        try:
            return self._all[key].ask(name, contestant, shape)
        except (EOFError, OSError):
            code = self._all.pop(key).close()
            return {"failed": f"its process ended with exit code {code}"}

    def close(self, name: str, contestant: Contestant) -> None:
        """The process of a contestant, if it is its own."""
        if not self._quick and name in self._all:
            self._all.pop(name).close()


class _Worker:
    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,))
        self._process.start()
        theirs.close()  # or its death would not be noticed

    def ask(self, *message: Any) -> Outcome:
        self._pipe.send(message)
        return self._pipe.recv()

    def close(self) -> int | None:
        self._pipe.close()
        self._process.join(10.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        return self._process.exitcode


def _serve(pipe: Any) -> None:
    if hasattr(os, "sched_setaffinity"):  # for those who take a thread for each core
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: threads()])
    logging.getLogger("tensorflow").setLevel(logging.ERROR)  # each contestant has traces of its own
    turns: dict[str, Turn] = {}
    with suppress(EOFError):
        while True:
            name, contestant, shape = pipe.recv()
            try:
                answer = _timed(turns[name]) if shape is None else {}
                if shape is not None:
                    turns[name] = contestant.turn(shape)
            except AbsentError as why:
                answer = {"skipped": str(why)}
            except Exception as error:
                missing = error.name if isinstance(error, ModuleNotFoundError) else None
                if missing and not missing.startswith("gpflow_ilr"):
                    answer = {"skipped": f"{missing} is not installed"}
                else:
                    traceback.print_exc()
                    answer = {"failed": f"{type(error).__name__}: {error}"}
            gc.collect()  # models are in circles, and matrices with them
            pipe.send(answer)


def _timed(turn: Turn) -> Outcome:
    before = memory.forget_peak()
    clock, work = time.perf_counter(), _work()
    result = turn()
    measured = {
        "seconds": time.perf_counter() - clock,
        "work": _work() - work,
        "peak": memory.peak(),
    }
    measured["rise"] = measured["peak"] - before
    return measured | (result() if callable(result) else {})


def _work() -> float:
    """Seconds that processors have worked for this process, and for those that it has waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system
