"""Claims about what watches a training: the best state comes back, whatever ends it."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.training.watch import NotFinite, Stop, Watch


class Descent:
    """A variable that takes the values of a list, whose criterion is the value itself."""

    def __init__(self, *values: float, start: float = 9.0, **options) -> None:
        self.values, self.x = values, tf.Variable(start, dtype=tf.float64)
        options = {"check_every": 1, "max_steps": len(values), **options}
        self.watch = Watch([self.x], lambda _: float(self.x), **options)

    def __call__(self) -> tuple[bool, str]:
        for value in self.values:
            self.x.assign(value)
            self.watch.step(value if np.isfinite(value) else 0.0)
        return True, "end"


def test_the_best_state_of_all_looks_is_kept() -> None:
    descent = Descent(4.0, 2.0, 3.0, 1.0, 5.0, check_every=2)
    assert descent.watch.run(descent) == (True, "end", False)
    assert float(descent.x) == descent.watch.best.value == 1.0
    assert descent.watch.best.step == 4
    assert descent.watch.looks == [(0, 9.0), (2, 2.0), (4, 1.0), (5, 5.0)]
    assert descent.watch.losses == list(descent.values)


def test_the_start_is_kept_where_nothing_is_better() -> None:
    descent = Descent(12.0, 11.0)
    descent.watch.run(descent)
    assert (float(descent.x), descent.watch.best.step) == (9.0, 0)


def test_patience_counts_looks_without_a_gain() -> None:
    # A gain of 1e-6 is none, but its state is the better one.
    descent = Descent(4.0, 4.5, 3.0, 3.0 - 1e-6, 5.0, 1.0, patience=2)
    assert descent.watch.run(descent) == (True, "no gain in 2 looks", False)
    assert (float(descent.x), descent.watch.best.step) == (3.0 - 1e-6, 4)
    assert descent.watch.num_steps == 5


def test_seconds_are_a_limit_and_the_last_state_is_looked_at() -> None:
    descent = Descent(4.0, 3.0, check_every=5, max_seconds=1e-9)
    assert descent.watch.run(descent) == (True, "1e-09 seconds were over", False)
    assert descent.watch.looks == [(0, 9.0), (1, 4.0)]
    assert float(descent.x) == 4.0


@pytest.mark.parametrize(
    ("error", "reason", "failed"),
    [
        (KeyboardInterrupt, "it was interrupted", True),
        (StopIteration, "a callback ended it", False),
        (tf.errors.InvalidArgumentError(None, None, "No factor.\nmore"), "No factor.", True),
    ],
)
def test_what_observers_raise_ends_it_with_the_best(error, reason: str, failed: bool) -> None:
    def observe(watch: Watch) -> None:
        if watch.num_steps == 3:
            raise error

    descent = Descent(4.0, 2.0, 3.0, 1.0, observers=[observe])
    assert descent.watch.run(descent) == (not failed, reason, failed)
    assert float(descent.x) == 2.0


def test_other_errors_are_raised_with_the_best_state_in_place() -> None:
    def observe(watch: Watch) -> None:
        if watch.num_steps == 2:
            raise ZeroDivisionError

    descent = Descent(4.0, 7.0, observers=[observe])
    with pytest.raises(ZeroDivisionError):
        descent.watch.run(descent)
    assert float(descent.x) == 4.0


def test_a_criterion_that_is_not_finite_is_a_failure() -> None:
    descent = Descent(4.0, np.nan, 1.0)
    assert descent.watch.run(descent) == (False, "the criterion after step 2 is nan", True)
    assert float(descent.x) == 4.0


def test_a_state_that_is_not_finite_is_never_kept() -> None:
    # The loss of a step is that of where it began: it does not know where the step has led.
    x = tf.Variable(1.0)
    watch = Watch([x], lambda losses: min(losses, default=9.0), check_every=1, max_steps=1)

    def train() -> tuple[bool, str]:
        x.assign(np.nan)
        watch.step(1.0)
        return True, ""

    assert watch.run(train) == (False, "a parameter is not finite after step 1", True)
    assert float(x) == 1.0


def test_a_loss_that_is_not_finite_is_in_the_trace() -> None:
    watch = Watch([], lambda _: 0.0, check_every=None, max_steps=2)
    with pytest.raises(NotFinite, match="the loss of step 1 is inf"):
        watch.step(np.inf)
    assert watch.losses == [np.inf]


def test_a_state_that_is_lost_is_a_look_without_a_gain() -> None:
    descent = Descent(patience=2)
    descent.x.assign(np.nan)
    descent.watch.fail()
    assert float(descent.x) == 9.0
    with pytest.raises(Stop, match="no gain in 2 looks"):
        descent.watch.fail()
    np.testing.assert_array_equal(descent.watch.looks, [(0, np.nan), (0, np.nan)])


def test_a_failure_before_there_is_anything_to_keep_is_raised() -> None:
    watch = Watch([], lambda _: 0.0, check_every=None, max_steps=1)

    def train() -> tuple[bool, str]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch.run(train)
