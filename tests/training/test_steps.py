"""Claims about steps of first order under a watch; those of q(u) are in ``test_polish.py``."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.training.steps import Steps, take_steps
from gpflow_ilr.training.watch import NotFinite, Watch


def start() -> tf.Variable:
    return tf.Variable([3.0, -2.0], dtype=tf.float64)


@pytest.mark.parametrize("compile_", [True, False])
def test_without_q_they_are_adams_and_tell_the_loss_where_they_began(compile_: bool) -> None:
    ours, theirs = start(), start()
    steps = Steps(lambda: tf.reduce_sum(ours**2), [ours], 0.1, compile=compile_)
    adam = gpflow.keras.tf_keras.optimizers.Adam(0.1)
    for _ in range(3):
        expected = float(tf.reduce_sum(theirs**2))
        adam.minimize(lambda: tf.reduce_sum(theirs**2), [theirs])
        assert steps.one() == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def failing(x: tf.Variable, limit: float) -> Steps:
    """Steps whose loss is NaN, and so are they, once the first number is small."""
    nan = tf.constant(np.nan, x.dtype)
    return Steps(lambda: tf.reduce_sum(tf.where(x[0] < limit, nan, x) ** 2), [x], 0.5)


def test_a_failure_ends_them_or_they_recover() -> None:
    x = start()
    watch = Watch([x], lambda _: float(tf.reduce_sum(x**2)), check_every=1, max_steps=20)
    with pytest.raises(NotFinite):
        take_steps(failing(x, 1.4), watch, 20)
    assert np.isnan(watch.losses[-1])

    x = start()
    watch = Watch([x], lambda _: float(tf.reduce_sum(x**2)), check_every=1, max_steps=20)
    assert take_steps(failing(x, 1.4), watch, 20, recover=True) == (True, "all steps were taken")
    assert np.isnan(watch.losses).sum() > 1  # it goes on from finite moments after each failure
    assert np.isfinite(x).all()
