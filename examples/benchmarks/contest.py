"""A fair contest: each contestant in a process of its own, and turns that alternate.

A contestant is a function of a shape that sets up and returns ``turn``, a function without arguments,
whose first call traces graphs and warms caches and is not counted. Turns alternate, so that a busy
machine's moods are spread over all. Whoever needs a package that is missing is left out, with a word;
whoever fails says so, and the others go on.
"""

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

__all__ = ["Benchmark", "Contestant", "Workers", "contest", "limit_threads", "of"]

Turn = Callable[[], object]
"""What it returns is of no interest, unless it is a function: called when the clock has stopped, it
gives figures by name, and ``seconds`` if the clock is to count for nothing."""

Outcome = dict[str, Any]

_PAUSE = 0.02
"""Seconds in which the threads of one contestant cease to spin before the next has its turn."""


@dataclass(frozen=True)
class Contestant:
    """Who takes part.

    :param setup: ``module:function``, so that nothing is imported but in its own process.
    :param options: of the function, beside the shape.
    :param rounds: at most, for those that are very slow, which are not warmed either; None for all.
    :param up_to: the largest size of a scaling study at which it takes part.
    :param against: whom its ratio is to, if it is not the reference of the benchmark.
    """

    setup: str
    options: dict[str, Any] = field(default_factory=dict)
    rounds: int | None = None
    up_to: float = math.inf
    against: str | None = None

    def turn(self, shape: dict[str, Any]) -> Turn:
        """Set up."""
        module, _, function = self.setup.partition(":")
        return getattr(importlib.import_module(module), function)(**shape, **self.options)


def of(
    setup: str,
    rounds: int | None = None,
    up_to: float = math.inf,
    against: str | None = None,
    **options: Any,
) -> Contestant:
    """A contestant, with the options of its function."""
    return Contestant(setup, options, rounds, up_to, against)


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
    """

    says: str
    contestants: dict[str, Contestant]
    reference: str
    full: Sequence[dict[str, Any]]
    quick: Sequence[dict[str, Any]]
    rounds: int = 7
    over: str | None = None
    fresh: bool = False


def limit_threads(threads: int) -> None:
    """The same number of threads for all: processes that start later inherit it."""
    for name in ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "TF_NUM_INTRAOP", "TF_NUM_INTEROP"):
        os.environ[f"{name}_THREADS"] = str(threads)


def contest(
    benchmark: Benchmark, shape: dict[str, Any], rounds: int, workers: "Workers"
) -> dict[str, Outcome]:
    """Times, memory and figures of each contestant at one shape.

    :param benchmark: who takes part.
    :param shape: what functions are called with.
    :param rounds: turns of each.
    :param workers: the processes.
    """
    turns: dict[str, list[Outcome]] = {name: [] for name in benchmark.contestants}
    warm: dict[str, Outcome] = {}
    out: dict[str, Outcome] = {}

    def ask(name: str, *, begin: bool = False) -> Outcome:
        entrant = benchmark.contestants[name]
        answer = workers.ask(name, entrant, shape if begin else None)
        if not answer.keys().isdisjoint(("skipped", "failed")):
            out[name] = answer
            workers.close(name, entrant)
        return answer

    for name, entrant in benchmark.contestants.items():
        if benchmark.over is not None and shape[benchmark.over] > entrant.up_to:
            out[name] = {"skipped": "not at this size"}
            continue
        if not benchmark.fresh:
            ask(name, begin=True)
            if name not in out and entrant.rounds is None:
                warm[name] = ask(name)
    for i in range(rounds):
        for name, entrant in benchmark.contestants.items():
            if name in out or i >= (entrant.rounds or rounds):
                continue
            if benchmark.fresh:
                ask(name, begin=True)
            if name not in out:
                time.sleep(_PAUSE)
                turns[name].append(ask(name))
            if benchmark.fresh:
                workers.close(name, entrant)
    for name, entrant in benchmark.contestants.items():
        workers.close(name, entrant)
    return {
        name: out[name] if name in out else _summary(turns[name], warm.get(name))
        for name in benchmark.contestants
    }


def _summary(turns: list[Outcome], warm: Outcome | None) -> Outcome:
    """Best, median and quartiles of seconds; the best of work; the most of memory; other medians."""
    seconds = [turn["seconds"] for turn in turns]
    every = (
        turns if warm is None else [*turns, warm]
    )  # memory that was had once is had again for free
    lower, median, upper = np.quantile(seconds, [0.25, 0.5, 0.75])
    known = {"seconds", "work", "rise", "peak"}
    return {
        "turns": seconds,
        "first": None if warm is None else warm["seconds"],
        "best": min(seconds),
        "median": median,
        "quartiles": [lower, upper],
        "work": min(turn["work"] for turn in turns),
        "rise": max(turn["rise"] for turn in every),
        "peak": max(turn["peak"] for turn in every),
        "figures": {
            key: float(np.median([turn[key] for turn in turns])) for key in turns[0].keys() - known
        },
    }


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
    logging.getLogger("tensorflow").setLevel(logging.ERROR)  # each contestant has traces of its own
    turns: dict[str, Turn] = {}
    with suppress(EOFError):
        while True:
            name, contestant, shape = pipe.recv()
            try:
                answer = _timed(turns[name]) if shape is None else {}
                if shape is not None:
                    turns[name] = contestant.turn(shape)
            except Exception as error:
                missing = error.name if isinstance(error, ModuleNotFoundError) else None
                if missing and not missing.startswith("gpflow_ilr"):
                    answer = {"skipped": f"{missing} is not installed"}
                else:
                    traceback.print_exc()
                    answer = {"failed": f"{type(error).__name__}: {error}"}
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
