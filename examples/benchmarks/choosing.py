"""Settings of a contestant of ``heads.py``, chosen by the NLL of validation rows alone."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Found", "Predict", "Prediction", "chosen", "clock", "nll"]

Prediction = tuple[np.ndarray, np.ndarray | None]
Predict = Callable[[np.ndarray], Prediction]


class Found(NamedTuple):
    """A contestant as it takes part.

    :param predict: class probabilities, and epistemic entropies or None.
    :param seconds: of the processor, that all its tries took.
    :param settings: those that were chosen.
    :param made: what ``predict`` is of, for those who go on from there.
    """

    predict: Predict
    seconds: float
    settings: dict[str, float]
    made: Any = None


def nll(p: np.ndarray, y: np.ndarray) -> float:
    return float(-np.mean(np.log(np.maximum(p[np.arange(len(y)), y], 1e-30))))


def clock() -> float:
    """Processor time of this process and those it waited for: others on the machine do not count."""
    return sum(os.times()[:4])


def chosen(
    make: Callable[..., tuple[Predict, Any]],
    val: tuple[np.ndarray, np.ndarray],
    num_tries: int,
    **settings: Sequence[float],
) -> Found:
    """One setting after the other, each the value with the smallest NLL of the validation rows.

    :param make: the contestant by its settings, and what it is made of.
    :param val: validation rows.
    :param num_tries: how many of the values of each setting are tried.
    :param settings: values by name, of which the first stands until the setting's turn comes.
    """
    start, made = clock(), {}
    best = {name: values[0] for name, values in settings.items()}

    def tried(values: dict[str, float]) -> tuple[float, Predict, Any]:
        key = tuple(values.values())
        if key not in made:
            predict, what = make(**values)
            made[key] = nll(predict(val[0])[0], val[1]), predict, what
        return made[key]

    for name, values in settings.items():
        judged = [tried({**best, name: value})[0] for value in values[:num_tries]]
        best[name] = values[int(np.argmin(judged))]
    _, predict, what = tried(best)
    return Found(predict, clock() - start, best, what)
