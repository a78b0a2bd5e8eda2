"""Claims about the page of ``examples/benchmarks``: what it pools, what it says, and who quotes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.whole.benchmarks import FOLDER, Import, importing, outcome_of, result_of

ROOT = FOLDER.parents[1]


@pytest.fixture(name="module")
def _module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    yield from importing(monkeypatch)


def page_of(module: Import, folder: Path, *results: dict) -> str:
    """The page of files, one for each of the results."""
    files = [folder / f"{i}.json" for i in range(len(results))]
    for file, result in zip(files, results, strict=True):
        file.write_text(json.dumps(result), encoding="utf-8")
    assert module("report").write_report(files, folder / "RESULTS.md") == 0
    return (folder / "RESULTS.md").read_text(encoding="utf-8")


def test_a_page_of_two_machines_has_ranges_and_a_small_picture(
    module: Import, tmp_path: Path
) -> None:
    page = page_of(module, tmp_path, result_of("AMD", 0.2), result_of("Intel", 0.3))
    assert "2 thread(s) of AMD" in page
    assert "2 thread(s) of Intel" in page
    assert "| ours | 2 to 3 (2 to 3, 2 to 3–2 to 3) | floor | 2 to 3 |" in page
    assert "| peer | skipped: gpytorch is not installed |" in page
    assert "only on" not in page
    assert "ours 1" in re.search(r"Slope of log seconds.*", page)[0]
    assert 1000 < (tmp_path / "figures" / "rows-scaling.png").stat().st_size < 200_000


def test_seconds_of_more_threads_are_no_part_of_a_range(module: Import, tmp_path: Path) -> None:
    page = page_of(module, tmp_path, result_of("AMD", 0.2, 2), result_of("AMD", 0.3, 4))
    tables = [part for part in page.split("\n\n") if part.startswith("| N=10, ")]
    assert [part.splitlines()[0].split(" | ")[0] for part in tables] == [
        "| N=10, 2 thread(s)",
        "| N=10, 4 thread(s)",
    ]
    assert "| ours | 2 (2, 2–2) | floor | 2 |" in tables[0]
    assert "| ours | 3 (3, 3–3) | floor | 3 |" in tables[1]


def test_who_was_on_one_machine_only_has_its_name_beside_the_figure(
    module: Import, tmp_path: Path
) -> None:
    amd, intel = result_of("AMD", 0.2), result_of("Intel", 0.3)
    for contest in intel["rows-scaling"]["contests"]:
        contest["outcomes"]["peer"] = outcome_of(5.0)
    page = page_of(module, tmp_path, amd, intel)
    assert "| peer | 5 (5, 5–5) | floor | 5 | 5 | 5 | 1 | RMSE 0.5, only on Intel |" in page


def test_a_page_says_load_after_uncommitted_changes_single_turns_and_spread(
    module: Import, tmp_path: Path
) -> None:
    result = result_of("AMD", 0.2)
    study = result["rows-scaling"]
    study["load_after"], study["machine"]["dirty"] = 2.5, True
    ours = study["contests"][0]["outcomes"]["ours"]
    ours |= {"turns": [2.0], "spread": {"RMSE": [0.4, 0.7]}}
    curves = [[{"seconds": 1.0, "NLL": nll}, {"seconds": 2.0, "NLL": 0.2}] for nll in (0.3, 0.5)]
    ours["curves"] = curves
    page = page_of(module, tmp_path, result)
    assert "load 0.1 before and 2.5 after" in page
    assert "commit abc, with changes" in page
    assert "| RMSE 0.5 (0.4–0.7), one turn |" in page
    assert "- ours, AMD: 0.4 after 1 s, 0.2 after 2 s" in page


def test_a_report_of_nothing_says_what_comes_first(
    module: Import, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert module("report").write_report([], tmp_path / "RESULTS.md") == 2
    assert "--json FILE" in capsys.readouterr().out


def test_the_committed_page_is_what_the_committed_results_say(
    module: Import, tmp_path: Path
) -> None:
    files = sorted((FOLDER / "results").glob("*.json"))
    assert module("report").write_report(files, tmp_path / "RESULTS.md") == 0
    made, kept = (
        (folder / "RESULTS.md").read_text(encoding="utf-8").splitlines()
        for folder in (tmp_path, FOLDER)
    )
    of_files = 2  # the line that names the files, whose paths depend on where it is run
    assert made[:of_files] + made[of_files + 1 :] == kept[:of_files] + kept[of_files + 1 :]


def test_the_readme_quotes_the_step_that_every_machine_has_measured(module: Import) -> None:
    ratios, found = module("tables").ratios, []
    processors = set()
    for file in (FOLDER / "results").glob("*.json"):
        result = json.loads(file.read_text(encoding="utf-8"))["collapsed-step"]
        contest = result["contests"][0]
        contest["against"] |= {"ILRSGPR, per-output noise": "GPflow SGPR, shared noise"}
        found += ratios(contest, "ILRSGPR, per-output noise").values()
        processors.add(result["machine"]["processor"])
    parts = (ROOT / "README.md").read_text(encoding="utf-8").split("\n\n")
    part = next(" ".join(part.split()) for part in parts if "benchmarks/RESULTS.md" in part)
    assert all(re.split(r"\(| @", processor)[0] in part for processor in processors)
    said = re.search(r"a step of `ILRSGPR` takes ([^`]*) of GPflow's `SGPR`", part)
    quoted = [float(number) for number in re.findall(r"\.\d+", said[1])]
    assert quoted[0] == round(min(found), 2)
    assert quoted[-1] == round(max(found), 2)


def test_no_figure_of_the_page_is_measured_twice() -> None:
    of_page = re.findall(r"^## ([\w-]+)$", (FOLDER / "RESULTS.md").read_text("utf-8"), re.MULTILINE)
    old = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8").partition("The rest is")[0]
    in_table = re.findall(r"^\| `([\w-]+)` \|", old, re.MULTILINE)
    assert set(in_table).isdisjoint(of_page), "the page has it now: remove the old row"
