"""The experiments on data sets: each contestant on each split, one line of results at a time."""

import functools
import time
from typing import Any

from data import DataMissingError, available, load, others, split
from models import PROTOCOLS, contestants
from problem import Problem
from published import published
from results import Results
from runner import Options, complete
from scores import scores

__all__ = ["KEY", "SETS", "run"]

SETS = {
    "uci-exact": ("wine", "glass", "thyroid"),
    "uci-sparse": ("eeg", "htru2", "magic", "miniboo", "letter", "drive", "mocap"),
}
"""The paper's sets; others in ``--data-dir`` join them by their size."""
QUICK_SETS = {"uci-exact": ("wine",), "uci-sparse": ("digits",)}
KEY = ("protocol", "data", "model", "seed", "quick")
MOST_EXACT_ROWS = 5000
NUM_INDUCING = {"ours": 300, "paper": 200}
"""Of sets for which the paper has no number, and of all under our protocol."""


def run(experiment: str, options: Options) -> bool:
    """Run what is not done yet; whether all of it worked.

    :param experiment: ``uci-exact`` or ``uci-sparse``.
    :param options: what the command line says.
    """
    table = contestants(experiment, options.protocol, options.models)
    sets = []
    for name in _names(experiment, options):
        try:
            X, _ = load(name, options.data_dir, options.out / "data")
        except DataMissingError as error:
            if options.datasets is not None:
                raise
            print(f"{name} is left out: {error}", flush=True)
            continue
        sets.append(name)
        if experiment == "uci-exact" and len(X) > MOST_EXACT_ROWS:
            raise DataMissingError(
                f"{name} has {len(X)} rows, too many for the models of uci-exact. Use uci-sparse."
            )
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
        for seed in options.seed_range()
    ]
    measure = functools.partial(_measured, experiment, options)
    results = Results(options.out / f"{experiment}.jsonl", KEY)
    return complete(results, runs, measure, apart=not options.quick)


def _names(experiment: str, options: Options) -> list[str]:
    if options.datasets is not None:
        return options.datasets
    if options.quick and options.data_dir is None:
        return list(QUICK_SETS[experiment])
    if options.data_dir is None:
        return list(SETS[experiment])
    found = available(SETS[experiment], options.data_dir)
    for name in sorted(set(SETS[experiment]) - set(found)):
        print(f"{name} is left out: there is no {name}.npz in {options.data_dir}.")
    return found + others(options.data_dir, small=experiment == "uci-exact")


def _measured(experiment: str, options: Options, run: dict[str, Any]) -> dict[str, Any]:
    name, seed, quick = run["data"], run["seed"], run["quick"]
    contestant = PROTOCOLS[run["protocol"]][experiment][run["model"]]
    rows = split(name, *load(name, options.data_dir, options.out / "data"), seed, quick)
    known = published()["sets"]["values"].get(name) if run["protocol"] == "paper" else None
    num_inducing = known["inducing"] if known else NUM_INDUCING[run["protocol"]]
    problem = Problem(rows.X, rows.y, rows.num_classes, seed, 20 if quick else num_inducing, quick)
    start, processor = time.perf_counter(), time.process_time()
    fitted = contestant(problem)
    fit_seconds = time.perf_counter() - start
    p = fitted.predict(rows.X_test)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    return {
        "training": len(rows.X),
        "test": len(rows.X_test),
        "classes": rows.num_classes,
        **scores(p, rows.y_test),
        "fit_seconds": round(fit_seconds, 2),
        "seconds": round(seconds, 2),
        "processor_seconds": round(processor, 2),
        "chosen": fitted.chosen,
    }
