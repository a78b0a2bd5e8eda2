"""Whatever is put in, probabilities come out, or a sentence: never NaN, never TensorFlow's own words.

The usual run has 300 examples. A test of 5,000 is marked slow, and runs only when it is asked for, by
``pytest -m fuzz`` or ``-m slow``.
"""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from hypothesis import given, settings
from hypothesis import strategies as st

import gpflow_ilr
from tests.fuzz.entries import ENTRIES, SLOW_ENTRIES
from tests.fuzz.limits import LIMIT_SECONDS, at_most
from tests.fuzz.one_awkward import ONE_AWKWARD, SLOW_ONE_AWKWARD, Call

NUM_EXAMPLES = 300
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
    return isinstance(error, (ValueError, TypeError)) and words >= 6 and place.startswith(PACKAGE)


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
    rounding = 1e-12 if p.dtype == np.float64 else 1e-6
    assert np.all((p >= 0.0) & (p <= 1.0 + rounding)), p
    np.testing.assert_allclose(np.sum(p, axis=-1), 1.0, rtol=0, atol=rounding)


@settings(max_examples=NUM_EXAMPLES)
@given(name=st.sampled_from(sorted(ENTRIES)), data=st.data())
def test_awkward_inputs_give_probabilities_or_a_sentence(name: str, data: Any) -> None:
    check(ENTRIES[name], data.draw)


@settings(max_examples=max(NUM_EXAMPLES // 20, 1))
@given(name=st.sampled_from(sorted(SLOW_ENTRIES)), data=st.data())
def test_what_chooses_its_model_gives_probabilities_or_a_sentence(name: str, data: Any) -> None:
    check(SLOW_ENTRIES[name], data.draw)


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


@settings(max_examples=NUM_EXAMPLES // 2)
@given(name=st.sampled_from(sorted(ONE_AWKWARD)), data=st.data())
def test_a_sentence_names_the_one_argument_that_is_awkward(name: str, data: Any) -> None:
    check_name(ONE_AWKWARD[name], data.draw)


@settings(max_examples=max(NUM_EXAMPLES // 20, 1))
@given(name=st.sampled_from(sorted(SLOW_ONE_AWKWARD)), data=st.data())
def test_what_chooses_its_model_names_it_too(name: str, data: Any) -> None:
    check_name(SLOW_ONE_AWKWARD[name], data.draw)


def parts(entries: dict[str, Any], check: Any, num_examples: int, num_parts: int) -> list[Any]:
    """Some of the entries, by turns, with some of the examples, so that no test takes long."""
    names = sorted(entries)
    return [
        ({name: entries[name] for name in names[part::num_parts]}, check, num_examples // num_parts)
        for part in range(num_parts)
    ]


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("entries", "check", "num_examples"),
    [
        *parts(ENTRIES, check, 5000, 10),
        *parts(ONE_AWKWARD, check_name, 2500, 5),
        *parts(SLOW_ENTRIES, check, 250, 1),
        *parts(SLOW_ONE_AWKWARD, check_name, 250, 4),
    ],
)
def test_five_thousand_examples_are_answered_like_three_hundred(
    entries: dict[str, Any], check: Callable[[Any, Any], None], num_examples: int
) -> None:
    @settings(max_examples=num_examples)
    @given(name=st.sampled_from(sorted(entries)), data=st.data())
    def examples(name: str, data: Any) -> None:
        check(entries[name], data.draw)

    examples()
