"""The table of contestants: which take part in an experiment under a protocol, by name."""

from as_paper import AS_PAPER
from baselines import BASELINES
from ours import OURS
from peers import PEERS, missing_package
from problem import Contestant

__all__ = ["PROTOCOLS", "UnknownModelError", "contestants", "wanted"]

PROTOCOLS = {
    "ours": {name: OURS[name] | PEERS | BASELINES[name] for name in OURS},
    "paper": {name: AS_PAPER[name] | PEERS for name in AS_PAPER},
}
"""Contestants of each experiment, in the order in which they run: the most important first."""


class UnknownModelError(Exception):
    """No contestant has this name, and a sentence says which there are."""


def contestants(
    experiment: str, protocol: str, names: list[str] | None = None
) -> dict[str, Contestant]:
    """Those that take part; peers whose package is missing are left out, with a word.

    :param experiment: ``uci-exact`` or ``uci-sparse``.
    :param protocol: ``ours`` or ``paper``.
    :param names: only these, in any case; None for all.
    :raises UnknownModelError: if one of them is none.
    """
    table, found = PROTOCOLS[protocol][experiment], {}
    for name in wanted(experiment, list(table), names):
        package = missing_package(name) if name in PEERS else None
        if package is None:
            found[name] = table[name]
        else:
            print(f"{name} is left out: {package} is not installed (pip install {package}).")
    return found


def wanted(experiment: str, table: list[str], names: list[str] | None) -> list[str]:
    """Those models of an experiment that are asked for, as they are called there.

    :param experiment: its name.
    :param table: names of its models.
    :param names: only these, in any case; None for all.
    :raises UnknownModelError: if one of them is none.
    """
    by_lower = {name.lower(): name for name in table}
    for name in names or ():
        if name.lower() not in by_lower:
            raise UnknownModelError(
                f"No model of {experiment} is called {name!r}. There are {', '.join(table)}."
            )
    return table if names is None else [by_lower[name.lower()] for name in names]
