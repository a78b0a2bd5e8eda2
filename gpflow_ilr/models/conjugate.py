"""What the exact and the collapsed classifier have in common, for any label code.

A conjugate classifier is Gaussian-process regression on the pseudo-targets of a label code
(:mod:`gpflow_ilr.codes.base`). Everything inside happens in the code's units; the factor ``scale``
to the paper's units (the sharpness L, or one) is applied at the border: ``predict_f`` and the
objectives are in them, and the kernel, the mean function and the noise describe f/L. Subclasses
supply the algebra.
"""

import abc
from collections.abc import Sequence
from typing import Literal, NamedTuple

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel, MultioutputKernel, SeparateIndependent, SharedIndependent
from gpflow.mean_functions import MeanFunction, Zero
from gpflow.models import GPModel
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from gpflow.posteriors import (
    PrecomputeCacheType,
    PrecomputedValue,
    _validate_precompute_cache_type,
)

from gpflow_ilr.calibration.criterion import Marginals, label_nll
from gpflow_ilr.codes import LabelCode
from gpflow_ilr.inputs.keras_layers import refuse_keras_layers
from gpflow_ilr.inputs.rows import as_inputs, check_data
from gpflow_ilr.likelihoods import LinkedSoftmax
from gpflow_ilr.models.posterior import ConjugatePosterior
from gpflow_ilr.models.probabilities import ClassProbabilities

__all__ = [
    "ConjugateClassifier",
    "Objective",
    "OutputBlock",
    "cross_covariance",
    "prior_covariance",
    "squared_norms",
]

Objective = Literal["evidence", "loo"]


class OutputBlock(NamedTuple):
    """Outputs that share a kernel (and inducing inputs)."""

    kernel: Kernel
    start: int
    stop: int
    inducing: InducingVariables = None  # type: ignore[assignment]  # exact models have none

    def columns(self, table: tf.Tensor) -> tf.Tensor:
        """The columns of a [..., P] table that belong to the block; a single column serves all."""
        return table if table.shape[-1] == 1 else table[..., self.start : self.stop]


class ConjugateClassifier(
    ClassProbabilities, GPModel, InternalDataTrainingLossMixin, metaclass=abc.ABCMeta
):
    """GP regression on the pseudo-targets of a label code.

    :param data: X [N, D] of any real dtype, and labels: [N] or [N, 1] class indices, [N, K] one-hot
        or soft rows.
    :param kernel: kernel of f/scale. Any single-output kernel, or GPflow's ``SharedIndependent`` or
        ``SeparateIndependent``.
    :param code: the label code.
    :param likelihood: its link, for predictions.
    :param mean_function: mean of f/scale.
    :param objective: what training maximises: the (bound on the) log evidence, or the
        leave-one-out log probability of the labels.
    """

    likelihood: LinkedSoftmax

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        code: LabelCode,
        likelihood: LinkedSoftmax,
        mean_function: MeanFunction | None = None,
        objective: Objective = "evidence",
    ) -> None:
        super().__init__(kernel, likelihood, mean_function, num_latent_gps=code.num_outputs)
        refuse_keras_layers(self, type(self).__name__)
        if objective not in ("evidence", "loo"):
            raise ValueError(f"objective must be 'evidence' or 'loo', but is {objective!r}.")
        self.code = code
        self.objective = objective
        if objective == "loo":
            code.learn_scale()
        _ = self._kernel_blocks  # refuses a kernel that does not fit
        self.data = data

    @property
    def data(self) -> RegressionData:
        """X [N, D], and class indices [N, 1] or soft rows [N, K].

        May be set, to labels in any form. Compiled functions keep the data that they have seen.
        """
        return self._data

    @data.setter
    def data(self, data: RegressionData) -> None:
        self._set_data(*check_data(data, self.code.num_classes))

    def _set_data(self, X: tf.Tensor, Y: tf.Tensor, labels: tf.Tensor) -> None:
        self.code.features(labels[:1])  # refuses soft labels where the code has none
        _ = self._mean_columns(X[:1], self._kernel_blocks[0])  # refuses one that does not fit
        self._data = (X, Y)
        self._labels = labels

    @property
    def num_data(self) -> int:
        """N."""
        return int(self.data[0].shape[0])

    @property
    def _kernel_blocks(self) -> list[OutputBlock]:
        P = self.num_latent_gps
        if not isinstance(self.kernel, Kernel):
            raise TypeError(
                f"kernel must be a GPflow kernel such as gpflow.kernels.SquaredExponential(), but "
                f"is {self.kernel!r}."
            )
        if isinstance(self.kernel, SeparateIndependent):
            if len(self.kernel.kernels) != P:
                raise ValueError(
                    f"The SeparateIndependent kernel has {len(self.kernel.kernels)} kernels, but "
                    f"{self.code.num_classes} classes need {P}, one for each latent function."
                )
            return [OutputBlock(kernel, p, p + 1) for p, kernel in enumerate(self.kernel.kernels)]
        if isinstance(self.kernel, SharedIndependent):
            return [OutputBlock(self.kernel.kernel, 0, P)]
        if isinstance(self.kernel, MultioutputKernel):
            raise TypeError(
                f"{type(self.kernel).__name__} mixes the latent functions, which conjugate models "
                "cannot use. Pass a single-output kernel, SharedIndependent or SeparateIndependent."
            )
        return [OutputBlock(self.kernel, 0, P)]

    @property
    def _output_blocks(self) -> list[OutputBlock]:
        return self._kernel_blocks

    def _mean_columns(self, X: tf.Tensor, block: OutputBlock) -> tf.Tensor | None:
        """The mean function's columns for a block, [N, stop − start], or None if it is zero."""
        if type(self.mean_function) is Zero:
            return None
        mean = self.mean_function(X)
        if mean.shape[-1] not in (1, self.num_latent_gps):
            raise ValueError(
                f"mean_function must return one column, or {self.num_latent_gps}, one for each "
                f"latent function, but returns {mean.shape[-1]}."
            )
        mean = block.columns(mean)
        return tf.broadcast_to(mean, [tf.shape(X)[0], block.stop - block.start])

    # Objectives

    @inherit_check_shapes
    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """What training maximises, as ``objective`` says."""
        # Not converted: autograph would take seconds to find that there is nothing to convert.
        if self.objective == "loo":
            return self.loo_log_density()
        return self._log_evidence()

    @abc.abstractmethod
    def _log_evidence(self) -> tf.Tensor:
        """Log evidence of the paper's targets, or a bound on it."""

    def _in_paper_units(self, log_evidence: tf.Tensor, num_rows: int | tf.Tensor) -> tf.Tensor:
        """Evidence of the paper's targets: a density, so it takes −log scale for each target."""
        targets = tf.cast(num_rows * self.num_latent_gps, default_float())
        # A constant for training: where the scale were trainable, the density would grow for ever
        # as the scale, and the targets with it, went to zero.
        return log_evidence - targets * tf.math.log(tf.stop_gradient(self.code.scale))

    @abc.abstractmethod
    def loo_log_density(self) -> tf.Tensor:
        """Σ_n log p(y_n | all other rows), hyperparameters (and inducing inputs) kept, []."""

    def _label_log_density(self, mean: tf.Tensor, var: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Σ_n log E[softmax(scale · C f)]_y."""
        held_out = Marginals(mean, var, labels)
        return -tf.reduce_sum(
            label_nll(held_out, self.likelihood.link, self.code.scale, self.num_data)
        )

    # Leave-one-out

    @abc.abstractmethod
    def _loo(self, rows: tf.Tensor | None = None) -> MeanAndVariance:
        """Leave-one-out mean [n, P] and variance [n, P or 1] in the code's units."""

    def predict_loo(self) -> MeanAndVariance:
        """Mean and variance of f at each training input, given all *other* rows, [N, P] each.

        In closed form, with the hyperparameters (and inducing inputs) kept.
        """
        mean, var = self._loo()
        scale = self.code.scale
        return scale * mean, tf.broadcast_to(scale**2 * var, tf.shape(mean))

    # Predictions

    @abc.abstractmethod
    def _precompute(self) -> Sequence[PrecomputedValue]:
        """What predictions need of the data."""

    @abc.abstractmethod
    def _conditional(
        self, cache: Sequence[tf.Tensor], Xnew: tf.Tensor, full_cov: bool
    ) -> MeanAndVariance:
        """Mean [..., n, P], without mean function, and variance [..., n, P or 1].

        With ``full_cov``, the covariance [..., P or 1, n, n]. In the code's units.
        """

    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> ConjugatePosterior:
        """A posterior that keeps everything predictions need, so that they do no work over the data.

        :param precompute_cache: ``"tensor"``, ``"variable"`` or ``"nocache"``, as in GPflow.
        """
        return ConjugatePosterior(self, _validate_precompute_cache_type(precompute_cache))

    @inherit_check_shapes
    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of the latent functions, in the paper's units."""
        return self.posterior("nocache").fused_predict_f(
            as_inputs(Xnew), full_cov=full_cov, full_output_cov=full_output_cov
        )

    def _predict_marginals(self, Xnew: tf.Tensor) -> MeanAndVariance:
        return self.posterior("nocache")._predict_marginals(Xnew)

    def _prior_variance(self, Xnew: tf.Tensor) -> tf.Tensor:
        return self.posterior("nocache")._prior_variance(Xnew)

    def predict_y(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        observation_noise: bool = False,
    ) -> MeanAndVariance:
        """Class probabilities and the variance of the one-hot label, [..., N, K] each.

        :param Xnew: [..., N, D].
        :param full_cov: must be False.
        :param full_output_cov: must be False.
        :param observation_noise: predict from the noisy pseudo-observation z* instead of the latent
            f*. Noise that depends on the class is averaged over the predicted classes.
        """
        return self.posterior("nocache").predict_y(
            Xnew, full_cov, full_output_cov, observation_noise
        )

    def predict_log_density(
        self, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """Log of the predicted probability of each label, [N].

        :param data: X and labels, in any form that :func:`gpflow_ilr.inputs.labels.as_labels` accepts.
        :param full_cov: must be False.
        :param full_output_cov: must be False.
        """
        X, Y = data[0], tf.convert_to_tensor(data[1])
        Y = Y[:, None] if Y.shape.rank == 1 else Y
        return super().predict_log_density((as_inputs(X), Y), full_cov, full_output_cov)


def cross_covariance(K: tf.Tensor) -> tf.Tensor:
    """[M, ..., n], as GPflow's kernels answer it, to [..., M, n].

    :param K: covariance between M basis points and batches of n new ones.
    """
    rank = K.shape.rank
    return K if rank == 2 else tf.transpose(K, [*range(1, rank - 1), 0, rank - 1])


def prior_covariance(kernel: Kernel, Xnew: tf.Tensor, full_cov: bool) -> tf.Tensor:
    """k** as [..., n, 1], or as [..., 1, n, n] with ``full_cov``: one column for all outputs.

    :param kernel: the kernel.
    :param Xnew: [..., n, D].
    :param full_cov: whether to keep covariances between rows.
    """
    K = kernel(Xnew, full_cov=full_cov)
    return K[..., None, :, :] if full_cov else K[..., None]


def squared_norms(W: tf.Tensor, full_cov: bool) -> tf.Tensor:
    """Wᵀ W for W [..., U, M, n]: its diagonal as [..., n, U], or [..., U, n, n] with ``full_cov``.

    :param W: features of new rows, for each of U factors.
    :param full_cov: whether to keep products between rows.
    """
    if full_cov:
        return tf.matmul(W, W, transpose_a=True)
    return tf.linalg.matrix_transpose(tf.reduce_sum(tf.square(W), axis=-2))
