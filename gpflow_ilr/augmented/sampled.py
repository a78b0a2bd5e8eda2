"""Predictions from posterior samples of the latents at the training inputs.

A sample f of the latents at X leaves a Gaussian at every new input, with mean k*ᵀ K⁻¹ f and a
variance that is the same for all samples; the posterior is the mixture of these Gaussians over the
samples, and nothing here replaces it by anything simpler. Class probabilities are averages over
both: every sample is paired with one node (a few, if samples are few) of a single Sobol set, so
that the conditional is integrated at the cost of the samples alone, and deterministically.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.conditionals.util import expand_independent_outputs
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction
from gpflow.utilities import assert_params_false
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from gpflow_ilr.augmented.likelihoods import AugmentedLikelihood
from gpflow_ilr.augmented.link import LogisticSoftmaxLink
from gpflow_ilr.expectations import Sobol, entropy, label_variance
from gpflow_ilr.expectations.nodes import average as weighted_average
from gpflow_ilr.expectations.nodes import log_average
from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.inputs.labels import label_rows
from gpflow_ilr.inputs.rows import as_inputs
from gpflow_ilr.linalg.jitter import absolute_jitter
from gpflow_ilr.linalg.row_chunks import map_rows
from gpflow_ilr.models.batches import as_batch
from gpflow_ilr.models.probabilities import Entropies

__all__ = ["SampledPosterior", "SampledPredictions"]

# With fewer samples than this each is paired with several nodes.
_FEWEST_NODES = 1024

# Elements (rows × nodes × classes) of one chunk of rows.
_CHUNK_ELEMENTS = 2**22


class SampledPosterior:
    """The latents and class probabilities at new inputs, given samples of the latents.

    :param link: from latents to class probabilities.
    :param kernels: one kernel for all latents, or one each.
    :param mean_function: prior mean of the latents.
    :param X: training inputs, [N, D].
    :param cholesky: Cholesky factors of the kernels at X, [1 or L, N, N].
    :param mean: prior mean at X, [N, L].
    :param samples: samples of the latents at X, [..., N, L].
    """

    def __init__(
        self,
        link: LogisticSoftmaxLink,
        kernels: Sequence[Kernel],
        mean_function: MeanFunction,
        X: tf.Tensor,
        cholesky: NDArray[np.float64],
        mean: NDArray[np.float64],
        samples: NDArray[np.float64],
    ) -> None:
        self.link = link
        self.kernels = kernels
        self.mean_function = mean_function
        self.X = X
        self.samples = samples
        samples = samples.reshape(-1, *mean.shape)
        self.num_samples = len(samples)
        # Whitened samples keep float32 accurate: K⁻¹ f would be huge, and its sum cancel.
        factors = np.broadcast_to(cholesky, (link.num_latent_gps, *cholesky.shape[1:]))
        centred = np.moveaxis(samples - mean, (0, 2), (2, 0))  # [L, N, S]
        whitened = [
            solve_triangular(factor, f, lower=True)
            for factor, f in zip(factors, centred, strict=True)
        ]
        with tf.init_scope():
            self._cholesky = tf.constant(cholesky, default_float())
            self._whitened = tf.constant(np.stack(whitened), default_float())
            self._pair_samples_with_nodes()

    def _pair_samples_with_nodes(self) -> None:
        num_nodes = 2 ** int(np.ceil(np.log2(max(self.num_samples, _FEWEST_NODES))))
        # Neighbours in a chain are alike, and so are neighbours in the Sobol set: shuffle.
        order = np.random.default_rng(0).permutation(num_nodes)
        sample = np.arange(num_nodes) % self.num_samples
        weights = 1.0 / (self.num_samples * np.bincount(sample)[sample])
        nodes, _ = Sobol(num_nodes)(self.link.num_latent_gps, default_float())
        self._nodes = tf.gather(nodes, order)
        self._sample_of_node = tf.constant(sample, tf.int32)
        self._weights = tf.constant(weights, default_float())

    def _prior_mean(self, Xnew: tf.Tensor) -> tf.Tensor:
        """[n, L], from a mean function with one column or L."""
        shape = [tf.shape(Xnew)[0], self.link.num_latent_gps]
        return tf.broadcast_to(self.mean_function(Xnew), shape)

    def _conditional(
        self, Xnew: tf.Tensor, whitened: tf.Tensor, full_cov: bool = False
    ) -> MeanAndVariance:
        """Means [L, n, S], without the prior's, and the variance [n, L] or covariance [L, n, n]."""
        K = tf.stack([kernel(self.X, Xnew) for kernel in self.kernels])
        T = tf.linalg.triangular_solve(self._cholesky, K)  # [1 or L, N, n]
        means = tf.matmul(T, whitened, transpose_a=True)
        prior = tf.stack([kernel(Xnew, full_cov=full_cov) for kernel in self.kernels])
        num_latent_gps = self.link.num_latent_gps
        if full_cov:
            covariance = prior - tf.matmul(T, T, transpose_a=True)
            return means, tf.repeat(covariance, num_latent_gps // len(self.kernels), axis=0)
        variance = tf.maximum(prior - tf.reduce_sum(tf.square(T), axis=1), 0.0)
        return means, tf.broadcast_to(tf.transpose(variance), [tf.shape(Xnew)[0], num_latent_gps])

    def _chunk(self) -> int:
        """Rows whose latents, at all nodes, are one chunk's worth of elements."""
        return max(1, _CHUNK_ELEMENTS // (len(self._weights) * self.link.num_classes))

    @check_shapes(
        "Xnew: [N, D]",
        "return[0]: [N, P]",
        "return[1]: [N, P, N, P] if full_cov and full_output_cov",
        "return[1]: [P, N, N] if full_cov and (not full_output_cov)",
        "return[1]: [N, P, P] if (not full_cov) and full_output_cov",
        "return[1]: [N, P] if (not full_cov) and (not full_output_cov)",
    )
    def predict_f(
        self, Xnew: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and (co)variance of the mixture: E over samples, plus the covariance between them.

        :param Xnew: new inputs.
        :param full_cov: covariances between rows.
        :param full_output_cov: covariances between latents, which are not independent given y.
        """

        def moments(Xnew: tf.Tensor) -> MeanAndVariance:
            means, within = self._conditional(Xnew, self._whitened, full_cov)
            mean = tf.reduce_mean(means, axis=-1, keepdims=True)
            d = (means - mean) / tf.sqrt(tf.cast(self.num_samples, means.dtype))
            if full_output_cov:
                between = tf.einsum("pns,qms->npmq" if full_cov else "pns,qns->npq", d, d)
            elif full_cov:
                between = tf.matmul(d, d, transpose_b=True)
            else:
                between = tf.transpose(tf.reduce_sum(tf.square(d), axis=-1))
            within = expand_independent_outputs(within, full_cov, full_output_cov)
            return tf.transpose(mean[..., 0]) + self._prior_mean(Xnew), within + between

        if full_cov:
            return moments(Xnew)
        mean, variance = map_rows(moments, [Xnew], self._chunk())
        return mean, variance

    @check_shapes(
        "Xnew: [N, D]",
        "return: [N, Q]",
    )
    def average(
        self,
        Xnew: tf.Tensor,
        statistic: Callable[[tf.Tensor], tf.Tensor],
        summarise: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = weighted_average,
    ) -> tf.Tensor:
        """E[statistic(log π)] under the mixture, π the class probabilities.

        :param Xnew: new inputs.
        :param statistic: from log π [..., K] to [..., Q].
        :param summarise: from weights [S] and values [S, n, Q] to [n, Q]: their average, or the
            logarithm of the average of what they are the logarithms of.
        """

        def expectation(Xnew: tf.Tensor) -> list[tf.Tensor]:
            means, variance = self._conditional(Xnew, self._whitened)
            means = tf.transpose(tf.gather(means, self._sample_of_node, axis=-1), [1, 2, 0])
            means += self._prior_mean(Xnew)[:, None, :]
            F = means + tf.sqrt(variance)[:, None, :] * self._nodes  # [n, nodes, L]
            values = statistic(self.link.log_probabilities(F))
            return [summarise(self._weights, tf.transpose(values, [1, 0, 2]))]

        return map_rows(expectation, [Xnew], self._chunk())[0]

    @check_shapes(
        "Xnew: [N, D]",
        "return: [S, N, L]",
    )
    def draw(self, Xnew: tf.Tensor, num_samples: int, full_cov: bool) -> tf.Tensor:
        """Draws from the mixture: a posterior sample each, and a draw from its conditional.

        :param Xnew: new inputs.
        :param num_samples: number of draws.
        :param full_cov: draw whole functions instead of independent rows.
        """
        which = tf.random.uniform([num_samples], maxval=self.num_samples, dtype=tf.int32)
        whitened = tf.gather(self._whitened, which, axis=-1)
        means, cov = self._conditional(Xnew, whitened, full_cov)
        noise = tf.random.normal(tf.shape(means), dtype=means.dtype)
        if full_cov:
            prior = tf.stack([kernel(Xnew, full_cov=False) for kernel in self.kernels])
            jitter = absolute_jitter(tf.reduce_mean(prior, axis=1, keepdims=True))
            diagonal = tf.linalg.diag_part(cov) + jitter
            deviations = tf.matmul(tf.linalg.cholesky(tf.linalg.set_diag(cov, diagonal)), noise)
        else:
            deviations = tf.transpose(tf.sqrt(cov))[..., None] * noise
        return tf.transpose(means + deviations, [2, 1, 0]) + self._prior_mean(Xnew)


class SampledPredictions(metaclass=abc.ABCMeta):
    """The predictions of a GPflow model, for a model that has a :class:`SampledPosterior`."""

    likelihood: AugmentedLikelihood

    @abc.abstractmethod
    def posterior(self) -> SampledPosterior:
        """The samples, ready for predictions."""

    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of the latents under the mixture over all samples.

        :param Xnew: [..., N, D]; [N, D] for `full_cov`.
        :param full_cov: covariances between rows.
        :param full_output_cov: covariances between latents.
        """
        posterior = self.posterior()
        Xnew = as_inputs(Xnew, posterior.X.shape[1])
        if full_cov:
            return posterior.predict_f(Xnew, full_cov, full_output_cov)
        mean, variance = posterior.predict_f(_rows(Xnew), full_cov, full_output_cov)
        return _with_leading(mean, Xnew), _with_leading(variance, Xnew)

    def _average(
        self,
        Xnew: InputData,
        statistic: Callable[[tf.Tensor], tf.Tensor],
        summarise: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = weighted_average,
    ) -> tf.Tensor:
        """E[statistic(log π)], [..., N, Q], or another summary."""
        posterior = self.posterior()
        Xnew = as_inputs(Xnew, posterior.X.shape[1])
        return _with_leading(posterior.average(_rows(Xnew), statistic, summarise), Xnew)

    def predict_y(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Class probabilities, averaged over samples and latents, and p(1 − p), [..., N, K] each.

        :param Xnew: [..., N, D].
        :param full_cov: must be False, as in every GPflow model.
        :param full_output_cov: must be False, as in every GPflow model.
        """
        assert_params_false(self.predict_y, full_cov=full_cov, full_output_cov=full_output_cov)
        p = self._average(Xnew, tf.exp)
        return p, label_variance(p)

    def predict_log_density(
        self, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """Log of the predicted probability of each label, [..., N].

        :param data: X [..., N, D] and labels: [N] or [..., N, 1] class indices, or [..., N, K] rows.
        :param full_cov: must be False, as in every GPflow model.
        :param full_output_cov: must be False, as in every GPflow model.
        """
        X, y = as_batch(data[:2])
        Y = label_rows(y, self.likelihood.num_classes)
        assert_params_false(
            self.predict_log_density, full_cov=full_cov, full_output_cov=full_output_cov
        )
        log_p = self._average(X, tf.identity, log_average)
        return tf.reduce_sum(tf.math.multiply_no_nan(log_p, Y), axis=-1)

    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """Draws of the latents from the mixture, [N, L], or [num_samples, N, L].

        :param Xnew: [N, D].
        :param num_samples: number of draws; None for one without the leading dimension.
        :param full_cov: draw whole functions instead of independent rows.
        :param full_output_cov: of no effect: latents drawn together are always correlated.
        """
        if num_samples is not None:
            check_count("num_samples", num_samples)
        posterior = self.posterior()
        inputs = as_inputs(Xnew, posterior.X.shape[1])
        draws = posterior.draw(inputs, num_samples or 1, full_cov)
        return draws[0] if num_samples is None else draws

    def predict_probability_samples(
        self, Xnew: InputData, num_samples: int = 1, full_cov: bool = False
    ) -> tf.Tensor:
        """Draws of the class probabilities, [num_samples, N, K].

        :param Xnew: [N, D].
        :param num_samples: number of draws.
        :param full_cov: draw whole functions instead of independent rows.
        """
        F = self.predict_f_samples(Xnew, num_samples, full_cov)
        return tf.exp(self.likelihood.link.log_probabilities(F))

    def predict_probability_variance(self, Xnew: InputData) -> tf.Tensor:
        """Var[π], [..., N, K]: how uncertain the model is about the class probabilities.

        :param Xnew: [..., N, D].
        """
        second = self._average(Xnew, lambda log_pi: tf.exp(2.0 * log_pi))
        return tf.maximum(second - tf.square(self._average(Xnew, tf.exp)), 0.0)

    def predict_entropy(self, Xnew: InputData) -> Entropies:
        """Total, aleatoric and epistemic entropy of the label in nats, each [..., N].

        :param Xnew: [..., N, D].
        """
        total = entropy(self._average(Xnew, tf.exp))
        aleatoric = self._average(Xnew, lambda log_pi: entropy(tf.exp(log_pi))[..., None])[..., 0]
        return Entropies(total, aleatoric, tf.maximum(total - aleatoric, 0.0))


def _rows(X: tf.Tensor) -> tf.Tensor:
    return tf.reshape(X, [-1, X.shape[-1]])


def _with_leading(values: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
    """Undo :func:`_rows`: [R, ...] to the leading dimensions of X."""
    return tf.reshape(values, tf.concat([tf.shape(X)[:-1], tf.shape(values)[1:]], axis=0))
