"""What tests of the conjugate models and of their posteriors share."""

from typing import Any

import numpy as np
import pytest

from tests.models.oracles import (
    ONE_EACH,
    XNEW,
)

each = pytest.mark.parametrize(("name", "noise"), ONE_EACH)


def assert_same_predictions(model: Any, other: Any, atol: float = 1e-10) -> None:
    for ours, theirs in zip(model.predict_f(XNEW), other.predict_f(XNEW), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=atol)


def move(model: Any) -> None:
    """Other hyperparameters, as after training."""
    model.kernel.lengthscales.assign([0.7, 1.9])
