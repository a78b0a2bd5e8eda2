"""Rows that are read batch by batch, because all of them would not fit in memory.

Arrays and memory maps are cut, ``tf.data`` datasets rebatched, shards on disk (.npz, TFRecord) read
one after the other. Whatever the source, all batches but the last have the same number of rows, and
reading can begin at any of them: a pass that was interrupted continues where it stopped.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["Parse", "batches_of", "row_batches"]

Parse = Callable[[tf.Tensor], tuple[tf.Tensor, ...]]
"""Maps one serialised record, a string, to a row x [D], its label, [] or [K], and a weight, if any."""

Batch = tuple[Any, ...]
"""(X, y), or (X, y, weights)."""

Batches = Callable[[int], Iterator[Batch]]
"""Maps the number of a batch to that batch and all that follow."""


def row_batches(
    dataset: Any,
    batch_size: int,
    num_columns: int,
    num_soft_classes: int | None = None,
    parse: Parse | None = None,
) -> Batches:
    """A function that reads batches of ``batch_size`` rows, from any of them on, in a fixed order.

    :param dataset: a ``tf.data.Dataset`` of (X, y) or (X, y, weights), batches or single rows; a tuple
        of such arrays, which may be memory maps; or the path of a shard, or a list of paths. A file
        that ends in .npz has arrays ``X`` and ``y``, and may have ``sample_weight``. All others are
        TFRecord files (compressed, if they end in .gz) of ``tf.train.Example`` with a float list ``X``
        and a label ``y``: an int64, or, if labels are soft, a float list.
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
    if isinstance(dataset, (tuple, list)) and len(dataset) in (2, 3):
        return _of_arrays(tuple(dataset), batch_size)
    raise TypeError(
        "dataset must be a tf.data.Dataset of pairs (X, y), a pair of arrays (X, y), or the paths of "
        f".npz or TFRecord files, but is a {type(dataset).__name__}. For a generator use "
        "tf.data.Dataset.from_generator, which can be read again after an interruption."
    )


def batches_of(pieces: Iterator[Batch], batch_size: int) -> Iterator[Batch]:
    """Pieces of any lengths, cut and joined to batches; the last may be shorter.

    :param pieces: arrays X [n, D], y and, if there are some, weights, with as many rows.
    :param batch_size: rows of a batch.
    """
    parts: list[Batch] = []
    missing = batch_size
    for piece in pieces:
        start = 0
        while start < len(piece[0]):
            stop = start + missing
            parts.append(tuple(array[start:stop] for array in piece))
            missing -= len(parts[-1][0])
            start = stop
            if not missing:
                yield _joined(parts)
                parts, missing = [], batch_size
    if parts:
        yield _joined(parts)


def _joined(parts: list[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def _is_path(entry: Any) -> bool:
    return isinstance(entry, (str, os.PathLike))


def _of_dataset(dataset: tf.data.Dataset, batch_size: int) -> Batches:
    spec = dataset.element_spec
    rank = getattr(tf.nest.flatten(spec)[0], "shape", tf.TensorShape(None)).rank
    if not isinstance(spec, tuple) or len(spec) not in (2, 3) or rank not in (1, 2):
        raise ValueError(
            "The elements of dataset must be pairs (X, y), or (X, y, weights), of batches X [n, D] or "
            f"of rows [D], but are {spec}. Use dataset.map, or set the shapes with tf.ensure_shape."
        )
    batches = dataset.batch(batch_size) if rank == 1 else dataset.rebatch(batch_size)

    def read(start: int) -> Iterator[Batch]:
        yield from batches.skip(start).prefetch(1)

    return read


def _of_arrays(arrays: Batch, batch_size: int) -> Batches:
    _check_lengths(arrays, "dataset")

    def read(start: int) -> Iterator[Batch]:
        for row in range(start * batch_size, len(arrays[0]), batch_size):
            yield tuple(array[row : row + batch_size] for array in arrays)

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
        return _whole(_of_dataset(records.map(parse), batch_size), paths)
    label = ([], tf.int64) if num_soft_classes is None else ([num_soft_classes], tf.float32)
    layout = {
        "X": tf.io.FixedLenFeature([num_columns], tf.float32),
        "y": tf.io.FixedLenFeature(*label),
    }

    def read_examples(serialised: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        example = tf.io.parse_example(serialised, layout)
        return example["X"], example["y"]

    examples = records.batch(batch_size).map(read_examples)
    return _whole(_of_dataset(examples, batch_size), paths)


def _npz_pieces(paths: Sequence[Path], skip: int) -> Iterator[Batch]:
    """What the files hold after the first ``skip`` rows; files before that are not read whole."""
    for path in paths:
        with _opened(path) as arrays:
            if not {"X", "y"} <= set(arrays.files):
                raise ValueError(
                    f"{os.fspath(path)!r} must hold arrays X and y, but holds {arrays.files}. Write "
                    "shards with np.savez(path, X=X, y=y)."
                )
            y = arrays["y"]
            if skip < len(y):
                weights = [arrays[name] for name in ("sample_weight",) if name in arrays.files]
                piece = (arrays["X"], y, *weights)
                _check_lengths(piece, os.fspath(path))
                yield tuple(array[skip:] for array in piece)
            skip = max(0, skip - len(y))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A file of arrays; one that is damaged is named."""
    damaged = f"{os.fspath(path)!r} is cut short, damaged or no .npz file. Write it again."
    if not zipfile.is_zipfile(path):
        raise ValueError(damaged)
    try:
        with np.load(path) as arrays:
            yield arrays
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(damaged) from error


def _whole(batches: Batches, paths: Sequence[Path]) -> Batches:
    """Batches of files of records; those that are damaged are named."""

    def read(start: int) -> Iterator[Batch]:
        try:
            yield from batches(start)
        except tf.errors.DataLossError as error:
            raise ValueError(
                f"One of the {len(paths)} files from {os.fspath(paths[0])!r} on is cut short, damaged "
                f"or no TFRecord file ({error.message}). Write it again."
            ) from error

    return read


def _check_lengths(arrays: Batch, name: str) -> None:
    lengths = [len(array) for array in arrays]
    if lengths[0] != lengths[1]:
        raise ValueError(
            f"Every row of X needs one label, but X has {lengths[0]} rows and y has {lengths[1]} in "
            f"{name}."
        )
    if len(set(lengths)) > 1:
        raise ValueError(
            f"Every row of X needs one weight, but X has {lengths[0]} rows and sample_weight has "
            f"{lengths[2]} in {name}."
        )
