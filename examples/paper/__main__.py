"""Every experiment of the paper, by name, beside what people use today.

    python examples/paper list
    python examples/paper uci-exact --data-dir DIR [--seeds 5] [--protocol ours|paper] [--out DIR]
    python examples/paper uci-sparse --data-dir DIR --datasets letter my_own_set --models C-ILR CatBoost
    python examples/paper report --out DIR

Results are lines of JSON in ``--out``, one for each data set × model × seed: what is there is not run
again, so an interrupted run goes on where it was. Tables (CSV, and Markdown beside the paper's
numbers) and figures are made from these lines at the end, or by ``report``.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

DESCRIPTIONS = {
    "uci-exact": "small UCI sets: E-ILR, GPD, LSM, BSM, the automatic fit and peers",
    "uci-sparse": "large UCI sets: C-ILR, U-ILR, neighbours, GPD, SVGPC, LSM, BSM and peers",
    "toy-lambda": "three overlapping classes: what λ does to error, NLL and ECE",
    "toy-alpha": "the same for GPD's α_ε",
    "toy-sigma": "the same for the tolerance ε of Proposition 1",
    "scaling-k": "2 to 256 classes around a circle",
    "gpd-breakdown": "Table 1: errors of predictions from z* and from f*",
    "gpd-error-rate": "how often a pseudo-observation of GPD is of another class",
    "decision-boundaries": "a picture of what Exact-ILR believes near the rows and far away",
    "visual-abstract": "a picture of data, likelihood and posterior",
    "likelihood-figure": "a picture of the likelihood in Euclidean space and on the simplex",
}


def experiments() -> dict[str, Callable[[Any], bool]]:
    """What runs under each name; imported when it is wanted, since TensorFlow takes seconds."""
    import gpd
    import pictures
    import toys
    import uci

    by_name: dict[str, Callable[[Any], bool]] = {
        "gpd-breakdown": gpd.breakdown,
        "gpd-error-rate": gpd.error_rates,
        "decision-boundaries": pictures.decision_boundaries,
        "visual-abstract": pictures.visual_abstract,
        "likelihood-figure": pictures.likelihood,
    }
    for module, names in ((uci, uci.SETS), (toys, (*toys.TOYS, "scaling-k"))):
        by_name |= {name: functools.partial(module.run, name) for name in names}
    return by_name


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number of at least 1, but is {text!r}")
    return int(text)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python examples/paper",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "experiment", choices=["list", "report", *DESCRIPTIONS], metavar="EXPERIMENT"
    )
    parser.add_argument("--data-dir", type=Path, help="folder with <name>.npz, arrays X and y")
    parser.add_argument(
        "--datasets", nargs="+", metavar="NAME", help="default: the paper's, and all in --data-dir"
    )
    parser.add_argument("--models", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--seeds", type=_at_least_one, default=5, help="number of splits (5)")
    parser.add_argument("--protocol", choices=["ours", "paper"], default="ours")
    parser.add_argument("--quick", action="store_true", help="tiny, only to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("outputs") / "paper", help="folder")
    parser.add_argument("--to", type=Path, help="the report; default: RESULTS.md in --out")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.experiment == "list":
        for name, description in DESCRIPTIONS.items():
            print(f"{name:<20} {description}")
        return 0
    from data import DataMissingError
    from models import UnknownModelError
    from report import write_report
    from results import BrokenResultsError, UnwrittenResultsError
    from runner import Options

    worked = True
    try:
        if options.experiment != "report":
            known = {name: getattr(options, name) for name in Options.__dataclass_fields__}
            worked = experiments()[options.experiment](Options(**known))
        written = write_report(options.out, options.to or options.out / "RESULTS.md")
    except (
        BrokenResultsError,
        DataMissingError,
        UnknownModelError,
        UnwrittenResultsError,
    ) as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if worked and written else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
