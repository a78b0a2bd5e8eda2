"""The experiments on data sets: each contestant on each split, one line of results at a time."""

import gc
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from data import DataMissingError, available, load, split
from models import contestants
from problem import Contestant, Problem
from published import published
from results import Results, circumstances, now
from scores import scores

__all__ = ["KEY", "SETS", "Options", "run"]

SETS = {
    "uci-exact": ("wine", "glass", "thyroid"),
    "uci-sparse": ("eeg", "htru2", "magic", "miniboo", "letter", "drive", "mocap"),
}
"""The paper's sets."""
QUICK_SETS = {"uci-exact": ("wine",), "uci-sparse": ("digits",)}
KEY = ("protocol", "data", "model", "seed", "quick")
MOST_EXACT_ROWS = 5000
NUM_INDUCING = {"ours": 300, "paper": 200}
"""Of sets for which the paper has no number, and of all under our protocol."""


@dataclass(frozen=True)
class Options:
    """What the command line says.

    :param data_dir: where ``<name>.npz`` are.
    :param datasets: names; None for those of the experiment.
    :param models: names; None for all.
    :param seeds: how many splits.
    :param protocol: ``ours`` or ``paper``.
    :param quick: only to see that it runs.
    :param out: where results go.
    """

    data_dir: Path | None
    datasets: list[str] | None
    models: list[str] | None
    seeds: int
    protocol: str
    quick: bool
    out: Path


def run(experiment: str, options: Options) -> bool:
    """Run what is not done yet; whether all of it worked.

    :param experiment: ``uci-exact`` or ``uci-sparse``.
    :param options: what the command line says.
    """
    table = contestants(experiment, options.protocol, options.models)
    sets = {
        name: load(name, options.data_dir, options.out / "data")
        for name in _names(experiment, options)
    }
    for name, (X, _) in sets.items():
        if experiment == "uci-exact" and len(X) > MOST_EXACT_ROWS:
            raise DataMissingError(
                f"{name} has {len(X)} rows, too many for the models of uci-exact. Use uci-sparse."
            )
    results = Results(options.out / f"{experiment}.jsonl", KEY)
    runs = [
        {
            "protocol": options.protocol,
            "data": name,
            "model": model,
            "seed": seed,
            "quick": options.quick,
        }
        for model in table
        for name in sets
        for seed in range(1 if options.quick else options.seeds)
    ]
    to_do = [run for run in runs if run not in results]
    print(
        f"{experiment}: {len(to_do)} of {len(runs)} runs to do, results in {results.path}",
        flush=True,
    )
    worked = True
    for i, identity in enumerate(to_do):
        X, y = sets[identity["data"]]
        try:
            outcome = _measured(table[identity["model"]], identity, X, y)
        except Exception:
            traceback.print_exc()
            print(f"{_named(identity)} failed: see above; the others go on.", flush=True)
            worked = False
            continue
        results.add(identity | outcome | {"date": now()} | circumstances())
        numbers = " ".join(f"{key} {outcome[key]:.4f}" for key in ("ACC", "NLL", "ECE"))
        print(
            f"[{i + 1}/{len(to_do)}] {_named(identity)}: {numbers} "
            f"(chance {outcome['ECE_chance']:.3f}), {outcome['seconds']:.0f} s",
            flush=True,
        )
        gc.collect()
    return worked


def _named(identity: dict) -> str:
    return f"{identity['data']}, {identity['model']}, seed {identity['seed']}"


def _names(experiment: str, options: Options) -> list[str]:
    if options.datasets is not None:
        return options.datasets
    if options.quick and options.data_dir is None:
        return list(QUICK_SETS[experiment])
    if options.data_dir is None:
        return list(SETS[experiment])
    found = available(SETS[experiment], options.data_dir)
    for name in set(SETS[experiment]) - set(found):
        print(f"{name} is left out: there is no {name}.npz in {options.data_dir}.")
    return found


def _measured(contestant: Contestant, identity: dict, X: np.ndarray, y: np.ndarray) -> dict:
    name, seed, quick = identity["data"], identity["seed"], identity["quick"]
    rows = split(name, X, y, seed, quick)
    known = published()["sets"]["values"].get(name) if identity["protocol"] == "paper" else None
    num_inducing = known["inducing"] if known else NUM_INDUCING[identity["protocol"]]
    problem = Problem(rows.X, rows.y, rows.num_classes, seed, 20 if quick else num_inducing, quick)
    start = time.perf_counter()
    fitted = contestant(problem)
    fit_seconds = time.perf_counter() - start
    p = fitted.predict(rows.X_test)
    return {
        "training": len(rows.X),
        "test": len(rows.X_test),
        "classes": rows.num_classes,
        **scores(p, rows.y_test),
        "fit_seconds": round(fit_seconds, 2),
        "seconds": round(time.perf_counter() - start, 2),
        "chosen": fitted.chosen,
    }
