"""Claims about ``RESULTS.md`` of ``examples/paper``: what it says is what its lines say."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.whole.paper import FOLDER, Import, importing


@pytest.fixture(name="paper")
def _paper(monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    yield from importing(monkeypatch)


def test_a_verdict_says_what_is_not_better(paper: Import) -> None:
    verdict = paper("verdicts").verdict
    paper_row = {"ACC": [0.98, 0.1], "NLL": [0.06, 0.1], "ECE": [0.07, 0.03]}
    ours = {"ACC": 0.98, "NLL": 0.05, "ECE": 0.08, "ECE_sd": 0.04, "seeds": 5}
    assert verdict(ours, paper_row) == "ACC equal, NLL yes, ECE no, by 0.4 standard errors"
    ours |= {"ACC": 0.97, "NLL": 0.07, "ECE": 0.07}
    assert verdict(ours, paper_row) == "ACC no, NLL no, ECE yes"


def test_models_that_are_worse_than_printed_are_said(paper: Import) -> None:
    worse = paper("differences")._worse
    lines = [
        {"data": "letter", "model": model, "NLL": nll + 0.001 * seed}
        for model, nll in {"GPD": 0.15, "C-ILR": 0.16, "LSM": 0.5, "SVC": 9.0}.items()
        for seed in range(5)
    ]
    said = worse(lines)
    assert "GPD on letter .152 (.12)" in said
    for model in ("C-ILR", "LSM", "SVC"):  # equal within rounding, better, and not the paper's
        assert model not in said
    assert worse(lines[5:]) == ""


@pytest.mark.parametrize("protocol", ["ours", "paper"])
def test_what_has_not_run_is_said_and_peers_are_asked_for_once(
    protocol: str, paper: Import
) -> None:
    done = {
        "uci-exact": [
            {"data": name, "model": model, "seeds": 5 - (name == "glass")}
            for name in ("wine", "glass", "thyroid")
            for model in ("E-ILR", "GPD", "LSM", "BSM")
        ],
        "uci-sparse": [],
    }
    said = paper("report")._unfinished(done, protocol)
    assert "(runs of 5)" in said
    assert "glass: " in said
    assert "GPD 4" in said
    assert "eeg: nothing" in said
    assert ("wine: " in said) == ("CatBoost 0" in said) == (protocol == "ours")


@pytest.mark.parametrize(
    ("name", "where", "count"),
    [("README.md", "paper/RESULTS.md", 4), ("docs/paper_and_code.md", "| New-thyroid |", 12)],
)
def test_what_is_quoted_is_on_the_page(name: str, where: str, count: int) -> None:
    page = FOLDER / "RESULTS.md"
    if not page.exists():
        pytest.skip("no full run is committed yet")
    text = (FOLDER.parents[1] / name).read_text(encoding="utf-8")
    quoting = next(part for part in text.split("\n\n") if where in part)
    quoted = re.findall(r"(?:\.\d+ / )+\.\d+", " ".join(quoting.split()))
    assert len(quoted) >= count
    assert all(triple in page.read_text(encoding="utf-8") for triple in quoted)


def test_the_committed_page_and_tables_are_what_their_lines_say(
    paper: Import, tmp_path: Path
) -> None:
    committed = FOLDER / "results"
    if not committed.exists():
        pytest.skip("no full run is committed yet")
    results = tmp_path / "results"
    shutil.copytree(committed, results)
    assert paper("report").write_report(results, tmp_path / "RESULTS.md")
    page = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    page = page.replace(str(results), "examples/paper/results")
    again = "run `report --out examples/paper/results --to examples/paper/RESULTS.md` again"
    assert page == (FOLDER / "RESULTS.md").read_text(encoding="utf-8"), again
    tables = sorted(path.name for path in results.glob("*.csv"))
    assert tables == sorted(path.name for path in committed.glob("*.csv")), again
    for name in tables:
        assert (results / name).read_bytes() == (committed / name).read_bytes(), again
    pictures = [path.name for path in (results / "figures").iterdir()]
    assert all((committed / "figures" / name).exists() for name in pictures), again
