"""What the paper claims in words, with the measured values beside it, and whether they agree."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from published import published
from tables import short

__all__ = ["claims"]

Lines = list[dict[str, Any]]


def claims(lines: dict[str, Lines]) -> list[str]:
    """A paragraph for each experiment whose claims can be judged by these lines.

    :param lines: of each experiment.
    """

    def of_ours(experiment: str) -> Lines:
        return [r for r in lines.get(experiment, ()) if r["protocol"] == "ours"]

    found = [
        _alpha(of_ours("toy-alpha")),
        _error_rate(list(lines.get("gpd-error-rate", ()))),
        _scaling(of_ours("scaling-k")),
    ]
    return [paragraph for paragraph in found if paragraph]


def _agreed(holds: bool) -> str:
    return "so it is here" if holds else "not so here"


def _listed(values: dict[Any, float], letter: str = "K") -> str:
    return ", ".join(f"{short(value)} at {letter} = {at:g}" for at, value in values.items())


def _alpha(lines: Lines) -> str:
    at = sorted({line["at"] for line in lines})
    settings = [n for n in lines[0]["scores"] if n.startswith("α_ε = ")] if lines else []
    if len(at) < 2 or len(settings) < 2:
        return ""
    (claim,) = published()["toy-alpha"]["claims"]

    def mean(name: str, metric: str, x: float) -> float:
        return float(np.mean([r["scores"][name][metric] for r in lines if r["at"] == x]))

    def best(x: float) -> str:
        return min(settings, key=lambda name: mean(name, "NLL", x))

    def measured(x: float) -> str:
        values = (f"{short(mean(n, 'NLL', x))} with {n}" for n in settings)
        return f"at s = {x:g} {', '.join(values)}"

    def alpha(name: str) -> float:
        return float(name.removeprefix("α_ε = "))

    holds = alpha(best(at[0])) < alpha(best(at[-1]))
    return (
        f"**α_ε.** “{claim}” NLL: {measured(at[0])}; {measured(at[-1])}. The best is {best(at[0])} "
        f"where classes are apart and {best(at[-1])} where they are intertwined: {_agreed(holds)}."
    )


def _error_rate(lines: Lines) -> str:
    error = {(line["alpha_epsilon"], line["classes"]): line["error"] for line in lines}
    alphas = sorted({alpha for alpha, _ in error}, reverse=True)
    classes = sorted({K for _, K in error})
    whole = len(error) == len(alphas) * len(classes)
    if not whole or len(alphas) < 2 or len(classes) < 2:
        return ""
    by_alpha, by_classes = published()["gpd-error-rate"]["claims"]
    samples = published()["gpd-error-rate"]["settings"]["samples"]

    def no_more(one: float, other: float) -> bool:
        return one <= other + 2.0 * np.sqrt((one + other) / samples)  # both are counts of few

    falls = all(
        no_more(error[less, K], error[more, K])
        for more, less in itertools.pairwise(alphas)
        for K in classes
    )
    grows = all(
        no_more(error[alpha, few], error[alpha, many])
        for few, many in itertools.pairwise(classes)
        for alpha in alphas
    )
    few, many = classes[0], classes[-1]
    ends = "; ".join(
        f"α_ε = {alpha:g}: {short(error[alpha, few], 4)} at K = {few}, "
        f"{short(error[alpha, many], 4)} at K = {many}"
        for alpha in alphas
    )
    return (
        f"**Error rate of GPD.** “{by_alpha}” Measured, {ends}: {_agreed(falls)}, for every K. "
        f"“{by_classes}” {_agreed(grows).capitalize()}, for every α_ε, "
        "within sampling error."
    )


def _scaling(lines: Lines) -> str:
    classes = sorted({line["at"] for line in lines})

    def of(model: str, metric: str) -> dict[int, float]:
        return {
            K: float(np.mean([r["scores"][model][metric] for r in found]))
            for K in classes
            if (found := [r for r in lines if r["at"] == K and r["model"] == model])
        }

    ACC, ECE = ({m: of(m, x) for m in ("U-ILR", "SVGPC", "E-ILR", "GPD")} for x in ("ACC", "ECE"))
    judged = any(4 <= K <= 32 for K in classes) and any(K > 64 for K in classes)
    if not judged or any(set(values) != set(classes) for values in ACC.values()):
        return ""
    alike, accurate, calibrated = published()["scaling-k"]["claims"]

    def gap(values: dict, one: str, other: str, at: Callable[[int], bool]) -> dict[int, float]:
        return {K: values[one][K] - values[other][K] for K in classes if at(K)}

    def most(found: dict[int, float]) -> float:
        return max(abs(value) for value in found.values())

    def signed(found: dict[int, float]) -> str:
        return ", ".join(f"{value:+.3f} at K = {K}" for K, value in found.items())

    similar = gap(ACC, "U-ILR", "SVGPC", lambda K: True)
    best = {K: max(ACC, key=lambda model: ACC[model][K]) for K in classes if K > 64}
    below, above = (gap(ACC, "E-ILR", "GPD", at) for at in (lambda K: K <= 64, lambda K: K > 64))
    middle, many = (
        gap(ECE, "E-ILR", "GPD", at) for at in (lambda K: 4 <= K <= 32, lambda K: K > 64)
    )
    worse = [K for K, value in middle.items() if value >= 0.0]
    who = ", ".join(f"{model} {short(ACC[model][K])} at K = {K}" for K, model in best.items())
    theirs = _listed({K: ACC["U-ILR"][K] for K in best})
    return "\n".join(
        [
            "**Many classes, claim by claim** (means over seeds, our protocol).",
            "",
            f"- “{alike}” Accuracies of the two differ by up to {short(most(similar))} "
            f"({signed({K: v for K, v in similar.items() if abs(v) == most(similar)})}; up to K = 32 "
            f"by {short(most({K: v for K, v in similar.items() if K <= 32}))}). The most accurate is "
            f"{who} (U-ILR: {theirs}): {_agreed(set(best.values()) <= {'U-ILR', 'SVGPC'})}, where "
            "the two have 60 seconds.",
            f"- “{accurate}” Accuracy of E-ILR less that of GPD: {signed(below)}: "
            f"{_agreed(most(below) < 0.01)}, within .01. Above: {signed(above)}: "
            f"{_agreed(min(above.values()) > 0.0)}.",
            f"- “{calibrated}” ECE of E-ILR less that of GPD: {signed(middle)}: "
            + (_agreed(True) if not worse else f"not so here at K = {_all(worse)}")
            + f". Above: {signed(many)}: {_agreed(min(many.values()) > 0.0)}.",
        ]
    )


def _all(values: Sequence[int]) -> str:
    return " and ".join(str(value) for value in values)
