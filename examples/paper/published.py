"""The paper's numbers, read from ``published.json``, where each has the place that it comes from."""

import json
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["METRICS", "best_ilr", "published"]

METRICS = ("ACC", "NLL", "ECE")


@cache
def published() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))


def best_ilr(dataset: str) -> dict[str, list[float]] | None:
    """The paper's best ILR model on a set, metric by metric: mean and standard deviation.

    None for a set that it does not have.

    :param dataset: its name.
    """
    models = published()["uci"]["values"].get(dataset)
    if models is None:
        return None
    ours = [models[name] for name in models if name.endswith("ILR")]
    best = dict.fromkeys(METRICS, min) | {"ACC": max}
    return {metric: best[metric](model[metric] for model in ours) for metric in METRICS}
