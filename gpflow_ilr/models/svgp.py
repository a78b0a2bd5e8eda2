"""Uncollapsed sparse classifiers: GPflow's SVGP, set up for classes, with minibatches.

Two models that differ by their likelihood: :class:`ILRSVGP` (the paper's Uncollapsed-ILR) and
:class:`SoftmaxSVGP` (its baseline SVGPC); a third one, on the pseudo-targets of a label code, is in
:mod:`gpflow_ilr.models.code_svgp`. Each is a ``gpflow.models.SVGP`` and takes all that one takes:
multi-output kernels and inducing variables, ``q_diag``, ``whiten``, ``num_data``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NoReturn

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance, TensorType
from gpflow.config import default_float
from gpflow.covariances import Kuu
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.mean_functions import MeanFunction
from gpflow.models import SVGP
from gpflow.models.util import InducingVariablesLike
from gpflow.posteriors import PrecomputeCacheType

from gpflow_ilr.codes import ILRCode
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.inputs.keras_layers import refuse_keras_layers
from gpflow_ilr.inputs.kernels import check_columns, for_conditional, output_spans
from gpflow_ilr.inputs.model_parts import (
    as_inducing_variable,
    check_float,
    check_function,
    check_mean_columns,
    check_num_data,
)
from gpflow_ilr.inputs.rows import LabelledData, as_inputs
from gpflow_ilr.likelihoods import ILRLikelihood, LinkedSoftmax, SoftmaxLikelihood
from gpflow_ilr.linalg.inverse_factors import finite_or_error
from gpflow_ilr.linalg.jitter import safe_jitter
from gpflow_ilr.models import prediction_sets, probabilities
from gpflow_ilr.models.batches import DataMark, as_batch, missing_num_data
from gpflow_ilr.models.collapsed import CollapsedClassifier
from gpflow_ilr.models.posterior import cache_type
from gpflow_ilr.models.shared_marginals import shared_marginals, whitened_divergence
from gpflow_ilr.models.svgp_posterior import SVGPPosterior
from gpflow_ilr.models.warm_start import variational_start

__all__ = ["ClassifierSVGP", "ILRSVGP", "SoftmaxSVGP"]


class ClassifierSVGP(SVGP):
    """GPflow's SVGP with class probabilities, for inputs of any dtype and labels [N] or [N, ·].

    :param kernel: a single-output kernel for all latents, or a multi-output kernel.
    :param likelihood: the classification likelihood.
    :param inducing_variable: an array [M, D], or GPflow inducing variables.
    :param options: all other arguments of ``gpflow.models.SVGP``.
    """

    predict_y = probabilities.predict_y
    predict_probability_variance = probabilities.predict_probability_variance
    predict_entropy = probabilities.predict_entropy
    predict_f_samples = probabilities.predict_f_samples
    predict_probability_samples = probabilities.predict_probability_samples
    predict_credible_interval = probabilities.predict_credible_interval
    predict_set = prediction_sets.predict_set

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Any,
        inducing_variable: InducingVariablesLike,
        **options: Any,
    ) -> None:
        check_function(
            "mean_function", options.get("mean_function"), "gpflow.mean_functions.Zero()"
        )
        check_num_data(options.get("num_data"))
        kernel, inducing_variable = for_conditional(
            kernel, as_inducing_variable(inducing_variable), likelihood.latent_dim
        )
        super().__init__(
            kernel,
            likelihood,
            inducing_variable,
            num_latent_gps=likelihood.latent_dim,
            **options,
        )
        refuse_keras_layers(self, type(self).__name__)
        if self.num_columns is not None:
            check_columns(self.kernel, self.num_columns)
            zeros = tf.zeros([1, self.num_columns], default_float())
            check_mean_columns(self.mean_function, zeros, self.num_latent_gps)
        self._all_data: DataMark | None = None

    @property
    def num_columns(self) -> int | None:
        """D, where the inducing variables are points among the inputs."""
        spans = output_spans(self.kernel, self.num_latent_gps, self.inducing_variable)
        inducing = spans[0].inducing
        return int(inducing.Z.shape[-1]) if type(inducing) is InducingPoints else None

    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of the latent functions, for inputs of any real dtype.

        :param Xnew: [..., N, D].
        :param full_cov: whether to return covariances between rows.
        :param full_output_cov: whether to return covariances between latent functions.
        """
        check_float(self)
        X = as_inputs(Xnew, self.num_columns)
        if full_cov or full_output_cov or not self._is_shared or X.shape.rank != 2:
            with safe_jitter(self._inducing_variance):
                theirs = super().posterior(PrecomputeCacheType.NOCACHE)
                mean, variance = theirs.fused_predict_f(X, full_cov, full_output_cov)
            return finite_or_error(mean, "K_uu"), variance
        return self._marginals(X, self.q_sqrt)

    @property
    def _is_shared(self) -> bool:
        """Whether all latents have one kernel, and full covariances."""
        return not isinstance(self.kernel, MultioutputKernel) and self.q_sqrt.shape.rank == 3

    def _marginals(self, X: tf.Tensor, q_sqrt: TensorType) -> MeanAndVariance:
        mean, variance = shared_marginals(
            X, self.kernel, self.inducing_variable, self.q_mu, q_sqrt, self.whiten
        )
        return mean + self.mean_function(X), variance

    def predict_marginals(self, Xnew: InputData) -> MeanAndVariance:
        """Mean and variance of the latents, [..., N, L] each.

        :param Xnew: [..., N, D].
        """
        return self.predict_f(Xnew)

    def prior_variance(self, Xnew: tf.Tensor) -> tf.Tensor:
        """Largest prior variance of the latents at the inputs, [].

        :param Xnew: [..., N, D].
        """
        return tf.reduce_max(self.kernel(Xnew, full_cov=False))

    def _inducing_variance(self) -> tf.Tensor:
        """Mean of the diagonal of K_uu, [1, 1], or of each latent's, [L, 1, 1]."""
        K_uu = Kuu(self.inducing_variable, self.kernel)
        return tf.reduce_mean(tf.linalg.diag_part(K_uu), axis=-1)[..., None, None]

    @inherit_check_shapes
    def prior_kl(self) -> tf.Tensor:
        """KL[q(u) ‖ p(u)], []."""
        if self.whiten:  # p is the standard normal
            if self.q_sqrt.shape.rank == 3:
                return whitened_divergence(self.q_mu, self.q_sqrt)
            return super().prior_kl()
        with safe_jitter(self._inducing_variance):
            return finite_or_error(super().prior_kl(), "K_uu")

    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> SVGPPosterior:
        """A posterior that keeps what does not depend on new inputs, and predicts as the model.

        :param precompute_cache: what to keep, and how: ``"tensor"``, ``"variable"`` or ``"nocache"``.
        """
        return SVGPPosterior(self, cache_type(precompute_cache))

    # Training

    def training_loss_closure(
        self,
        data: LabelledData | Iterator[LabelledData],
        *,
        compile: bool = True,  # noqa: A002
    ) -> Callable[[], tf.Tensor]:
        """The training loss of some rows, or of the next batch of an iterator at each call.

        :param data: X [N, D], labels and, if wanted, weights [N], or an iterator of such batches, which
            needs ``num_data``: the number of rows, whatever their weights.
        :param compile: compile the closure with ``tf.function``.
        :raises ValueError: for an iterator, if the model does not know the number of all rows.
        """
        if isinstance(data, Iterator) and self.num_data is None:
            raise ValueError(missing_num_data(self, "an iterator gives it minibatches"))
        return super().training_loss_closure(data, compile=compile)

    def training_loss(self, data: LabelledData) -> tf.Tensor:
        """Negative ELBO (less log priors) of a batch.

        :param data: X [N, D], labels ([N], [N, 1] class indices or [N, K] rows) and, if wanted, weights
            [N].
        :raises ValueError: if ``num_data`` is unknown, and the batch is not known to be all data.
        """
        check_float(self)
        self._check_all_data(data[0])
        return super().training_loss(as_batch(data, self.num_columns))

    @tf.autograph.experimental.do_not_convert
    def elbo(self, data: LabelledData) -> tf.Tensor:
        """The evidence lower bound, scaled to ``num_data`` rows, [].

        :param data: X [N, D], labels ([N], [N, 1] class indices or [N, K] rows) and, if wanted, weights
            [N]: a row of weight w counts as w rows.
        :raises ValueError: if ``num_data`` is unknown, and the batch is not known to be all data.
        """
        check_float(self)
        self._check_all_data(data[0])
        return self.maximum_log_likelihood_objective(as_batch(data, self.num_columns))

    @inherit_check_shapes
    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(self, data: LabelledData) -> tf.Tensor:
        """The bound that training maximises, []."""
        X, Y, weights = data if len(data) == 3 else (*data, None)
        own = {type(self).predict_f, type(self).prior_kl}
        if self.whiten and self._is_shared and own <= _OF_SHARED_ROOTS:
            S = tf.convert_to_tensor(self.q_sqrt)  # once: its triangles are made of vectors
            marginals, kl = self._marginals(X, S), whitened_divergence(self.q_mu, S)
        else:
            marginals, kl = self.predict_f(X), self.prior_kl()
        expectations = self.likelihood.variational_expectations(X, *marginals, Y)
        total = tf.reduce_sum(expectations if weights is None else weights * expectations)
        if self.num_data is not None:
            total *= tf.cast(self.num_data, total.dtype) / tf.cast(tf.shape(X)[0], total.dtype)
        return total - kl

    def _check_all_data(self, X: InputData) -> None:
        """Without ``num_data``, refuse rows that may be some of many: the first ones count as all."""
        if self.num_data is not None:
            return
        if tf.is_symbolic_tensor(X):
            raise ValueError(missing_num_data(self, "a compiled function gives it rows that vary"))
        found = DataMark.of(X)
        if self._all_data is None:
            self._all_data = found
        elif self._all_data != found:
            raise ValueError(missing_num_data(self, "it was given other rows before"))

    def predict_log_density(
        self, data: LabelledData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """Log of the predicted probability of each label, [N].

        :param data: X [N, D] and labels: [N], [N, 1] class indices or [N, K] rows.
        :param full_cov: must be False.
        :param full_output_cov: must be False.
        """
        X, Y = as_batch(data[:2], self.num_columns)
        return super().predict_log_density((X, Y), full_cov, full_output_cov)

    def update(self, *rows: Any, **options: Any) -> NoReturn:
        """Refused: q(u) is trained on rows and classes, and does not follow from more of them."""
        raise TypeError(
            f"{type(self).__name__} cannot be updated: its q(u) was trained on the rows and classes "
            "that there were. Train it on (gpflow_ilr.training.fit), build it anew for other classes, "
            "or use ILRSGPR or ILRNNGPR, which take in rows and classes without training."
        )


_OF_SHARED_ROOTS = {ClassifierSVGP.predict_f, ClassifierSVGP.prior_kl}


class LinkedSVGP(ClassifierSVGP):
    """SVGP with π = softmax(B W f), where the basis B is that of the subclass's likelihood.

    :param kernel: kernel of the latents, in the paper's units.
    :param inducing_variable: an array [M, D], or GPflow inducing variables.
    :param num_classes: K.
    :param num_latent_gps: number of latents; by default as many as B has columns, fewer make W
        low-rank.
    :param mixing: learn the mixing matrix W (True), leave it out (False), or start it from a matrix;
        by default there is a W only where ``num_latent_gps`` needs one.
    :param num_data: number of rows of the whole data set; needed for minibatches.
    :param nodes: node rule of expectations; see :mod:`gpflow_ilr.expectations.softmax`.
    :param mean_function: mean of the latents.
    :param q_diag: a diagonal covariance of q(u).
    :param q_mu: start of the mean of q(u).
    :param q_sqrt: start of the root of its covariance.
    :param whiten: parametrise q in whitened coordinates.
    """

    _likelihood_class: ClassVar[type[LinkedSoftmax]]

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariablesLike,
        *,
        num_classes: int,
        num_latent_gps: int | None = None,
        mixing: bool | TensorType | None = None,
        num_data: int | None = None,
        nodes: NodeRule | None = None,
        mean_function: MeanFunction | None = None,
        q_diag: bool = False,
        q_mu: TensorType | None = None,
        q_sqrt: TensorType | None = None,
        whiten: bool = True,
    ) -> None:
        super().__init__(
            kernel,
            self._likelihood_class(num_classes, num_latent_gps, mixing, nodes),
            inducing_variable,
            mean_function=mean_function,
            q_diag=q_diag,
            q_mu=q_mu,
            q_sqrt=q_sqrt,
            whiten=whiten,
            num_data=num_data,
        )


class ILRSVGP(LinkedSVGP):
    """The paper's Uncollapsed-ILR: π = φ⁻¹(W f) with K − 1 (or fewer) latent GPs.

    Takes the arguments of :class:`LinkedSVGP`.
    """

    _likelihood_class = ILRLikelihood

    @classmethod
    def from_collapsed(
        cls,
        model: CollapsedClassifier,
        mixing: bool | TensorType | None = None,
        num_data: int | None = None,
        nodes: NodeRule | None = None,
    ) -> ILRSVGP:
        """An uncollapsed model that starts where a fitted :class:`~gpflow_ilr.ILRSGPR` stands.

        q(u), the kernel and the inducing inputs are copied, in the paper's units; W, if there is
        one, starts as the identity, so the new model predicts what the old one does.

        :param model: the fitted collapsed model.
        :param mixing: as for the constructor.
        :param num_data: number of rows of the whole data set; the model's own if None.
        :param nodes: node rule of expectations.
        :raises TypeError: if the model is not an ILR model.
        """
        if not isinstance(model, CollapsedClassifier) or not isinstance(model.code, ILRCode):
            raise TypeError(f"from_collapsed needs an ILRSGPR, but got a {type(model).__name__}.")
        return cls(
            **variational_start(model, float(model.code.scale)),
            num_classes=model.code.num_classes,
            mixing=mixing,
            num_data=model.num_data if num_data is None else num_data,
            nodes=nodes,
        )


class SoftmaxSVGP(LinkedSVGP):
    """The paper's baseline SVGPC: π = softmax(W f) with K (or fewer) latent GPs.

    Takes the arguments of :class:`LinkedSVGP`.
    """

    _likelihood_class = SoftmaxLikelihood
