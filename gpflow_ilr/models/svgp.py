"""Uncollapsed sparse classifiers: GPflow's SVGP, set up for classes, with minibatches.

Three models that differ by their likelihood: :class:`ILRSVGP` (the paper's Uncollapsed-ILR),
:class:`SoftmaxSVGP` (its baseline SVGPC), and :class:`CodeSVGP`, which fits the conjugate
pseudo-targets from minibatches. Each is a ``gpflow.models.SVGP`` and takes all that one takes:
multi-output kernels and inducing variables, ``q_diag``, ``whiten``, ``num_data``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData, TensorType
from gpflow.conditionals import conditional
from gpflow.config import default_float
from gpflow.covariances import Kuu
from gpflow.inducing_variables import (
    InducingVariables,
    MultioutputInducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel, MultioutputKernel, SeparateIndependent, SharedIndependent
from gpflow.mean_functions import MeanFunction
from gpflow.models import SVGP
from gpflow.models.util import InducingVariablesLike, inducingpoint_wrapper
from gpflow.posteriors import (
    BasePosterior,
    PrecomputeCacheType,
    _validate_precompute_cache_type,
)

from gpflow_ilr.calibration.criterion import Calibration, Marginals, MeanNLL, choose_sharpness
from gpflow_ilr.codes import ILRCode, LabelCode
from gpflow_ilr.collapsed.bound import leave_one_out
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.inputs.keras_layers import refuse_keras_layers
from gpflow_ilr.inputs.rows import as_inputs, check_data
from gpflow_ilr.likelihoods import ILRLikelihood, LinkedSoftmax, SoftmaxLikelihood
from gpflow_ilr.likelihoods.code_gaussian import CodeGaussian
from gpflow_ilr.linalg.jitter import safe_jitter
from gpflow_ilr.models.collapsed import CollapsedClassifier
from gpflow_ilr.models.probabilities import ClassProbabilities
from gpflow_ilr.models.shared_marginals import shared_marginals
from gpflow_ilr.models.uncached_posterior import UncachedPosterior
from gpflow_ilr.models.warm_start import variational_start

__all__ = ["ILRSVGP", "SoftmaxSVGP", "CodeSVGP"]


class ClassifierSVGP(ClassProbabilities, SVGP):
    """GPflow's SVGP with class probabilities, for inputs of any dtype and labels [N] or [N, ·].

    :param kernel: a single-output kernel for all latents, or a multi-output kernel.
    :param likelihood: the classification likelihood.
    :param inducing_variable: an array [M, D], or GPflow inducing variables.
    :param options: all other arguments of ``gpflow.models.SVGP``.
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Any,
        inducing_variable: InducingVariablesLike,
        **options: Any,
    ) -> None:
        kernel, inducing_variable = _matched(
            kernel, inducingpoint_wrapper(inducing_variable), likelihood.latent_dim
        )
        super().__init__(
            kernel,
            likelihood,
            inducing_variable,
            num_latent_gps=likelihood.latent_dim,
            **options,
        )
        refuse_keras_layers(self, type(self).__name__)

    @inherit_check_shapes
    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of the latent functions, for inputs of any real dtype."""
        X = as_inputs(Xnew)
        shared = not isinstance(self.kernel, MultioutputKernel) and self.q_sqrt.shape.rank == 3
        if full_cov or full_output_cov or not shared or X.shape.rank != 2:
            with safe_jitter(self._inducing_variance):
                return super().predict_f(X, full_cov, full_output_cov)
        mean, variance = shared_marginals(
            X, self.kernel, self.inducing_variable, self.q_mu, self.q_sqrt, self.whiten
        )
        return mean + self.mean_function(X), variance

    def _inducing_variance(self) -> tf.Tensor:
        """Mean of the diagonal of K_uu, [1, 1], or of each latent's, [L, 1, 1]."""
        K_uu = Kuu(self.inducing_variable, self.kernel)
        return tf.reduce_mean(tf.linalg.diag_part(K_uu), axis=-1)[..., None, None]

    @inherit_check_shapes
    def prior_kl(self) -> tf.Tensor:
        """KL[q(u) ‖ p(u)], []."""
        if self.whiten:  # p is the standard normal
            return super().prior_kl()
        with safe_jitter(self._inducing_variance):
            return super().prior_kl()

    def posterior(
        self, precompute_cache: PrecomputeCacheType = PrecomputeCacheType.TENSOR
    ) -> BasePosterior | UncachedPosterior:
        """GPflow's posterior, which keeps the matrices that do not depend on new inputs.

        In float32 nothing is kept, see :mod:`gpflow_ilr.models.uncached_posterior`.

        :param precompute_cache: what to keep, and how.
        """
        kept = _validate_precompute_cache_type(precompute_cache) != PrecomputeCacheType.NOCACHE
        if kept and default_float() == np.float32:
            return UncachedPosterior(self)
        return super().posterior(precompute_cache)

    def training_loss(self, data: RegressionData) -> tf.Tensor:
        """Negative ELBO (less log priors) of a batch.

        :param data: X [N, D] and labels: [N], [N, 1] class indices or [N, K] rows.
        """
        return super().training_loss(_columns(data))

    @tf.autograph.experimental.do_not_convert
    def elbo(self, data: RegressionData) -> tf.Tensor:
        """The evidence lower bound, scaled to ``num_data`` rows, [].

        :param data: X [N, D] and labels: [N], [N, 1] class indices or [N, K] rows.
        """
        return super().elbo(_columns(data))

    def predict_log_density(
        self, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """Log of the predicted probability of each label, [N].

        :param data: X [N, D] and labels: [N], [N, 1] class indices or [N, K] rows.
        :param full_cov: must be False.
        :param full_output_cov: must be False.
        """
        return super().predict_log_density(_columns(data), full_cov, full_output_cov)


class LinkedSVGP(ClassifierSVGP):
    """SVGP with π = softmax(B W f), where the basis B is that of the subclass's likelihood.

    :param kernel: kernel of the latents, in the paper's units.
    :param inducing_variable: an array [M, D], or GPflow inducing variables.
    :param num_classes: K.
    :param num_latent_gps: number of latents; by default as many as B has columns, fewer make W
        low-rank.
    :param mixing: learn the mixing matrix W (True), leave it out (False), or start it from a matrix.
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
        mixing: bool | TensorType = True,
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
        mixing: bool | TensorType = True,
        num_data: int | None = None,
        nodes: NodeRule | None = None,
    ) -> ILRSVGP:
        """An uncollapsed model that starts where a fitted :class:`~gpflow_ilr.ILRSGPR` stands.

        q(u), the kernel and the inducing inputs are copied, in the paper's units; W starts as the
        identity, so the new model predicts what the old one does.

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


class CodeSVGP(ClassifierSVGP):
    """SVGP on the pseudo-targets of a label code: the collapsed models, for minibatches.

    Its latents are in the code's units (f/L for ILR). A natural-gradient step of length one on the
    full batch reaches the collapsed optimum.

    :param kernel: kernel of f/scale.
    :param inducing_variable: an array [M, D], or GPflow inducing variables.
    :param code: ``ILRCode(K, ...)`` or ``DirichletCode(K, ...)``.
    :param num_data: number of rows of the whole data set; needed for minibatches.
    :param nodes: node rule of the predictive probabilities.
    :param mean_function: mean of f/scale.
    :param q_diag: a diagonal covariance of q(u).
    :param q_mu: start of the mean of q(u).
    :param q_sqrt: start of the root of its covariance.
    :param whiten: parametrise q in whitened coordinates.
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariablesLike,
        code: LabelCode,
        *,
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
            CodeGaussian(code, nodes),
            inducing_variable,
            mean_function=mean_function,
            q_diag=q_diag,
            q_mu=q_mu,
            q_sqrt=q_sqrt,
            whiten=whiten,
            num_data=num_data,
        )

    def calibrate(self, data: RegressionData, *, trained_on: bool = False) -> Calibration:
        """Set the smoothing λ to the value with the smallest NLL of held-out labels.

        Soft training labels are coded with λ, so for them q wants training again afterwards.

        :param data: rows (X, y): validation rows, or training rows with ``trained_on``.
        :param trained_on: the rows are training rows: predict each without itself, by taking its
            pseudo-targets out of q(f_n). At the optimum of q this is closed-form leave-one-out.
        :raises TypeError: if the code has no smoothing.
        :raises ValueError: with ``trained_on``, if q is too far from its optimum for that.
        """
        code = self.likelihood.code
        if not isinstance(code, ILRCode):
            raise TypeError(f"calibrate needs an ILRCode, but the code is a {type(code).__name__}.")
        X, _, labels = check_data(data, code.num_classes)
        mean, variance = self.predict_f(X)
        if trained_on:
            mean, variance = self._without_own_row(X, labels, mean, variance)
        held_out = Marginals(mean, variance, labels)
        nll = MeanNLL(held_out, code.link)
        before = nll(code.scale)
        sharpness, after = choose_sharpness(nll, code.scale)
        code.sharpness.assign(sharpness)
        noise = float(tf.reduce_mean(code.noise_variance))
        return Calibration(code.smoothing, before, after, noise)

    def _without_own_row(
        self, X: tf.Tensor, labels: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor
    ) -> MeanAndVariance:
        """The cavity of q(f_n): divide out the row's own Gaussian pseudo-observation."""
        code = self.likelihood.code
        targets = tf.matmul(code.features(labels), code.targets)
        V = tf.gather(code.noise_variance, labels) if code.depends_on_class else code.noise_variance
        # Without q's covariance what remains is the variance of f_n given u, which no row explains.
        with safe_jitter(self._inducing_variance):
            _, residual = conditional(
                X, self.inducing_variable, self.kernel, self.q_mu, q_sqrt=None, white=self.whiten
            )
        explained = variance - residual
        unfinished = int(tf.math.count_nonzero(tf.reduce_any(explained >= V, axis=-1)))
        if unfinished:
            raise ValueError(
                f"calibrate(trained_on=True) takes each row's own pseudo-targets out of q, but q is "
                f"less certain than {unfinished} of {len(X)} rows alone would make it. Train q "
                "further (NaturalGradient), or calibrate on validation rows."
            )
        return leave_one_out(mean, explained, targets, V, residual)


def _matched(
    kernel: Kernel, inducing: InducingVariables, num_latents: int
) -> tuple[Kernel, InducingVariables]:
    """Kernel and inducing variables in the combination that GPflow has a conditional for."""
    multioutput = isinstance(kernel, MultioutputKernel)
    if multioutput and not isinstance(kernel, (SharedIndependent, SeparateIndependent)):
        raise TypeError(
            f"{type(kernel).__name__} mixes the latents, but a likelihood sees only the marginals of "
            "the mixture. Pass a single-output kernel, SharedIndependent or SeparateIndependent; the "
            "likelihood mixes latents exactly (mixing=True, num_latent_gps for a low rank)."
        )
    if multioutput and kernel.num_latent_gps != num_latents:
        raise ValueError(
            f"The kernel has {kernel.num_latent_gps} latent GPs, but the likelihood has "
            f"{num_latents}. Build the kernel for {num_latents} latents."
        )
    if isinstance(inducing, SeparateIndependentInducingVariables):
        sizes = [int(points.num_inducing) for points in inducing.inducing_variable_list]
        if len(sizes) != num_latents or len(set(sizes)) > 1:
            raise ValueError(
                f"inducing_variable has {len(sizes)} separate sets of sizes {sizes}, but the "
                f"likelihood has {num_latents} latents. Pass {num_latents} sets of one size."
            )
    if isinstance(inducing, MultioutputInducingVariables) and not multioutput:
        return SharedIndependent(kernel, output_dim=num_latents), inducing
    if multioutput and not isinstance(inducing, MultioutputInducingVariables):
        return kernel, SharedIndependentInducingVariables(inducing)
    return kernel, inducing


def _columns(data: RegressionData) -> RegressionData:
    """X in the default float, and labels with a last axis, as GPflow wants them."""
    X, Y = as_inputs(data[0]), tf.convert_to_tensor(data[1])
    Y = Y[:, None] if Y.shape.rank == 1 else Y
    # A single label would be broadcast to all rows.
    if not X.shape[:-1].is_compatible_with(Y.shape[:-1]):
        raise ValueError(
            f"Every row of X needs one label, but X has shape {X.shape} and the labels have shape "
            f"{Y.shape}. Pass as many labels as rows."
        )
    return X, Y
