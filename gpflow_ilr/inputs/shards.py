"""Rows that are read batch by batch, because all of them would not fit in memory.

Arrays and memory maps are cut, ``tf.data`` datasets rebatched, shards on disk (.npz, TFRecord) read
one after the other. Whatever the source, all batches but the last have the same number of rows, and
reading can begin at any of them: a pass that was interrupted continues where it stopped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["Parse", "batches_of", "row_batches"]

Parse = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""Maps one serialised record, a string, to a row x [D] and its label, [] or [K]."""

Batches = Callable[[int], Iterator[tuple[Any, Any]]]
"""Maps the number of a batch to that batch (X, y) and all that follow."""


def row_batches(
    dataset: Any,
    batch_size: int,
    num_columns: int,
    num_soft_classes: int | None = None,
    parse: Parse | None = None,
) -> Batches:
    """A function that reads batches of ``batch_size`` rows, from any of them on, in a fixed order.

    :param dataset: a ``tf.data.Dataset`` of pairs (X, y), batches or single rows; a pair (X, y) of
        arrays, which may be memory maps; or the path of a shard, or a list of paths. A file that ends
        in .npz has arrays ``X`` and ``y``. All others are TFRecord files (compressed, if they end in
        .gz) of ``tf.train.Example`` with a float list ``X`` and a label ``y``: an int64, or, if labels
        are soft, a float list.
    :param batch_size: rows of a batch; the last may have fewer.
    :param num_columns: D.
    :param num_soft_classes: K where labels are soft, else None.
    :param parse: reads a record of TFRecord files that have another layout.
    :raises TypeError: if the dataset is of another kind.
    :raises ValueError: if its elements, or the files, are not as they should be.
    """
    if isinstance(dataset, tf.data.Dataset):
        return _of_dataset(dataset, batch_size)
    paths = [dataset] if isinstance(dataset, (str, os.PathLike)) else dataset
    if isinstance(paths, Sequence) and paths and all(map(_is_path, paths)):
        return _of_files([Path(p) for p in paths], batch_size, num_columns, num_soft_classes, parse)
    if isinstance(dataset, (tuple, list)) and len(dataset) == 2:
        return _of_arrays(dataset[0], dataset[1], batch_size)
    raise TypeError(
        "dataset must be a tf.data.Dataset of pairs (X, y), a pair of arrays (X, y), or the paths of "
        f".npz or TFRecord files, but is a {type(dataset).__name__}. For a generator use "
        "tf.data.Dataset.from_generator, which can be read again after an interruption."
    )


def batches_of(pieces: Iterator[tuple[Any, Any]], batch_size: int) -> Iterator[tuple[Any, Any]]:
    """Pieces of any lengths, cut and joined to batches; the last may be shorter.

    :param pieces: arrays X [n, D] and y with as many rows.
    :param batch_size: rows of a batch.
    """
    parts: list[tuple[Any, Any]] = []
    missing = batch_size
    for X, y in pieces:
        start = 0
        while start < len(X):
            stop = start + missing
            parts.append((X[start:stop], y[start:stop]))
            missing -= len(parts[-1][0])
            start = stop
            if not missing:
                yield _joined(parts)
                parts, missing = [], batch_size
    if parts:
        yield _joined(parts)


def _joined(parts: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    if len(parts) == 1:
        return parts[0]
    X, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return X, y


def _is_path(entry: Any) -> bool:
    return isinstance(entry, (str, os.PathLike))


def _of_dataset(dataset: tf.data.Dataset, batch_size: int) -> Batches:
    spec = dataset.element_spec
    rank = getattr(tf.nest.flatten(spec)[0], "shape", tf.TensorShape(None)).rank
    if not isinstance(spec, tuple) or len(spec) != 2 or rank not in (1, 2):
        raise ValueError(
            "The elements of dataset must be pairs (X, y) of batches X [n, D] or of rows [D], but are "
            f"{spec}. Use dataset.map, or set the shapes with tf.ensure_shape."
        )
    batches = dataset.batch(batch_size) if rank == 1 else dataset.rebatch(batch_size)

    def read(start: int) -> Iterator[tuple[Any, Any]]:
        yield from batches.skip(start).prefetch(1)

    return read


def _of_arrays(X: Any, y: Any, batch_size: int) -> Batches:
    _check_lengths(X, y, "dataset")

    def read(start: int) -> Iterator[tuple[Any, Any]]:
        for row in range(start * batch_size, len(X), batch_size):
            yield X[row : row + batch_size], y[row : row + batch_size]

    return read


def _of_files(
    paths: Sequence[Path],
    batch_size: int,
    num_columns: int,
    num_soft_classes: int | None,
    parse: Parse | None,
) -> Batches:
    missing = next((path for path in paths if not path.is_file()), None)
    if missing is not None:
        raise ValueError(
            f"dataset has {os.fspath(missing)!r}, which is no file. Pass the files of a folder as "
            "sorted(Path(folder).iterdir())."
        )
    if len({path.suffix == ".npz" for path in paths}) > 1:
        raise ValueError("dataset must have either .npz or TFRecord files, but has both.")
    if paths[0].suffix == ".npz":
        return lambda start: batches_of(_npz_pieces(paths, start * batch_size), batch_size)
    compressed = {path.suffix == ".gz" for path in paths}
    if len(compressed) > 1:
        raise ValueError("TFRecord files must all be compressed (.gz), or none, but some are.")
    records = tf.data.TFRecordDataset(
        [os.fspath(path) for path in paths], "GZIP" if compressed.pop() else None
    )
    if parse is not None:
        return _of_dataset(records.map(parse), batch_size)
    label = ([], tf.int64) if num_soft_classes is None else ([num_soft_classes], tf.float32)
    layout = {
        "X": tf.io.FixedLenFeature([num_columns], tf.float32),
        "y": tf.io.FixedLenFeature(*label),
    }

    def read_examples(serialised: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        example = tf.io.parse_example(serialised, layout)
        return example["X"], example["y"]

    return _of_dataset(records.batch(batch_size).map(read_examples), batch_size)


def _npz_pieces(paths: Sequence[Path], skip: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """What the files hold after the first ``skip`` rows; files before that are not read whole."""
    for path in paths:
        with np.load(path) as arrays:
            if not {"X", "y"} <= set(arrays.files):
                raise ValueError(
                    f"{os.fspath(path)!r} must hold arrays X and y, but holds {arrays.files}. Write "
                    "shards with np.savez(path, X=X, y=y)."
                )
            y = arrays["y"]
            if skip < len(y):
                X = arrays["X"]
                _check_lengths(X, y, os.fspath(path))
                yield X[skip:], y[skip:]
            skip = max(0, skip - len(y))


def _check_lengths(X: Any, y: Any, name: str) -> None:
    if len(X) != len(y):
        raise ValueError(
            f"Every row of X needs one label, but X has {len(X)} rows and y has {len(y)} in {name}."
        )
