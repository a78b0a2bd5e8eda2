"""Every claim about speed and memory, against what a user would pick instead, as ratios.

    python examples/benchmarks list
    python examples/benchmarks [NAME ...] [--quick] [--json FILE] [--rounds N] [--data-dir DIR]
    python examples/benchmarks report FILE [FILE ...] [--to RESULTS.md]
    python examples/benchmarks STUDY [its own options]

Without names all benchmarks run. Results are added to the file of JSON, each with its machine, versions
and date, as soon as a benchmark is done. ``report`` writes a page from one file, or from those of
several machines. What ``--quick`` measures shows that it runs, and nothing else. Studies are scripts
beside it that compare quality.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PATHS = {"--json": "FILE", "--data-dir": "DIR"}
"""What commands are recorded with, for paths are of one machine."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python examples/benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks, list, or report FILE")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="results, kept from earlier runs")
    parser.add_argument("--rounds", type=int, help="turns of each contestant")
    parser.add_argument("--threads", type=int, help="of each contestant; default: all cores")
    parser.add_argument("--data-dir", type=Path, help="folder with letter.npz and magic.npz (X, y)")
    parser.add_argument("--to", type=Path, default=HERE / "RESULTS.md", help="the page of report")
    return parser.parse_args(arguments)


def measured(name: str, options: argparse.Namespace, workers: Any) -> dict[str, Any]:
    """The result of a benchmark, which is shown shape by shape."""
    from catalogue import BENCHMARKS
    from contest import contest
    from machine import load, machine, now
    from tables import show

    benchmark = BENCHMARKS[name]
    rounds = options.rounds or (1 if options.quick else benchmark.rounds)
    result = {
        "says": benchmark.says,
        "over": benchmark.over,
        "quick": options.quick,
        "rounds": rounds,
        "threads": options.threads,
        "date": now(),
        "command": shlex.join(["python", "examples/benchmarks", name, *options.said]),
        "machine": machine(),
        "contests": [],
    }
    print(f"\n{name}: {benchmark.says}", flush=True)
    for shape in benchmark.quick if options.quick else benchmark.full:
        more = {"folder": str(options.data_dir)} if "data" in shape and options.data_dir else {}
        outcomes = contest(benchmark, shape | more, rounds, workers, not options.quick)
        against = {
            who: entrant.against or benchmark.reference
            for who, entrant in benchmark.contestants.items()
        }
        result["contests"].append({"shape": shape, "against": against, "outcomes": outcomes})
        show(result["contests"][-1])
    result["load_after"] = load()
    return result


def main(arguments: list[str]) -> int:
    from catalogue import BENCHMARKS, STUDIES, script, summary

    if arguments[:1] and arguments[0] in STUDIES:
        command = [sys.executable, str(script(arguments[0])), *arguments[1:]]
        return subprocess.run(command, check=False).returncode
    options = parse(arguments)
    if options.names[:1] == ["list"]:
        for name, benchmark in BENCHMARKS.items():
            print(f"{name:<22} {benchmark.says}")
        print("\nStudies of quality, each with --help:")
        for name in STUDIES:
            print(f"{name:<22} {summary(name)}")
        return 0
    if options.names[:1] == ["report"]:
        from report import write_report

        return write_report([Path(name) for name in options.names[1:]], options.to)
    if unknown := [name for name in options.names if name not in BENCHMARKS]:
        print(f"There is no {', '.join(unknown)}: see python examples/benchmarks list.")
        return 2
    from contest import Workers, limit_threads
    from keeping import read_results, write_results
    from machine import cores

    words = zip(["", *arguments], arguments, strict=False)
    options.said = [PATHS.get(last, word) for last, word in words if word not in BENCHMARKS]
    options.threads = options.threads or cores()
    limit_threads(options.threads)
    default = Path("outputs") / f"benchmarks{'-quick' if options.quick else ''}.json"
    path = options.json or default
    path.parent.mkdir(parents=True, exist_ok=True)
    results = read_results(path)
    failed = False
    with Workers(options.quick) as workers:
        for name in options.names or BENCHMARKS:
            results[name] = measured(name, options, workers)
            write_results(path, results)
            failed |= any(
                "failed" in o for c in results[name]["contests"] for o in c["outcomes"].values()
            )
            if results[name]["over"]:
                from pictures import scaling_picture

                scaling_picture({"": results[name]}, path.parent / f"{name}.png")
    print(f"\nwrote {path}; python examples/benchmarks report {path} makes a page of it")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
