"""What neighbours say about rows, for a span of outputs that shares a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tensorflow as tf
from gpflow.mean_functions import MeanFunction

from gpflow_ilr.codes import LabelCode
from gpflow_ilr.inputs.kernels import OutputSpan
from gpflow_ilr.inputs.rows import LabelledRows
from gpflow_ilr.linalg.covariances import covariance
from gpflow_ilr.linalg.local_regression import LocalPrediction

__all__ = ["LocalSpan", "Weigh"]

Weigh = Callable[[tf.Tensor, tf.Tensor], Sequence[LocalPrediction]]
"""From joint covariances [n, 1 + m, 1 + m] and noise variances [n, U, m] to predictions."""


@dataclass(frozen=True)
class LocalSpan:
    """A span of outputs at the present parameters of a model.

    :param span: the outputs and their kernel.
    :param code: the label code.
    :param mean_function: mean of f/scale.
    """

    span: OutputSpan
    code: LabelCode
    mean_function: MeanFunction

    def predict(self, Xnew: tf.Tensor, neighbours: LabelledRows, weigh: Weigh) -> list[tf.Tensor]:
        """Mean [n, P], without mean function, and variance [n, U] for each prediction of ``weigh``.

        :param Xnew: [n, D].
        :param neighbours: of each row: X [n, m, D], labels [n, m] or [n, m, K], weights [n, m].
        :param weigh: how neighbours are weighed.
        """
        # One call with the row among its neighbours: GPflow's kernels of two batches would be the
        # covariances between all rows of both.
        K = covariance(self.span.kernel, tf.concat([Xnew[:, None], neighbours.X], axis=1))
        T = self._targets(neighbours.X, neighbours.labels)
        results = []
        for weights, variance in weigh(K, self._noise(neighbours)):
            each = "nm" if weights.shape[1] == 1 else "npm"
            w = weights[:, 0] if weights.shape[1] == 1 else weights
            results += [tf.einsum(f"{each},nmp->np", w, T[:, : w.shape[-1]]), variance]
        return results

    def _noise(self, neighbours: LabelledRows) -> tf.Tensor:
        """V/w, [n, U, m]."""
        labels, weights = neighbours.labels, neighbours.weights
        V = self.span.columns(self.code.noise_variance)
        if self.code.depends_on_class:
            V = tf.gather(V, labels)
        else:
            V = tf.broadcast_to(V, tf.concat([tf.shape(labels)[:2], tf.shape(V)[1:]], axis=0))
        return tf.linalg.matrix_transpose(V if weights is None else V / weights[..., None])

    def _targets(self, X: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Targets less the mean function, [n, m, P]."""
        T = self.span.columns(self.code.targets)
        if labels.shape.rank == 2:
            targets = tf.gather(T, labels)
        else:
            rows = self.code.features(tf.reshape(labels, [-1, labels.shape[-1]]))
            targets = tf.reshape(
                tf.matmul(rows, T), tf.concat([tf.shape(X)[:2], T.shape[1:]], axis=0)
            )
        offset = self.span.mean(self.mean_function, tf.reshape(X, [-1, X.shape[-1]]))
        return targets if offset is None else targets - tf.reshape(offset, tf.shape(targets))
