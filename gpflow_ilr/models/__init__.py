"""GPflow models: exact, collapsed, variational and augmented classifiers."""

from gpflow_ilr.models.augmented import BijectiveSoftmaxGP, LogisticSoftmaxGP
from gpflow_ilr.models.exact import ILRGPR, DirichletGPR
from gpflow_ilr.models.sgpr import ILRSGPR, DirichletSGPR
from gpflow_ilr.models.variational import ILRSVGP, CodeSVGP, SoftmaxSVGP

__all__ = [
    "ILRGPR",
    "DirichletGPR",
    "ILRSGPR",
    "DirichletSGPR",
    "ILRSVGP",
    "SoftmaxSVGP",
    "CodeSVGP",
    "LogisticSoftmaxGP",
    "BijectiveSoftmaxGP",
]
