"""Whatever is put in, probabilities come out, or a sentence: never NaN, never TensorFlow's own words.

The usual run has a plain example of every entry, and an awkward one of those that take hundredths of a
second. A test of 5,000 is marked slow, and runs only when it is asked for, by ``pytest -m fuzz`` or
``-m slow``.
"""

from __future__ import annotations

import math
import re
import traceback
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

import gpflow_ilr
from tests.fuzz.entries import ENTRIES, SLOW_ENTRIES
from tests.fuzz.limits import LIMIT_SECONDS, at_most
from tests.fuzz.one_awkward import ONE_AWKWARD, SLOW_ONE_AWKWARD, Call

PYTHONS_OWN = re.compile(
    "^.{,9}not supported between|unsupported operand|object is not|has no attribute|positional argument"
    "|unexpected keyword|cannot be interpreted|is ambiguous|not iterable|in user code"
)
"""What Python, NumPy and TensorFlow say of what they meet, wherever they are called."""
REFUSALS = (ValueError, TypeError, NotImplementedError)  # the last for what a model cannot have
PHASES = [Phase.generate, Phase.shrink]  # which lines explain a failure takes as long again
PACKAGE = str(Path(gpflow_ilr.__file__).parent)


def is_a_sentence(error: Exception) -> bool:
    """Whether the package itself refuses, in words that say what and why."""
    message = str(error)
    if isinstance(error, tf.errors.InvalidArgumentError):  # as optimisers of GPflow expect
        return "The Cholesky factor of" in message and "Remedies" in message
    if isinstance(error, ShapeMismatchError):  # GPflow's own, which names argument and shapes
        return True
    place = traceback.extract_tb(error.__traceback__)[-1].filename
    words = len(re.findall(r"\w+", message))
    ours = place.startswith(PACKAGE) and not PYTHONS_OWN.search(message)
    return isinstance(error, REFUSALS) and words >= 6 and ours


def check(entry: Callable[[Any], Any], draw: Any) -> None:
    try:
        with at_most(LIMIT_SECONDS):
            p = entry(draw)
    except AssertionError:
        raise
    except Exception as error:
        if not is_a_sentence(error):
            raise
        return
    if p is not None:
        check_probabilities(np.asarray(p))


def check_probabilities(p: np.ndarray) -> None:
    rounding = 1e-12 if p.dtype == np.float64 else 1e-5
    assert np.all((p >= 0.0) & (p <= 1.0 + rounding)), p
    np.testing.assert_allclose(np.sum(p, axis=-1), 1.0, rtol=0, atol=rounding)


def check_name(call: Call, draw: Any) -> None:
    value = draw(call.awkward)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            with at_most(LIMIT_SECONDS):
                answer = call.call(value)
        except Exception as error:
            if not is_a_sentence(error):
                raise
            sentence = str(error)
        else:
            if call.predicts:
                check_probabilities(np.asarray(answer))
            return
    of_a_matrix = "The Cholesky factor of" in sentence
    assert of_a_matrix or re.search(call.name, sentence), sentence


def run(name: str, check: Callable[[Any], None], num_examples: int) -> None:
    """So many examples of one entry, the same ones each time; the first is a plain one."""

    @seed(zlib.crc32(name.encode()))
    @settings(max_examples=num_examples, phases=PHASES)
    @given(data=st.data())
    def examples(data: Any) -> None:
        check(data.draw)

    examples()


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_awkward_inputs_give_probabilities_or_a_sentence(name: str) -> None:
    run(name, lambda draw: check(ENTRIES[name], draw), 2)


@pytest.mark.parametrize("name", sorted(SLOW_ENTRIES))
def test_what_takes_longer_gives_probabilities(name: str) -> None:
    run(name, lambda draw: check(SLOW_ENTRIES[name], draw), 1)


@pytest.mark.parametrize("name", sorted(ONE_AWKWARD))
def test_a_sentence_names_the_one_argument_that_is_awkward(name: str) -> None:
    run(name, lambda draw: check_name(ONE_AWKWARD[name], draw), 4)


TABLES = [
    (ENTRIES, check, 3500),
    (SLOW_ENTRIES, check, 500),
    (ONE_AWKWARD, check_name, 750),
    (SLOW_ONE_AWKWARD, check_name, 250),
]
"""What is called, what an answer is held to, and how many of 5,000 examples there are of all of it."""
SHARES = [
    pytest.param(table[name], check, math.ceil(total / len(table)), id=f"{number}-{name}")
    for number, (table, check, total) in enumerate(TABLES)
    for name in sorted(table)
]


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize(("entry", "check", "num_examples"), SHARES)
def test_five_thousand_examples_are_answered_like_the_few(
    entry: Any, check: Callable[[Any, Any], None], num_examples: int, request: pytest.FixtureRequest
) -> None:
    run(request.node.name, lambda draw: check(entry, draw), num_examples)
