"""Tables of a contest: in the terminal, and the same cells for the page."""

from collections.abc import Sequence
from typing import Any

__all__ = ["ratios", "shape_text", "show", "si"]

COLUMNS = ("best", "median", "quartiles", "ratio", "of medians", "of work", "rise MiB")


def si(value: float | None) -> str:
    """Three digits, or a dash for what is not known."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def shape_text(shape: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in shape.items())


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
        figures = "  ".join(f"{key} {si(value)}" for key, value in outcome["figures"].items())
        print(f"{name:<{width}}" + _row(cells) + f"  {figures}")
    by_whom: dict[str, list[str]] = {}
    for name, whom in contest["against"].items():
        by_whom.setdefault(whom, []).append(name)
    most, *others = sorted(by_whom, key=lambda whom: -len(by_whom[whom]))
    said = "".join(f"; of {', '.join(by_whom[whom])} to {whom}" for whom in others)
    print(f"seconds; ratios to {most}{said}", flush=True)


def _row(cells: Sequence[str]) -> str:
    return "".join(f"{cell:>{20 if i == 2 else 11}}" for i, cell in enumerate(cells))
