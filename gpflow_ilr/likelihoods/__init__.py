"""Likelihoods of class labels, for GPflow's models and for ours.

Each is a :class:`SoftmaxOfLatents`, p(y = k | f) = softmax(C f)_k. :class:`ILRLikelihood` and
:class:`SoftmaxLikelihood` have an optional mixing matrix in C, :class:`CodeSoftmax` reads C from a
label code, and :class:`CodeGaussian` is the Gaussian of a code's pseudo-targets.
"""

from gpflow_ilr.likelihoods.base import SoftmaxOfLatents
from gpflow_ilr.likelihoods.code_gaussian import CodeGaussian
from gpflow_ilr.likelihoods.code_softmax import CodeSoftmax
from gpflow_ilr.likelihoods.linked_softmax import ILRLikelihood, LinkedSoftmax, SoftmaxLikelihood

__all__ = [
    "ILRLikelihood",
    "SoftmaxLikelihood",
    "CodeSoftmax",
    "CodeGaussian",
    "LinkedSoftmax",
    "SoftmaxOfLatents",
]
