"""Every public name, and every public method of every public class, is called with awkward inputs.

A new one fails here until it has an entry, or a reason not to.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from tests.fuzz.entries import ENTRIES, SLOW_ENTRIES
from tests.whole.test_bad_arguments import MODULES, public_names

MORE_MODULES = ["codes", "likelihoods"]
"""Whose classes are documented, beside those of the table of bad arguments."""

NOT_CALLED = {
    "__version__": "text",
    "training": "a module",
    "metrics": "a module",
    "NodeRule": "is abstract",
    "calibration.Calibratable": "is a protocol",
    "calibration.Calibration": "is a result",
    "calibration.Marginals": "is a result",
    "calibration.smoothing": "is a property of models, which have entries",
    "codes.LabelCode": "is abstract; its subclasses have entries",
    "codes.MAX_NOISE_RATIO": "a number",
    "codes.MAX_SMOOTHING": "a number",
    "codes.NoiseOption": "a type",
    "likelihoods.LinkedSoftmax": "is abstract; its subclasses have entries",
    "likelihoods.SoftmaxOfLatents": "is abstract; its subclasses have entries",
    "metrics.ReliabilityCurve": "is a result",
    "training.Fit": "is a result",
    "training.Polish": "is a result",
    "training.Report": "is a result",
    "training.Trial": "is a result",
}

OF_A_CACHE = "its first argument is what precompute returned; posterior has an entry"
OF_CHECKED_ROWS = (
    "its argument is rows that have been checked; data, update and absorb have entries"
)
OF_SUMS = "its argument is sums over rows that the model has made; absorb and elbo have entries"
OF_TRIALS = "its argument is rows and noises or counts that calibrate tries, which has an entry"
NO_INPUT = "has no input but the model, and is a part of what has an entry"
OF_KERAS = "Keras calls it, when it builds, saves or loads"

METHODS_NOT_CALLED = {
    "adopt": OF_SUMS,
    "bound": OF_SUMS,
    "build": OF_KERAS,
    "change_classes": "its argument is a map of classes; update and merge_classes have entries",
    "change_rows": OF_CHECKED_ROWS,
    "check_classes_can_change": NO_INPUT,
    "compute_output_shape": OF_KERAS,
    "conditional": OF_A_CACHE,
    "from_config": OF_KERAS,
    "get_config": OF_KERAS,
    "held_out": OF_CHECKED_ROWS,
    "in_groups": OF_CHECKED_ROWS,
    "in_paper_units": OF_SUMS,
    "keep": OF_SUMS,
    "known_statistics": OF_SUMS,
    "label_log_density": "its argument is predictions of rows that are held out",
    "labelled_rows": OF_CHECKED_ROWS,
    "latents": OF_A_CACHE,
    "leave_one_out_at": "its argument is numbers of rows; predict_set has an entry",
    "load_own_variables": OF_KERAS,
    "log_evidence_of": OF_CHECKED_ROWS,
    "loo_at_counts": OF_TRIALS,
    "loo_at_noise": OF_TRIALS,
    "marginals": OF_A_CACHE,
    "of": "makes a layer of a head's posterior; posterior_layer and layer have entries",
    "own_statistics": NO_INPUT,
    "precision": NO_INPUT,
    "precompute": NO_INPUT,
    "prediction_chunk": OF_A_CACHE,
    "prior_variance": "its argument is inputs that have been checked; predict_f_samples has an entry",
    "probes": NO_INPUT,
    "representative_rows": NO_INPUT,
    "save_own_variables": OF_KERAS,
    "statistics": OF_CHECKED_ROWS,
    "trainable": "Keras' own flag",
    "whitened_posteriors": NO_INPUT,
}


def all_names() -> list[str]:
    more = [
        f"{module}.{name}"
        for module in MORE_MODULES
        for name in importlib.import_module(f"gpflow_ilr.{module}").__all__
    ]
    return [*public_names(), *more]


def found(name: str) -> Any:
    """What a public name stands for."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(f"gpflow_ilr.{module}".rstrip(".")), last)


def short(name: str, cls: Any) -> str:
    """The name of a class in the tables: from the top, where it stands there, too."""
    top = importlib.import_module("gpflow_ilr")
    return cls.__name__ if getattr(top, cls.__name__, None) is cls else name


def methods(cls: Any) -> list[str]:
    """Public methods and settable properties that this package defines."""
    return sorted(
        {
            name
            for base in cls.__mro__
            if base.__module__.startswith("gpflow_ilr")
            for name, value in vars(base).items()
            if not name.startswith(("_", "set_"))  # scikit-learn adds setters of requests
            and (
                value.fset is not None
                if isinstance(value, property)
                else callable(value) or isinstance(value, (classmethod, staticmethod))
            )
        }
    )


CALLED = {*ENTRIES, *SLOW_ENTRIES}
CLASSES = {
    short(name, found(name)): found(name)
    for name in all_names()
    if inspect.isclass(found(name)) and name not in NOT_CALLED
}


@pytest.mark.parametrize("name", all_names())
def test_every_public_name_has_an_entry_or_a_reason(name: str) -> None:
    thing = found(name)
    if name.startswith("starting."):  # these stand at the top, too
        name = name.removeprefix("starting.")
    if not inspect.isclass(thing):
        assert (name in CALLED) != (name in NOT_CALLED)
    else:
        entries = (short(name, thing), f"{short(name, thing)}.")
        is_called = any(entry == entries[0] or entry.startswith(entries[1]) for entry in CALLED)
        assert is_called != (name in NOT_CALLED)


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_method_has_an_entry_or_a_reason(name: str) -> None:
    missing = [
        method
        for method in methods(CLASSES[name])
        if f"{name}.{method}" not in CALLED and method not in METHODS_NOT_CALLED
    ]
    assert missing == []


def test_no_reason_is_left_of_what_is_gone_or_has_entries() -> None:
    there = {method for cls in CLASSES.values() for method in methods(cls)}
    assert set(METHODS_NOT_CALLED) <= there
    assert set(NOT_CALLED) <= set(all_names())
    called = {entry.rpartition(".")[2] for entry in CALLED}
    assert called & set(METHODS_NOT_CALLED) == set()


def test_every_method_in_the_tables_exists() -> None:
    for entry in CALLED:
        owner, _, method = entry.rpartition(".")
        if owner in CLASSES:
            assert hasattr(CLASSES[owner], method), entry


def test_the_modules_are_those_of_the_table_of_bad_arguments() -> None:
    assert not set(MORE_MODULES) & set(MODULES.split())
