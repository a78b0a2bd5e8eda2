"""What the rows of a data set mean for a span of outputs that shares kernel and inducing variables.

A span knows the tables of its outputs, how a row enters them, and how to sum over rows; the classes in
:mod:`gpflow_ilr.models` put spans together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf
from gpflow.config import default_float
from gpflow.mean_functions import MeanFunction, Zero

from gpflow_ilr.codes import LabelCode
from gpflow_ilr.collapsed.statistics import GroupStatistics, Rows, group_statistics
from gpflow_ilr.inputs.kernels import OutputSpan
from gpflow_ilr.inputs.rows import LabelledRows
from gpflow_ilr.linalg.covariances import inducing_covariance
from gpflow_ilr.linalg.evidence import relative_inverse_cholesky

__all__ = ["CollapsedSpan", "RowTerms"]


class RowTerms(NamedTuple):
    """What some rows need for leave-one-out."""

    A: tf.Tensor
    """Whitened features, [M, n]."""
    residual: tf.Tensor
    """k − aᵀa, [n, 1]."""
    targets: tf.Tensor
    """Targets less the mean function, [n, P]."""
    noise: tf.Tensor
    """V/w, broadcasting to [n, P]."""
    offset: tf.Tensor | None
    """The mean function, [n, P]; None if it is zero."""


@dataclass(frozen=True)
class CollapsedSpan:
    """A span of outputs at the present parameters of a model.

    :param span: the outputs, their kernel and their inducing variables.
    :param code: the label code.
    :param mean_function: mean of f/scale.
    :param chunk_size: rows in memory at a time; None for a size that fits the processor's cache.
    :param weighted: where noise depends on the class alone, whether a row enters one sum, with the
        precision of its class as its weight, instead of the sum of its class. That is all that the
        bound needs, and saves K − 1 of K products of [M, M].
    """

    span: OutputSpan
    code: LabelCode
    mean_function: MeanFunction
    chunk_size: int | None
    weighted: bool = False

    @property
    def by_class(self) -> bool:
        """Whether there is a group of rows for each class, and not one for all."""
        return self.code.depends_on_class and not self.weighted

    @property
    def table(self) -> tf.Tensor:
        """T_g, [G, C, P]: the targets of a row, less the mean function, are e_n T_g."""
        T = self.span.columns(self.code.targets)
        T = T[:, None, :] if self.by_class else T[None]
        if type(self.mean_function) is Zero:
            return T
        identity = tf.eye(T.shape[2], batch_shape=[T.shape[0]], dtype=T.dtype)
        return tf.concat([T, identity], axis=1)

    @property
    def noise(self) -> tf.Tensor:
        """V, [G, 1 or P]; one where the sums are weighted by its inverse."""
        V = self.span.columns(self.code.noise_variance)
        return tf.ones([1, 1], V.dtype) if self.weighted else V

    def log_noise(self, counts: tf.Tensor) -> tf.Tensor:
        """½ P Σ_c n_c log V_c, by which the bound of weighted sums is too large, [].

        :param counts: n, [K], of the rows of each class.
        """
        V = self.code.noise_variance
        return 0.5 * self.table.shape[-1] * tf.reduce_sum(counts[:, None] * tf.math.log(V))

    def features(self, X: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Label features e_n, [n, C]; a group that is a class has the constant feature.

        :param X: [n, D].
        :param labels: [n] or [n, K].
        """
        if self.by_class:
            E = tf.ones([tf.shape(X)[0], 1], default_float())
        else:
            E = self.code.features(labels)
        mean = self.span.mean(self.mean_function, X)
        return E if mean is None else tf.concat([E, -mean], axis=1)

    def covariance(self, X: tf.Tensor | None = None) -> tf.Tensor:
        """K_uf, [M, n], or K_uu.

        :param X: [..., n, D]; None for the inducing variables themselves.
        """
        return inducing_covariance(self.span.inducing, self.span.kernel, X)

    def whitening(self) -> tf.Tensor:
        """L_u⁻¹, [M, M]."""
        return relative_inverse_cholesky(self.covariance(), "K_uu")

    def sums(
        self, L_inv: tf.Tensor, rows: Rows, known: GroupStatistics | None = None
    ) -> GroupStatistics:
        """Sums over rows, with gradients.

        :param L_inv: :meth:`whitening`.
        :param rows: the rows.
        :param known: the result, if it is known already: the rows are then visited for gradients.
        """
        kernel, inducing = self.span.kernel, self.span.inducing
        precisions = self._precisions if self.weighted else None
        return group_statistics(
            kernel, inducing, L_inv, rows, self.features, self.chunk_size, known, precisions
        )

    def _precisions(self, labels: tf.Tensor) -> tf.Tensor:
        """1/V of the rows' classes, [n]."""
        return tf.gather(1.0 / self.code.noise_variance[:, 0], labels)

    def row_terms(self, L_inv: tf.Tensor, rows: LabelledRows) -> RowTerms:
        """What some rows need for leave-one-out.

        :param L_inv: :meth:`whitening`.
        :param rows: the rows.
        """
        A = tf.matmul(L_inv, self.covariance(rows.X))
        residual = self.span.kernel(rows.X, full_cov=False) - tf.reduce_sum(tf.square(A), axis=0)
        targets = tf.matmul(self.code.features(rows.labels), self.span.columns(self.code.targets))
        offset = self.span.mean(self.mean_function, rows.X)
        targets = targets if offset is None else targets - offset
        noise = tf.gather(self.noise, rows.labels) if self.code.depends_on_class else self.noise
        noise = noise if rows.weights is None else noise / rows.weights[:, None]
        return RowTerms(A, tf.maximum(residual, 0.0)[:, None], targets, noise, offset)
