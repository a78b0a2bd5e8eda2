"""Exact logistic-softmax and bijective-softmax GP classifiers, by Gibbs sampling.

LSM and BSM are the paper's augmented baselines. Both are sampled
(:mod:`gpflow_ilr.augmented.gibbs`) at given hyperparameters: exactly if the package `polyagamma` is
installed (``pip install 'gpflow_ilr[augmented]'``), else approximately and with a warning. The
hyperparameters are learned beforehand on the closed-form bound that the same augmentation gives
(:mod:`gpflow_ilr.augmented.coordinate_ascent`)::

    model = LogisticSoftmaxGP((X, y), kernel, num_classes=K)
    gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
    print(model.sample(num_samples=1000, num_burnin=300, num_chains=2, seed=0))
    p, _ = model.predict_y(Xnew)

The links are bounded, so the kernel's variance is the main lever on how confident the models can
be: with variance 1 both are badly under-confident. Start between 1 and 10 and learn it. For data
too large for O(L N³) a sweep, put :class:`gpflow_ilr.LogisticSoftmaxLikelihood` or
:class:`gpflow_ilr.BijectiveSoftmaxLikelihood` into ``gpflow.models.SVGP``.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, Module, RegressionData, TensorType
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction
from gpflow.models import GPModel
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from numpy.typing import NDArray

from gpflow_ilr.augmented.chains import Chains
from gpflow_ilr.augmented.convergence import Convergence
from gpflow_ilr.augmented.coordinate_ascent import maximised_bound
from gpflow_ilr.augmented.gibbs import GibbsSampler
from gpflow_ilr.augmented.likelihoods import (
    AugmentedLikelihood,
    BijectiveSoftmaxLikelihood,
    LogisticSoftmaxLikelihood,
)
from gpflow_ilr.augmented.sampled import SampledPosterior, SampledPredictions
from gpflow_ilr.inputs.counts import check_count, check_seed
from gpflow_ilr.inputs.kernels import check_columns, independent_kernels
from gpflow_ilr.inputs.labels import membership
from gpflow_ilr.inputs.model_parts import check_float, check_function, check_mean_columns
from gpflow_ilr.inputs.rows import check_data
from gpflow_ilr.linalg.jitter import relative_jitter
from gpflow_ilr.starting import starting_kernel

__all__ = ["LogisticSoftmaxGP", "BijectiveSoftmaxGP"]


class AugmentedGP(SampledPredictions, GPModel, InternalDataTrainingLossMixin):
    """A full GP with an augmented likelihood: the body of LSM and BSM alike.

    :param data: X [N, D] and hard labels: [N] or [N, 1] class indices, or [N, K] one-hot rows.
    :param kernel: kernel of the latents: one for all, GPflow's ``SharedIndependent``, or
        ``SeparateIndependent`` with one each. When None, a squared exponential with the median
        distance of the inputs for a lengthscale and variance 10: a start for training.
    :param likelihood: the likelihood.
    :param mean_function: mean of the latents.
    """

    likelihood: AugmentedLikelihood

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel | None,
        likelihood: AugmentedLikelihood,
        mean_function: MeanFunction | None = None,
    ) -> None:
        X, labels = _observed(data, likelihood.num_classes)
        check_function("mean_function", mean_function, "gpflow.mean_functions.Constant()")
        kernel = _wide_kernel(X, likelihood.num_classes) if kernel is None else kernel
        independent_kernels(kernel, likelihood.num_latent_gps)  # refuses a kernel that does not fit
        check_columns(kernel, X.shape[-1])
        super().__init__(
            kernel, likelihood, mean_function, num_latent_gps=likelihood.num_latent_gps
        )
        self.data = (X, labels)
        self.chains: Chains | None = None
        self._verified: _Verified | None = None
        self._posterior: SampledPosterior | None = None

    @property
    def data(self) -> RegressionData:
        """X [N, D] and class indices [N, 1]. May be set, to labels in any form: then sample again."""
        return self._data

    @data.setter
    def data(self, data: RegressionData) -> None:
        X, labels = _observed(data, self.likelihood.num_classes)
        check_columns(self.kernel, X.shape[-1])
        check_mean_columns(self.mean_function, X, self.num_latent_gps)
        self._data = (X, labels)

    @property
    def _kernels(self) -> list[Kernel]:
        """One kernel for all latents, or one each."""
        return independent_kernels(self.kernel, self.num_latent_gps)

    def _labels(self) -> NDArray[np.integer]:
        """Class index of every row, [N]."""
        return np.asarray(self.data[1])[:, 0].astype(np.int64)

    def _prior(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Covariances [1 or L, N, N], with jitter, and means [N, L] at the training inputs."""
        X = self.data[0]
        K = tf.stack([kernel(X) for kernel in self._kernels])
        diagonal = tf.linalg.diag_part(K)
        # Relative to the variance, so that the jitter means the same for every kernel.
        jitter = relative_jitter() * tf.reduce_mean(diagonal, axis=-1, keepdims=True)
        mean = tf.broadcast_to(self.mean_function(X), [len(X), self.num_latent_gps])
        return tf.linalg.set_diag(K, diagonal + jitter), mean

    # Hyperparameters

    @inherit_check_shapes
    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """Lower bound on log p(y), maximised over the variational posterior: see :meth:`elbo`."""
        # Not converted: autograph would take seconds to find that there is nothing to convert.
        return self.elbo()

    @check_shapes("return: []")
    def elbo(self) -> tf.Tensor:
        """Lower bound on log p(y) with the best Gaussian q(f), a function of the kernel alone.

        It is loose, so its value is not comparable with that of other models.
        """
        check_float(self)
        Y = membership(self.data[1][:, 0], self.likelihood.num_classes)
        return maximised_bound(self.likelihood.link, *self._prior(), Y)

    # Sampling

    def sample(
        self,
        num_samples: int = 1000,
        num_burnin: int = 300,
        num_chains: int = 2,
        thinning: int = 1,
        seed: int = 0,
        progress: bool = False,
    ) -> Convergence:
        """Sample the posterior of the latents anew, at the present hyperparameters.

        Afterwards ``model.chains`` holds all samples; it is NumPy throughout and can be pickled,
        and assigned to an equal model elsewhere; chains of other data, classes or hyperparameters
        are refused.

        :param num_samples: samples to keep per chain.
        :param num_burnin: sweeps to discard first, per chain.
        :param num_chains: number of chains, each started from a draw from the prior.
        :param thinning: sweeps per kept sample.
        :param seed: seed of all chains.
        :param progress: show progress bars (needs tqdm).
        :returns: R-hat and effective sample sizes; also a warning if R-hat exceeds 1.05.
        :raises ValueError: if a count is not a positive integer.
        """
        check_count("num_samples", num_samples)
        check_count("num_burnin", num_burnin, smallest=0)
        check_count("num_chains", num_chains)
        check_count("thinning", thinning)
        check_seed(seed)
        check_float(self)
        K, mean = (x.numpy() for x in self._prior())
        sampler = GibbsSampler(self.likelihood.link, self._labels(), K, mean)
        chains = Chains(sampler, num_chains, thinning, seed)
        chains.discard(num_burnin, progress)
        self.chains = chains
        return self._extend_chains(num_samples, progress)

    def sample_more(self, num_samples: int = 1000, progress: bool = False) -> Convergence:
        """Continue the chains as if they had not stopped, and keep more samples.

        :param num_samples: further samples to keep per chain.
        :param progress: show a progress bar (needs tqdm).
        :returns: R-hat and effective sample sizes of all samples kept so far.
        :raises RuntimeError: if there are no chains, or hyperparameters or data have changed since.
        """
        check_count("num_samples", num_samples)
        return self._extend_chains(num_samples, progress)

    def _extend_chains(self, num_samples: int, progress: bool) -> Convergence:
        chains = self._current_chains()
        chains.extend(num_samples, progress)
        probabilities = tf.exp(self.likelihood.link.log_probabilities(chains.samples)).numpy()
        convergence = Convergence.of(probabilities, chains.samples)
        if not convergence.converged:
            # Of chains that disagree the effective sizes are rough: no more than ten times as many.
            drawn = convergence.num_samples
            more = int(np.clip(convergence.samples_missing, drawn, 9 * drawn))
            warnings.warn(
                f"The chains disagree: {convergence}. Draw about {more} more samples per chain "
                f"with sample_more({more}).",
                stacklevel=3,
            )
        return convergence

    def _current_chains(self) -> Chains:
        """The chains, if they are of the present hyperparameters and data."""
        if self.chains is None:
            raise RuntimeError("There are no posterior samples yet: call model.sample() first.")
        if not isinstance(self.chains, Chains):
            raise TypeError(
                f"chains must be those of an equal model, but is {self.chains!r}. Assign "
                "other_model.chains, or call model.sample()."
            )
        modules = (self.kernel, self.mean_function)
        with tf.init_scope():
            values = [v.numpy() for module in modules for v in module.variables]
            found = _Verified(self.chains, (*modules, *self.data), values)
            if self._verified is not None and self._verified.holds(found):
                return self.chains
            K, mean = (x.numpy() for x in self._prior())
        sampler, link = self.chains.sampler, self.likelihood.link
        if sampler.link != link or not np.array_equal(sampler.Y, link.memberships(self._labels())):
            raise RuntimeError(
                "The chains are of other labels, classes or class_scaling than the model's present "
                "ones, so their samples are of another posterior: call model.sample() again."
            )
        # To the accuracy of the kernel, for chains may come from another machine.
        accuracy = 100 * np.finfo(K.dtype).eps * np.max(K)
        if not (
            K.shape == sampler.covariance.shape
            and np.allclose(K, sampler.covariance, rtol=0, atol=accuracy)
            and np.allclose(mean, sampler.mean, rtol=0, atol=accuracy)
        ):
            raise RuntimeError(
                "The chains are of another kernel, mean function or X than the model's present "
                "ones, so their samples are of another posterior: call model.sample() again."
            )
        self._verified = found
        return self.chains

    def posterior(self) -> SampledPosterior:
        """The samples, ready for predictions.

        :raises RuntimeError: if there are no samples, or hyperparameters or data have changed since.
        """
        chains = self._current_chains()
        check_float(self)
        kept, X = self._posterior, self.data[0]
        if kept is None or kept.samples is not chains.samples or kept.X is not X:
            kept = SampledPosterior(
                self.likelihood.link,
                self._kernels,
                self.mean_function,
                X,
                chains.sampler.cholesky,
                chains.sampler.mean,
                chains.samples,
            )
            self._posterior = kept
        return kept


class LogisticSoftmaxGP(AugmentedGP):
    """LSM: p(y = k | f) = σ(f_k) / Σ_j σ(f_j) with K latent GPs, by Gibbs sampling.

    Sampling is exact with the package `polyagamma` (extra ``augmented``); without it, it is
    approximate, and warns.

    :param data: X [N, D] and hard labels: [N] or [N, 1] class indices, or [N, K] one-hot rows.
    :param kernel: kernel of the latents, or GPflow's ``SharedIndependent`` or
        ``SeparateIndependent``; it wants a large variance. None for a start from the data.
    :param num_classes: number of classes K, at least 2.
    :param mean_function: mean of the latents.
    :param class_scaling: θ of p_k ∝ θ_k σ(f_k), one positive number per class; ones when None.
    :raises ValueError: if the data or a number do not fit; soft labels are refused.
    :raises TypeError: if the kernel mixes latents.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel | None = None,
        *,
        num_classes: int,
        mean_function: MeanFunction | None = None,
        class_scaling: Sequence[float] | None = None,
    ) -> None:
        likelihood = LogisticSoftmaxLikelihood(num_classes, class_scaling=class_scaling)
        super().__init__(data, kernel, likelihood, mean_function)


class BijectiveSoftmaxGP(AugmentedGP):
    """BSM: as LSM, but the last class has no latent, only σ(0) = ½: K − 1 latent GPs.

    As with LSM, sampling is exact with the package `polyagamma` (extra ``augmented``).

    The classes are not treated alike. The fixed class is the last one, K − 1; no other class can
    have a probability above 2/3, so the NLL is at least 0.405 times the share of points of the
    other classes. This is the model's own, and no training removes it.

    :param data: X [N, D] and hard labels: [N] or [N, 1] class indices, or [N, K] one-hot rows.
    :param kernel: kernel of the latents, or GPflow's ``SharedIndependent`` or
        ``SeparateIndependent``; it wants a large variance. None for a start from the data.
    :param num_classes: number of classes K, at least 2.
    :param mean_function: mean of the latents.
    :param class_scaling: θ of p_k ∝ θ_k σ(f_k), one positive number per class; ones when None.
    :raises ValueError: if the data or a number do not fit; soft labels are refused.
    :raises TypeError: if the kernel mixes latents.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel | None = None,
        *,
        num_classes: int,
        mean_function: MeanFunction | None = None,
        class_scaling: Sequence[float] | None = None,
    ) -> None:
        likelihood = BijectiveSoftmaxLikelihood(num_classes, class_scaling=class_scaling)
        super().__init__(data, kernel, likelihood, mean_function)


def _observed(data: RegressionData, num_classes: int) -> RegressionData:
    """X [N, D] and hard labels [N, 1]; weights and soft labels are refused."""
    rows = check_data(data, num_classes)
    if rows.weights is not None:
        raise ValueError(
            "data has weights, which this model does not have: it samples the posterior of "
            "observed classes. Pass (X, y), or use another model."
        )
    if rows.labels.shape.rank != 1:
        raise ValueError(
            "y has soft labels, which this model does not have: it samples the posterior of "
            "observed classes. Pass class indices, for instance y.argmax(axis=1)."
        )
    return rows.X, rows.labels[:, None]


@dataclass(frozen=True)
class _Verified:
    """Chains that have been found to belong to a kernel, mean and data, by the values of parameters."""

    chains: Chains
    parts: Sequence[Module | TensorType]
    values: Sequence[AnyNDArray]

    def holds(self, now: _Verified) -> bool:
        return (
            self.chains is now.chains
            and all(map(operator.is_, self.parts, now.parts))
            and all(map(np.array_equal, self.values, now.values))
        )


def _wide_kernel(X: tf.Tensor, num_classes: int) -> Kernel:
    """Squared exponential with the median distance of the inputs and a variance for bounded links."""
    kernel = starting_kernel(X, num_classes)
    kernel.variance.assign(10.0)
    return kernel
