"""Collapsed sparse classifiers (Titsias, 2009) from class-wise sufficient statistics.

The O(N M²) work is done once for all outputs that share a kernel and inducing inputs, in chunks of
rows, and the N × P matrix of targets is never formed: :mod:`gpflow_ilr.collapsed.statistics` has
the sums over rows, :mod:`gpflow_ilr.collapsed.bound` what follows from them. This module connects
both with GPflow's kernels, inducing variables and models.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, Module, RegressionData
from gpflow.config import default_float, default_jitter
from gpflow.inducing_variables import (
    InducingVariables,
    MultioutputInducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction, Zero
from gpflow.models.util import InducingVariablesLike, inducingpoint_wrapper
from gpflow.posteriors import PrecomputedValue

from gpflow_ilr.codes import LabelCode
from gpflow_ilr.collapsed.bound import (
    WhitenedPosterior,
    collapsed_bound,
    leave_one_out,
    whitened_posterior,
)
from gpflow_ilr.collapsed.statistics import (
    GroupStatistics,
    RowGroups,
    default_chunk,
    group_statistics,
    without_gradient,
)
from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.likelihoods import LinkedSoftmax
from gpflow_ilr.linalg.covariances import inducing_covariance
from gpflow_ilr.linalg.evidence import relative_inverse_cholesky
from gpflow_ilr.linalg.inverse_factors import triangular_inverse
from gpflow_ilr.linalg.row_chunks import map_rows, sum_rows
from gpflow_ilr.models.conjugate import (
    ConjugateClassifier,
    Objective,
    OutputBlock,
    cross_covariance,
    prior_covariance,
    squared_norms,
)

__all__ = ["CollapsedClassifier", "KeptStatistics"]


_PLAIN_ATTRIBUTES = ("active_dims", "degree", "order")
"""What GPflow's kernels depend on that is no variable."""


@dataclass(frozen=True)
class KeptStatistics:
    """Statistics of each block, and what they were computed with.

    Not a tuple: GPflow would look for the model's parameters in it, and find them twice.
    """

    statistics: list[GroupStatistics]
    fingerprint: tuple[list[Any], list[Any]]
    elsewhere: bool = False
    """Some of the rows are held elsewhere, so that the sums cannot be computed again here."""


class CollapsedClassifier(ConjugateClassifier):
    """Collapsed sparse GP regression on the pseudo-targets of any label code: O(N M²).

    :param data: X [N, D] and labels.
    :param kernel: kernel of f/scale.
    :param inducing_variable: M inducing inputs: an array, GPflow inducing points, or a set for each
        output (``SeparateIndependentInducingVariables``).
    :param code: the label code.
    :param likelihood: its link, for predictions.
    :param mean_function: mean of f/scale.
    :param objective: ``"evidence"`` or ``"loo"``.
    :param chunk_size: rows in memory at a time; None for a size that fits the processor's cache.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        inducing_variable: InducingVariablesLike,
        code: LabelCode,
        likelihood: LinkedSoftmax,
        mean_function: MeanFunction | None = None,
        objective: Objective = "evidence",
        chunk_size: int | None = None,
    ) -> None:
        if chunk_size is not None:
            check_count("chunk_size", chunk_size)
        super().__init__(data, kernel, code, likelihood, mean_function, objective)
        self.inducing_variable: InducingVariables = inducingpoint_wrapper(inducing_variable)
        self.chunk_size = chunk_size
        for block in self._output_blocks:
            self._check_inducing(block.inducing)

    def _check_inducing(self, inducing: InducingVariables) -> None:
        Z = getattr(inducing, "Z", None)  # other inducing variables know their own shapes
        if Z is not None and (Z.shape[0] == 0 or Z.shape[-1] != self.data[0].shape[1]):
            raise ValueError(
                f"Inducing inputs must have shape [M, {self.data[0].shape[1]}] with M ≥ 1, as many "
                f"columns as X, but have {list(Z.shape)}."
            )

    def _set_data(self, X: tf.Tensor, Y: tf.Tensor, labels: tf.Tensor) -> None:
        super()._set_data(X, Y, labels)
        self._groups = self._row_groups(labels)
        self._kept: KeptStatistics | None = None

    def _row_groups(self, labels: tf.Tensor) -> RowGroups:
        if self.code.depends_on_class:
            return RowGroups(labels.numpy(), labels.shape[0], self.code.num_classes)
        return RowGroups(None, labels.shape[0], 1)

    @property
    def _output_blocks(self) -> list[OutputBlock]:
        blocks = super()._output_blocks
        inducing = self.inducing_variable
        if isinstance(inducing, SeparateIndependentInducingVariables):
            sets = list(inducing.inducing_variable_list)
            if len(sets) != self.num_latent_gps:
                raise ValueError(
                    f"inducing_variable has {len(sets)} separate sets, but {self.code.num_classes} "
                    f"classes need {self.num_latent_gps}, one for each latent function."
                )
            kernels = [b.kernel for b in blocks] * (len(sets) // len(blocks))
            return [
                OutputBlock(kernel, p, p + 1, Z)
                for p, (kernel, Z) in enumerate(zip(kernels, sets, strict=True))
            ]
        if isinstance(inducing, SharedIndependentInducingVariables):
            inducing = inducing.inducing_variable
        elif isinstance(inducing, MultioutputInducingVariables):
            raise TypeError(
                f"inducing_variable is a {type(inducing).__name__}; use an array, InducingPoints, "
                "or Shared- or SeparateIndependentInducingVariables."
            )
        return [block._replace(inducing=inducing) for block in blocks]

    # Tables and statistics of a block of outputs

    def _table(self, block: OutputBlock) -> tf.Tensor:
        """T_g, [G, C, P]: the targets of a row, less the mean function, are e_n T_g."""
        T = block.columns(self.code.targets)
        T = T[:, None, :] if self.code.depends_on_class else T[None]
        if type(self.mean_function) is Zero:
            return T
        identity = tf.eye(block.stop - block.start, batch_shape=[T.shape[0]], dtype=T.dtype)
        return tf.concat([T, identity], axis=1)

    def _features(self, block: OutputBlock, X: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Label features e_n, [n, C]; a group that is a class has the constant feature."""
        if self.code.depends_on_class:
            E = tf.ones([tf.shape(X)[0], 1], default_float())
        else:
            E = self.code.features(labels)
        mean = self._mean_columns(X, block)
        return E if mean is None else tf.concat([E, -mean], axis=1)

    def _noise(self, block: OutputBlock) -> tf.Tensor:
        return block.columns(self.code.noise_variance)

    def _whitening(self, block: OutputBlock) -> tf.Tensor:
        """L_u⁻¹."""
        K_uu = inducing_covariance(block.inducing, block.kernel)
        return relative_inverse_cholesky(K_uu, "K_uu")

    def _statistics(
        self,
        block: OutputBlock,
        L_inv: tf.Tensor,
        known: GroupStatistics | None = None,
        rows: tuple[tf.Tensor, tf.Tensor, RowGroups] | None = None,
    ) -> GroupStatistics:
        """Sums over the training rows, or over other ``rows`` (X, labels, groups)."""
        if rows is None and known is not None and self._has_rows_elsewhere:
            parts = (self.kernel, self.inducing_variable, self.mean_function)
            parameters = [tf.convert_to_tensor(v) for p in parts for v in p.trainable_variables]
            return without_gradient(known, [L_inv, *parameters])
        X, labels, groups = rows or (self.data[0], self._labels, self._groups)
        return group_statistics(
            block.kernel,
            block.inducing,
            L_inv,
            X,
            lambda X, labels: self._features(block, X, labels),
            labels,
            groups,
            self.chunk_size,
            known,
        )

    # The bound

    def elbo(self) -> tf.Tensor:
        """Titsias' lower bound on the log evidence of the paper's targets, [].

        Where one noise is shared, this is GPflow's ``SGPR`` on those targets with kernel scale² k.
        """
        return self._log_evidence()

    def _log_evidence(self) -> tf.Tensor:
        blocks = self._output_blocks
        known = self._known_statistics() if self._has_rows_elsewhere else [None] * len(blocks)
        return self._bound(
            [
                self._statistics(b, self._whitening(b), statistics)
                for b, statistics in zip(blocks, known, strict=True)
            ]
        )

    def _bound(self, statistics: Sequence[GroupStatistics]) -> tf.Tensor:
        """The bound that follows from sums over any rows, one for each block of outputs."""
        blocks = self._output_blocks
        bounds = [
            collapsed_bound(s, self._table(b), self._noise(b))
            for b, s in zip(blocks, statistics, strict=True)
        ]
        return self._in_paper_units(tf.add_n(bounds), tf.reduce_sum(statistics[0].count))

    # The posterior

    def _posteriors(self, differentiable: bool = False) -> list[WhitenedPosterior]:
        """q(whitened u) of each block; eagerly, the statistics are kept while they stay valid."""
        posteriors, kept = [], []
        for block, statistics in zip(self._output_blocks, self._known_statistics(), strict=True):
            L_inv = self._whitening(block)
            kept.append(self._statistics(block, L_inv, statistics))
            posteriors.append(
                whitened_posterior(
                    L_inv, kept[-1], self._table(block), self._noise(block), differentiable
                )
            )
        if tf.executing_eagerly() and not self._has_rows_elsewhere:
            self._kept = KeptStatistics(kept, self._fingerprint())
        return posteriors

    def _fingerprint(self) -> tuple[list[Any], list[Any]]:
        """All that the statistics depend on beside the rows: objects, and their values."""
        parts = [self.kernel, self.inducing_variable, self.mean_function]
        parts += [self.code] if self._labels.shape.rank == 2 else []  # soft labels are coded with λ
        values = [variable.numpy() for part in parts for variable in part.variables]
        nested = [module for part in parts for module in part.submodules]
        parts += [module for module in nested if isinstance(module, Module)]
        values += [getattr(part, name, None) for part in parts for name in _PLAIN_ATTRIBUTES]
        return parts, [*values, np.array(default_jitter()), np.array(default_float() == np.float64)]

    def _known_statistics(self) -> Sequence[GroupStatistics | None]:
        """For each block the statistics, where they are kept and may be used, or None."""
        if tf.executing_eagerly() or self._has_rows_elsewhere:
            with tf.init_scope():
                kept = self._kept_statistics()
            if kept is not None:
                return kept
        return [None] * len(self._output_blocks)

    def _kept_statistics(self) -> list[GroupStatistics] | None:
        """The kept statistics, or None if there are none or a parameter has changed since.

        :raises ValueError: if a parameter has changed and some rows are held elsewhere.
        """
        if self._kept is None:
            return None
        (old_parts, old_values), (parts, values) = self._kept.fingerprint, self._fingerprint()
        same = (
            [len(parts), len(values)] == [len(old_parts), len(old_values)]
            and all(map(operator.is_, old_parts, parts))
            and all(map(np.array_equal, old_values, values))
        )
        if not same and self._kept.elsewhere:
            raise ValueError(
                "The kernel, the inducing inputs or the mean function (or, with soft labels, the "
                "smoothing) have changed since the statistics of rows held elsewhere were adopted. "
                "Adopt new ones: gpflow_ilr.distributed.share_statistics(model, strategy)."
            )
        return self._kept.statistics if same else None

    @property
    def _has_rows_elsewhere(self) -> bool:
        return self._kept is not None and self._kept.elsewhere

    def compute_qu(self) -> MeanAndVariance:
        """Mean [M, P] and covariance [P, M, M] of q(u), in the paper's units."""
        means, covs = [], []
        for q in self._posteriors():
            L_u = triangular_inverse(q.L_inv)
            means.append(tf.matmul(L_u, q.mean))
            cov = q.covariance(tf.transpose(L_u))
            covs.append(tf.repeat(cov, q.mean.shape[1] // cov.shape[0], axis=0))
        scale = self.code.scale
        return scale * tf.concat(means, axis=1), scale**2 * tf.concat(covs, axis=0)

    def _precompute(self) -> list[PrecomputedValue]:
        return [
            PrecomputedValue(value, (False,) * value.shape.rank)
            for q in self._posteriors()
            for value in q
        ]

    def _conditional(
        self, cache: Sequence[tf.Tensor], Xnew: tf.Tensor, full_cov: bool
    ) -> MeanAndVariance:
        """With a = L_u⁻¹ k_u(x*): mean aᵀ B⁻¹ b and variance k** − aᵀa + aᵀ B⁻¹ a."""
        means, variances = [], []
        for i, block in enumerate(self._output_blocks):
            q = WhitenedPosterior(*cache[4 * i : 4 * i + 4])
            K = cross_covariance(inducing_covariance(block.inducing, block.kernel, Xnew))
            A = tf.matmul(q.L_inv, K)
            means.append(tf.matmul(A, q.mean, transpose_a=True))
            residual = prior_covariance(block.kernel, Xnew, full_cov) - squared_norms(
                A[..., None, :, :], full_cov
            )
            if full_cov:
                variances.append(residual + q.covariance(A))
            else:
                variances.append(tf.maximum(residual, 0.0) + q.variance(A))
        return tf.concat(means, axis=-1), tf.concat(variances, axis=-3 if full_cov else -1)

    # Leave-one-out

    def _loo_rows(
        self, block: OutputBlock, q: WhitenedPosterior, X: tf.Tensor, labels: tf.Tensor
    ) -> MeanAndVariance:
        A = tf.matmul(q.L_inv, inducing_covariance(block.inducing, block.kernel, X))
        residual = block.kernel(X, full_cov=False) - tf.reduce_sum(tf.square(A), axis=0)
        targets = tf.matmul(self.code.features(labels), block.columns(self.code.targets))
        V = self._noise(block)
        offset = self._mean_columns(X, block)
        mean, variance = leave_one_out(
            tf.matmul(A, q.mean, transpose_a=True),
            q.variance(A),
            targets if offset is None else targets - offset,
            tf.gather(V, labels) if self.code.depends_on_class else V,
            tf.maximum(residual, 0.0)[:, None],
        )
        return mean if offset is None else mean + offset, variance

    def _loo(self, rows: tf.Tensor | None = None) -> MeanAndVariance:
        rows = tf.range(self.num_data) if rows is None else rows
        blocks, posteriors = self._output_blocks, self._posteriors()

        def predict(rows: tf.Tensor) -> MeanAndVariance:
            X, labels = tf.gather(self.data[0], rows), tf.gather(self._labels, rows)
            predictions = [
                self._loo_rows(b, q, X, labels) for b, q in zip(blocks, posteriors, strict=True)
            ]
            means, variances = zip(*predictions, strict=True)
            return tf.concat(means, axis=1), tf.concat(variances, axis=1)

        mean, variance = map_rows(predict, [rows], self._loo_chunk(posteriors))
        return mean, variance

    def loo_log_density(self) -> tf.Tensor:
        """Σ_n log p(y_n | all other rows), inducing inputs kept, in closed form, []."""
        blocks, posteriors = self._output_blocks, self._posteriors(differentiable=True)

        def log_density(
            tensors: Sequence[tf.Tensor], start: tf.Tensor, stop: tf.Tensor
        ) -> tf.Tensor:
            X, labels = self.data[0][start:stop], self._labels[start:stop]
            predictions = [
                self._loo_rows(b, WhitenedPosterior(*tensors[4 * i : 4 * i + 4]), X, labels)
                for i, b in enumerate(blocks)
            ]
            means, variances = zip(*predictions, strict=True)
            return self._label_log_density(
                tf.concat(means, axis=1), tf.concat(variances, axis=1), labels
            )

        tensors = [tensor for q in posteriors for tensor in q]
        return sum_rows(log_density, tensors, self.num_data, self._loo_chunk(posteriors))

    def _loo_chunk(self, posteriors: Sequence[WhitenedPosterior]) -> int:
        size = sum(q.L_inv.shape[0] * (1 + q.rotation.shape[0]) for q in posteriors)
        return self.chunk_size or default_chunk(size, self.num_data)
