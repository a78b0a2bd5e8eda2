"""What the exact and the collapsed classifier have in common, for any label code.

A conjugate classifier is Gaussian-process regression on the pseudo-targets of a label code
(:mod:`gpflow_ilr.codes`). Everything inside happens in the code's units; the factor ``scale`` to the
paper's units (the sharpness L, or one) is applied at the border: ``predict_f`` and the objectives are
in them, and the kernel, the mean function and the noise describe f/L. A subclass supplies the
algebra: the evidence, leave-one-out, and what is computed of the data before a prediction and after.
"""

import abc
from collections.abc import Sequence
from typing import Literal

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance
from gpflow.conditionals.util import expand_independent_outputs
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction
from gpflow.models import GPModel
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from gpflow.posteriors import PrecomputeCacheType

from gpflow_ilr.calibration.criterion import Marginals, label_nll
from gpflow_ilr.codes import LabelCode
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.inputs.counts import check_count, check_row_numbers, evenly_spaced
from gpflow_ilr.inputs.keras_layers import refuse_keras_layers
from gpflow_ilr.inputs.kernels import OutputSpan, check_columns, output_spans
from gpflow_ilr.inputs.model_parts import check_float, check_function, check_mean_columns
from gpflow_ilr.inputs.rows import LabelledData, LabelledRows, as_column, as_inputs, check_data
from gpflow_ilr.likelihoods import CodeSoftmax
from gpflow_ilr.linalg.row_chunks import map_rows
from gpflow_ilr.models import prediction_sets, probabilities, streaming
from gpflow_ilr.models.batches import as_batch
from gpflow_ilr.models.posterior import ConjugatePosterior, cache_type

__all__ = ["ConjugateClassifier", "Objective"]

Objective = Literal["evidence", "loo"]

_CHUNK_ELEMENTS = 2**23


class ConjugateClassifier(GPModel, InternalDataTrainingLossMixin, metaclass=abc.ABCMeta):
    """GP regression on the pseudo-targets of a label code.

    :param data: X [N, D] of any real dtype, labels ([N] or [N, 1] class indices, [N, K] one-hot or
        soft rows) and, if wanted, weights [N] of the rows.
    :param kernel: kernel of f/scale. Any single-output kernel, or GPflow's ``SharedIndependent`` or
        ``SeparateIndependent``.
    :param code: the label code; the likelihood is its.
    :param mean_function: mean of f/scale.
    :param objective: what training maximises: the (bound on the) log evidence, or the
        leave-one-out log probability of the labels.
    :param nodes: node rule of the predictive probabilities.
    """

    likelihood: CodeSoftmax

    predict_y = probabilities.predict_y_of_code
    predict_probability_variance = probabilities.predict_probability_variance
    predict_entropy = probabilities.predict_entropy
    predict_f_samples = probabilities.predict_f_samples
    predict_probability_samples = probabilities.predict_probability_samples
    predict_credible_interval = probabilities.predict_credible_interval
    predict_set = prediction_sets.predict_set

    update = streaming.update
    forget = streaming.forget
    merge_classes = streaming.merge_classes
    remove_class = streaming.remove_class
    change_rows = streaming.change_rows
    change_classes = streaming.change_classes

    def __init__(
        self,
        data: LabelledData,
        kernel: Kernel,
        code: LabelCode,
        mean_function: MeanFunction | None = None,
        objective: Objective = "evidence",
        nodes: NodeRule | None = None,
    ) -> None:
        if objective not in ("evidence", "loo"):
            raise ValueError(f"objective must be 'evidence' or 'loo', but is {objective!r}.")
        check_function("mean_function", mean_function, "gpflow.mean_functions.Constant()")
        likelihood = CodeSoftmax(code, nodes)
        super().__init__(kernel, likelihood, mean_function, num_latent_gps=code.num_outputs)
        refuse_keras_layers(self, type(self).__name__)
        output_spans(kernel, self.num_latent_gps)  # refuses a kernel that does not fit
        self.objective = objective
        if objective == "loo":
            code.learn_scale()
        self.data = data

    # Data

    @property
    def code(self) -> LabelCode:
        """The label code, which the likelihood holds."""
        return self.likelihood.code

    @property
    def data(self) -> LabelledData:
        """X [N, D], class indices [N, 1] or soft rows [N, K], and weights [N] if there are some.

        May be set, to labels in any form; rows of weight zero are left out. A row of weight w counts
        as w rows. Compiled functions keep the data that they have seen.
        """
        return self._data

    @data.setter
    def data(self, data: LabelledData) -> None:
        rows = check_data(data, self.code.num_classes)
        check_columns(self.kernel, rows.X.shape[-1])
        self.code.features(rows.labels[:1])  # refuses soft labels where the code has none
        check_mean_columns(self.mean_function, rows.X, self.num_latent_gps)
        given = getattr(data[1], "dtype", rows.labels.dtype)
        self._label_dtype = as_column(rows.labels, given).dtype
        self.labelled_rows = rows

    @property
    def labelled_rows(self) -> LabelledRows:
        """The data, as the model works with them. May be set, to rows that have been checked."""
        return self._labelled_rows

    @labelled_rows.setter
    def labelled_rows(self, rows: LabelledRows) -> None:
        self._labelled_rows = rows
        X, labels, *weights = rows.tensors
        self._data = (X, as_column(labels, self._label_dtype), *weights)
        self.criterion_rows = None

    @property
    def labels(self) -> tf.Tensor:
        """Class indices [N], or soft rows [N, K], as :func:`gpflow_ilr.inputs.as_labels` has them."""
        return self.labelled_rows.labels

    @property
    def has_soft_labels(self) -> bool:
        """Whether the labels are rows of probabilities; their targets depend on the smoothing λ."""
        return self.labels.shape.rank == 2

    @property
    def num_data(self) -> int:
        """N."""
        return int(self.data[0].shape[0])

    @property
    def num_columns(self) -> int:
        """D."""
        return int(self.data[0].shape[1])

    @property
    def output_spans(self) -> list[OutputSpan]:
        """The latent functions, in spans that share a kernel (and inducing variables)."""
        return output_spans(self.kernel, self.num_latent_gps)

    # Objectives

    @inherit_check_shapes
    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """What training maximises, as ``objective`` says."""
        # Not converted: autograph would take seconds to find that there is nothing to convert.
        check_float(self)
        return self.loo_log_density() if self.objective == "loo" else self.log_evidence()

    def log_evidence(self) -> tf.Tensor:
        """Log evidence of the paper's targets, or a bound on it, [], where the model has one."""
        raise NotImplementedError(
            f"{type(self).__name__} has no evidence: its objective is loo_log_density()."
        )

    def in_paper_units(self, log_evidence: tf.Tensor, total_weight: tf.Tensor) -> tf.Tensor:
        """Evidence of the paper's targets: a density, so it takes −log scale for each target.

        :param log_evidence: of the code's targets.
        :param total_weight: number of rows, each as often as it counts.
        """
        targets = tf.cast(total_weight, default_float()) * self.num_latent_gps
        # A constant for training: where the scale were trainable, the density would grow for ever
        # as the scale, and the targets with it, went to zero.
        return log_evidence - targets * tf.math.log(tf.stop_gradient(self.code.scale))

    @abc.abstractmethod
    def loo_log_density(self) -> tf.Tensor:
        """Σ_n w_n log p(y_n | all other rows), hyperparameters (and inducing inputs) kept, []."""

    def label_log_density(self, held_out: Marginals) -> tf.Tensor:
        """Σ_n w_n log E[softmax(scale · C f)]_y, [], with nodes chosen for all rows of the model.

        :param held_out: predictions of some rows in the code's units, and their labels.
        """
        nll = label_nll(held_out, self.code.link, self.code.scale, self.num_data)
        return -tf.reduce_sum(nll if held_out.weights is None else held_out.weights * nll)

    # Leave-one-out

    @abc.abstractmethod
    def leave_one_out(self, rows: tf.Tensor | None = None) -> MeanAndVariance:
        """Leave-one-out mean [n, P] and variance [n, P or 1] in the code's units.

        :param rows: which training rows; all of them if None.
        """

    def predict_loo(self) -> MeanAndVariance:
        """Mean and variance of f at each training input, given all *other* rows, [N, P] each.

        In closed form, with the hyperparameters (and inducing inputs) kept. A row that counts several
        times, by its weight, is left out as a whole.
        """
        check_float(self)
        mean, var = self.leave_one_out()
        scale = self.code.scale
        return scale * mean, tf.broadcast_to(scale**2 * var, tf.shape(mean))

    def held_out(
        self,
        data: LabelledRows | None,
        trained_on: bool = False,
        max_rows: int | None = None,
    ) -> Marginals:
        """Predictions for rows that have not been seen, in the code's units, with their labels.

        :param data: validation rows; None for training rows, each left out in turn.
        :param trained_on: must be False: the model has its training rows.
        :param max_rows: at most so many, evenly spaced, of the training rows; None for all.
        """
        if data is None:
            rows = self.spread_rows(max_rows)
            left_out = self.labelled_rows.take(rows)
            return Marginals.of(left_out, *self.leave_one_out(rows))
        if trained_on:
            raise ValueError(
                f"{type(self).__name__} has its training rows and leaves each out in turn where "
                "calibrate gets no data: leave out data and trained_on."
            )
        mean, var = self.predict_marginals(data.X)
        scale = self.code.scale
        return Marginals.of(data, mean / scale, var / scale**2)

    def spread_rows(self, max_rows: int | None) -> tf.Tensor:
        """Numbers of at most ``max_rows`` evenly spaced of the :attr:`criterion_rows`.

        :param max_rows: None for all of them.
        """
        rows = self.criterion_rows
        limit = len(rows) if max_rows is None else check_count("max_rows", max_rows)
        return tf.constant(rows[evenly_spaced(len(rows), limit)])

    def representative_rows(self) -> np.ndarray:
        """Numbers of the training rows that, left out, are predicted as new rows are: all, here."""
        return np.arange(self.num_data, dtype=np.int32)

    @property
    def criterion_rows(self) -> np.ndarray:
        """Numbers of the training rows that calibration leaves out in turn.

        All :meth:`representative_rows`, unless others are set. Set those that have not trained the
        kernel, where it comes from a sample. Another set of rows resets them.
        """
        return self.representative_rows() if self._criterion_rows is None else self._criterion_rows

    @criterion_rows.setter
    def criterion_rows(self, rows: np.ndarray | None) -> None:
        numbers = None if rows is None else check_row_numbers("criterion_rows", rows, self.num_data)
        self._criterion_rows: np.ndarray | None = numbers

    # Predictions

    @abc.abstractmethod
    def precompute(self) -> list[tf.Tensor]:
        """What predictions need of the data."""

    @abc.abstractmethod
    def conditional(
        self, cache: Sequence[tf.Tensor], Xnew: tf.Tensor, full_cov: bool
    ) -> MeanAndVariance:
        """Mean [..., n, P], without mean function, and variance [..., n, P or 1].

        With ``full_cov``, the covariance [..., P or 1, n, n]. In the code's units.

        :param cache: what :meth:`precompute` returned.
        :param Xnew: [..., n, D].
        :param full_cov: whether to keep covariances between rows.
        """

    def latents(
        self,
        cache: Sequence[tf.Tensor],
        Xnew: tf.Tensor,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        """Mean and (co)variance of the latent functions, as ``predict_f`` returns them.

        :param cache: what :meth:`precompute` returned.
        :param Xnew: [..., n, D].
        :param full_cov: whether to return covariances between rows.
        :param full_output_cov: whether to return covariances between latent functions.
        """
        scale, P = self.code.scale, self.num_latent_gps
        mean, var = self.conditional(cache, Xnew, full_cov)
        if full_cov:
            var = tf.repeat(var, P, axis=-3) if var.shape[-3] < P else var
        else:
            var = tf.broadcast_to(var, tf.shape(mean))
        mean = scale * (mean + self.mean_function(Xnew))
        return mean, expand_independent_outputs(scale**2 * var, full_cov, full_output_cov)

    def marginals(self, cache: Sequence[tf.Tensor], Xnew: InputData) -> MeanAndVariance:
        """Mean [..., N, P] and variance [..., N, P], or [..., N, 1] if the outputs share it.

        :param cache: what :meth:`precompute` returned.
        :param Xnew: [..., N, D].
        """
        X = as_inputs(Xnew, self.num_columns)
        scale = self.code.scale

        def predict(rows: tf.Tensor) -> MeanAndVariance:
            mean, var = self.conditional(cache, rows, full_cov=False)
            return scale * (mean + self.mean_function(rows)), scale**2 * var

        rows = tf.reshape(X, [-1, X.shape[-1]])
        mean, var = map_rows(predict, [rows], self.prediction_chunk(cache))
        leading = tf.shape(X)[:-1]
        return tuple(tf.reshape(x, tf.concat([leading, x.shape[-1:]], 0)) for x in (mean, var))

    def prediction_chunk(self, cache: Sequence[tf.Tensor]) -> int:
        """How many new rows :meth:`conditional` is given at a time, so that memory stays bounded.

        :param cache: what :meth:`precompute` returned.
        """
        elements = sum(int(np.prod(c.shape[:-1])) for c in cache)
        return max(1, _CHUNK_ELEMENTS // elements)

    def predict_marginals(self, Xnew: InputData) -> MeanAndVariance:
        """Mean [..., N, P] and variance [..., N, P] of f, or [..., N, 1] if the outputs share it.

        :param Xnew: [..., N, D].
        """
        check_float(self)
        return self.marginals(self.precompute(), Xnew)

    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of the latent functions, in the paper's units.

        :param Xnew: [..., N, D].
        :param full_cov: whether to return covariances between rows.
        :param full_output_cov: whether to return covariances between latent functions.
        """
        check_float(self)
        X = as_inputs(Xnew, self.num_columns)
        return self.latents(self.precompute(), X, full_cov, full_output_cov)

    def prior_variance(self, Xnew: tf.Tensor) -> tf.Tensor:
        """Largest prior variance of the latents at the inputs, [].

        :param Xnew: [..., N, D].
        """
        return tf.square(self.code.scale) * tf.reduce_max(self.kernel(Xnew, full_cov=False))

    def predict_log_density(
        self, data: LabelledData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """Log of the predicted probability of each label, [N].

        :param data: X and labels, in any form that :func:`gpflow_ilr.inputs.as_labels` accepts.
        :param full_cov: must be False.
        :param full_output_cov: must be False.
        """
        X, Y = as_batch(data[:2], self.num_columns)
        return super().predict_log_density((X, Y), full_cov, full_output_cov)

    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> ConjugatePosterior:
        """A posterior that keeps everything predictions need, so that they do no work over the data.

        :param precompute_cache: ``"tensor"``, ``"variable"`` or ``"nocache"``, as in GPflow.
        """
        check_float(self)
        return ConjugatePosterior(self, cache_type(precompute_cache))
