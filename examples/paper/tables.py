"""Tables from lines of results: means over seeds, as CSV and as Markdown beside the paper's numbers."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from published import METRICS, published

__all__ = ["Summary", "markdown", "short", "summaries", "uci_table", "write_csv"]

Summary = dict[str, Any]
"""Fields that name it, ``seeds``, and for each metric its mean and standard deviation."""

_AVERAGED = (*METRICS, "ECE_chance", "ECE_chance_95", "seconds")


def summaries(
    lines: Iterable[dict[str, Any]], by: Sequence[str] = ("data", "model")
) -> list[Summary]:
    """Means and standard deviations over the lines that agree in some fields.

    :param lines: of results.
    :param by: the fields.
    """
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault(tuple(line[name] for name in by), []).append(line)
    found = []
    for key, members in groups.items():
        summary: Summary = dict(zip(by, key, strict=True)) | {"seeds": len(members)}
        for metric in _AVERAGED:
            values = [member[metric] for member in members if metric in member]
            if values:
                summary[metric] = float(np.mean(values))
                summary[f"{metric}_sd"] = float(np.std(values))
        found.append(summary)
    return found


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """A file with a column for each field.

    :param path: of the file.
    :param rows: with the same fields.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def short(value: float | None, digits: int = 3) -> str:
    """A number without a leading zero, as the paper's tables have them."""
    if value is None:
        return "–"
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("0.") else text


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table.

    :param header: names of columns.
    :param rows: cells.
    """
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def uci_table(dataset: str, rows: Sequence[Summary]) -> str:
    """What came out on one set, best NLL first, with the paper's numbers where it has some.

    :param dataset: its name.
    :param rows: summaries of its models.
    """
    paper = published()["uci"]["values"].get(dataset, {})
    header = ["", "ACC", "NLL", "ECE", "ECE by chance", "seconds", "seeds"]
    header += ["the paper: ACC / NLL / ECE"] if paper else []
    best = {metric: min(row[metric] for row in rows) for metric in METRICS}
    best["ACC"] = max(row["ACC"] for row in rows)

    def cell(row: Summary, metric: str) -> str:
        text = f"{short(row[metric])} ± {short(row[f'{metric}_sd'])}"
        return f"**{text}**" if short(row[metric]) == short(best[metric]) else text

    cells = []
    for row in sorted(rows, key=lambda row: row["NLL"]):
        line = [row["model"], *(cell(row, metric) for metric in METRICS)]
        line += [short(row["ECE_chance"]), f"{row['seconds']:.0f}", str(row["seeds"])]
        if paper:
            known = paper.get(row["model"])
            line.append(" / ".join(short(known[m][0], 2) for m in METRICS) if known else "–")
        cells.append(line)
    return markdown(header, cells)
