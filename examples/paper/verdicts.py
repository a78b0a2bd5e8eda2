"""Verdicts on the UCI sets: our best model beside the paper's best, and beside boosted trees.

An accuracy or an NLL is better if its mean over seeds is. An expected calibration error has a part
that is chance, which few test rows make large: one above the paper's mean is no worse *within chance*
if the two means are less than two standard errors of their difference apart.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from published import METRICS, best_ilr, published
from tables import Summary, markdown, short

__all__ = ["CHANCE", "against_trees", "excess_in_errors", "is_ours", "limit_of_chance", "verdicts"]

CHANCE = 2.0
"""Standard errors of a difference."""

TREES = ("HistGradientBoosting", "LightGBM", "CatBoost")


def is_ours(model: str) -> bool:
    """Whether a model is one of ours.

    :param model: its name.
    """
    return "ILR" in model


def verdicts(rows: Sequence[Summary], names: Sequence[str]) -> str:
    """The best of our ILR models beside the paper's best, metric by metric.

    :param rows: summaries of models and sets.
    :param names: of sets that the paper has.
    """
    cells, exceptions = [], []
    for name in names:
        ours = [row for row in rows if row["data"] == name and is_ours(row["model"])]
        others = [row for row in rows if row["data"] == name and not is_ours(row["model"])]
        if not ours:
            continue
        # One model for all three metrics: the one with the best NLL.
        best, paper = min(ours, key=lambda row: row["NLL"]), best_ilr(name)
        cells.append(
            [
                name,
                f"{best['model']} ({best['seeds']} seeds)",
                f"{' / '.join(short(best[m]) for m in METRICS)}",
                f"{short(best['ECE_chance'])} (95 %: {short(limit_of_chance(best))})",
                " / ".join(short(paper[m][0], 2) for m in METRICS),
                verdict(best, paper),
                _best_other(others),
                f"{best['seeds'] * best['seconds'] / 60:.0f} min",
            ]
        )
        if best["ECE"] > paper["ECE"][0]:
            exceptions.append(_of_chance(name, best, paper))
    header = ["", "our best by NLL", "ACC / NLL / ECE", "ECE by chance", "the paper's best ILR"]
    header += ["better than the paper?", "best of all others, NLL", "all seeds"]
    remark = (
        "*Our best* is the model with the best NLL of test rows, as the paper's best is, metric "
        "by metric"
    )
    if any(row["model"] == "ILR-auto" for row in rows):
        remark += "; ILR-auto is one call, which chose by labels of training rows"
    parts = [markdown(header, cells), f"{remark}."]
    if exceptions:
        parts.append(
            "**ECE above the paper's.** It counts as no worse within chance where the two means are "
            f"less than {CHANCE:g} standard errors of their difference apart (both experiments have "
            f"{published()['protocol']['values']['seeds']} splits). {' '.join(exceptions)}"
        )
    return "\n\n".join(parts)


def verdict(best: Summary, paper: dict[str, list[float]]) -> str:
    """Whether each mean is better than the paper's; of an ECE that is not, by how many standard errors.

    :param best: our model's summary.
    :param paper: for each metric the mean and the standard deviation that the paper prints.
    """
    said = []
    for metric, sign in (("ACC", -1.0), ("NLL", 1.0)):
        excess = sign * (best[metric] - paper[metric][0])
        said.append(f"{metric} {'yes' if excess < 0 else 'equal' if excess == 0 else 'no'}")
    if best["ECE"] <= paper["ECE"][0]:
        return ", ".join([*said, "ECE yes"])
    return ", ".join([*said, f"ECE no, by {excess_in_errors(best, paper):.1f} standard errors"])


def excess_in_errors(best: Summary, paper: dict[str, list[float]]) -> float:
    """By how many standard errors of the difference our mean ECE is above the paper's.

    :param best: our model's summary.
    :param paper: for each metric the mean and the standard deviation that the paper prints.
    """
    seeds = published()["protocol"]["values"]["seeds"]
    error = np.hypot(best["ECE_sd"] / np.sqrt(best["seeds"]), paper["ECE"][1] / np.sqrt(seeds))
    return float((best["ECE"] - paper["ECE"][0]) / max(error, 1e-9))


def limit_of_chance(best: Summary) -> float:
    """What the mean over seeds of a perfect forecaster's ECE exceeds once in twenty times.

    :param best: a summary.
    """
    spread = (best["ECE_chance_95"] - best["ECE_chance"]) / np.sqrt(best["seeds"])
    return float(best["ECE_chance"] + spread)


def _of_chance(name: str, best: Summary, paper: dict[str, list[float]]) -> str:
    apart, limit = excess_in_errors(best, paper), limit_of_chance(best)
    beyond = "above" if best["ECE"] > limit else "not above"
    return (
        f"On {name} it is {short(best['ECE'])} against {short(paper['ECE'][0], 2)}, {apart:.1f} "
        f"standard errors: {'no worse' if apart < CHANCE else 'worse'} within chance, and not "
        f"better. A perfect forecaster with the same confidences has {short(best['ECE_chance'])} on "
        f"as many rows, and a mean over the seeds of more than {short(limit)} once in twenty times: "
        f"ours is {beyond} that."
    )


def _best_other(rows: Sequence[Summary]) -> str:
    if not rows:
        return "–"
    best = min(rows, key=lambda row: row["NLL"])
    return f"{best['model']} {short(best['NLL'])}"


def paired(lines: Sequence[dict[str, Any]], one: str, other: str) -> tuple[float, float]:
    """The mean difference of two models' NLL on the same splits, and its standard error.

    :param lines: of one data set.
    :param one: a model.
    :param other: another.
    """
    nll = {(line["model"], line["seed"]): line["NLL"] for line in lines}
    seeds = sorted({s for m, s in nll if m == one} & {s for m, s in nll if m == other})
    differences = [nll[one, seed] - nll[other, seed] for seed in seeds]
    if len(differences) < 2:
        return float(np.sum(differences)), float("inf")
    return float(np.mean(differences)), float(np.std(differences, ddof=1) / np.sqrt(len(seeds)))


def against_trees(name: str, lines: Sequence[dict[str, Any]], folder: str) -> str:
    """Our best model beside the best boosted tree, on a set that the paper has not.

    :param name: of the set.
    :param lines: of the set, under our protocol.
    :param folder: where results are, for the command that makes them.
    """
    means = {
        model: float(np.mean([line["NLL"] for line in lines if line["model"] == model]))
        for model in dict.fromkeys(line["model"] for line in lines)
    }
    ours = [model for model in means if is_ours(model)]
    trees = [model for model in means if model in TREES]
    if not ours or not trees:
        return ""
    best, tree = (min(some, key=lambda model: means[model]) for some in (ours, trees))
    difference, error = paired(lines, best, tree)
    held = "no worse than it" if difference <= error else "worse than it"
    return (
        f"**{name}**, which the paper has not: {best} has an NLL of {short(means[best], 4)} and the "
        f"best boosted tree, {tree}, {short(means[tree], 4)}; split by split the difference is "
        f"{difference:+.4f} with a standard error of {error:.4f}, so that it is {held} within that "
        f"error. These lines are from `python examples/paper uci-sparse --datasets {name} --seeds "
        f"{len({line['seed'] for line in lines})} --out {folder}`."
    )
