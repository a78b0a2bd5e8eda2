"""GPflow models: exact, collapsed, variational and augmented classifiers."""

from gpflow_ilr.models.exact import ILRGPR, DirichletGPR
from gpflow_ilr.models.sgpr import ILRSGPR, DirichletSGPR

__all__ = ["ILRGPR", "DirichletGPR", "ILRSGPR", "DirichletSGPR"]
