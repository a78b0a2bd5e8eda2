"""The collapsed models for minibatches: GPflow's SVGP on the pseudo-targets of a label code."""

from __future__ import annotations

import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.conditionals import conditional
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingVariablesLike

from gpflow_ilr.calibration import Marginals, calibrate, smoothing
from gpflow_ilr.codes import LabelCode
from gpflow_ilr.collapsed.bound import leave_one_out
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.inputs.counts import check_count, evenly_spaced
from gpflow_ilr.inputs.rows import LabelledRows
from gpflow_ilr.likelihoods import CodeGaussian
from gpflow_ilr.linalg.jitter import safe_jitter
from gpflow_ilr.models.svgp import ClassifierSVGP

__all__ = ["CodeSVGP"]


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

    likelihood: CodeGaussian
    smoothing = smoothing
    calibrate = calibrate

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

    @property
    def code(self) -> LabelCode:
        """The label code, which the likelihood holds."""
        return self.likelihood.code

    @property
    def has_soft_labels(self) -> bool:
        """False: predictions do not depend on λ before q is trained again."""
        return False

    def held_out(
        self,
        data: LabelledRows | None,
        trained_on: bool = False,
        max_rows: int | None = None,
    ) -> Marginals:
        """Predictions for rows that have not been seen, in the code's units, with their labels.

        :param data: the rows.
        :param trained_on: the rows are training rows: predict each without itself, by taking its
            pseudo-targets out of q(f_n). At the optimum of q this is closed-form leave-one-out.
        :param max_rows: at most so many, evenly spaced, of training rows; None for all.
        :raises ValueError: without rows, or if q is too far from its optimum for that.
        """
        if data is None:
            raise ValueError(
                f"{type(self).__name__} keeps no rows: calibrate needs data, validation rows (X, y), "
                "or training rows with trained_on=True."
            )
        if not trained_on:
            return Marginals.of(data, *self.predict_f(data.X))
        if max_rows is not None:
            data = data.take(evenly_spaced(len(data), check_count("max_rows", max_rows)))
        return Marginals.of(data, *self._without_own_row(data, *self.predict_f(data.X)))

    def _without_own_row(
        self, rows: LabelledRows, mean: tf.Tensor, variance: tf.Tensor
    ) -> MeanAndVariance:
        """The cavity of q(f_n): divide out the row's own Gaussian pseudo-observation."""
        code, X, labels = self.likelihood.code, rows.X, rows.labels
        targets = tf.matmul(code.features(labels), code.targets)
        V = tf.gather(code.noise_variance, labels) if code.depends_on_class else code.noise_variance
        V = V if rows.weights is None else V / rows.weights[:, None]
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
