"""One picture for each scaling study: seconds and memory over what grows, one line a contestant."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

__all__ = ["curves", "scaling_picture", "slope"]

LINES = ("-", "--", ":", "-.")


def curves(result: dict[str, Any], figure: str = "best") -> dict[str, tuple[list, list]]:
    """Sizes and values of each contestant, where it took part."""
    found: dict[str, tuple[list, list]] = {}
    for contest in result["contests"]:
        for name, outcome in contest["outcomes"].items():
            if "best" in outcome:
                sizes, values = found.setdefault(name, ([], []))
                sizes.append(contest["shape"][result["over"]])
                values.append(outcome[figure])
    return found


def slope(sizes: list[float], values: list[float]) -> float | None:
    """Of the logarithm in the logarithm."""
    if len(sizes) < 2 or min(values) <= 0.0:
        return None
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def scaling_picture(results: dict[str, dict[str, Any]], path: Path) -> Path:
    """Write it, small enough to be committed.

    :param results: of one study, by machine, each of which has a style of line.
    :param path: of the PNG.
    """
    figure, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    names = list(dict.fromkeys(name for r in results.values() for name in curves(r)))
    colours = plt.get_cmap("viridis")(np.linspace(0.0, 0.9, len(names)))
    for style, (machine, result) in zip(LINES * len(results), results.items(), strict=False):
        for axis, what in zip(axes, ("best", "peak"), strict=True):
            for name, (sizes, values) in curves(result, what).items():
                label = ", ".join(filter(None, (name, machine)))
                colour = colours[names.index(name)]
                axis.loglog(sizes, values, style, marker="o", ms=3, color=colour, label=label)
    over = next(iter(results.values()))["over"]
    axes[0].set(xlabel=over, ylabel="seconds, best")
    axes[1].set(xlabel=over, ylabel="peak of resident memory, MiB")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    plt.close(figure)
    print(f"wrote {path}")
    return path
