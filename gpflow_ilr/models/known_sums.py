"""The sums over rows that a collapsed model knows, and which of their rows it has.

Sums are kept between calls for as long as kernel, inducing variables and mean function compute the same
(:mod:`gpflow_ilr.collapsed.kept`). They may be of rows that the model does not have: rows that it
absorbed, or rows of other workers. Each function here is a method of the model by one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from gpflow_ilr.collapsed.kept import NUM_PROBES, Elsewhere, KeptStatistics
from gpflow_ilr.collapsed.span import CollapsedSpan
from gpflow_ilr.collapsed.statistics import GroupStatistics
from gpflow_ilr.inputs.counts import evenly_spaced
from gpflow_ilr.linalg.jitter import relative_jitter
from gpflow_ilr.models import streaming

if TYPE_CHECKING:
    from gpflow_ilr.models.collapsed import CollapsedClassifier

__all__ = ["adopt", "change_classes", "keep", "known_statistics", "own_statistics", "probes"]


def known_statistics(self: CollapsedClassifier) -> list[GroupStatistics] | None:
    """The sums over the training rows that are kept, or None if there are none that are valid.

    :raises ValueError: if a parameter has changed, and some rows are held elsewhere.
    """
    kept = self._kept
    if kept is None or kept.rows is not self.rows:
        return None
    return kept.statistics if kept.valid(_own_probes(self)) else None


def own_statistics(self: CollapsedClassifier) -> list[GroupStatistics]:
    """Sums over the rows of this model alone, those that it absorbed among them.

    :raises ValueError: if those have been added to the sums of other workers.
    """
    if Elsewhere.SEEN_ONCE in self.elsewhere and Elsewhere.SHARED in self.elsewhere:
        raise ValueError(
            "The sums over the rows that this model absorbed have been added to those of other "
            "workers, and cannot be told apart. Call model.absorb(dataset) again first."
        )
    known = self.known_statistics() if Elsewhere.SEEN_ONCE in self.elsewhere else None
    return self.statistics(self.rows) if known is None else known


def keep(
    self: CollapsedClassifier,
    statistics: Sequence[GroupStatistics],
    elsewhere: Elsewhere | None = None,
) -> None:
    """Keep sums over the training rows for as long as the present parameters hold.

    :param statistics: one for each span of outputs.
    :param elsewhere: which of their rows are not the model's; None for as before.
    """
    if elsewhere is None:  # also after a change of rows
        elsewhere = Elsewhere.NOWHERE if self._kept is None else self._kept.elsewhere
    self._kept = KeptStatistics(list(statistics), self.rows, _own_probes(self), elsewhere)


def adopt(self: CollapsedClassifier, statistics: Sequence[GroupStatistics]) -> None:
    """Take sums over rows, of which some are held elsewhere, in place of the model's own sums.

    The model then predicts, is calibrated (on its own rows), updated and saved as one that was
    built on all rows, but cannot be trained: a change of the kernel, the inducing inputs or the
    mean function makes it ask for new sums.

    :param statistics: sums over all rows, the model's own among them, one for each span of
        outputs, computed with the model's present parameters.
    """
    self.keep(statistics, self.elsewhere | Elsewhere.SHARED)


def change_classes(self: CollapsedClassifier, places: Sequence[int], num_classes: int) -> None:
    """Go on with other classes, and with the sums that are kept, without a visit to any row.

    :param places: for each present class, the number that it gets; −1 for one that has no rows.
    :param num_classes: how many classes there are then.
    :raises ValueError: if sums that cannot be computed again do not tell what is needed.
    """
    known, merges = self.known_statistics(), len(set(places)) < len(places)
    if self.has_soft_labels and merges:  # targets of sums are not sums of targets
        if self.elsewhere:
            raise ValueError(
                "Soft labels cannot be merged where some rows of the model are not here (it absorbed "
                "them, or other workers have them). Merge their columns, and absorb them again."
            )
        known = None
    num_outputs = self.num_latent_gps
    streaming.change_classes(self, places, num_classes)
    if known is None:
        return
    (sums,) = known  # of one span: others are refused
    classes = tf.one_hot(places, num_classes, dtype=sums.count.dtype)
    by_class = self.code.depends_on_class
    blocks = [tf.ones([1, 1], classes.dtype) if by_class else classes]
    if sums.first.shape[-1] > blocks[0].shape[0]:  # a mean function has one column for each output
        copies = tf.one_hot(
            tf.zeros([self.num_latent_gps], tf.int32), num_outputs, dtype=classes.dtype
        )
        blocks.append(tf.transpose(copies))
    features = tf.linalg.LinearOperatorBlockDiag(
        [tf.linalg.LinearOperatorFullMatrix(b) for b in blocks]
    )
    sums = sums.with_features(features.to_dense())
    self.keep([sums.with_classes(classes) if by_class else sums])


def probes(self: CollapsedClassifier, X: tf.Tensor, labels: tf.Tensor) -> list[np.ndarray]:
    """What the sums depend on beside the rows: kernels, mean function, features, by values.

    :param X: [n, D], some rows.
    :param labels: their labels.
    """
    values = [tf.constant(relative_jitter())]
    for span in self.output_spans:
        part = CollapsedSpan(span, self.code, self.mean_function, self.chunk_size)
        values += [part.covariance(), part.covariance(X), part.features(X, labels)]
        values.append(span.kernel(X, full_cov=False))
    return [value.numpy() for value in values]


def _own_probes(model: CollapsedClassifier) -> list[np.ndarray]:
    some = model.labelled_rows.take(evenly_spaced(model.num_data, NUM_PROBES))
    return model.probes(some.X, some.labels)
