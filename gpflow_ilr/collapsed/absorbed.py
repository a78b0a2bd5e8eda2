"""What a pass over a stream of rows has gathered so far, in memory that does not grow.

The sums of a collapsed model are all that its posterior needs; a uniform sample of the rows goes with
them, for what needs rows (leave-one-out). Each row draws a random key, and those with the smallest keys
are kept. Keys depend on the number of the batch alone, so an interrupted pass, continued from a
checkpoint, ends with the same bits.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_ilr.collapsed.kept import are_close
from gpflow_ilr.collapsed.statistics import GroupStatistics
from gpflow_ilr.inputs.archives import NO_CHECKPOINT, read_arrays, refused, write_arrays
from gpflow_ilr.inputs.rows import LabelledRows

__all__ = ["Absorbed", "Mark", "RowSample"]

_FORMAT = "gpflow_ilr absorb 2"


@dataclass(frozen=True)
class RowSample:
    """A uniform sample of the rows seen so far, in their order.

    :param X: [n, D].
    :param labels: [n] or [n, K].
    :param weights: [n].
    :param keys: [n], one uniform number for each row.
    """

    X: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    keys: np.ndarray

    @classmethod
    def of(cls, rows: LabelledRows, num_rows: int) -> RowSample:
        """A sample that exists: its keys are the smallest of as many as there are rows.

        :param rows: the sample.
        :param num_rows: number of rows that it is a sample of.
        """
        # The n smallest of N uniform numbers are distributed as S_1/S_{N+1}, …, S_n/S_{N+1} for sums S
        # of standard exponential numbers.
        rng = np.random.default_rng(num_rows)
        sums = np.cumsum(rng.exponential(size=len(rows)))
        keys = sums / (sums[-1] + rng.gamma(1 + num_rows - len(rows)))
        return cls(*_arrays(rows), rng.permutation(keys))

    @classmethod
    def empty(cls, rows: LabelledRows) -> RowSample:
        """No rows, of the kind of some.

        :param rows: any rows.
        """
        return cls(*_arrays(rows.part(0, 0)), np.zeros(0))

    @property
    def labelled_rows(self) -> LabelledRows:
        """The sample, as a model takes it."""
        weights = None if np.all(self.weights == 1.0) else tf.constant(self.weights)
        return LabelledRows(tf.constant(self.X), tf.constant(self.labels), weights)

    def with_batch(self, rows: LabelledRows, number: int, size: int) -> RowSample:
        """The sample of the rows seen so far and of those of a batch.

        :param rows: the batch.
        :param number: number of the batch.
        :param size: rows of the sample, at most.
        """
        keys = np.random.default_rng([0, number]).random(len(rows))
        new = np.flatnonzero(keys < self.keys.max()) if len(self.keys) == size else slice(None)
        joined = [
            np.concatenate([old, batch[new]])
            for old, batch in zip(self.columns(), (*_arrays(rows), keys), strict=True)
        ]
        chosen = np.sort(np.argsort(joined[-1], kind="stable")[:size])
        return RowSample(*(array[chosen] for array in joined))

    def columns(self) -> tuple[np.ndarray, ...]:
        """X, labels, weights and keys: what the constructor takes."""
        return self.X, self.labels, self.weights, self.keys


@dataclass(frozen=True)
class Mark:
    """What tells one pass from another, where it stopped.

    :param settings: how it was asked for.
    :param last_batch: a digest of the last batch.
    :param model: what the model's parts compute at rows of the last batch.
    """

    settings: str
    last_batch: str
    model: list[np.ndarray]

    def difference(self, present: Mark) -> str | None:
        """What the present pass has of another kind, or None.

        :param present: its mark at the same batch.
        """
        if self.settings != present.settings:
            return f"of a pass with {self.settings} (now {present.settings})"
        if self.last_batch != present.last_batch:
            return "of another dataset, or of one that has another order at every reading"
        if len(self.model) != len(present.model) or not all(
            map(are_close, self.model, present.model)
        ):
            return "of another model, or of other hyperparameters"
        return None


@dataclass(frozen=True)
class Absorbed:
    """Sums over the rows of some batches and a sample of them.

    :param statistics: sums, one for each span of outputs, in float64.
    :param sample: some of the rows.
    :param num_batches: how many batches have been taken in.
    :param num_rows: how many rows they had.
    """

    statistics: list[GroupStatistics]
    sample: RowSample
    num_batches: int = 0
    num_rows: int = 0

    def with_batch(
        self, statistics: list[GroupStatistics], rows: LabelledRows, sample_size: int
    ) -> Absorbed:
        """What there is after one more batch.

        :param statistics: the sums over its rows.
        :param rows: the batch.
        :param sample_size: rows of the sample, at most.
        """
        if self.statistics:
            statistics = [a + b for a, b in zip(self.statistics, statistics, strict=True)]
        sample = self.sample.with_batch(rows, self.num_batches, sample_size)
        return Absorbed(statistics, sample, self.num_batches + 1, self.num_rows + len(rows))

    def save(self, path: str | os.PathLike[str], mark: Mark) -> None:
        """Write a checkpoint, atomically: a crash leaves the old file or the new one.

        :param path: the file.
        :param mark: what tells the pass from others.
        """
        arrays: dict[str, Any] = {
            "format": _FORMAT,
            "counts": [self.num_batches, self.num_rows],
            "pass": [mark.settings, mark.last_batch],
        }
        sample = self.sample.columns()
        sums = [value for statistics in self.statistics for value in statistics]
        for name, values in (("sample", sample), ("model", mark.model), ("sum", sums)):
            arrays |= {f"{name}_{i}": np.asarray(value) for i, value in enumerate(values)}
        write_arrays(path, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> tuple[Absorbed, Mark]:
        """Read a checkpoint, and the mark that was written with it.

        :param path: the file.
        :raises ValueError: if the file is no such checkpoint.
        """
        try:
            return cls._from_arrays(read_arrays(path))
        except NO_CHECKPOINT as error:
            raise refused(path, "absorb", error) from error

    @classmethod
    def _from_arrays(cls, arrays: dict[str, np.ndarray]) -> tuple[Absorbed, Mark]:
        found = str(arrays.get("format", "another"))
        if found != _FORMAT:
            raise ValueError(f"its format is {found}")
        sample, model, sums = (_numbered(arrays, name) for name in ("sample", "model", "sum"))
        width = len(GroupStatistics._fields)
        statistics = [
            GroupStatistics(*map(tf.constant, sums[i : i + width]))
            for i in range(0, len(sums), width)
        ]
        absorbed = cls(statistics, RowSample(*sample), *map(int, arrays["counts"]))
        settings, last_batch = map(str, arrays["pass"])
        return absorbed, Mark(settings, last_batch, model)


def _arrays(rows: LabelledRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return rows.X.numpy(), rows.labels.numpy(), rows.known_weights.numpy()


def _numbered(arrays: dict[str, np.ndarray], name: str) -> list[np.ndarray]:
    """Arrays ``name_0``, ``name_1`` and so on."""
    count = sum(key.startswith(f"{name}_") for key in arrays)
    return [arrays[f"{name}_{i}"] for i in range(count)]
