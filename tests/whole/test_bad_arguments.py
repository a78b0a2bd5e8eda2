"""Every public entry says of a wrong input which argument it is, what it is, and what to do.

``tests/whole/bad_arguments.py`` has the table; a new public name fails here until it has an entry, or a
reason not to.
"""

from __future__ import annotations

import importlib
from typing import Any

import matplotlib
import pytest
import tensorflow as tf

from tests.whole import bad_arguments, bad_door_arguments, bad_model_arguments
from tests.whole.bad_arguments import Bad

matplotlib.use("Agg")

ENTRIES = bad_arguments.ENTRIES | bad_model_arguments.ENTRIES | bad_door_arguments.ENTRIES
ROWS = [(name, bad) for name, entry in ENTRIES.items() for bad in entry.bad]

MODULES = (
    "metrics simplex starting training calibration plotting saving distributed "
    "keras tf_keras sklearn"
)
TAKE_NO_INPUT = {
    "__version__": "text",
    "training": "a module",
    "metrics": "a module",
    "NodeRule": "is abstract",
    "metrics.ReliabilityCurve": "is a result",
    "training.AutoClassifier": "is a result",
    "training.Fit": "is a result",
    "training.Polish": "is a result",
    "training.Report": "is a result",
    "training.Trial": "is a result",
    "calibration.Calibratable": "is a protocol",
    "calibration.Calibration": "is a result",
    "calibration.Marginals": "is a result",
    "keras.PosteriorHead": "is a result, which Keras builds when it loads",
    "tf_keras.PosteriorHead": "is a result, which Keras builds when it loads",
    "starting.starting_kernel": "stands at the top, too",
    "starting.kmeans_plusplus": "stands at the top, too",
    "starting.greedy_variance": "stands at the top, too",
}


def public_names() -> list[str]:
    top = importlib.import_module("gpflow_ilr").__all__
    return [
        *top,
        *(
            f"{module}.{name}"
            for module in MODULES.split()
            for name in importlib.import_module(f"gpflow_ilr.{module}").__all__
        ),
    ]


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_is_in_the_table_or_takes_no_input(name: str) -> None:
    assert (name in ENTRIES) != (name in TAKE_NO_INPUT)


def shown(row: tuple[str, Bad]) -> str:
    name, bad = row
    value: Any = bad.value
    # Workers of pytest compare names, and those of other objects have addresses.
    is_plain = value is None or isinstance(value, (bool, int, float))
    return f"{name}-{bad.argument}-{repr(value) if is_plain else type(value).__name__}"


@pytest.mark.parametrize("row", ROWS, ids=shown)
def test_the_sentence_names_the_argument_the_value_and_the_fix(row: tuple[str, Bad]) -> None:
    name, bad = row
    entry = ENTRIES[name]
    with pytest.raises((TypeError, ValueError, OSError)) as caught:
        entry.call(**entry.right() | {bad.argument: bad.value})
    sentence = str(caught.value)
    for part in (bad.called or bad.argument, bad.shown, bad.fix):
        assert part in sentence
    assert not isinstance(caught.value, tf.errors.OpError)
    assert "Traceback" not in sentence
    assert "in user code" not in sentence
