"""``RESULTS.md``: everything that a folder of results says, beside the paper, in one page.

Nothing here knows a result: every number is read from the lines, and sentences about them are written
only where the lines are there. Runs of ``--quick`` are shown only where there are no others.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import figures
import numpy as np
from differences import differences
from limits import chosen_by_test_rows, cut_by_the_clock, earlier_settings
from models import PROTOCOLS
from peers import PEERS
from published import METRICS, best_ilr, published
from results import Results
from tables import Summary, markdown, short, summaries, uci_table, write_csv
from uci import SETS
from verdicts import against_trees, verdicts

__all__ = ["write_report"]

Lines = list[dict[str, Any]]
UCI = ("uci-exact", "uci-sparse")
AXES = {
    "toy-lambda": "standard deviation s",
    "toy-alpha": "standard deviation s",
    "toy-sigma": "standard deviation s",
    "scaling-k": "number of classes K",
}
WHOSE = {"ours": "our protocol", "paper": "the paper's protocol"}
PICTURES = ("visual-abstract", "likelihood-figure", "decision-boundaries")


def write_report(folder: Path, path: Path) -> bool:
    """Write tables and figures into the folder, and the page; whether there was anything to write.

    :param folder: with lines of results.
    :param path: of the page.
    """
    lines = {
        file.stem: _of_full_runs(Results(file, ()).lines) for file in sorted(folder.glob("*.jsonl"))
    }
    drawn = [name for name in PICTURES if (folder / "figures" / f"{name}.png").exists()]
    if not (lines or drawn):
        print(f"There are no results in {folder}: run an experiment with --out {folder} first.")
        return False
    parts = [_preface(lines, folder)]
    for protocol in WHOSE:
        uci = {name: [r for r in lines.get(name, ()) if r["protocol"] == protocol] for name in UCI}
        if any(uci.values()):
            parts += _uci_part(uci, protocol, folder)
    if "gpd-breakdown" in lines:
        parts.append(_breakdown(lines["gpd-breakdown"]))
    for name, axis in AXES.items():
        for protocol in WHOSE:
            of_one = [line for line in lines.get(name, ()) if line["protocol"] == protocol]
            if of_one:
                picture = f"{name}-{protocol}"
                path_of = folder / "figures" / f"{picture}.png"
                figures.curves(of_one, axis, path_of, name == "scaling-k")
                parts.append(_curves(name, protocol, of_one))
    if "gpd-error-rate" in lines:
        figures.error_rate_curves(
            lines["gpd-error-rate"], folder / "figures" / "gpd-error-rate.png"
        )
        parts.append(_error_rates(lines["gpd-error-rate"]))
    parts.append(differences(lines))
    parts += [_picture(name) for name in PICTURES if name in drawn]
    page = "\n\n".join(part for part in parts if part) + "\n"
    links = os.path.relpath(folder / "figures", path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page.replace("FIGURES", Path(links).as_posix()), encoding="utf-8")
    print(f"wrote {path}")
    return True


def _of_full_runs(lines: Lines) -> Lines:
    full = [line for line in lines if not line.get("quick")]
    return full or lines


def _preface(lines: dict[str, Lines], folder: Path) -> str:
    every = [line for of_one in lines.values() for line in of_one]
    text = [
        "# Results",
        f"Written by `python examples/paper report --out {folder}` from the lines of results "
        "there, one for each data set × model × seed. They are from `python examples/paper "
        f"EXPERIMENT --data-dir DIR --seeds {_most_seeds(every)} --out {folder}`, for each "
        "EXPERIMENT of `python "
        "examples/paper list`.",
    ]
    if every:
        dates = sorted(line["date"] for line in every)
        processors = " and ".join(
            sorted({f"{r['cores']} core(s) of {r['processor']}" for r in every})
        )
        versions: dict[str, list[str]] = {}
        for name, version in (pair for line in every for pair in line["versions"].items()):
            if version not in versions.setdefault(name, []):
                versions[name].append(version)
        text.append(
            f"Runs from {dates[0][:10]} to {dates[-1][:10]}, {processors}"
            + _busy(every)
            + "; "
            + ", ".join(f"{name} {' and '.join(found)}" for name, found in versions.items())
            + ". ACC, NLL and ECE (10 bins) are of test rows, mean ± standard deviation over "
            "seeds; test rows choose nothing"
            + (" (but see *Lines of earlier settings*)" if chosen_by_test_rows(every) else "")
            + ". *ECE by chance* is that of a perfectly calibrated "
            "forecaster with the same confidences, by simulation: no model can be expected "
            "below it. The paper's numbers are from its appendix (`published.json` has the places)."
        )
    if any(line.get("quick") for line in every):
        text.append(
            "**Some of it comes from `--quick`: it shows that the code runs, and nothing else.**"
        )
    return "\n\n".join(text)


def _most_seeds(lines: Lines) -> int:
    return 1 + max((line.get("seed", 0) for line in lines), default=0)


def _busy(lines: Lines) -> str:
    """A word about a machine that did other work, too, which processor time shows."""
    timed = [line for line in lines if line.get("processor_seconds")]
    if not timed:
        return ""
    share = sum(r["processor_seconds"] for r in timed) / sum(
        r["cores"] * r["seconds"] for r in timed
    )
    return (
        f" (of which these runs had {share:.0%}: seconds are by the clock)" if share < 0.9 else ""
    )


def _uci_part(uci: dict[str, Lines], protocol: str, folder: Path) -> Iterator[str]:
    rows = {name: summaries(lines) for name, lines in uci.items()}
    every = [row for of_one in rows.values() for row in of_one]
    for name, of_one in rows.items():
        if of_one:
            write_csv(folder / f"{name}-{protocol}.csv", of_one)
    figures.sets_figure(every, folder / "figures" / f"uci-{protocol}.png")
    yield f"## UCI sets, {WHOSE[protocol]}"
    known = [row["data"] for row in every if best_ilr(row["data"]) is not None]
    if known:
        yield verdicts(every, list(dict.fromkeys(known)))
    many = uci["uci-sparse"]
    if protocol == "ours":
        for name in dict.fromkeys(line["data"] for line in many):
            if best_ilr(name) is None:
                of_set = [line for line in many if line["data"] == name]
                yield against_trees(name, of_set, str(folder))
    yield _unfinished(rows, protocol)
    yield earlier_settings([*uci["uci-exact"], *many])
    yield cut_by_the_clock(many)
    yield f"![NLL of every model on every set](FIGURES/uci-{protocol}.png)"
    for name in dict.fromkeys(row["data"] for row in every):
        of_set = [row for row in every if row["data"] == name]
        line = next(r for lines in uci.values() for r in lines if r["data"] == name)
        yield (
            f"### {name}: {line['training']} training and {line['test']} test rows, "
            f"{line['classes']} classes"
        )
        yield uci_table(name, of_set)


def _unfinished(rows: dict[str, list[Summary]], protocol: str) -> str:
    """What the whole experiments would have and these lines lack; nothing if they are complete."""
    said = []
    most = max(row["seeds"] for of_one in rows.values() for row in of_one)
    for experiment, of_one in rows.items():
        seeds = {(row["data"], row["model"]): row["seeds"] for row in of_one}
        # Peers know no protocol: they are in our tables.
        wanted = [
            m for m in PROTOCOLS[protocol][experiment] if protocol == "ours" or m not in PEERS
        ]
        for name in dict.fromkeys([*SETS[experiment], *(row["data"] for row in of_one)]):
            done = {model: seeds.get((name, model), 0) for model in wanted}
            if not any(done.values()):
                said.append(f"{name}: nothing")
            elif min(done.values()) < most:
                few = (f"{model} {count}" for model, count in done.items() if count < most)
                said.append(f"{name}: {', '.join(few)}")
    return f"**Not finished** (runs of {most}): {'; '.join(said)}." if said else ""


def _breakdown(lines: Lines) -> str:
    paper = published()["gpd-breakdown"]
    cells = []
    for key in dict.fromkeys((r["protocol"], r["model"], r["setting"]) for r in lines):
        protocol, model, setting = key
        of_one = [r for r in lines if (r["protocol"], r["model"], r["setting"]) == key]
        name = "α_ε" if model == "GPD" else "λ"
        cell = [f"{model}, {name} = {setting:g}", WHOSE[protocol]]
        for name in ("z*", "f*"):
            values = [r[name] for r in of_one]
            cell.append(f"{short(np.mean(values))} ± {short(np.std(values))}")
        printed = paper["values"][model]
        of_paper = [f"{short(printed[n][0])} ± {short(printed[n][1])}" for n in ("z*", "f*")]
        cells.append([*cell, *of_paper])
    header = ["", "", "error from z*", "error from f*", "the paper, z*", "the paper, f*"]
    return f"## When does GPD break down? (Table 1)\n\n{markdown(header, cells)}"


def _curves(name: str, protocol: str, lines: Lines) -> str:
    """Mean scores at the ends and in the middle of the axis; the figure has the rest."""
    at = sorted({line["at"] for line in lines})
    shown = [at[0], at[len(at) // 2], at[-1]] if len(at) > 2 else at
    names = dict.fromkeys(key for line in lines for key in line["scores"])
    letter = "K" if name == "scaling-k" else "s"
    cells = []
    for setting in names:
        cell = [setting]
        for x in shown:
            found = [r["scores"][setting] for r in lines if r["at"] == x and setting in r["scores"]]
            means = [np.mean([scores[m] for scores in found]) for m in METRICS] if found else []
            cell.append(" / ".join(short(m) for m in means) or "–")
        cells.append(cell)
    header = ["ACC / NLL / ECE", *(f"{letter} = {x:g}" for x in shown)]
    claims = "\n".join(f"- The paper: {claim}" for claim in published()[name].get("claims", ()))
    table = markdown(header, cells)
    title = f"## {name}, {WHOSE[protocol]}"
    return f"{title}\n\n![{name}](FIGURES/{name}-{protocol}.png)\n\n{table}\n\n{claims}"


def _error_rates(lines: Lines) -> str:
    classes = sorted({line["classes"] for line in lines})
    cells = []
    for alpha in sorted({line["alpha_epsilon"] for line in lines}, reverse=True):
        errors = {r["classes"]: r["error"] for r in lines if r["alpha_epsilon"] == alpha}
        cells.append([f"GPD, α_ε = {alpha:g}", *(short(errors.get(K), 4) for K in classes)])
    ilr = {line["classes"]: line["error_ILR"] for line in lines}
    cells.append(["ILR", *(short(ilr[K], 4) for K in classes)])
    table = markdown(["error", *(f"K = {K}" for K in classes)], cells)
    return f"## gpd-error-rate\n\n![gpd-error-rate](FIGURES/gpd-error-rate.png)\n\n{table}"


def _picture(name: str) -> str:
    return f"## {name}\n\n![{name}](FIGURES/{name}.png)"
