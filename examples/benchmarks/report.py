"""``RESULTS.md``: all that one or several files of results say, in one page.

Nothing here knows a result. Where several machines have measured the same, there are ranges.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from catalogue import BENCHMARKS
from keeping import read_results
from pictures import curves, scaling_picture, slope
from tables import ratios, shape_text, si

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
        "of number and threads, and a process each; turns alternate. Seconds are of the best turn, "
        "with the median and the quartiles in brackets. Ratios are of best turns, of medians and of "
        "processor time. MiB are what resident memory rises in a turn.",
    ]
    for machine in dict.fromkeys(map(_machine, every)):
        own = [result for result in every if _machine(result) == machine]
        dates = sorted(result["date"][:10] for result in own)
        loads = _range(result["machine"]["load"] for result in own)
        versions = {k: v for r in own for k, v in r["machine"]["versions"].items()}
        listed = ", ".join(f"{package} {version}" for package, version in versions.items())
        commits = ", ".join(sorted({str(result["machine"]["commit"]) for result in own}))
        text.append(
            f"- {machine}, load {loads} before, {dates[0]} to {dates[-1]}, commit {commits}; {listed}."
        )
    if any(result["quick"] for result in every):
        text.append(
            "**Some of it comes from `--quick`: it shows that the code runs, and nothing else.**"
        )
    return "\n\n".join(text)


def _machine(result: dict[str, Any]) -> str:
    return f"{result['threads']} thread(s) of {result['machine']['processor']}"


def _section(name: str, results: list[dict[str, Any]], folder: Path) -> list[str]:
    commands = " and ".join(sorted({f"`{result['command']}`" for result in results}))
    parts = [f"## {name}", f"{results[0]['says']} {commands}"]
    shapes = {shape_text(c["shape"]): c["shape"] for r in results for c in r["contests"]}
    for shape in shapes:
        contests = [c for r in results for c in r["contests"] if shape_text(c["shape"]) == shape]
        parts.append(_table(shape, contests))
    if results[0]["over"]:
        picture = scaling_picture(
            {_machine(r) if len(results) > 1 else "": r for r in results},
            folder / "figures" / f"{name}.png",
        )
        slopes: dict[str, list[float | None]] = {}
        for result in results:
            for who, curve in curves(result).items():
                slopes.setdefault(who, []).append(slope(*curve))
        said = "; ".join(f"{who} {_range(values)}" for who, values in slopes.items())
        parts.append(f"Slope of log seconds in log {results[0]['over']}: {said}.")
        parts.append(f"![{results[0]['says']}](figures/{picture.name})")
    return parts


def _table(shape: str, contests: list[dict[str, Any]]) -> str:
    lines = [
        f"| {shape} | seconds | against | ratio | of medians | of work | MiB | more |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(name for c in contests for name in c["outcomes"]):
        took_part = [c for c in contests if "best" in c["outcomes"].get(name, {})]
        if not took_part:
            words = (c["outcomes"].get(name, {}).items() for c in contests)
            why = "; ".join(dict.fromkeys(f"{k}: {v}" for items in words for k, v in items))
            lines.append(f"| {name} | {why.replace('|', '/')} | | | | | | |")
            continue
        found = [c["outcomes"][name] for c in took_part]
        quartiles = [_range(o["quartiles"][i] for o in found) for i in (0, 1)]
        seconds = f"{_range(o['best'] for o in found)} ({_range(o['median'] for o in found)}, "
        of_each = [ratios(c, name) for c in took_part]
        more = ", ".join(
            f"{key} {_range(o['figures'].get(key) for o in found)}" for key in found[0]["figures"]
        )
        cells = [
            seconds + f"{quartiles[0]}–{quartiles[1]})",
            took_part[0]["against"][name],
            *(_range(r[key] for r in of_each) for key in of_each[0]),
            _range(o["rise"] for o in found),
            more,
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _range(values: Iterable[float | None]) -> str:
    """One number, or the least to the largest."""
    known = sorted(value for value in values if value is not None)
    ends = dict.fromkeys(si(value) for value in (known[0], known[-1])) if known else ["–"]
    return " to ".join(ends)
