"""GPflow models: exact, collapsed and variational classifiers.

The conjugate ones regress on the pseudo-targets of a label code (:mod:`.conjugate`: what they
share; :mod:`.exact`, :mod:`.collapsed`, :mod:`.neighbours`: the algebra; :mod:`.sgpr`, :mod:`.nngpr`:
the classes that users build of the latter two). The variational ones are GPflow's SVGP
(:mod:`.svgp`, :mod:`.code_svgp`). All predict classes by the functions of :mod:`.probabilities`.
"""

from gpflow_ilr.models.code_svgp import CodeSVGP
from gpflow_ilr.models.exact import ILRGPR, DirichletGPR
from gpflow_ilr.models.nngpr import ILRNNGPR, DirichletNNGPR
from gpflow_ilr.models.sgpr import ILRSGPR, DirichletSGPR
from gpflow_ilr.models.svgp import ILRSVGP, SoftmaxSVGP

__all__ = [
    "ILRGPR",
    "DirichletGPR",
    "ILRSGPR",
    "DirichletSGPR",
    "ILRNNGPR",
    "DirichletNNGPR",
    "ILRSVGP",
    "SoftmaxSVGP",
    "CodeSVGP",
]
