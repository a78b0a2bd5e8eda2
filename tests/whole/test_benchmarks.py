"""Claims about ``examples/benchmarks``: turns are fair, and nobody wins because others are missing."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.whole.benchmarks import FOLDER, Import, importing

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

def is_absent(shape):
    from contest import AbsentError
    raise AbsentError("no such data")

def is_missing(shape):
    import a_package_that_nobody_has

def dies(shape):
    return lambda: os._exit(3)

def threads(shape):
    cores = getattr(os, "sched_getaffinity", lambda _: (0,))(0)
    return lambda: lambda: {"threads": float(os.environ["OMP_NUM_THREADS"]), "cores": len(cores)}
"""


@pytest.fixture(name="module")
def _module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Import]:
    (tmp_path / "trivial.py").write_text(TRIVIAL, encoding="utf-8")
    yield from importing(monkeypatch, tmp_path)


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
        "absent": of("trivial:is_absent"),
        "cold": of("trivial:waits", seconds=0.01, rounds=1, warmed=False),
        "too large": of("trivial:waits", seconds=9.0, up_to=1),
        "threads": of("trivial:threads"),
        "dies": of("trivial:dies"),
    }
    benchmark = contest.Benchmark("Waits.", contestants, "fast", [], [], over="shape")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with contest.Workers(quick) as workers:
        found = contest.contest(benchmark, {"shape": 2}, 3, workers)
    assert found["raises"] == {"failed": "ValueError: no such shape"}
    assert found["missing"] == {"skipped": "a_package_that_nobody_has is not installed"}
    assert found["absent"] == {"skipped": "no such data"}
    assert found["too large"] == {"skipped": "not at this size"}
    assert found["dies"] == {"failed": "its process ended with exit code 3"}
    if quick:  # one process for all of a module, so that a death is everybody's
        return
    assert found["threads"]["figures"] == {"threads": 1.0, "cores": 1.0}
    for name, seconds, turns in (("fast", 0.01, 3), ("slow", 0.05, 3), ("once", 0.01, 1)):
        outcome = found[name]
        assert len(outcome["turns"]) == turns
        assert seconds <= outcome["best"] <= outcome["median"] <= outcome["quartiles"][1]
    assert found["fast"]["figures"]["calls"] == 3.0  # the median of 2 to 4: one to warm up
    assert found["fast"]["spread"] == {"calls": [2.0, 4.0]}
    assert found["once"]["figures"]["calls"] == 2.0
    assert found["cold"]["figures"]["calls"] == 1.0
    assert len({found[name]["figures"]["pid"] for name in ("fast", "slow", "once")}) == 3


def test_who_is_not_there_has_no_ratio_and_is_none(module: Import) -> None:
    tables = module("tables")
    timed = {"best": 2.0, "median": 3.0, "work": 1.0}
    outcomes = {"ours": timed, "peer": {"skipped": "peer is not installed"}}
    contest = {"outcomes": outcomes, "against": {"ours": "peer", "peer": "peer"}}
    assert set(tables.ratios(contest, "ours").values()) == {None}
    assert set(tables.ratios(contest, "peer").values()) == {None}


class Diary:
    """Processes that are none: who was asked and dismissed, and every turn takes so long."""

    def __init__(self, seconds: float) -> None:
        self.said: list[str] = []
        self._turn = {"seconds": seconds, "work": 1.0, "rise": 0.0, "peak": 0.0}

    def ask(self, name: str, _: object, shape: dict | None) -> dict:
        self.said.append(f"{name} {'turns' if shape is None else 'begins'}")
        return dict(self._turn) if shape is None else {}

    def close(self, name: str, _: object) -> None:
        self.said.append(f"{name} ends")


def test_where_memory_is_for_one_nobody_begins_before_the_other_has_ended(module: Import) -> None:
    contest, diary = module("contest"), Diary(1.0)
    entrants = {name: contest.of("trivial:waits") for name in "ab"}
    benchmark = contest.Benchmark("Waits.", entrants, "a", [], [], alone=True)
    found = contest.contest(benchmark, {}, 1, diary)
    each = ["begins", "turns", "turns", "ends"]
    assert diary.said == [f"{name} {what}" for name in "ab" for what in each]
    assert [len(found[name]["turns"]) for name in "ab"] == [1, 1]
    contest.contest(benchmark, {}, 1, quick := Diary(1.0), warmed=False)
    assert [said for said in quick.said if said == "a turns"] == ["a turns"]


@pytest.mark.parametrize(("seconds", "turns"), [(59.0, 3), (61.0, 1)])
def test_a_first_turn_of_more_than_a_minute_is_the_only_one(
    module: Import, seconds: float, turns: int
) -> None:
    contest, diary = module("contest"), Diary(seconds)
    benchmark = contest.Benchmark("Waits.", {"a": contest.of("trivial:waits")}, "a", [], [])
    assert contest.contest(benchmark, {}, 3, diary)["a"]["turns"] == [seconds] * turns
    assert diary.said.count("a turns") == (turns + 1 if turns > 1 else 1)


def test_who_cannot_take_part_is_skipped_with_a_word(
    module: Import, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    absent = module("contest").AbsentError
    for folder in (None, str(tmp_path)):
        with pytest.raises(absent, match=r"letter\.npz.*--data-dir"):
            module("whole_fits").to_quality("letter", "fit_auto", 1, folder)
    monkeypatch.setitem(sys.modules, "pynndescent", SimpleNamespace(NNDescent=None))
    with pytest.raises(absent, match="ten minutes"):
        module("nearest").pynndescent(np.zeros([100_001, 1]))
    exact = module("exact_posterior")
    monkeypatch.setattr(exact.memory, "of_machine", lambda: 10.0)
    with pytest.raises(absent, match=r"15 GiB, and 10 are free"):
        exact.gpflow_posterior(20_000, 2, 3)


def test_held_out_rows_say_which_budget_is_enough_and_test_rows_nothing(module: Import) -> None:
    points = [(1.0, 0.5, 0.01), (2.0, 0.202, 0.3), (4.0, 0.2, 0.4), (8.0, 0.21, 0.1)]
    curve = [dict(zip(("seconds", "held-out NLL", "NLL"), p, strict=True)) for p in points]
    assert module("whole_fits").enough(curve) == (curve[1], curve[2])


@pytest.mark.parametrize(("factor", "least"), [(4.0, 2.0), (0.25, 0.1), (1.0, 0.5)])
def test_trees_are_calibrated_by_the_rows_that_have_stopped_them(
    module: Import, factor: float, least: float
) -> None:
    trees, rng = module("trees"), np.random.default_rng(0)
    logits = rng.normal(size=(4000, 3))
    p = np.exp(logits) / np.sum(np.exp(logits), axis=1, keepdims=True)
    y = np.argmax(rng.random((4000, 1)) < np.cumsum(p, axis=1), axis=1)
    T = trees.temperature(factor * logits, y)
    assert least < T < 2.0 * factor
    assert pytest.approx(factor, rel=0.1) == T


def test_calibrated_trees_promise_no_more_than_others(module: Import) -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = (X[:, 0] + X[:, 1] ** 2 > 1.0).astype(int)
    plain, calibrated = (
        module("trees").boosted(X, y, "HistGradientBoosting", 5, calibrate=calibrate)
        for calibrate in (False, True)
    )
    assert calibrated.held_out_nll <= plain.held_out_nll
    p = calibrated.predict(X[:30])
    np.testing.assert_allclose(np.sum(p, axis=1), 1.0)
    own = -np.mean(np.log(p[np.arange(30), y[:30]]))
    assert own == pytest.approx(calibrated.held_out_nll, rel=1e-9)


def test_the_record_has_memory_and_whether_all_is_committed(
    module: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, said = module("machine"), {"rev-parse": "abc", "status": " M gpflow_ilr/x.py"}
    monkeypatch.setattr(machine, "_git", lambda word, *_: said[word])
    assert machine.machine()["dirty"] is True
    said["status"] = ""
    assert machine.machine()["dirty"] is False
    assert {"commit", "GiB", "load"} <= machine.machine().keys()


def test_gpytorch_predicts_from_the_posterior_of_the_others(module: Import) -> None:
    pytest.importorskip("gpytorch")
    shape = {"N": 60, "D": 2, "K": 3, "M": 10, "rows": 20, "truth": 5000}
    turn = module("torch_models").predict(**shape, samples=5000)
    assert turn()()["RMSE"] < 0.01


def run(*arguments: str, folder: Path) -> str:
    command = [sys.executable, str(FOLDER), *arguments]
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parents[1])}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_one_command_lists_all_there_is_and_runs_studies(module: Import, tmp_path: Path) -> None:
    benchmarks, _, studies = run("list", folder=tmp_path).partition("\n\n")
    assert len(benchmarks.splitlines()) == 17
    beside = {  # scripts that can be run
        path.stem
        for path in FOLDER.glob("*.py")
        if "argparse" in path.read_text(encoding="utf-8") and path.stem != "__main__"
    }
    assert {line.split()[0] for line in studies.splitlines()[1:]} == beside
    assert "--calibrate" in run("auto", "--help", folder=tmp_path)


@pytest.mark.slow
def test_the_command_measures_writes_json_and_makes_a_page(tmp_path: Path) -> None:
    names = ("collapsed-step", "svgp-step", "inducing-scaling")
    output = run(*names, "--quick", "--json", "found.json", folder=tmp_path)
    assert "failed" not in output
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert found.keys() == set(names)
    assert {"processor", "cores", "load", "versions"} <= found["svgp-step"]["machine"].keys()
    assert found["svgp-step"]["load_after"] is not None
    command = "python examples/benchmarks svgp-step --quick --json FILE"
    assert found["svgp-step"]["command"] == command
    outcomes = found["collapsed-step"]["contests"][0]["outcomes"]
    assert outcomes["ILRSGPR, per-output noise"]["best"] > 0
    run("report", "found.json", "--to", "page/RESULTS.md", folder=tmp_path)
    assert "`--quick`" in (tmp_path / "page" / "RESULTS.md").read_text(encoding="utf-8")
    assert (tmp_path / "page" / "figures" / "inducing-scaling.png").exists()


@pytest.mark.slow
def test_without_data_nothing_fails(tmp_path: Path) -> None:
    output = run("time-to-quality", "--quick", "--json", "found.json", folder=tmp_path)
    assert "failed" not in output
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    outcome = found["time-to-quality"]["contests"][0]["outcomes"]["HistGradientBoosting"]
    assert outcome["curves"][0][0]["NLL"] == outcome["figures"]["NLL"]
