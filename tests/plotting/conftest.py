"""Pictures are drawn into memory, and forgotten after each test."""

from collections.abc import Iterator

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

import gpflow_ilr as gi

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="session")
def model() -> gi.ILRGPR:
    """Three overlapping classes in the plane; whoever changes λ puts it back."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.normal(size=[60, 2]) + np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])[y]
    return gi.ILRGPR((X, y), gi.starting_kernel(X, 3), num_classes=3, noise_variance=0.3)
