"""Tables of a contest: in the terminal, and the same cells for the page."""

from collections.abc import Iterable, Sequence
from statistics import mean
from typing import Any

__all__ = ["figures_text", "points", "ratios", "shape_text", "show", "si", "span"]

COLUMNS = ("best", "median", "quartiles", "ratio", "of medians", "of work", "rise MiB")


def si(value: float | None) -> str:
    """Three digits, or a dash for what is not known."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def shape_text(shape: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in shape.items())


def points(outcome: dict[str, Any]) -> list[tuple[float, float]]:
    """Seconds and NLL at each budget, means over turns, if there are curves."""
    budgets = zip(*outcome.get("curves", ()), strict=True)
    return [
        (mean(p["seconds"] for p in of_budget), mean(p["NLL"] for p in of_budget))
        for of_budget in map(list, budgets)
    ]


def figures_text(outcomes: Sequence[dict[str, Any]]) -> str:
    """Figures by name, as a range if outcomes differ; in brackets, the least and largest of turns."""
    said = []
    for key in outcomes[0]["figures"]:
        text = f"{key} {span(o['figures'].get(key) for o in outcomes)}"
        ends = [end for o in outcomes for end in o.get("spread", {}).get(key, ())]
        said.append(f"{text} ({si(min(ends))}–{si(max(ends))})" if ends else text)
    if any(len(o["turns"]) == 1 for o in outcomes):
        said.append("one turn")
    return ", ".join(said)


def span(values: Iterable[float | None]) -> str:
    """One number, or the least to the largest."""
    known = sorted(value for value in values if value is not None)
    ends = dict.fromkeys(si(value) for value in (known[0], known[-1])) if known else ["–"]
    return " to ".join(ends)


def ratios(contest: dict[str, Any], name: str) -> dict[str, float | None]:
    """Best to best, median to median and processor time to processor time of whom it is against."""
    outcome = contest["outcomes"][name]
    other = contest["outcomes"].get(contest["against"][name], {})
    if "best" not in outcome or "best" not in other:
        return dict.fromkeys(("ratio", "of medians", "of work"))
    pairs = {"ratio": "best", "of medians": "median", "of work": "work"}
    return {k: outcome[key] / other[key] if other[key] else None for k, key in pairs.items()}


def show(contest: dict[str, Any]) -> None:
    """Print a table; who did not take part says why."""
    width = max(len(name) for name in contest["outcomes"])
    print(shape_text(contest["shape"]))
    print(f"{'':<{width}}" + _row(COLUMNS))
    for name, outcome in contest["outcomes"].items():
        if "best" not in outcome:
            why = "; ".join(f"{key}: {value}" for key, value in outcome.items())
            print(f"{name:<{width}}  {why}")
            continue
        cells = [si(outcome["best"]), si(outcome["median"])]
        cells.append("–".join(si(x) for x in outcome["quartiles"]))
        cells += [si(x) for x in ratios(contest, name).values()]
        cells.append(si(outcome["rise"]))
        print(f"{name:<{width}}" + _row(cells) + f"  {figures_text([outcome])}")
    by_whom: dict[str, list[str]] = {}
    for name, whom in contest["against"].items():
        by_whom.setdefault(whom, []).append(name)
    most, *others = sorted(by_whom, key=lambda whom: -len(by_whom[whom]))
    said = "".join(f"; of {', '.join(by_whom[whom])} to {whom}" for whom in others)
    print(f"seconds; ratios to {most}{said}", flush=True)


def _row(cells: Sequence[str]) -> str:
    return "".join(f"{cell:>{20 if i == 2 else 11}}" for i, cell in enumerate(cells))
