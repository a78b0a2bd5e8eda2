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
import sys
from collections.abc import Callable
from pathlib import Path

DESCRIPTIONS = {
    "uci-exact": "small UCI sets: E-ILR, GPD, LSM, BSM and peers",
    "uci-sparse": "large UCI sets: C-ILR, U-ILR, neighbours, GPD, SVGPC, LSM, BSM and peers",
}


def experiments() -> dict[str, Callable]:
    """What runs under each name; imported when it is wanted, since TensorFlow takes seconds."""
    import uci

    return {name: lambda options, name=name: uci.run(name, options) for name in uci.SETS}


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
    parser.add_argument("--datasets", nargs="+", metavar="NAME", help="default: the paper's")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--seeds", type=int, default=5, help="number of splits (5)")
    parser.add_argument("--protocol", choices=["ours", "paper"], default="ours")
    parser.add_argument("--quick", action="store_true", help="tiny, only to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("outputs") / "paper")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.experiment == "list":
        for name, description in DESCRIPTIONS.items():
            print(f"{name:<20} {description}")
        return 0
    from data import DataMissingError
    from models import UnknownModelError
    from uci import Options

    known = {name: getattr(options, name) for name in Options.__dataclass_fields__}
    try:
        worked = experiments()[options.experiment](Options(**known))
    except (DataMissingError, UnknownModelError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if worked else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
