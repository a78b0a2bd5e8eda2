"""A collapsed model that takes in more rows than fit in memory, in one pass.

The rows enter a collapsed model as sums, so a stream of them is added up batch by batch, with the
hyperparameters and inducing inputs that the model has: fit them on a sample, then absorb all rows.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from gpflow.config import default_float

from gpflow_ilr.collapsed.absorbed import Absorbed, Mark, RowSample
from gpflow_ilr.collapsed.kept import NUM_PROBES, Elsewhere
from gpflow_ilr.collapsed.span import CollapsedSpan
from gpflow_ilr.collapsed.statistics import GroupStatistics, RowGroups, Rows, chunk_of_sums
from gpflow_ilr.inputs.archives import check_checkpoint
from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.inputs.model_parts import check_float
from gpflow_ilr.inputs.rows import LabelledRows, check_data
from gpflow_ilr.inputs.shards import Parse, row_batches

if TYPE_CHECKING:
    from gpflow_ilr.models.collapsed import CollapsedClassifier

__all__ = ["Progress", "absorb", "checked_batch"]

Progress = Callable[[int, float], object]
"""Told how many rows a call has taken in so far, and in how many seconds."""

_BATCH_ROWS = 2**15
_BATCH_ELEMENTS = 2**22
_SECONDS_A_LINE = 1.0


def absorb(
    self: CollapsedClassifier,
    dataset: Any,
    *,
    include_own_rows: bool = False,
    parse: Parse | None = None,
    batch_size: int | None = None,
    sample_size: int = 4096,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    progress: bool | Progress = False,
) -> int:
    """Take in all rows of a stream, in one pass and in memory that does not grow with their number.

    The model then predicts, is calibrated, updated and saved as one that was built on the rows of the
    stream, with the hyperparameters and inducing inputs that it has. Its ``data`` are a uniform sample
    of those rows, for what needs rows: leave-one-out, and with it :meth:`calibrate`. If the sample has
    not all rows, training is refused from then on: set ``data``, train, and absorb again.

    If an error ends the pass, the model is as it was before.

    :param dataset: a ``tf.data.Dataset`` of (X, y) or (X, y, weights), batches or single rows, in an
        order that is the same at every reading; arrays (X, y) or (X, y, weights), which may be memory
        maps; or paths of .npz or TFRecord files (:func:`gpflow_ilr.inputs.shards.row_batches` has
        their layout). Labels are hard or soft as the model's own.
    :param include_own_rows: whether the rows that the model has, or has absorbed before, remain. By
        default they do not: the sample that a model was fitted on is usually part of the stream, and
        would count twice.
    :param parse: for TFRecord files of another layout: maps a serialised record to x [D] and its label.
    :param batch_size: rows that are read at a time; None for a size that takes a few megabytes.
    :param sample_size: rows of the sample.
    :param checkpoint: a file. Where the pass stopped is written to it now and then, and a later call
        with the same arguments continues from there, to the same bits, also after a crash. After the
        last row the file stays; remove it when the model has been saved.
    :param checkpoint_every: seconds between two checkpoints.
    :param progress: True for a line on stderr; or a function of the number of rows that this call has
        taken in and of the seconds. It is called once a second, and at the end.
    :returns: the number of rows of the stream whose weight is not zero.
    :raises ValueError: if a row makes no sense, named by its place in the stream; if there is none; or
        if the checkpoint is of another model, of other hyperparameters or of another dataset.
    """
    check_float(self)
    size = check_count("sample_size", sample_size)
    length = _batch_size(self.num_columns) if batch_size is None else batch_size
    length = check_count("batch_size", length)
    checkpoint = check_checkpoint(checkpoint, checkpoint_every)
    soft_classes = self.code.num_classes if self.has_soft_labels else None
    read = row_batches(dataset, length, self.num_columns, soft_classes, parse)
    own_rows = self.labelled_rows.part(0, len(self.labelled_rows) if include_own_rows else 0)
    own = f"True ({_digest(own_rows)[:8]})" if include_own_rows else "False"
    settings = f"batch_size={length}, sample_size={size}, include_own_rows={own}"
    if checkpoint is None or not os.path.exists(checkpoint):
        state, batches = _beginning(self, include_own_rows), read(0)
    else:
        state, mark = Absorbed.load(checkpoint)
        batches = read(state.num_batches - 1)
        again = next(batches, None)  # the last that was taken in
        present = Mark(settings, "", [])
        if again is not None:
            rows = checked_batch(self, again, (state.num_batches - 1) * length)
            present = _mark(self, settings, rows)
        _compare(checkpoint, mark, present)
    sums = _compiled_sums(self, length)
    show = _print_line if progress is True else progress or None
    before, started = state.num_rows, time.monotonic()
    saved = shown = started
    last = None
    for number, batch in enumerate(batches, state.num_batches):
        last = checked_batch(self, batch, number * length)
        state = state.with_batch(sums(last), last, size)
        if checkpoint is not None and time.monotonic() - saved >= checkpoint_every:
            state.save(checkpoint, _mark(self, settings, last))
            saved = time.monotonic()
        if show is not None and time.monotonic() - shown >= _SECONDS_A_LINE:
            show(state.num_rows - before, time.monotonic() - started)
            shown = time.monotonic()
    if state.num_rows == 0:
        raise ValueError("dataset must have at least one row that counts, but has none.")
    if checkpoint is not None and last is not None:
        state.save(checkpoint, _mark(self, settings, last))
    if show is not None:
        show(state.num_rows - before, time.monotonic() - started)
    if progress is True:
        print(file=sys.stderr)
    were_elsewhere = include_own_rows and bool(self.elsewhere)
    self.labelled_rows = state.sample.labelled_rows
    all_here = not were_elsewhere and state.num_rows + len(own_rows) == self.num_data
    statistics = [_cast(sums, default_float()) for sums in state.statistics]
    self.keep(statistics, Elsewhere.NOWHERE if all_here else Elsewhere.SEEN_ONCE)
    return state.num_rows


def _batch_size(num_columns: int) -> int:
    return max(1, min(_BATCH_ROWS, _BATCH_ELEMENTS // num_columns))


def _beginning(model: CollapsedClassifier, include_own_rows: bool) -> Absorbed:
    """What there is before the first row."""
    rows = model.labelled_rows
    if not include_own_rows:
        return Absorbed([], RowSample.empty(rows))
    own = [_cast(sums, tf.float64) for sums in model.own_statistics()]
    seen = round(float(tf.reduce_sum(own[0].count)))  # with weights, about so many
    return Absorbed(own, RowSample.of(rows, max(len(rows), seen)))


def _compiled_sums(
    model: CollapsedClassifier, batch_size: int
) -> Callable[[LabelledRows], list[GroupStatistics]]:
    """The model's sums over a batch of rows in float64, by a graph that serves all of them."""
    spans, whitenings = [], []
    for span in model.output_spans:
        whitenings.append(
            CollapsedSpan(span, model.code, model.mean_function, model.chunk_size).whitening()
        )
        chunk = model.chunk_size or chunk_of_sums(whitenings[-1].shape[0], batch_size)
        spans.append(CollapsedSpan(span, model.code, model.mean_function, chunk))
    by_class, num_groups = model.code.depends_on_class, model.rows.groups.num_groups

    def sums(order: tf.Tensor, offsets: tf.Tensor, *tensors: tf.Tensor) -> list[GroupStatistics]:
        groups = RowGroups.in_graph(order if by_class else None, offsets, num_groups)
        rows = Rows(LabelledRows(*tensors), groups)
        return [
            _cast(span.sums(L_inv, rows), tf.float64)
            for span, L_inv in zip(spans, whitenings, strict=True)
        ]

    @functools.cache
    def compiled(weighted: bool) -> Callable[..., list[GroupStatistics]]:
        X, labels = model.data[0], model.labels
        shapes = [([], tf.int32), ([], tf.int32), (X.shape[1:], X.dtype)]
        shapes += [(labels.shape[1:], labels.dtype)] + [([], X.dtype)] * weighted
        signature = [tf.TensorSpec([None, *shape], dtype) for shape, dtype in shapes]
        return tf.function(sums, input_signature=signature, autograph=False)

    def of_batch(rows: LabelledRows) -> list[GroupStatistics]:
        groups = model.in_groups(rows).groups
        order = groups.order if by_class else tf.zeros([0], tf.int32)
        return compiled(rows.weights is not None)(order, groups.offsets, *rows.tensors)

    return of_batch


def _cast(sums: GroupStatistics, dtype: Any) -> GroupStatistics:
    return GroupStatistics(*(tf.cast(value, dtype) for value in sums))


def checked_batch(model: CollapsedClassifier, batch: Any, first: int) -> LabelledRows:
    """Rows with labels of the kind that the model has; errors name rows of the stream.

    :param model: which takes them in.
    :param batch: (X, y), or (X, y, weights).
    :param first: number of the first row, in the stream.
    :raises TypeError: if X is no real numbers.
    :raises ValueError: if a row makes no sense, or has soft labels where the model's are hard.
    """
    num_classes = model.code.num_classes
    try:
        rows = check_data(batch, num_classes, model.num_columns, may_vanish=True)
    except (TypeError, ValueError) as error:
        sentence = re.sub(r"\b([Rr]ow) (\d+)", lambda m: f"{m[1]} {first + int(m[2])}", str(error))
        raise type(error)(
            f"In the batch of dataset that begins at row {first}: {sentence}"
        ) from error
    labels = rows.labels
    if model.has_soft_labels and labels.shape.rank == 1:  # certain rows among soft ones
        labels = tf.one_hot(labels, num_classes, dtype=model.labels.dtype)
    if labels.shape.rank != model.labels.shape.rank:
        raise ValueError(
            f"The model has hard labels, but the batch of dataset that begins at row {first} has soft "
            f"ones. Build the model with its labels as rows [N, {num_classes}]."
        )
    return LabelledRows(rows.X, labels, rows.weights)


def _mark(model: CollapsedClassifier, settings: str, rows: LabelledRows) -> Mark:
    """What tells this pass from others, at the batch of these rows."""
    probes = model.probes(rows.X[:NUM_PROBES], rows.labels[:NUM_PROBES])
    # One combination of the columns is enough: a change shows in it, and K_uu may be large.
    combined = [p if p.ndim < 2 else p @ np.cos(np.arange(p.shape[1])) for p in probes]
    return Mark(settings, _digest(rows), combined)


def _digest(rows: LabelledRows) -> str:
    return hashlib.sha256(b"".join(x.numpy().tobytes() for x in rows.tensors)).hexdigest()


def _compare(checkpoint: str | os.PathLike[str], mark: Mark, present: Mark) -> None:
    """Refuse a checkpoint that is of another pass."""
    difference = mark.difference(present)
    if difference is not None:
        raise ValueError(
            f"checkpoint={os.fspath(checkpoint)!r} is {difference}. Pass what it was written with, or "
            "remove it, to begin anew."
        )


def _print_line(num_rows: int, seconds: float) -> None:
    rate = num_rows / max(seconds, 1e-9)
    print(f"\rabsorbed {num_rows:,} rows, {rate:,.0f} a second", end="", file=sys.stderr)
