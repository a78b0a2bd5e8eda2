"""The posterior of a conjugate classifier predicts as its model, without the data."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential

from tests.models.moved import assert_same_predictions, each, move
from tests.models.oracles import (
    XNEW,
    K,
    X,
    Y,
    Z,
    build,
)


class Watched(SquaredExponential):
    """Remembers how many rows it was asked about on either side."""

    def __init__(self) -> None:
        super().__init__(variance=0.6, lengthscales=[1.3, 0.8])
        self.calls: list[Any] = []

    def K(self, X: Any, X2: Any = None) -> tf.Tensor:
        self.calls.append((X.shape[-2], None if X2 is None else X2.shape[-2]))
        return super().K(X, X2)


@each
@pytest.mark.parametrize("cache", ["tensor", "variable"])
def test_a_cached_posterior_predicts_without_the_training_data(name, noise, cache):
    model = build(name, noise, k=Watched())
    expected = model.predict_f(XNEW, full_cov=True), model.predict_y(XNEW)
    posterior = model.posterior(cache)
    model.data = X[::-1][:7] + 9.0, (Y[:7] + 1) % K
    model.kernel.calls = []
    for ours, theirs in zip(
        (posterior.predict_f(XNEW, full_cov=True), posterior.predict_y(XNEW)), expected, strict=True
    ):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10)
    basis = len(Z) if name.endswith("SGPR") else len(X)  # of the basis functions k(·, x)
    assert set(model.kernel.calls) <= {(basis, len(XNEW)), (len(XNEW), None)}


@each
def test_caches_are_brought_up_to_date_on_request(name, noise):
    model = build(name, noise)
    with pytest.raises(ValueError, match=r"[Cc]ache"):
        model.posterior("nocache").predict_f(XNEW)
    fused = model.posterior("nocache").fused_predict_f(XNEW)
    np.testing.assert_allclose(fused[0], model.predict_f(XNEW)[0], atol=1e-12)
    posteriors = [model.posterior("tensor"), model.posterior("variable")]
    compiled = tf.function(posteriors[1].predict_f, autograph=False)
    compiled(XNEW)
    move(model)
    for posterior in posteriors:
        posterior.update_cache()
        assert_same_predictions(posterior, model)
    np.testing.assert_allclose(compiled(XNEW)[0], model.predict_f(XNEW)[0], atol=1e-10)
