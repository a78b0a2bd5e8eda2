"""GPflow models: exact, collapsed and variational classifiers."""

from gpflow_ilr.models.exact import ILRGPR, DirichletGPR
from gpflow_ilr.models.sgpr import ILRSGPR, DirichletSGPR
from gpflow_ilr.models.svgp import ILRSVGP, CodeSVGP, SoftmaxSVGP

__all__ = [
    "ILRGPR",
    "DirichletGPR",
    "ILRSGPR",
    "DirichletSGPR",
    "ILRSVGP",
    "SoftmaxSVGP",
    "CodeSVGP",
]
