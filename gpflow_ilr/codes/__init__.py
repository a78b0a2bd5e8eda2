"""Label codes: two tables and a link, which make a class label Gaussian and a latent a class.

A conjugate classifier is GP regression on a *code*. A row of class c is replaced by the targets
``T[c, p]`` with noise variances ``V[c, p]``, one for each output p, and the *link* maps the latent
functions back to class probabilities, ``π = softmax(scale · C f)``. These two tables and one matrix
are all that distinguishes the paper's ILR model from Dirichlet-based classification (GPD); the
models in :mod:`gpflow_ilr.models` are written once, for any code.
"""

from gpflow_ilr.codes.base import MAX_NOISE_RATIO, LabelCode, NoiseOption
from gpflow_ilr.codes.dirichlet import DirichletCode
from gpflow_ilr.codes.ilr import (
    MAX_SMOOTHING,
    ILRCode,
    overlap_noise_variance,
    sharpness_of,
    smoothing_of,
)

__all__ = [
    "MAX_NOISE_RATIO",
    "MAX_SMOOTHING",
    "NoiseOption",
    "LabelCode",
    "ILRCode",
    "DirichletCode",
    "sharpness_of",
    "smoothing_of",
    "overlap_noise_variance",
]
