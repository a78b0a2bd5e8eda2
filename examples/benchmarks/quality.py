"""Fair quality: the same splits for all, a process for each, and test rows choose nothing."""

import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from trees import import_all

__all__ = ["Contestant", "Split", "compare"]

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Rows and labels for training, then for testing."""

Contestant = Callable[..., np.ndarray]
"""Class probabilities of the test rows of a split."""


def _measured(contestant: Contestant, load: Callable[..., Split], arguments: tuple) -> dict:
    data = load(*arguments)
    import gpflow_ilr as gi

    import_all()  # before the clock starts: importing is no part of it
    start = time.perf_counter()
    p = contestant(data)
    seconds = time.perf_counter() - start
    y = data[3]
    return {
        "accuracy": float(gi.metrics.accuracy(p, y)),
        "NLL": float(gi.metrics.negative_log_likelihood(np.maximum(p, 1e-15), y)),
        "ECE": float(gi.metrics.expected_calibration_error(p, y)),
        "seconds": seconds,
    }


def compare(
    name: str,
    contestants: dict[str, Contestant],
    load: Callable[..., Split],
    arguments: Sequence[Any],
    seeds: Sequence[int],
) -> dict[str, dict[str, float]]:
    """Print a line for each run, and a table of means, which is returned.

    :param name: of the data.
    :param contestants: by name; they are pickled, and so at the top of their module.
    :param load: a split of ``*arguments`` and a seed.
    :param arguments: the first of ``load``.
    :param seeds: of the splits.
    """
    context = multiprocessing.get_context("spawn")
    runs: dict[str, list[dict[str, float]]] = {contestant: [] for contestant in contestants}
    for seed in seeds:
        for contestant, run in contestants.items():  # they take turns
            with context.Pool(1) as pool:
                result = pool.apply(_measured, (run, load, (*arguments, seed)))
            runs[contestant].append(result)
            print(
                json.dumps({"data": name, "seed": seed, "model": contestant} | result), flush=True
            )
    print(
        f"\n{name}, {len(load(*arguments, seeds[0])[0])} training rows: mean of {len(seeds)} seeds"
    )
    print(f"{'':<22} {'accuracy':>9} {'NLL':>7} {'ECE':>7} {'seconds':>8}")
    means = {}
    for contestant, results in runs.items():
        means[contestant] = {key: float(np.mean([r[key] for r in results])) for key in results[0]}
        row = "{:<22} {:9.4f} {:7.4f} {:7.4f} {:8.1f}"
        print(row.format(contestant, *means[contestant].values()), flush=True)
    return means
