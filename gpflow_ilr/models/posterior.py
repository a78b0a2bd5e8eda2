"""The posterior of a conjugate classifier: predictions that do no work over the data.

It keeps what its model has computed of the data, and asks the model for everything else: the kernel,
the code and the mean function count as they are when a prediction is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType, PrecomputedValue

from gpflow_ilr.calibration.criterion import Marginals
from gpflow_ilr.inputs.model_parts import check_float
from gpflow_ilr.inputs.rows import as_inputs
from gpflow_ilr.models import prediction_sets, probabilities

if TYPE_CHECKING:
    from gpflow_ilr.models.conjugate import ConjugateClassifier

__all__ = ["ConjugatePosterior", "cache_type"]


def cache_type(precompute_cache: PrecomputeCacheType | str | None) -> PrecomputeCacheType:
    """How a posterior keeps what it needs, from all that GPflow's ``posterior`` accepts.

    :param precompute_cache: ``"tensor"``, ``"variable"``, ``"nocache"`` or None, or GPflow's own.
    :raises ValueError: if it is none of them.
    """
    if precompute_cache is None:
        return PrecomputeCacheType.NOCACHE
    try:
        return PrecomputeCacheType(precompute_cache)
    except ValueError:
        choices = [kind.value for kind in PrecomputeCacheType]
        raise ValueError(
            f"precompute_cache must be one of {choices}, but is {precompute_cache!r}."
        ) from None


class ConjugatePosterior(AbstractPosterior):
    """Posterior of a conjugate classifier, in the paper's units.

    :param model: the classifier.
    :param precompute_cache: how to keep what predictions need of the data.
    """

    predict_y = probabilities.predict_y_of_code
    predict_probability_variance = probabilities.predict_probability_variance
    predict_entropy = probabilities.predict_entropy
    predict_f_samples = probabilities.predict_f_samples
    predict_probability_samples = probabilities.predict_probability_samples
    predict_credible_interval = probabilities.predict_credible_interval
    predict_set = prediction_sets.predict_set

    def __init__(self, model: ConjugateClassifier, precompute_cache: PrecomputeCacheType) -> None:
        # Without a mean function, which GPflow would add in its own units: the model adds it.
        super().__init__(model.kernel, model.data[0])
        self.model = model
        self.likelihood = model.likelihood
        self.update_cache(precompute_cache)

    @property
    def num_columns(self) -> int | None:
        """D."""
        return self.model.num_columns

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        values = self.model.precompute()
        if self._precompute_cache == PrecomputeCacheType.VARIABLE:
            self._check_shapes(values)
        return tuple(PrecomputedValue(value, (False,) * value.shape.rank) for value in values)

    def _check_shapes(self, values: list[tf.Tensor]) -> None:
        """Refuse other rows where variables have the shapes of the old ones, before any is assigned."""
        kept = [x.shape for x in self.cache or () if isinstance(x, tf.Variable)]
        if kept and kept != [x.shape for x in values]:
            raise ValueError(
                "This posterior's variables are as long as the rows that its model had, and the model "
                "has others since. Take another, model.posterior(), and compile again what used this "
                "one. Only a collapsed model's variables, such as ILRSGPR's, can follow its rows."
            )

    @inherit_check_shapes
    def _conditional_with_precompute(
        self,
        cache: tuple[tf.Tensor, ...],
        Xnew: tf.Tensor,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        return self.model.latents(cache, Xnew, full_cov, full_output_cov)

    @inherit_check_shapes
    def _conditional_fused(
        self, Xnew: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        return self.model.latents(self.model.precompute(), Xnew, full_cov, full_output_cov)

    def update_cache(self, precompute_cache: PrecomputeCacheType | None = None) -> None:
        """Compute what is kept anew, from the model's present rows and hyperparameters.

        :param precompute_cache: how to keep it; as before if None.
        """
        super().update_cache(precompute_cache)
        self._left_out: Marginals | None = None

    def held_out(self, data: None = None) -> Marginals:
        """The model's own leave-one-out predictions, kept as everything else where that is kept.

        :param data: nothing: other rows are predicted by ``predict_y``.
        """
        if self.cache is None:
            return self.model.held_out(data)
        if self._left_out is None:
            self._left_out = self.model.held_out(data)
        return self._left_out

    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of the latent functions, from the cache."""
        self._check_classes()
        return super().predict_f(as_inputs(Xnew, self.num_columns), full_cov, full_output_cov)

    def fused_predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of the latent functions, with all work over the data done anew."""
        self._check_classes()
        X = as_inputs(Xnew, self.num_columns)
        return super().fused_predict_f(X, full_cov, full_output_cov)

    def predict_marginals(self, Xnew: InputData) -> MeanAndVariance:
        """Mean and variance of the latents, as the model's method, from the cache.

        :param Xnew: [..., N, D].
        """
        self._check_classes()
        return self.model.marginals(self.cache or self.model.precompute(), Xnew)

    def _check_classes(self) -> None:
        check_float(self.model)
        if self.model.likelihood is not self.likelihood:
            raise ValueError(
                f"This posterior is of {self.likelihood.num_classes} classes, but its model has other "
                "ones since. Take another: model.posterior()."
            )

    def prior_variance(self, Xnew: tf.Tensor) -> tf.Tensor:
        """Largest prior variance of the latents at the inputs, [].

        :param Xnew: [..., N, D].
        """
        return self.model.prior_variance(Xnew)
