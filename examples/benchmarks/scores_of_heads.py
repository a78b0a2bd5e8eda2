"""Scores of the contestants of ``heads.py``, and its tables, made of lines that runs have kept."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from choosing import Predict, nll
from sklearn.metrics import roc_auc_score

from gpflow_ilr import metrics

# Last on the path: modules here win over those of the same name there.
sys.path.append(str(Path(__file__).parents[1] / "paper"))

from results import Results

__all__ = ["entropy", "kept", "scores", "tables"]

SCORES = ("accuracy", "nll", "ece")
AUROCS = {
    unknown: (f"{unknown} entropy", f"{unknown} epistemic") for unknown in ("unseen", "noise")
}


def entropy(p: np.ndarray) -> np.ndarray:
    return -np.sum(p * np.log(np.maximum(p, 1e-30)), axis=-1)


def scores(
    predict: Predict, test: tuple[np.ndarray, np.ndarray], unknown: dict[str, np.ndarray]
) -> dict[str, float | None]:
    """Of test rows, and AUROC of each kind of unknown inputs; None without an epistemic entropy."""
    p, epistemic = predict(test[0])
    found: dict[str, float | None] = {
        "accuracy": metrics.accuracy(p, test[1]),
        "nll": nll(p, test[1]),  # a probability that float32 cannot hold costs 69 nats
        "ece": metrics.expected_calibration_error(p, test[1]),
    }
    for kind, rows in unknown.items():
        q, other = predict(rows)
        is_unknown = np.repeat([0, 1], [len(p), len(q)])
        by_entropy, by_epistemic = AUROCS[kind]
        found[by_entropy] = roc_auc_score(is_unknown, np.concatenate([entropy(p), entropy(q)]))
        both = None if epistemic is None else np.concatenate([epistemic, other])
        found[by_epistemic] = None if both is None else roc_auc_score(is_unknown, both)
    return {name: None if value is None else float(value) for name, value in found.items()}


def kept(path: Path) -> Results:
    """The lines of a file, which need not exist: a line for each set, seed and contestant."""
    return Results(path, ("set", "seed", "contestant"))


def tables(lines: Iterable[dict[str, Any]], order: Sequence[str]) -> str:
    """A table for each set, of the seeds that every contestant of the set has finished.

    :param lines: of one file or several.
    :param order: names of contestants.
    """
    by_set: dict[str, dict[int, dict[str, dict[str, Any]]]] = {}
    for line in lines:
        by_set.setdefault(line["set"], {}).setdefault(line["seed"], {})[line["contestant"]] = line
    return "\n\n".join(_table(name, seeds, order) for name, seeds in by_set.items())


def _table(name: str, seeds: dict[int, dict[str, dict[str, Any]]], order: Sequence[str]) -> str:
    everyone = {contestant for of_seed in seeds.values() for contestant in of_seed}
    whole = sorted(seed for seed, of_seed in seeds.items() if len(of_seed) == len(everyone))
    machines = sorted({line["processor"] for seed in whole for line in seeds[seed].values()})
    text = [
        f"{name}: {len(whole)} seeds ({', '.join(map(str, whole))}); {', '.join(machines)}.",
        "",
        "| last layer | accuracy | NLL | ECE | unseen classes, entropy / epistemic "
        "| noise, entropy / epistemic | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for contestant in sorted(everyone, key=order.index) if whole else ():
        rows = [seeds[seed][contestant] for seed in whole]
        cells = [_cell(rows, score) for score in SCORES]
        cells += [" / ".join(_cell(rows, score) for score in pair) for pair in AUROCS.values()]
        cells.append(f"{np.mean([row['seconds'] for row in rows]):.0f}")
        text.append(f"| {contestant} | {' | '.join(cells)} |")
    return "\n".join(text)


def _cell(rows: list[dict[str, Any]], score: str) -> str:
    """Mean ± standard error, without the zeros before the points."""
    values = [row[score] for row in rows]
    if None in values:
        return "–"
    mean = f"{np.mean(values):.3f}".removeprefix("0")
    if len(values) == 1:
        return mean
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{mean} ± {error:.3f}".replace("± 0.", "± .")
