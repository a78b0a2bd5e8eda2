"""Calibrated and conjugate multiclass Gaussian-process classification for GPflow.

The data flow from left to right: labels → code → GP → latent → probabilities → metrics. Start with
:class:`ILRGPR` (exact), :class:`ILRSGPR` (sparse) or :class:`ILRLikelihood` (in your own GPflow model).
"""

from gpflow_ilr import metrics, training
from gpflow_ilr.augmented import (
    BijectiveSoftmaxGP,
    BijectiveSoftmaxLikelihood,
    LogisticSoftmaxGP,
    LogisticSoftmaxLikelihood,
)
from gpflow_ilr.codes import DirichletCode, ILRCode
from gpflow_ilr.expectations import GaussHermite, MonteCarlo, NodeRule, Sobol
from gpflow_ilr.likelihoods import CodeGaussian, ILRLikelihood, SoftmaxLikelihood
from gpflow_ilr.models import (
    ILRGPR,
    ILRNNGPR,
    ILRSGPR,
    ILRSVGP,
    CodeSVGP,
    DirichletGPR,
    DirichletNNGPR,
    DirichletSGPR,
    SoftmaxSVGP,
)
from gpflow_ilr.simplex import ILR
from gpflow_ilr.starting import greedy_variance, kmeans_plusplus, starting_kernel
from gpflow_ilr.version import __version__

__all__ = [
    "__version__",
    # Geometry and codes
    "ILR",
    "ILRCode",
    "DirichletCode",
    # Expectations and likelihoods
    "NodeRule",
    "GaussHermite",
    "Sobol",
    "MonteCarlo",
    "ILRLikelihood",
    "SoftmaxLikelihood",
    "CodeGaussian",
    "LogisticSoftmaxLikelihood",
    "BijectiveSoftmaxLikelihood",
    # Models
    "ILRGPR",
    "DirichletGPR",
    "ILRSGPR",
    "DirichletSGPR",
    "ILRNNGPR",
    "DirichletNNGPR",
    "ILRSVGP",
    "SoftmaxSVGP",
    "CodeSVGP",
    "LogisticSoftmaxGP",
    "BijectiveSoftmaxGP",
    # Starting values
    "starting_kernel",
    "kmeans_plusplus",
    "greedy_variance",
    # Training and evaluation
    "training",
    "metrics",
]
