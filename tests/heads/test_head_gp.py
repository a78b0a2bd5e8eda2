"""What the GPs inside heads share: variances alone, and a way out for those who need covariances."""

import gpflow
import numpy as np
import pytest

from gpflow_ilr import ILRCode
from gpflow_ilr.heads.code_gp import SharedCodeGP
from gpflow_ilr.heads.fixed_posterior import FixedPosterior
from gpflow_ilr.heads.head_gp import HeadGP
from tests.heads.stacks import STACKS, K, M, X, Y

KERNEL = gpflow.kernels.SquaredExponential
GPS = {
    "objective='code'": lambda: SharedCodeGP(KERNEL(), X[:M], ILRCode(K)),
    "posterior": lambda: FixedPosterior(KERNEL(), K, (M, 4, K - 1, 1)),
}


@pytest.fixture(params=GPS)
def gp(request: pytest.FixtureRequest) -> HeadGP:
    return GPS[request.param]()


def test_latents_are_the_marginals_with_a_variance_each(gp: HeadGP) -> None:
    (mean, shared), (same_mean, variance) = gp.predict_marginals(X), gp.predict_f(X)
    assert shared.shape == (len(X), 1)
    np.testing.assert_array_equal(same_mean, mean)
    np.testing.assert_array_equal(variance, np.repeat(shared, K - 1, axis=1))


@pytest.mark.parametrize("name", ["full_cov", "full_output_cov"])
def test_covariances_are_refused_with_who_has_them(gp: HeadGP, name: str) -> None:
    sentence = rf"{name} must be False, but is True.* head\.model.* GPHead\.collapse returns"
    with pytest.raises(NotImplementedError, match=sentence):
        gp.predict_f(X, **{name: True})


def test_who_is_named_has_them() -> None:
    stack = STACKS["keras"]
    closed_form = stack.closed_form()
    closed_form.fit((X, Y), validation=(X, Y))
    network, head = stack.model(stack.head(objective="code")).layers
    collapsed, features = head.collapse((X, Y), network), network(X)
    for model, rows in ((closed_form.model, X), (collapsed, features)):
        assert model.predict_f(rows, full_cov=True)[1].shape == (K - 1, len(X), len(X))
