"""The paper's augmented baselines, all of them: LSM and BSM.

One link (:mod:`.link`) with Pólya-Gamma augmentation (:mod:`.polya_gamma`): closed-form bounds as
likelihoods for GPflow's SVGP (:mod:`.likelihoods`), and full models whose hyperparameters are
learned on a bound (:mod:`.coordinate_ascent`) and whose latents are sampled (:mod:`.gibbs`,
:mod:`.chains`, :mod:`.convergence`), with predictions from the samples (:mod:`.sampled`). Sampling
is exact with the package `polyagamma`, extra ``augmented``.
"""

from gpflow_ilr.augmented.likelihoods import BijectiveSoftmaxLikelihood, LogisticSoftmaxLikelihood
from gpflow_ilr.augmented.models import BijectiveSoftmaxGP, LogisticSoftmaxGP

__all__ = [
    "LogisticSoftmaxLikelihood",
    "BijectiveSoftmaxLikelihood",
    "LogisticSoftmaxGP",
    "BijectiveSoftmaxGP",
]
