"""What a pass has gathered: a uniform sample beside the sums, and a file that survives a crash."""

import dataclasses
from contextlib import suppress

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.collapsed.absorbed import Absorbed, Mark, RowSample
from gpflow_ilr.collapsed.statistics import GroupStatistics
from gpflow_ilr.inputs import LabelledRows

MARK = Mark("batch_size=8", "digest", [np.array(1e-6), np.arange(3.0)])


def rows(start: int, stop: int) -> LabelledRows:
    numbers = tf.range(start, stop)
    return LabelledRows(tf.cast(numbers, tf.float64)[:, None], numbers)


EMPTY = RowSample.empty(rows(0, 1))


def sums(value: float) -> list[GroupStatistics]:
    return [GroupStatistics(*(tf.fill([1, 2], tf.constant(value, tf.float64)) for _ in range(5)))]


def test_a_sample_has_all_rows_until_it_is_full_and_keeps_their_order():
    sample = EMPTY.with_batch(rows(0, 5), 0, size=8)
    np.testing.assert_array_equal(sample.labels, np.arange(5))
    sample = sample.with_batch(rows(5, 30), 1, size=8)
    assert len(sample.labels) == 8
    assert list(sample.labels) == sorted(sample.labels)
    np.testing.assert_array_equal(sample.X[:, 0], sample.labels)


@pytest.mark.parametrize("as_own_rows", [False, True])
def test_every_row_is_as_likely_to_be_in_the_sample(as_own_rows):
    """A sample of 200 in 1,000 rows, gathered in batches, or taken on from an earlier pass."""
    counts = np.zeros(10)
    for run in range(50):
        sample = EMPTY
        if as_own_rows:  # a sample of 60 in 300 rows
            kept = np.sort(np.random.default_rng(run).choice(300, 60, replace=False))
            sample = RowSample.of(rows(0, 300).take(kept), 300 + run)
        first = 300 if as_own_rows else 0
        for i, start in enumerate(range(first, 1000, 100)):
            sample = sample.with_batch(rows(start, start + 100), 1000 * run + i, size=200)
        counts += np.bincount(sample.labels // 100, minlength=10)
    # Binomial: 50 · 20 of 50 · 100 rows of each hundred, with a standard deviation of 28.
    if as_own_rows:  # of which only 60 were there
        assert abs(np.sum(counts[:3]) - 3000 * (60 / 300) / 0.2) < 150
    else:
        assert np.max(abs(counts - 1000)) < 5 * 28


def test_sums_add_up_and_come_back_from_a_file(tmp_path):
    state = Absorbed([], EMPTY)
    for i in range(3):
        state = state.with_batch(sums(i + 1.0), rows(5 * i, 5 * i + 5), sample_size=8)
    assert (state.num_batches, state.num_rows) == (3, 15)
    np.testing.assert_array_equal(state.statistics[0].second, np.full((1, 2), 6.0))
    state.save(tmp_path / "state", MARK)
    loaded, mark = Absorbed.load(tmp_path / "state")
    assert mark.difference(MARK) is None
    assert (loaded.num_batches, loaded.num_rows) == (3, 15)
    for a, b in zip(loaded.statistics[0], state.statistics[0], strict=True):
        np.testing.assert_array_equal(a, b)
    for field in dataclasses.fields(RowSample):
        ours, theirs = (getattr(s.sample, field.name) for s in (loaded, state))
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(file)
    state = Absorbed([], EMPTY).with_batch(sums(1.0), rows(0, 3), sample_size=8)
    state.save(link, MARK)
    assert link.is_symlink()

    def crash(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(np.lib.format, "write_array", crash)
    with pytest.raises(KeyboardInterrupt):
        state.with_batch(sums(1.0), rows(3, 6), sample_size=8).save(link, MARK)
    assert Absorbed.load(file)[0].num_rows == 3


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 cut off"])
def test_other_files_are_refused(content, tmp_path):
    path = tmp_path / "state"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="was not written by absorb"):
        Absorbed.load(path)
    np.savez(tmp_path / "other.npz", X=np.ones(2))
    with pytest.raises(ValueError, match=r"was not written by absorb \(its format is another\)"):
        Absorbed.load(tmp_path / "other.npz")


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        ({"settings": "batch_size=9"}, r"batch_size=8 \(now batch_size=9\)"),
        ({"last_batch": "other"}, "another dataset"),
        ({"model": [np.array(1e-6), np.array([0.0, 1.0, 2.0 + 1e-8])]}, "other hyperparameters"),
        ({"model": [np.array(1e-6)]}, "another model"),
    ],
)
def test_marks_tell_passes_apart(change, pattern):
    assert MARK.difference(dataclasses.replace(MARK)) is None
    with pytest.raises(ValueError, match=pattern):
        raise ValueError(MARK.difference(dataclasses.replace(MARK, **change)))


@pytest.fixture(name="checkpoint")
def _checkpoint(tmp_path):
    state = Absorbed([], EMPTY).with_batch(sums(1.0), rows(0, 3), sample_size=8)
    state.save(tmp_path / "checkpoint", MARK)
    return tmp_path / "checkpoint"


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_checkpoint_that_was_cut_short_is_refused(share, checkpoint):
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match="was not written by absorb"):
        Absorbed.load(checkpoint)


def test_changed_bytes_of_a_checkpoint_are_refused_or_change_nothing(checkpoint):
    content = checkpoint.read_bytes()
    whole, _ = Absorbed.load(checkpoint)
    for place in np.random.default_rng(0).integers(0, len(content), 60):
        changed = bytearray(content)
        changed[place] ^= 255
        checkpoint.write_bytes(bytes(changed))
        with suppress(ValueError):  # else it is a byte of padding, or of a date
            found, _ = Absorbed.load(checkpoint)
            np.testing.assert_array_equal(found.statistics[0].second, whole.statistics[0].second)


@pytest.mark.parametrize(
    "arrays",
    [
        {"X": np.ones(3)},
        {"format": "gpflow_ilr absorb 2"},
        {"format": "gpflow_ilr absorb 2", "counts": [1], "pass": ["a"], "sum_0": np.ones(3)},
        {"format": "gpflow_ilr absorb 9"},
        {"format": np.array([None], object)},
    ],
)
def test_other_archives_are_no_checkpoints(arrays, tmp_path):
    np.savez(tmp_path / "other.npz", **arrays)
    with pytest.raises(ValueError, match="was not written by absorb"):
        Absorbed.load(tmp_path / "other.npz")
