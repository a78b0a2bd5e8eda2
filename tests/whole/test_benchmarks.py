"""Claims about ``examples/benchmarks``: turns are fair, and nobody wins because others are missing."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "benchmarks"
MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__main__")
TRIVIAL = """
import os, time

def waits(shape, seconds):
    calls = []
    def turn():
        calls.append(time.sleep(seconds))
        return lambda: {"calls": len(calls), "pid": os.getpid()}
    return turn

def raises(shape):
    raise ValueError("no such shape")

def is_missing(shape):
    import a_package_that_nobody_has

def dies(shape):
    return lambda: os._exit(3)

def threads(shape):
    return lambda: lambda: {"threads": float(os.environ["OMP_NUM_THREADS"])}
"""

Import = Callable[[str], ModuleType]


@pytest.fixture(name="module")
def _module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Import]:
    """A module of the folder, which is on the path as it is when the folder is run."""
    (tmp_path / "trivial.py").write_text(TRIVIAL, encoding="utf-8")
    for folder in (tmp_path, FOLDER):
        monkeypatch.syspath_prepend(str(folder))
    yield __import__
    for name in (*MODULES, "trivial"):
        sys.modules.pop(name, None)
    plt.close("all")


def test_every_contestant_is_a_function_and_every_reference_a_contestant(module: Import) -> None:
    functions = {
        f"{path.stem}:{node.name}"
        for path in FOLDER.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    benchmarks = module("catalogue").BENCHMARKS
    assert len(benchmarks) == 17
    for name, benchmark in benchmarks.items():
        assert {entrant.setup for entrant in benchmark.contestants.values()} <= functions, name
        against = {entrant.against for entrant in benchmark.contestants.values()} - {None}
        assert {benchmark.reference, *against} <= benchmark.contestants.keys(), name
        for shape in (*benchmark.full, *benchmark.quick):
            assert benchmark.over is None or benchmark.over in shape


@pytest.mark.parametrize("quick", [False, True])
def test_contestants_take_turns_and_who_fails_stops_nobody(
    module: Import, quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    contest = module("contest")
    of = contest.of
    contestants = {
        "fast": of("trivial:waits", seconds=0.01),
        "slow": of("trivial:waits", seconds=0.05),
        "once": of("trivial:waits", seconds=0.01, rounds=1),
        "raises": of("trivial:raises"),
        "missing": of("trivial:is_missing"),
        "too large": of("trivial:waits", seconds=9.0, up_to=1),
        "threads": of("trivial:threads"),
        "dies": of("trivial:dies"),
    }
    benchmark = contest.Benchmark("Waits.", contestants, "fast", [], [], over="shape")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with contest.Workers(quick) as workers:
        found = contest.contest(benchmark, {"shape": 2}, 3, workers)
    assert found["raises"] == {"failed": "ValueError: no such shape"}
    assert found["missing"] == {"skipped": "a_package_that_nobody_has is not installed"}
    assert found["too large"] == {"skipped": "not at this size"}
    assert found["dies"] == {"failed": "its process ended with exit code 3"}
    if quick:  # one process for all of a module, so that a death is everybody's
        return
    assert found["threads"]["figures"] == {"threads": 3.0}
    for name, seconds, turns in (("fast", 0.01, 3), ("slow", 0.05, 3), ("once", 0.01, 1)):
        outcome = found[name]
        assert len(outcome["turns"]) == turns
        assert seconds <= outcome["best"] <= outcome["median"] <= outcome["quartiles"][1]
    assert found["fast"]["figures"]["calls"] == 3.0  # the median of 2 to 4: one to warm up
    assert found["once"]["figures"]["calls"] == 1.0
    assert len({found[name]["figures"]["pid"] for name in ("fast", "slow", "once")}) == 3


def test_who_is_not_there_has_no_ratio_and_is_none(module: Import) -> None:
    tables = module("tables")
    timed = {"best": 2.0, "median": 3.0, "work": 1.0}
    outcomes = {"ours": timed, "peer": {"skipped": "peer is not installed"}}
    contest = {"outcomes": outcomes, "against": {"ours": "peer", "peer": "peer"}}
    assert set(tables.ratios(contest, "ours").values()) == {None}
    assert set(tables.ratios(contest, "peer").values()) == {None}


def result(processor: str, factor: float) -> dict:
    """What a scaling study on some machine has found."""

    def outcome(seconds: float) -> dict:
        return {
            "turns": [seconds],
            "best": seconds,
            "median": seconds,
            "quartiles": [seconds, seconds],
            "work": seconds,
            "rise": 1.0,
            "peak": 2.0,
            "first": None,
            "figures": {"RMSE": 0.5},
        }

    peer = {"skipped": "gpytorch is not installed"}
    contests = [
        {
            "shape": {"N": N},
            "against": dict.fromkeys(("floor", "ours", "peer"), "floor"),
            "outcomes": {"floor": outcome(1.0), "ours": outcome(factor * N), "peer": peer},
        }
        for N in (10, 1000)
    ]
    machine = {"processor": processor, "load": 0.1, "commit": "abc", "versions": {"numpy": "1.26"}}
    common = {"says": "Rows grow.", "over": "N", "quick": False, "threads": 2}
    said = {"command": "python examples/benchmarks rows-scaling", "date": "2026-01-02T03:04:05"}
    return {"rows-scaling": {**common, **said, "machine": machine, "contests": contests}}


def test_a_page_of_two_machines_has_ranges_and_a_small_picture(
    module: Import, tmp_path: Path
) -> None:
    files = []
    for processor, factor in (("AMD", 0.2), ("Intel", 0.3)):
        files.append(tmp_path / f"{processor}.json")
        files[-1].write_text(json.dumps(result(processor, factor)), encoding="utf-8")
    assert module("report").write_report(files, tmp_path / "RESULTS.md") == 0
    page = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    assert "2 thread(s) of AMD" in page
    assert "2 thread(s) of Intel" in page
    assert "| ours | 2 to 3 (2 to 3, 2 to 3–2 to 3) | floor | 2 to 3 |" in page
    assert "| peer | skipped: gpytorch is not installed |" in page
    assert "ours 1" in re.search(r"Slope of log seconds.*", page)[0]
    assert 1000 < (tmp_path / "figures" / "rows-scaling.png").stat().st_size < 200_000


def test_a_report_of_nothing_says_what_comes_first(
    module: Import, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert module("report").write_report([], tmp_path / "RESULTS.md") == 2
    assert "--json FILE" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command_measures_writes_json_and_makes_a_page(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        command = [sys.executable, str(FOLDER), *arguments]
        environment = os.environ | {"PYTHONPATH": str(FOLDER.parents[1])}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert len(run("list").splitlines()) == 17
    output = run(
        "collapsed-step", "svgp-step", "inducing-scaling", "--quick", "--json", "found.json"
    )
    assert "failed" not in output
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert set(found) == {"collapsed-step", "svgp-step", "inducing-scaling"}
    assert {"processor", "cores", "load", "versions"} <= found["svgp-step"]["machine"].keys()
    assert (
        found["collapsed-step"]["contests"][0]["outcomes"]["ILRSGPR, per-output noise"]["best"] > 0
    )
    run("report", "found.json", "--to", "page/RESULTS.md")
    assert "`--quick`" in (tmp_path / "page" / "RESULTS.md").read_text(encoding="utf-8")
    assert (tmp_path / "page" / "figures" / "inducing-scaling.png").exists()
