"""Sufficient statistics of the collapsed (Titsias) bound, summed over the rows of each group.

With L_u L_uᵀ = K_uu, whitened features a_n = L_u⁻¹ k_u(x_n) and label features e_n (so that the
pseudo-target of row n is e_n T), the data enter the collapsed bound only through five sums over the
rows of each group of rows that share their noise:

    n = Σ w,   κ = Σ w k(x_n, x_n),   S = Σ w a_n e_nᵀ,   G = Σ w a_n a_nᵀ,   Q = Σ w e_n e_nᵀ.

The weight w of a row is one, or that of the data: the row then counts as w rows. There is one group
for each class when the noise depends on the class, and a single group otherwise.
Because they are sums they can be computed in chunks of rows, merged (``a + b``), taken back
(``a - b``), updated with new rows and all-reduced over replicas. The features are whitened before
they are summed: sums of K_uf K_fu lose five digits in float64 and everything in float32.

The gradient is written by hand, so that memory does not grow with the number of rows and value and
gradient together need less than three matrix products of size M·N·M. See :func:`group_statistics`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from gpflow_ilr.inputs.rows import LabelledRows
from gpflow_ilr.linalg.covariances import inducing_covariance
from gpflow_ilr.linalg.inverse_factors import gram_of_strips, lower_product_strips
from gpflow_ilr.linalg.row_chunks import stack_over

__all__ = [
    "GroupStatistics",
    "RowGroups",
    "Rows",
    "chunk_of_sums",
    "default_chunk",
    "group_statistics",
    "without_gradient",
]

# Elements of the [M, rows] matrix of a chunk. Matrices of this size stay in a core's cache between
# the kernel's elementwise operations, and are large enough for products to run at full speed.
_CHUNK_ELEMENTS = 2**19


def default_chunk(elements_per_row: int, num_rows: int) -> int:
    """Rows of a chunk whose matrices fit the processor's cache; all chunks have about that many.

    :param elements_per_row: numbers that each row needs.
    :param num_rows: number of rows.
    """
    largest = max(256, _CHUNK_ELEMENTS // max(1, elements_per_row))
    num_chunks = max(1, -(-num_rows // largest))
    return max(1, -(-num_rows // num_chunks))


def chunk_of_sums(num_inducing: int, num_rows: int) -> int:
    """Rows of a chunk of :func:`group_statistics`.

    :param num_inducing: M.
    :param num_rows: number of rows.
    """
    # With many inducing inputs the sum G itself does not fit the cache: chunks of fewer rows than M/2
    # would spend their time on reading and writing it.
    return max(default_chunk(num_inducing, num_rows), min(num_inducing // 2, num_rows))


class GroupStatistics(NamedTuple):
    """The five sums, with a leading axis over groups."""

    count: tf.Tensor
    """n, [G]."""
    kernel_diagonal: tf.Tensor
    """κ, [G]."""
    first: tf.Tensor
    """S, [G, M, C]."""
    second: tf.Tensor
    """G, [G, M, M]."""
    labels: tf.Tensor
    """Q, [G, C, C]."""

    def __add__(self, other: "GroupStatistics") -> "GroupStatistics":  # type: ignore[override]
        """Statistics of the rows of both."""
        return GroupStatistics(*(a + b for a, b in zip(self, other, strict=True)))

    def __sub__(self, other: "GroupStatistics") -> "GroupStatistics":
        """Statistics without the rows of ``other``."""
        return GroupStatistics(*(a - b for a, b in zip(self, other, strict=True)))

    def with_classes(self, places: tf.Tensor) -> "GroupStatistics":
        """Statistics of the same rows with other classes, where the groups are the classes.

        :param places: [K, K'], one where class k becomes class k'.
        """
        return GroupStatistics(*(tf.einsum("g...,gh->h...", x, places) for x in self))

    def with_features(self, places: tf.Tensor) -> "GroupStatistics":
        """Statistics of the same rows with label features e_n P instead of e_n.

        :param places: P, [C, C'].
        """
        labels = tf.einsum("gcd,ce,df->gef", self.labels, places, places)
        return self._replace(first=tf.matmul(self.first, places), labels=labels)


class RowGroups:
    """Which rows belong to which group, and the schedule of chunks that visits them.

    :param classes: [N] class indices when the groups are the classes, None for a single group.
    :param num_rows: N.
    :param num_groups: number of groups (classes without rows have empty groups).
    """

    def __init__(self, classes: np.ndarray | None, num_rows: int, num_groups: int) -> None:
        self.num_groups = num_groups
        if classes is None:
            self.order: tf.Tensor | None = None
            counts = np.array([num_rows])
        else:
            self.order = tf.constant(np.argsort(classes, kind="stable"), tf.int32)
            counts = np.bincount(classes, minlength=num_groups)
        self.offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    @classmethod
    def in_graph(cls, order: tf.Tensor | None, offsets: tf.Tensor, num_groups: int) -> "RowGroups":
        """Groups of rows whose number only a running graph knows.

        :param order: the rows, group by group; None for a single group.
        :param offsets: where the groups begin and end, [num_groups + 1].
        :param num_groups: number of groups.
        """
        groups = cls(None, 0, num_groups)
        groups.order, groups.offsets = order, offsets
        return groups


@dataclass(frozen=True)
class Rows:
    """Rows of data, and the groups that they form.

    :param rows: the rows.
    :param groups: their groups.
    """

    rows: LabelledRows
    groups: RowGroups

    def part(self, start: tf.Tensor, stop: tf.Tensor) -> LabelledRows:
        """Rows number ``start`` to ``stop`` in the order of the groups.

        :param start: the first.
        :param stop: the one after the last.
        """
        order = self.groups.order
        return self.rows.part(start, stop) if order is None else self.rows.take(order[start:stop])

    def counts(self) -> tf.Tensor:
        """Σ w_n over each group, [G]."""
        offsets, weights = self.groups.offsets, self.rows.weights
        if weights is None:
            return tf.cast(offsets[1:] - offsets[:-1], default_float())
        order = self.groups.order
        sums = tf.cumsum(weights if order is None else tf.gather(weights, order))
        sums = tf.concat([tf.zeros([1], sums.dtype), sums], axis=0)
        return tf.gather(sums, offsets[1:]) - tf.gather(sums, offsets[:-1])


def group_statistics(
    kernel: Kernel,
    inducing_variable: InducingVariables,
    L_inv: tf.Tensor,
    rows: Rows,
    features: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    chunk_size: int | None = None,
    known: GroupStatistics | None = None,
    precisions: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> GroupStatistics:
    """The five sums over the rows of each group, with a gradient that recomputes chunk by chunk.

    With adjoints dG, dS, dQ, dκ of the statistics, A = L_u⁻¹ K_uf and E the rows e_n,

        dA Aᵀ = (dG + dGᵀ) G + dS Sᵀ            (no work over rows)
        dK_uf = L_u⁻ᵀ (dG + dGᵀ) L_u⁻¹ K_uf + L_u⁻ᵀ dS Eᵀ
        dE    = Aᵀ dS + E (dQ + dQᵀ)

    so the backward pass is one product of size M·N·M beside the two of the forward pass. The
    kernel's and the mean function's own gradients stay with autodiff, chunk by chunk.

    :param kernel: any single-output kernel.
    :param inducing_variable: M inducing inputs.
    :param L_inv: [M, M], L_u⁻¹ for L_u the Cholesky factor of K_uu.
    :param rows: the rows, and their partition into groups.
    :param features: maps rows of X and their labels to label features e_n, [rows, C].
    :param chunk_size: rows that are in memory at a time; None for a size that fits the cache.
    :param known: the result, if it is known already: rows are then visited for the gradient only.
    :param precisions: maps labels to further weights [rows], which may be trained; the count is
        without them.
    """
    groups = rows.groups
    num_inducing = L_inv.shape[-1]
    chunk = chunk_size or chunk_of_sums(num_inducing, int(groups.offsets[-1]))

    def covariances(start: tf.Tensor, stop: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        part = rows.part(start, stop)
        K = inducing_covariance(inducing_variable, kernel, part.X)
        diagonal, E = kernel(part.X, full_cov=False), features(part.X, part.labels)
        weights = part.weights
        if precisions is not None:
            more = precisions(part.labels)
            weights = more if weights is None else weights * more
        if weights is None:
            return K, diagonal, E
        root = tf.sqrt(weights)  # products of two have the weight
        return K * root, diagonal * weights, E * root[:, None]

    @tf.custom_gradient
    def statistics(L_inv: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Callable[..., Any]]:
        def add_chunk(_: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> list[tf.Tensor]:
            K, diagonal, E = covariances(start, stop)
            A = lower_product_strips(L_inv, K)
            return [
                tf.reduce_sum(diagonal),
                tf.concat([tf.matmul(strip, E) for strip in A], axis=0),
                gram_of_strips(A),
                tf.matmul(E, E, transpose_a=True),
            ]

        if known is None:
            none = rows.part(0, 0)
            C = features(none.X, none.labels).shape[-1]
            shapes = [[], [num_inducing, C], [num_inducing, num_inducing], [C, C]]
            kappa, S, G, Q = _per_group(groups, chunk, shapes, add_chunk)
        else:
            covariances(tf.constant(0), tf.constant(0))  # shows TensorFlow the variables
            _, kappa, S, G, Q = known

        def gradient(
            d_kappa: tf.Tensor,
            dS: tf.Tensor,
            dG: tf.Tensor,
            dQ: tf.Tensor,
            variables: Sequence[tf.Variable] = (),
        ) -> tuple[tf.Tensor, list[tf.Tensor]]:
            dG2 = dG + tf.linalg.matrix_transpose(dG)
            dQ2 = dQ + tf.linalg.matrix_transpose(dQ)
            # A = L_inv K, hence dL_inv = dA Kᵀ = (dA Aᵀ) L_inv⁻ᵀ, without any work over rows.
            dG2_below, G_below = (tf.reshape(x, [-1, num_inducing]) for x in (dG2, G))
            dAA = tf.matmul(dG2_below, G_below, transpose_a=True)  # each dG2 is symmetric
            dAA += tf.einsum("gmc,gnc->mn", dS, S)
            dL_inv = tf.linalg.triangular_solve(L_inv, tf.transpose(dAA), lower=True)
            R = tf.matmul(L_inv[None], dS, transpose_a=True)
            right = tf.reshape(tf.matmul(dG2_below, L_inv), tf.shape(dG2))
            P = tf.matmul(L_inv[None], right, transpose_a=True)

            def add_gradients(g: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> list[tf.Tensor]:
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(variables)
                    K, diagonal, E = covariances(start, stop)
                dK = tf.matmul(P[g], K) + tf.matmul(R[g], E, transpose_b=True)
                dE = tf.matmul(K, R[g], transpose_a=True) + tf.matmul(E, dQ2[g])
                d_diagonal = tf.fill(tf.shape(diagonal), d_kappa[g])
                gradients = tape.gradient(
                    [K, diagonal, E],
                    variables,
                    output_gradients=[dK, d_diagonal, dE],
                    unconnected_gradients=tf.UnconnectedGradients.ZERO,
                )
                return [tf.convert_to_tensor(gradient) for gradient in gradients]

            if not variables:
                return tf.transpose(dL_inv), []
            sums = _per_group(groups, chunk, [v.shape for v in variables], add_gradients)
            return tf.transpose(dL_inv), [tf.reduce_sum(total, axis=0) for total in sums]

        return (kappa, S, G, Q), gradient

    kappa, S, G, Q = statistics(L_inv)
    return GroupStatistics(rows.counts(), kappa, S, G, Q)


def without_gradient(
    statistics: GroupStatistics, parameters: Sequence[tf.Tensor]
) -> GroupStatistics:
    """The statistics themselves, refusing a gradient that would miss rows held elsewhere.

    :param statistics: sums over rows, some of which cannot be visited.
    :param parameters: what the sums depend on.
    """

    @tf.custom_gradient
    def constant(*_: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Callable[..., Any]]:
        def gradient(*_: tf.Tensor) -> None:
            raise ValueError(
                "Some rows of this model are not here (it absorbed them, or other workers have them), "
                "and its gradient would miss them. Train before model.absorb(dataset), or on a sample: "
                "set model.data, train, and absorb again. With the rows of several workers train with "
                "gpflow_ilr.distributed.training_loss_closure(model, strategy). For gradients of "
                "predictions use model.posterior()."
            )

        return tuple(tf.identity(s) for s in statistics), gradient

    return GroupStatistics(*constant(*parameters))


def _per_group(
    groups: RowGroups,
    chunk: int,
    shapes: Sequence[Any],
    visit: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], list[tf.Tensor]],
) -> list[tf.Tensor]:
    """Sum ``visit(group, start, stop)`` over the chunks of each group; stack over the groups."""
    known = isinstance(groups.offsets, np.ndarray)
    if known and groups.num_groups == 1 and groups.offsets[-1] <= chunk:  # no loops to trace
        ends = tf.constant(0), tf.constant(groups.offsets[-1])
        return [x[None] for x in visit(tf.constant(0), *ends)]
    zeros = [tf.zeros(shape, default_float()) for shape in shapes]
    offsets = tf.convert_to_tensor(groups.offsets)

    def visit_group(group: tf.Tensor) -> list[tf.Tensor]:
        stop = offsets[group + 1]

        def step(start: tf.Tensor, *sums: tf.Tensor) -> list[tf.Tensor]:
            end = tf.minimum(start + chunk, stop)
            return [end, *(a + b for a, b in zip(sums, visit(group, start, end), strict=True))]

        return tf.while_loop(
            lambda start, *_: start < stop, step, [offsets[group], *zeros], parallel_iterations=1
        )[1:]

    return stack_over(visit_group, groups.num_groups, zeros)
