"""Likelihoods of class labels, for GPflow's models and for ours.

:class:`ILRLikelihood` and :class:`SoftmaxLikelihood` are p(y = k | f) = softmax(C f)_k with an optional
mixing matrix; :class:`CodeGaussian` is the Gaussian of a label code's pseudo-targets.
"""

from gpflow_ilr.likelihoods.code_gaussian import CodeGaussian
from gpflow_ilr.likelihoods.linked_softmax import (
    ILRLikelihood,
    LinkedSoftmax,
    SoftmaxLikelihood,
    SoftmaxOfLatents,
)

__all__ = [
    "ILRLikelihood",
    "SoftmaxLikelihood",
    "CodeGaussian",
    "LinkedSoftmax",
    "SoftmaxOfLatents",
]
