"""The sampled models that several files of tests ask."""

import pytest

from tests.augmented.small_models import MODELS, build


@pytest.fixture(scope="session", params=MODELS)
def fitted(request):
    """A sampled model, its name and its convergence report; whoever changes it takes a copy."""
    model = build(request.param)
    return model, request.param, model.sample(num_samples=400, num_burnin=100, seed=0)
