"""The posterior of an SVGP in float32, where what GPflow would keep of it is of no use.

GPflow keeps K⁻¹ − K⁻¹ S K⁻¹ and takes variances as k** − kᵀ(K⁻¹ − K⁻¹ S K⁻¹)k, a small difference of
large numbers: in float32 nothing is left of it (a variance of 0.005 came out as 0.99).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, MeanAndVariance
from gpflow.posteriors import PrecomputeCacheType

if TYPE_CHECKING:
    from gpflow_ilr.models.svgp import ClassifierSVGP

__all__ = ["UncachedPosterior"]


class UncachedPosterior(tf.Module):
    """Stands in for GPflow's posterior and keeps nothing: each prediction is the model's own.

    :param model: the model, whose present parameters count.
    """

    cache = None

    def __init__(self, model: ClassifierSVGP) -> None:
        super().__init__()
        self.model = model

    @check_shapes(
        "Xnew: [batch..., N, D]",
        "return[0]: [batch..., N, P]",
        "return[1]: [batch..., N, P] if (not full_cov) and (not full_output_cov)",
    )
    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of the latent functions.

        :param Xnew: new inputs.
        :param full_cov: whether to return covariances between rows.
        :param full_output_cov: whether to return covariances between latents.
        """
        return self.model.predict_f(Xnew, full_cov, full_output_cov)

    fused_predict_f = predict_f

    def update_cache(self, precompute_cache: PrecomputeCacheType | None = None) -> None:
        """Nothing to update.

        :param precompute_cache: as GPflow's posteriors have it.
        """
