"""GPflow's tests of likelihoods with ours among their set-ups; run by ``.ci/gpflow_likelihoods``.

The tests are GPflow's, imported from its source distribution. Two of them hold every likelihood to what
a latent without variance implies; the third compares a softmax of two classes with a Bernoulli. Left
out: tests of single likelihoods, and one that asks for GPflow's error for labels of several columns.
"""

import numpy as np
import pytest
from tests.gpflow.likelihoods import test_likelihoods, test_multiclass
from tests.gpflow.likelihoods.test_likelihoods import (
    test_conditional_mean_and_variance,
    test_variational_expectations,
)

import gpflow_ilr as gi
from gpflow_ilr.likelihoods import CodeSoftmax

__all__ = ["test_conditional_mean_and_variance", "test_variational_expectations"]

# GPflow's latents have three columns.
OURS = [
    gi.SoftmaxLikelihood(3),
    gi.ILRLikelihood(4),
    gi.ILRLikelihood(6, num_latent_gps=3),
    CodeSoftmax(gi.ILRCode(4)),
    CodeSoftmax(gi.DirichletCode(3)),
    gi.LogisticSoftmaxLikelihood(3),
    gi.BijectiveSoftmaxLikelihood(4),
]
LABELS = np.argmax(test_likelihoods.Datum.Y, axis=1)[:, None]

# Their decorators refer to this list, which is read when tests are collected.
test_likelihoods.likelihood_setups.extend(
    test_likelihoods.LikelihoodSetup(likelihood, Y=LABELS) for likelihood in OURS
)


def test_two_classes_are_a_bernoulli(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_multiclass, "Softmax", gi.SoftmaxLikelihood)
    test_multiclass.test_softmax_bernoulli_equivalence(num=8, dimX=3, dimF=2, dimY=1)
