"""Adding and removing rows of a collapsed model at the cost of those rows alone.

The data enter a collapsed model as sums over rows, so a posterior follows a change of the data by
adding or subtracting the sums of the changed rows; hyperparameters and inducing inputs stay.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, OutputData

from gpflow_ilr.collapsed.statistics import GroupStatistics
from gpflow_ilr.inputs.rows import as_column, check_data
from gpflow_ilr.models.collapsed import CollapsedClassifier, KeptStatistics

__all__ = ["StreamingRows"]


class StreamingRows(CollapsedClassifier):
    """A collapsed classifier whose rows may come and go."""

    def update(self, X_new: InputData, y_new: OutputData) -> None:
        """Add rows. The posterior then equals that of a model built on all rows.

        Posteriors taken earlier keep the old rows; call ``posterior()`` again, or
        ``update_cache()`` on them.

        :param X_new: [n, D].
        :param y_new: labels, hard or soft as the model's own.
        """
        X, Y, labels = self._check_rows(X_new, y_new)
        kept = self._merge(GroupStatistics.__add__, X, labels)
        old_X, old_Y = self.data
        self._set_data(
            tf.concat([old_X, X], 0),
            tf.concat([old_Y, Y], 0),
            tf.concat([self._labels, labels], 0),
        )
        self._kept = kept

    def forget(self, X_old: InputData, y_old: OutputData) -> None:
        """Remove rows. The posterior then equals that of a model built on the remaining rows.

        :param X_old: [n, D], rows of the training data; one that occurs several times is removed as
            often as it is listed.
        :param y_old: their labels, hard or soft as the model's own.
        :raises ValueError: if a row is not in the training data, or none would remain.
        """
        X, _, labels = self._check_rows(X_old, y_old)
        gone = _positions(_keys(self.data[0], self._labels), _keys(X, labels))
        if len(gone) == self.num_data:
            raise ValueError("forget would remove all rows, and a model needs at least one.")
        kept = self._merge(GroupStatistics.__sub__, X, labels)
        remaining = np.delete(np.arange(self.num_data), gone)
        self._set_data(*(tf.gather(x, remaining) for x in (*self.data, self._labels)))
        self._kept = kept

    def adopt(self, statistics: Sequence[GroupStatistics]) -> None:
        """Take sums over rows, of which some are held elsewhere, in place of the model's own sums.

        The model then predicts, is calibrated (on its own rows), updated and saved as one that was
        built on all rows, but cannot be trained: a change of the kernel, the inducing inputs or the
        mean function makes it ask for new sums.

        :param statistics: sums over all rows, the model's own among them, one for each block of
            outputs, computed with the model's present parameters.
        """
        self._kept = KeptStatistics(list(statistics), self._fingerprint(), elsewhere=True)

    def _check_rows(self, X: InputData, y: OutputData) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        num_columns = self.data[0].shape[1]
        X, _, labels = check_data((X, y), self.code.num_classes, num_columns)
        if self._labels.shape.rank == 2 and labels.shape.rank == 1:  # one-hot rows among soft ones
            labels = tf.one_hot(labels, self.code.num_classes, dtype=self._labels.dtype)
        if labels.shape.rank != self._labels.shape.rank:
            raise ValueError(
                "Soft labels cannot join hard ones: build a new model with all labels as rows "
                f"[N, {self.code.num_classes}]."
            )
        return X, as_column(labels, self.data[1].dtype), labels

    def _merge(
        self,
        combine: Callable[[GroupStatistics, GroupStatistics], GroupStatistics],
        X: tf.Tensor,
        labels: tf.Tensor,
    ) -> KeptStatistics | None:
        """The kept statistics with those of other rows added or subtracted, if any are kept."""
        kept = self._kept_statistics()
        if kept is None:
            return None
        rows = (X, labels, self._row_groups(labels))
        merged = [
            combine(old, self._statistics(block, self._whitening(block), rows=rows))
            for block, old in zip(self._output_blocks, kept, strict=True)
        ]
        return KeptStatistics(merged, self._fingerprint(), self._has_rows_elsewhere)


def _keys(X: tf.Tensor, labels: tf.Tensor) -> np.ndarray:
    """Each row of inputs and labels as one value that can be compared and sorted, [N]."""
    columns = tf.reshape(tf.cast(labels, X.dtype), [X.shape[0], -1])
    # Adding zero turns -0.0 into 0.0, which is equal but has other bytes.
    rows = np.ascontiguousarray(tf.concat([X, columns], 1).numpy() + 0.0)
    return rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]


def _positions(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where the wanted rows are, a different place for each repetition."""
    order = np.argsort(keys, kind="stable")
    wanted_order = np.argsort(wanted, kind="stable")
    sorted_wanted = wanted[wanted_order]
    # The i-th repetition of a row takes the i-th of its places.
    first = np.searchsorted(sorted_wanted, sorted_wanted, side="left")
    place = np.searchsorted(keys[order], sorted_wanted, side="left")
    place += np.arange(len(wanted)) - first
    found = place < len(keys)
    found[found] = keys[order][place[found]] == sorted_wanted[found]
    if not np.all(found):
        row = int(np.min(wanted_order[~found]))
        raise ValueError(
            f"Row {row} of the rows to forget is not in the training data (or is listed more often "
            "than it occurs there). Pass rows exactly as they were given, with their labels."
        )
    return order[place]
