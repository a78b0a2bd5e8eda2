"""One rule for the jitter, in each precision."""

from collections.abc import Iterator
from contextlib import contextmanager

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import disable_check_shapes

from gpflow_ilr.linalg.jitter import (
    FLOAT32_JITTER,
    absolute_jitter,
    least_noise,
    relative_jitter,
    safe_jitter,
)


@contextmanager
def precision(dtype: type, jitter: float = 1e-6) -> Iterator[None]:
    config = gpflow.config.Config(float=dtype, jitter=jitter)
    with gpflow.config.as_context(config), disable_check_shapes():  # faster without
        yield


def test_jitter_is_relative_and_has_a_floor_in_float32() -> None:
    for dtype, jitter, relative in (
        (np.float64, 1e-6, 1e-6),
        (np.float32, 1e-6, 1e-4),
        (np.float32, 1e-3, 1e-3),
    ):
        with precision(dtype, jitter):
            assert relative_jitter() == relative
            found = absolute_jitter(tf.constant([0.5, 40.0, 1e10], dtype))
            expected = relative * np.array([0.5, 40.0, 1e10])
            np.testing.assert_allclose(found, expected, rtol=1e-6)
            assert np.all(absolute_jitter(tf.constant(0.0, dtype)) > 0.0)


def test_gpflows_own_code_gets_it_too() -> None:
    with precision(np.float64), safe_jitter(lambda: tf.constant(40.0, tf.float64)):
        np.testing.assert_allclose(gpflow.config.default_jitter(), 4e-5, rtol=1e-12)
    assert gpflow.config.default_jitter() == 1e-6


def test_each_of_several_matrices_has_a_least_noise_of_its_own() -> None:
    for dtype, share in ((np.float64, 4 * np.finfo(np.float64).eps), (np.float32, FLOAT32_JITTER)):
        with precision(dtype):
            diagonals = tf.constant([[1.0, 2.0, 3.0, 4.0], [1e9, 1e9, 1e9, 1e9]], dtype)
            np.testing.assert_allclose(least_noise(diagonals), [2.5 * share, 1e9 * share], 1e-6)
            np.testing.assert_allclose(least_noise(diagonals[0]), 2.5 * share, 1e-6)
