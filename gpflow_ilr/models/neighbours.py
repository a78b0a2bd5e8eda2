"""Nearest-neighbour classifiers: exact regression of each row on the training rows nearest to it.

For a new row with its m nearest training rows S, in the kernel's own metric, weights
w = (K_SS + V)⁻¹ k_S* give the mean Σ_s w_s t_s and the variance k** − wᵀ k_S*: what an exact model of
those rows alone would say. The cost of a row does not grow with N beyond the search, and all outputs
that share their noise share the weights. Leave-one-out is the same formula without the row itself, so
the leave-one-out density of some rows is the training objective, and calibration is as everywhere.
(GPnn, Allison et al., 2023, is the regression case.) With all rows as neighbours this is the exact
model.

Weak where labels are noisy everywhere and m is small. Predictions jump where neighbours change, so
there are no gradients across such changes, and no covariances between rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, OutputData
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction

from gpflow_ilr.calibration.criterion import LeftOutAtNoise, Marginals
from gpflow_ilr.codes import LabelCode
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.inputs.labels import as_labels, label_rows, membership
from gpflow_ilr.inputs.rows import LabelledData, LabelledRows, as_inputs
from gpflow_ilr.inputs.weights import weights_of_batch
from gpflow_ilr.linalg.local_regression import LocalPrediction, local_weights, nested_weights
from gpflow_ilr.linalg.nearest import kernel_metric
from gpflow_ilr.linalg.neighbour_index import NeighbourIndex
from gpflow_ilr.linalg.row_chunks import map_rows, sum_rows
from gpflow_ilr.models.conjugate import ConjugateClassifier
from gpflow_ilr.models.local_span import LocalSpan, Weigh

__all__ = ["COPY_TOLERANCE", "STALE_METRIC", "NeighboursClassifier"]

_CHUNK_ELEMENTS = 2**23

COPY_TOLERANCE = 2.0**-22
"""Inputs that differ by less, relatively, are the same: a pipeline may have rounded X to float32."""

STALE_METRIC = 0.1
"""In training, neighbours are sought again once a column's weight in the metric has changed by so large
a share of the largest weight."""


def _all_neighbours(K: tf.Tensor, V: tf.Tensor) -> list[LocalPrediction]:
    """Every neighbour is weighed."""
    return [local_weights(K, V)]


class NeighboursClassifier(ConjugateClassifier):
    """GP regression of each row on its nearest rows, for any label code: O(m³) a row, for any N.

    :param data: X [N, D] and labels.
    :param kernel: kernel of f/scale.
    :param code: the label code.
    :param num_neighbours: m; all rows where there are no more.
    :param mean_function: mean of f/scale.
    :param nodes: node rule of the predictive probabilities.
    """

    def __init__(
        self,
        data: LabelledData,
        kernel: Kernel,
        code: LabelCode,
        num_neighbours: int = 64,
        mean_function: MeanFunction | None = None,
        nodes: NodeRule | None = None,
    ) -> None:
        super().__init__(data, kernel, code, mean_function, "loo", nodes)
        self.num_neighbours = num_neighbours
        self._index = NeighbourIndex()

    @property
    def num_neighbours(self) -> int:
        """m; may be set at any time, or chosen by ``calibrate(neighbours=True)``."""
        return self._num_neighbours

    @num_neighbours.setter
    def num_neighbours(self, value: int) -> None:
        self._num_neighbours = check_count("num_neighbours", value)

    # The neighbours

    def _metrics(self) -> list[tuple[int, tf.Tensor]]:
        """The number of the first output, and the metric, of each span."""
        return [(s.start, kernel_metric(s.kernel, self.num_columns)) for s in self.output_spans]

    def _nearest(
        self, X: tf.Tensor, Xnew: tf.Tensor, count: int, stale: float = 0.0
    ) -> list[tf.Tensor]:
        """The rows of X nearest to each of some others, [n, count or N], for each span."""
        return [
            self._index.nearest(key, X, metric, Xnew, count, stale)
            for key, metric in self._metrics()
        ]

    def _others(self, rows: LabelledRows, count: int, stale: float = 0.0) -> list[tf.Tensor]:
        """The training rows nearest to some rows, but for one copy of each, [n, m], for each span.

        Which copy of a training row is left out does not matter: those with its label (and weight) are
        its equals.
        """
        X, own = rows.X, self.data[0]
        # A batch of either may be certain.
        soft = 2 in (rows.labels.shape.rank, self.labels.shape.rank)
        weighted = not (rows.weights is None or self.labelled_rows.weights is None)
        labels, own_labels = (
            self._marks(some, soft, weighted) for some in (rows, self.labelled_rows)
        )

        def others(X: tf.Tensor, labels: tf.Tensor, S: tf.Tensor) -> list[tf.Tensor]:
            near = _are_copies(tf.gather(own, S), X)
            same = _are_copies(tf.gather(own_labels, S), labels)
            copies = tf.cast(tf.logical_and(near, same), tf.int32)
            # The first copy, or else the last row, which is the farthest, is passed over.
            last = S.shape[1] - 1
            found = tf.reduce_any(copies > 0, axis=1)
            skipped = tf.where(found, tf.argmax(copies, axis=1, output_type=tf.int32), last)
            places = tf.range(last)[None]
            places += tf.cast(places >= skipped[:, None], tf.int32)
            return [tf.gather(S, places, batch_dims=1)]

        columns = self.num_columns + own_labels.shape[1]
        chunk = max(1, _CHUNK_ELEMENTS // ((count + 1) * columns))
        candidates = self._nearest(own, X, count + 1, stale)
        return [map_rows(others, [X, labels, S], chunk)[0] for S in candidates]

    def _marks(self, rows: LabelledRows, soft: bool, weighted: bool) -> tf.Tensor:
        """What equal rows have in common beside X: columns of labels and weights, [n, ·]."""
        labels, dtype = rows.labels, rows.X.dtype
        marks = membership(labels, self.code.num_classes) if soft else labels[:, None]
        marks = tf.cast(marks, dtype)
        return tf.concat([marks, rows.known_weights[:, None]], axis=1) if weighted else marks

    def has_stale_neighbours(self) -> bool:
        """Whether training has changed the metric so much that neighbours are to be sought again."""
        return any(self._index.is_stale(*metric, STALE_METRIC) for metric in self._metrics())

    # Predictions

    def _local(
        self, rows: LabelledRows, Xnew: tf.Tensor, neighbours: Sequence[tf.Tensor], weigh: Weigh
    ) -> list[tf.Tensor]:
        """Mean [n, P], without mean function, and variance [n, 1 or P], for each of ``weigh``'s.

        :param rows: among which the neighbours are.
        :param Xnew: [n, D].
        :param neighbours: numbers of rows, [n, m], for each span.
        :param weigh: how neighbours are weighed.
        """
        parts = [
            LocalSpan(span, self.code, self.mean_function).predict(Xnew, rows.take(S), weigh)
            for span, S in zip(self.output_spans, neighbours, strict=True)
        ]
        return [tf.concat(results, axis=1) for results in zip(*parts, strict=True)]

    def _in_chunks(
        self, rows: LabelledRows, Xnew: tf.Tensor, neighbours: Sequence[tf.Tensor], weigh: Weigh
    ) -> list[tf.Tensor]:
        """:meth:`_local` in memory that does not grow with the number of new rows."""
        tensors, chunk = [Xnew, *neighbours], self._chunk(neighbours[0].shape[1])

        def local(Xnew: tf.Tensor, *neighbours: tf.Tensor) -> list[tf.Tensor]:
            return self._local(rows, Xnew, neighbours, weigh)

        if tf.executing_eagerly() and len(Xnew) > chunk:  # many rows pay for a trace of 0.1 s
            shapes = [tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in tensors]
            traced = tf.function(local, input_signature=shapes, autograph=False)
            local = traced.get_concrete_function()  # without a warning that it is traced often
        return map_rows(local, tensors, chunk)

    def _chunk(self, count: int) -> int:
        """Rows at a time, so that memory does not grow with their number."""
        factors = self.num_latent_gps if self.code.depends_on_output else 1
        columns = factors * (count + 1) + self.num_latent_gps + self.num_columns
        return max(1, _CHUNK_ELEMENTS // ((count + 1) * columns))

    def precompute(self) -> list[tf.Tensor]:
        """The rows, labels and weights: a prediction looks for neighbours among them."""
        return self.labelled_rows.tensors

    def prediction_chunk(self, cache: Sequence[tf.Tensor]) -> int:
        """All rows: :meth:`conditional` divides them itself.

        :param cache: what :meth:`precompute` returned.
        """
        del cache
        return int(tf.int32.max)

    def conditional(
        self, cache: Sequence[tf.Tensor], Xnew: tf.Tensor, full_cov: bool
    ) -> MeanAndVariance:
        """Σ_s w_s t_s and k** − wᵀ k_S*, in the code's units.

        :param cache: what :meth:`precompute` returned.
        :param Xnew: [..., n, D].
        :param full_cov: must be False.
        """
        if full_cov:
            raise NotImplementedError(
                f"{type(self).__name__} has no covariances between rows: each has neighbours of its "
                "own. Pass full_cov=False, or use ILRGPR or ILRSGPR."
            )
        rows = LabelledRows(*(tf.convert_to_tensor(c) for c in cache))
        flat = tf.reshape(Xnew, [-1, self.num_columns])
        neighbours = self._nearest(cache[0], flat, self.num_neighbours)
        mean, variance = self._in_chunks(rows, flat, neighbours, _all_neighbours)
        leading = tf.shape(Xnew)[:-1]
        return tuple(tf.reshape(x, tf.concat([leading, x.shape[1:]], 0)) for x in (mean, variance))

    # Leave-one-out

    def _left_out(
        self, rows: LabelledRows, neighbours: Sequence[tf.Tensor], weigh: Weigh
    ) -> list[Marginals]:
        """Rows predicted from neighbours that they are not among, for each of ``weigh``'s."""
        results = self._in_chunks(self.labelled_rows, rows.X, neighbours, weigh)
        return self._marginals(rows, results)

    def _marginals(self, rows: LabelledRows, results: Sequence[tf.Tensor]) -> list[Marginals]:
        """Pairs of means, without mean function, and variances, as held-out predictions of rows."""
        offset = self.mean_function(rows.X)
        pairs = zip(results[::2], results[1::2], strict=True)
        return [Marginals.of(rows, mean + offset, variance) for mean, variance in pairs]

    def leave_one_out(self, rows: tf.Tensor | None = None) -> MeanAndVariance:
        """Leave-one-out mean and variance in the code's units.

        :param rows: which training rows; all of them if None.
        """
        some = self.labelled_rows if rows is None else self.labelled_rows.take(rows)
        neighbours = self._others(some, self.num_neighbours)
        (result,) = self._left_out(some, neighbours, _all_neighbours)
        return result.mean, result.variance

    def loo_at_counts(self, rows: tf.Tensor, counts: Sequence[int]) -> list[Marginals]:
        """Leave-one-out for several numbers of neighbours, from one factor for each row.

        :param rows: which training rows.
        :param counts: numbers of neighbours.
        """
        some = self.labelled_rows.take(rows)
        neighbours = self._others(some, max(counts))
        return self._left_out(some, neighbours, lambda K, V: nested_weights(K, V, counts))

    def loo_at_noise(self, rows: tf.Tensor) -> LeftOutAtNoise:
        """Leave-one-out as a function of the noise; several share their covariances.

        :param rows: which training rows.
        """
        some = self.labelled_rows.take(rows)
        neighbours = self._others(some, self.num_neighbours)

        def at(noises: Sequence[float]) -> list[Marginals]:
            def weigh(K: tf.Tensor, V: tf.Tensor) -> list[LocalPrediction]:
                # V is v/w at the present noise v, which all neighbours have but for their weights.
                share = V / self.code.noise_variance[0, 0]
                return [local_weights(K, tf.constant(v, V.dtype) * share) for v in noises]

            return self._left_out(some, neighbours, weigh)

        return at

    # Training

    def loo_log_density(self) -> tf.Tensor:
        """Σ_n w_n log p(y_n | neighbours of row n), []; a compiled function keeps its neighbours."""
        rows = self.labelled_rows
        return self._log_density(rows, self._training_neighbours(rows))

    def _training_neighbours(self, rows: LabelledRows) -> list[tf.Tensor]:
        """Neighbours of some rows in a metric that may be a little stale.

        Of rows that are known while a function is traced, they become constants of the function.
        """
        if tf.is_symbolic_tensor(rows.X):
            return self._others(rows, self.num_neighbours)
        with tf.init_scope():
            return self._others(rows, self.num_neighbours, STALE_METRIC)

    def _log_density(self, rows: LabelledRows, neighbours: Sequence[tf.Tensor]) -> tf.Tensor:
        """Σ w_n log p(y_n | neighbours of row n) over some rows, scaled to all rows, []."""

        def log_density(_: Sequence[tf.Tensor], start: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
            some, nearest = rows.part(start, stop), [S[start:stop] for S in neighbours]
            results = self._local(self.labelled_rows, some.X, nearest, _all_neighbours)
            return self.label_log_density(*self._marginals(some, results))

        num_rows = rows.X.shape[0] or tf.shape(rows.X)[0]
        # Gradients flow into variables alone, not into a tensor.
        nothing = tf.zeros([], default_float())
        chunk = self._chunk(neighbours[0].shape[1])
        total = sum_rows(log_density, [nothing], num_rows, chunk)
        return total * tf.cast(self.num_data, total.dtype) / tf.cast(num_rows, total.dtype)

    def _batch(self, X: InputData, y: OutputData, weights: Any = None) -> LabelledRows:
        """Rows that the caller has chosen, also inside a function that the caller compiles."""
        X, K = as_inputs(X, self.num_columns), self.code.num_classes
        if tf.is_symbolic_tensor(y):
            labels = label_rows(y[:, None] if y.shape.rank == 1 else y, K)
        else:
            labels = as_labels(y, K, num_rows=X.shape[0])
        return LabelledRows(X, labels, None if weights is None else weights_of_batch(weights, X))

    def training_loss_closure(
        self,
        data: LabelledData | Iterator[LabelledData] | None = None,
        *,
        batch_size: int | None = None,
        compile: bool = True,  # noqa: A002 - GPflow's name
    ) -> Callable[[], tf.Tensor]:
        """The loss −Σ log p(y_n | neighbours of row n), of all rows or estimated from a batch.

        Neighbours are sought again when the metric has changed (:data:`STALE_METRIC`). Inside a
        function that the caller compiles, those of all rows, or of (X, y), stay as they are;
        :func:`gpflow_ilr.training.fit` starts again with others where that is called for.

        :param data: rows to predict: (X, y[, weights]), or an iterator of batches. Training rows are
            predicted without themselves, others as they are. None for the model's own rows.
        :param batch_size: draw so many of the model's own rows anew at each call; None for all.
        :param compile: compile the loss with ``tf.function``.
        """
        if data is not None and batch_size is not None:
            raise ValueError(
                f"batch_size={batch_size!r} draws from the model's own rows: leave out data, or batch "
                "them yourself."
            )
        if batch_size is not None:
            check_count("batch_size", batch_size)

        def loss(rows: Sequence[tf.Tensor], neighbours: Sequence[tf.Tensor]) -> tf.Tensor:
            log_density = self._log_density(LabelledRows(*rows), neighbours)
            return -(log_density + self.log_prior_density())

        evaluate = tf.function(loss, autograph=False) if compile else loss

        @tf.autograph.experimental.do_not_convert
        def closure() -> tf.Tensor:
            if data is not None:
                rows = self._batch(*(next(data) if isinstance(data, Iterator) else data))
            elif batch_size is not None:
                drawn = tf.random.uniform([batch_size], maxval=self.num_data, dtype=tf.int32)
                rows = self.labelled_rows.take(drawn)
            else:
                rows = self.labelled_rows
            return evaluate(rows.tensors, self._training_neighbours(rows))

        return closure


def _are_copies(rows: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Which of some rows [n, m, D] are the other [n, D], up to rounding, [n, m]."""
    other = other[:, None]
    return tf.reduce_all(tf.abs(rows - other) <= COPY_TOLERANCE * tf.abs(other), axis=-1)
