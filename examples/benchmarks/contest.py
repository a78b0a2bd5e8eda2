"""Fair timing: contestants take turns, and the best of several rounds counts.

Absolute times say little; each benchmark here prints ratios to a named peer or to a floor, measured in
one run. Taking turns spreads a busy machine's moods over all contestants; the best round is the one
least disturbed.
"""

import argparse
import time
from collections.abc import Callable

__all__ = ["arguments", "best_times", "report"]


def arguments(description: str | None, rounds: int = 7) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="tiny shapes, to see that it runs")
    parser.add_argument(
        "--rounds", type=int, default=rounds, help="rounds, of which the best counts"
    )
    return parser.parse_args()


def best_times(
    contestants: dict[str, Callable[[], object]], rounds: int, once: tuple[str, ...] = ()
) -> dict[str, float]:
    """Seconds of the best round of each contestant; those in ``once`` run in the first round only."""
    for name, run in contestants.items():
        if name not in once:
            run()  # traces graphs and warms caches
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for i in range(rounds):
        for name, run in contestants.items():
            if i == 0 or name not in once:
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
    return {name: min(values) for name, values in times.items()}


def report(times: dict[str, float], reference: str) -> None:
    """A table of times and of ratios to one contestant."""
    print(f"{'':<44} {'seconds':>9} {'ratio':>9}")
    for name, seconds in times.items():
        print(f"{name:<44} {seconds:9.4f} {seconds / times[reference]:9.2f}")
    print(f"ratio to: {reference}\n")
