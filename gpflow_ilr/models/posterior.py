"""The posterior of a conjugate classifier: predictions that do no work over the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance
from gpflow.conditionals.util import expand_independent_outputs
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType, PrecomputedValue

from gpflow_ilr.expectations import expected_softmax
from gpflow_ilr.inputs.rows import as_inputs
from gpflow_ilr.linalg.row_chunks import map_rows
from gpflow_ilr.models.probabilities import ClassProbabilities

if TYPE_CHECKING:
    from gpflow_ilr.models.conjugate import ConjugateClassifier

__all__ = ["ConjugatePosterior"]

_BLOCK_ELEMENTS = 2**23


class ConjugatePosterior(ClassProbabilities, AbstractPosterior):
    """Posterior of a conjugate classifier, in the paper's units.

    :param model: the classifier.
    :param precompute_cache: how to keep what predictions need of the data.
    """

    def __init__(self, model: ConjugateClassifier, precompute_cache: PrecomputeCacheType) -> None:
        super().__init__(model.kernel, model.data[0], mean_function=model.mean_function)
        self.model = model
        self.likelihood = model.likelihood
        self.update_cache(precompute_cache)

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        return tuple(self.model._precompute())

    def _add_mean_function(self, Xnew: tf.Tensor, mean: tf.Tensor) -> tf.Tensor:
        return mean + self.model.code.scale * self.model.mean_function(Xnew)

    @inherit_check_shapes
    def _conditional_with_precompute(
        self,
        cache: tuple[tf.Tensor, ...],
        Xnew: tf.Tensor,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        mean, var = self._scaled_conditional(cache, Xnew, full_cov)
        P = self.model.num_latent_gps
        if full_cov:
            var = tf.repeat(var, P, axis=-3) if var.shape[-3] < P else var
        else:
            var = tf.broadcast_to(var, tf.shape(mean))
        return mean, expand_independent_outputs(var, full_cov, full_output_cov)

    @inherit_check_shapes
    def _conditional_fused(
        self, Xnew: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        cache = tuple(c.value for c in self._precompute())
        return self._conditional_with_precompute(cache, Xnew, full_cov, full_output_cov)

    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of the latent functions, from the cache."""
        return super().predict_f(as_inputs(Xnew), full_cov, full_output_cov)

    def _prior_variance(self, Xnew: tf.Tensor) -> tf.Tensor:
        return tf.square(self.model.code.scale) * super()._prior_variance(Xnew)

    def _scaled_conditional(
        self, cache: Sequence[tf.Tensor], Xnew: tf.Tensor, full_cov: bool
    ) -> MeanAndVariance:
        scale = self.model.code.scale
        mean, var = self.model._conditional(cache, Xnew, full_cov)
        return scale * mean, scale**2 * var

    def _predict_marginals(self, Xnew: tf.Tensor) -> MeanAndVariance:
        cache = self.cache or tuple(c.value for c in self._precompute())
        rows = tf.reshape(Xnew, [-1, Xnew.shape[-1]])
        elements = sum(int(np.prod(c.shape[:-1])) for c in cache)

        def predict(rows: tf.Tensor) -> MeanAndVariance:
            mean, var = self._scaled_conditional(cache, rows, full_cov=False)
            return self._add_mean_function(rows, mean), var

        mean, var = map_rows(predict, [rows], max(1, _BLOCK_ELEMENTS // elements))
        leading = tf.shape(Xnew)[:-1]
        return tuple(tf.reshape(x, tf.concat([leading, x.shape[-1:]], 0)) for x in (mean, var))

    def predict_y(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        observation_noise: bool = False,
    ) -> MeanAndVariance:
        """Class probabilities and the variance of the one-hot label: see the model's method."""
        p, variance = super().predict_y(Xnew, full_cov, full_output_cov)
        if not observation_noise:
            return p, variance
        mean, var = self._predict_marginals(as_inputs(Xnew))
        noise = self.model.code.noise_variance
        if self.model.code.depends_on_class:
            noise = tf.matmul(p, noise)
        noisy = var + self.model.code.scale**2 * noise
        p = expected_softmax(mean, noisy, self.likelihood.link, self.likelihood.nodes)
        return p, p - tf.square(p)
