"""``RESULTS.md``: all that one or several files of results say, in one page.

Nothing here knows a result. Where several machines have measured the same, there are ranges.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from catalogue import BENCHMARKS
from keeping import read_results
from pictures import curves, scaling_picture, slope
from tables import figures_text, points, ratios, shape_text, si, span

__all__ = ["write_report"]

Results = dict[str, dict[str, Any]]


def write_report(files: Sequence[Path], path: Path) -> int:
    """Write the page, and pictures beside it.

    :param files: of JSON, each of one machine.
    :param path: of the page.
    """
    missing = [file for file in files if not file.exists()]
    if missing or not files:
        named = ", ".join(map(str, missing)) or "no file at all"
        print(f"There is {named}: run benchmarks with --json FILE, then report FILE.")
        return 2
    results = [read_results(file) for file in files]
    parts = [_preface(results, files)]
    for name in BENCHMARKS:
        of_name = [result[name] for result in results if name in result]
        if of_name:
            parts += _section(name, of_name, path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"wrote {path}")
    return 0


def _preface(results: list[Results], files: Sequence[Path]) -> str:
    every = [result for of_file in results for result in of_file.values()]
    shown = " ".join(os.path.relpath(file) for file in files)
    text = [
        "# Results of the benchmarks",
        f"Written by `python examples/benchmarks report {shown}`. Contestants have the same rows, type "
        "of number and threads, and a process each; turns alternate, but in `exact-posterior`, where "
        "memory is for one at a time. A first turn is left out, unless it takes a minute. Seconds are "
        "of the best turn, with the median and the quartiles in brackets. Ratios are of best turns, "
        "of medians and of processor time. MiB are what resident memory rises in a turn.",
    ]
    for machine in dict.fromkeys(map(_machine, every)):
        own = [result for result in every if _machine(result) == machine]
        dates = sorted(result["date"][:10] for result in own)
        loads = span(result["machine"]["load"] for result in own)
        after = span(result.get("load_after") for result in own)
        versions = {k: v for r in own for k, v in r["machine"]["versions"].items()}
        listed = ", ".join(f"{package} {version}" for package, version in versions.items())
        commits = ", ".join(sorted({_commit(result["machine"]) for result in own}))
        text.append(
            f"- {machine}, load {loads} before and {after} after, {dates[0]} to {dates[-1]}, commit "
            f"{commits}; {listed}."
        )
    if any(result["quick"] for result in every):
        text.append(
            "**Some of it comes from `--quick`: it shows that the code runs, and nothing else.**"
        )
    return "\n\n".join(text)


def _machine(result: dict[str, Any]) -> str:
    return f"{_threads(result)} of {_processor(result)}"


def _threads(result: dict[str, Any]) -> str:
    return f"{result['threads']} thread(s)"


def _processor(result: dict[str, Any]) -> str:
    return result["machine"]["processor"]


def _commit(machine: dict[str, Any]) -> str:
    return f"{machine['commit']}{', with changes' if machine.get('dirty') else ''}"


def _section(name: str, results: list[dict[str, Any]], folder: Path) -> list[str]:
    commands = " and ".join(sorted({f"`{result['command']}`" for result in results}))
    parts = [f"## {name}", f"{results[0]['says']} {commands}"]
    tables: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for result in results:  # seconds of more threads are no part of a range over machines
        for contest in result["contests"]:
            shape = ", ".join(filter(None, (shape_text(contest["shape"]), _threads(result))))
            tables.setdefault(shape, []).append((_processor(result), contest))
    for shape, contests in tables.items():
        parts += [_table(shape, contests), *_curves(contests)]
    if results[0]["over"]:
        picture = scaling_picture(
            {_machine(r) if len(results) > 1 else "": r for r in results},
            folder / "figures" / f"{name}.png",
        )
        slopes: dict[str, list[float | None]] = {}
        for result in results:
            for who, curve in curves(result).items():
                slopes.setdefault(who, []).append(slope(*curve))
        said = "; ".join(f"{who} {span(values)}" for who, values in slopes.items())
        parts.append(f"Slope of log seconds in log {results[0]['over']}: {said}.")
        parts.append(f"![{results[0]['says']}](figures/{picture.name})")
    return parts


def _table(shape: str, of_machines: list[tuple[str, dict[str, Any]]]) -> str:
    contests = [contest for _, contest in of_machines]
    lines = [
        f"| {shape} | seconds | against | ratio | of medians | of work | MiB | more |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(name for c in contests for name in c["outcomes"]):
        there = {machine for machine, c in of_machines if "best" in c["outcomes"].get(name, {})}
        took_part = [c for c in contests if "best" in c["outcomes"].get(name, {})]
        if not took_part:
            words = (c["outcomes"].get(name, {}).items() for c in contests)
            why = "; ".join(dict.fromkeys(f"{k}: {v}" for items in words for k, v in items))
            lines.append(f"| {name} | {why.replace('|', '/')} | | | | | | |")
            continue
        found = [c["outcomes"][name] for c in took_part]
        quartiles = [span(o["quartiles"][i] for o in found) for i in (0, 1)]
        seconds = f"{span(o['best'] for o in found)} ({span(o['median'] for o in found)}, "
        of_each = [ratios(c, name) for c in took_part]
        more = [figures_text(found)]
        if there < {machine for machine, _ in of_machines}:
            more.append(f"only on {', '.join(sorted(there))}")
        cells = [
            seconds + f"{quartiles[0]}–{quartiles[1]})",
            took_part[0]["against"][name],
            *(span(r[key] for r in of_each) for key in of_each[0]),
            span(o["rise"] for o in found),
            ", ".join(filter(None, more)),
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _curves(of_machines: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """NLL of test rows as seconds grow, where that was measured."""
    lines = [
        f"- {name}, {machine}: " + ", ".join(f"{si(nll)} after {si(s)} s" for s, nll in curve)
        for machine, contest in of_machines
        for name, outcome in contest["outcomes"].items()
        if (curve := points(outcome))
    ]
    title = "NLL of test rows at every budget, means of turns:\n\n"
    return [title + "\n".join(lines)] if lines else []
