"""What is called with awkward inputs: every public constructor, method and function, by name.

An entry draws its arguments and returns class probabilities where it has some, else None, once what it
got is right. The names are those of the package, ``Class.method`` or ``module.function``:
``tests/fuzz/test_every_name.py`` fails where one is missing.
"""

from __future__ import annotations

from tests.fuzz.answers import Entry, quietly
from tests.fuzz.auto_entries import AUTO_ENTRIES, FITTED_ENTRIES
from tests.fuzz.door_entries import CHOSEN_ENTRIES, DOOR_ENTRIES, TRAINING_ENTRIES
from tests.fuzz.head_entries import HEAD_ENTRIES
from tests.fuzz.label_entries import LABEL_ENTRIES
from tests.fuzz.model_entries import MODEL_ENTRIES
from tests.fuzz.number_entries import NUMBER_ENTRIES, PICTURE_ENTRIES

__all__ = ["ENTRIES", "SLOW_ENTRIES"]


def _quiet(*tables: dict[str, Entry]) -> dict[str, Entry]:
    return {name: quietly(entry) for table in tables for name, entry in table.items()}


ENTRIES = _quiet(LABEL_ENTRIES, NUMBER_ENTRIES, MODEL_ENTRIES, FITTED_ENTRIES, CHOSEN_ENTRIES)
"""Of some hundredths of a second each."""
SLOW_ENTRIES = _quiet(AUTO_ENTRIES, TRAINING_ENTRIES, HEAD_ENTRIES, DOOR_ENTRIES, PICTURE_ENTRIES)
"""Of some tenths to seconds: they train, are traced, write files or draw."""
