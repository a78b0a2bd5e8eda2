"""Batches of one size from arrays, datasets and files, read from any of them on."""

from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.inputs.shards import batches_of, row_batches

X = np.arange(46.0).reshape(23, 2).astype(np.float32)
Y = np.arange(23) % 3
SOFT = np.random.default_rng(0).dirichlet(np.ones(3), size=23).astype(np.float32)


def write_records(path, rows, labels=Y, compression=None):
    def feature(values):
        if np.issubdtype(np.asarray(values).dtype, np.integer):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=np.ravel(values)))
        return tf.train.Feature(float_list=tf.train.FloatList(value=np.ravel(values)))

    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for i in rows:
            features = tf.train.Features(feature={"X": feature(X[i]), "y": feature(labels[i])})
            writer.write(tf.train.Example(features=features).SerializeToString())
    return path


def shards(folder):
    """Two .npz files, the second of which begins within the second batch."""
    paths = [folder / "0.npz", folder / "1.npz"]
    np.savez(paths[0], X=X[:9], y=Y[:9])
    np.savez(paths[1], X=X[9:], y=Y[9:])
    return paths


def memory_map(folder):
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r"), Y


def uneven(folder):
    """A dataset whose batches have sizes that only reading tells, one of them zero."""
    edges = [0, 4, 4, 13, 23]
    batches = [(X[a:b], Y[a:b]) for a, b in pairwise(edges)]
    spec = tf.TensorSpec([None, 2], tf.float32), tf.TensorSpec([None], tf.int64)
    return tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=spec)


SOURCES = {
    "arrays": lambda folder: (X, Y),
    "memory map": memory_map,
    "rows": lambda folder: tf.data.Dataset.from_tensor_slices((X, Y)),
    "batches": lambda folder: tf.data.Dataset.from_tensor_slices((X, Y)).batch(4),
    "uneven batches": uneven,
    "npz": shards,
    "names": lambda folder: [str(path) for path in shards(folder)],
    "records": lambda folder: [
        write_records(folder / "a", range(9)),
        write_records(folder / "b", range(9, 23)),
    ],
    "compressed": lambda folder: write_records(folder / "a.gz", range(23), compression="GZIP"),
}


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_has_the_same_batches(source, start, tmp_path):
    read = row_batches(SOURCES[source](tmp_path), 8, num_columns=2)
    for _ in range(2):  # and again at every reading
        batches = list(read(start))
        assert [len(x) for x, _ in batches] == [8, 8, 7][start:]
        np.testing.assert_array_equal(np.concatenate([x for x, _ in batches]), X[8 * start :])
        np.testing.assert_array_equal(np.concatenate([y for _, y in batches]), Y[8 * start :])


def test_records_may_have_soft_labels_or_another_layout(tmp_path):
    path = write_records(tmp_path / "soft", range(23), SOFT)
    batches = list(row_batches(path, 8, 2, num_soft_classes=3)(0))
    np.testing.assert_array_equal(np.concatenate([y for _, y in batches]), SOFT)

    def parse(record):
        layout = {"X": tf.io.FixedLenFeature([2], tf.float32)}
        x = tf.io.parse_single_example(record, layout)["X"]
        return 2.0 * x, tf.cast(x[0], tf.int64)

    batches = list(row_batches(path, 8, 2, parse=parse)(1))
    np.testing.assert_array_equal(np.concatenate([x for x, _ in batches]), 2 * X[8:])


def test_files_before_the_first_batch_are_not_read_whole(tmp_path):
    paths = shards(tmp_path)
    np.savez(paths[0], X="never read", y=Y[:9])
    (last, _) = list(row_batches(paths, 8, 2)(2))[-1]
    np.testing.assert_array_equal(last, X[16:])


def test_pieces_are_cut_and_joined():
    pieces = [(X[:1], Y[:1]), (X[1:1], Y[1:1]), (X[1:12], Y[1:12]), (X[12:], Y[12:])]
    batches = list(batches_of(iter(pieces), 5))
    assert [len(y) for _, y in batches] == [5, 5, 5, 5, 3]
    np.testing.assert_array_equal(np.concatenate([x for x, _ in batches]), X)


@pytest.mark.parametrize(
    ("dataset", "error", "pattern"),
    [
        (((x, x) for x in X), TypeError, "generator. For a generator use"),
        (np.ones(3), TypeError, "but is a ndarray"),
        ([], TypeError, "but is a list"),
        ((X, Y[:-1]), ValueError, "X has 23 rows and y has 22"),
        (tf.data.Dataset.from_tensor_slices(X), ValueError, r"pairs \(X, y\)"),
        (tf.data.Dataset.from_tensor_slices((X[:, 0], Y)), ValueError, r"of rows \[D\]"),
    ],
)
def test_other_datasets_are_refused(dataset, error, pattern):
    with pytest.raises(error, match=pattern):
        row_batches(dataset, 8, num_columns=2)


def test_files_that_do_not_fit_are_refused(tmp_path):
    paths = shards(tmp_path)
    records = [write_records(tmp_path / "a", [0]), write_records(tmp_path / "b.gz", [0])]
    np.savez(tmp_path / "names.npz", inputs=X, y=Y)
    np.savez(tmp_path / "lengths.npz", X=X, y=Y[:-1])
    for dataset, pattern in (
        ([*paths, tmp_path / "missing.npz"], "missing.npz', which is no file"),
        (tmp_path, "which is no file"),
        ([paths[0], records[0]], "either .npz or TFRecord files"),
        (records, "must all be compressed"),
        (
            tmp_path / "names.npz",
            r"names.npz' must hold arrays X and y, but holds \['inputs', 'y'\]",
        ),
        (tmp_path / "lengths.npz", "X has 23 rows and y has 22 in .*lengths.npz"),
    ):
        with pytest.raises(ValueError, match=pattern):
            list(row_batches(dataset, 8, num_columns=2)(0))


@pytest.mark.parametrize("ending", [".npz", ".tfrecord", ".gz"])
@pytest.mark.parametrize("damage", ["cut", "foreign", "changed"])
def test_damaged_files_are_named(ending, damage, tmp_path):
    path = tmp_path / f"shard{ending}"
    if ending == ".npz":
        np.savez(path, X=X, y=Y)
    else:
        write_records(path, range(23), compression="GZIP" if ending == ".gz" else None)
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    damaged = {"cut": content[: 2 * len(content) // 3], "foreign": b"text" * 99, "changed": content}
    path.write_bytes(bytes(damaged[damage]))
    with pytest.raises(
        ValueError, match=rf"shard{ending}' .*cut short, damaged or no .* Write it again"
    ):
        list(row_batches(path, 8, 2)(0))
