"""Fixtures and settings that all tests share."""

import gc
import os

# Before TensorFlow is imported: tests run on the CPU, without the start-up log.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if "PYTEST_XDIST_WORKER" in os.environ:  # one process for each core: more threads would wait for it
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")

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

# Traced graphs are many small objects that stay: looking through all of them again and again for
# garbage takes longer than many a test.
gc.freeze()
gc.set_threshold(50_000, 50, 100)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first, so that no worker is left alone with one of them at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    np.random.seed(0)  # noqa: NPY002 - for libraries that read NumPy's global state
    tf.random.set_seed(0)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
