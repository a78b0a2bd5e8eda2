"""Figures of what was measured: curves over an axis, and how models compare on each set."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch
from published import METRICS, best_ilr

__all__ = ["curves", "error_rate_curves", "save", "sets_figure"]

_OURS, _THEIRS = "tab:blue", "0.6"
_TITLES = {"ACC": "error", "NLL": "negative log-likelihood", "ECE": "expected calibration error"}


def save(figure: Any, path: Path) -> Path:
    """Write a figure as PNG, small enough to be committed.

    :param figure: a figure of Matplotlib.
    :param path: of the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    plt.close(figure)
    print(f"wrote {path}")
    return path


def curves(
    lines: Sequence[dict[str, Any]], axis: str, path: Path, logarithmic: bool = False
) -> Path:
    """Error, NLL and ECE over an axis: means over seeds, with a band of one standard deviation.

    :param lines: of results, with ``at`` and ``scores``, by name.
    :param axis: its name.
    :param path: of the file.
    :param logarithmic: whether the axis doubles.
    """
    found: dict[str, dict[float, list[dict[str, float]]]] = {}
    for line in lines:
        for name, scores in line["scores"].items():
            found.setdefault(name, {}).setdefault(line["at"], []).append(scores)
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    names = [name for name in found if name != "best possible"]
    colours = plt.get_cmap("viridis")(np.linspace(0.0, 0.9, len(names)))
    styles: dict[str, dict[str, Any]] = {
        name: {"color": colour, "marker": "o", "ms": 3}
        for name, colour in zip(names, colours, strict=True)
    }
    styles["best possible"] = {"color": "black", "ls": "--", "lw": 1.2}
    for ax, metric in zip(axes, METRICS, strict=True):
        for name in [*names, "best possible"]:
            if name not in found:
                continue
            at = sorted(found[name])
            values = [[s[metric] for s in found[name][x]] for x in at]
            mean, spread = (np.array([f(v) for v in values]) for f in (np.mean, np.std))
            mean = 1.0 - mean if metric == "ACC" else mean
            ax.plot(at, mean, label=name, **styles[name])
            colour = styles[name]["color"]
            ax.fill_between(at, mean - spread, mean + spread, color=colour, alpha=0.1, lw=0)
        ax.set(title=_TITLES[metric], xlabel=axis)
        ax.set_ylim(bottom=0.0)
        if logarithmic:
            ax.set_xscale("log", base=2)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return save(figure, path)


def error_rate_curves(lines: Sequence[dict[str, Any]], path: Path) -> Path:
    """The error of GPD's pseudo-observations over the number of classes.

    :param lines: of results.
    :param path: of the file.
    """
    figure, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
    alphas = sorted({line["alpha_epsilon"] for line in lines}, reverse=True)
    colours = plt.get_cmap("viridis")(np.linspace(0.0, 0.9, len(alphas)))
    for alpha, colour in zip(alphas, colours, strict=True):
        of_alpha = sorted((r["classes"], r["error"]) for r in lines if r["alpha_epsilon"] == alpha)
        label = f"GPD, α_ε = {alpha:g}"
        ax.plot(*zip(*of_alpha, strict=True), marker="o", ms=3, color=colour, label=label)
    of_ilr = sorted({(line["classes"], line["error_ILR"]) for line in lines})
    ax.plot(*zip(*of_ilr, strict=True), color="tab:red", label="ILR, ε = 1e-6")
    ax.set_xscale("log", base=2)
    ax.set(xlabel="number of classes K", ylabel="error of a single pseudo-observation")
    ax.legend()
    return save(figure, path)


def sets_figure(rows: Sequence[dict[str, Any]], path: Path) -> Path:
    """NLL of every model on every set, mean and standard deviation, beside the paper's best ILR model.

    :param rows: summaries of data sets and models.
    :param path: of the file.
    """
    sets = list(dict.fromkeys(row["data"] for row in rows))
    columns = min(4, len(sets))
    rows_of_axes = -(-len(sets) // columns)
    size = (4.0 * columns, 4.2 * rows_of_axes)
    figure, grid = plt.subplots(
        rows_of_axes, columns, figsize=size, layout="constrained", squeeze=False
    )
    for ax in grid.flat[len(sets) :]:
        ax.axis("off")
    handles: list[Any] = [
        Patch(color=colour, label=label)
        for colour, label in ((_OURS, "our ILR models"), (_THEIRS, "all others"))
    ]
    for ax, name in zip(grid.flat, sets, strict=False):
        of_set = sorted((r for r in rows if r["data"] == name), key=lambda row: -row["NLL"])
        colours = [_OURS if "ILR" in row["model"] else _THEIRS for row in of_set]
        ax.barh(
            [row["model"] for row in of_set],
            [row["NLL"] for row in of_set],
            xerr=[row["NLL_sd"] for row in of_set],
            color=colours,
            error_kw={"lw": 0.8},
        )
        paper = best_ilr(name)
        if paper is not None:
            label = "the paper's best ILR model"
            line = ax.axvline(paper["NLL"][0], color="tab:red", ls="--", lw=1.2, label=label)
            handles[2:] = [line]
        ax.set(title=name, xlabel="NLL of test rows")
        ax.tick_params(axis="y", labelsize=8)
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return save(figure, path)
