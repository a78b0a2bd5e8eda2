"""Fixtures and settings that all tests share."""

import os

# Before TensorFlow is imported: tests run on the CPU, without the start-up log.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, settings

# Derandomized: the same examples everywhere. No deadlines: the machine may be busy.
settings.register_profile(
    "gpflow_ilr",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("gpflow_ilr")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    np.random.seed(0)  # noqa: NPY002 - for libraries that read NumPy's global state
    tf.random.set_seed(0)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
