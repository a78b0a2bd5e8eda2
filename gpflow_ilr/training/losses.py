"""Training losses of models with and without rows of their own, of all rows or of minibatches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from gpflow.models.training_mixins import InternalDataTrainingLossMixin

from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.inputs.rows import LabelledData
from gpflow_ilr.models.batches import as_batch, missing_num_data
from gpflow_ilr.training.labelled_rows import labelled_rows

__all__ = ["Loss", "minibatch_loss", "training_loss"]


@dataclass(frozen=True)
class Loss:
    """A training loss.

    :param closure: its value, of the next minibatch where there are some.
    :param has_minibatches: whether it differs from call to call.
    :param fits_in_graph: whether a step may be compiled around it. Neighbours that are sought inside a
        compiled function would stay as they are, or be found by comparing all rows.
    """

    closure: Callable[[], tf.Tensor]
    has_minibatches: bool
    fits_in_graph: bool


def training_loss(
    model: Any,
    data: LabelledData | tf.data.Dataset | None,
    batch_size: int | None,
    seed: int,
    compile: bool,  # noqa: A002 - GPflow's name
) -> Loss:
    """The training loss of a model, from whichever rows there are.

    :param model: the model.
    :param data: rows (X, y[, weights]), a dataset of batches, or None for the model's own rows.
    :param batch_size: rows of a minibatch; None for all.
    :param seed: of the draws.
    :param compile: compile a loss around which a step is not compiled.
    :raises ValueError: if data are missing or too many, or the model cannot have minibatches.
    """
    name = type(model).__name__
    has_neighbours = hasattr(model, "has_stale_neighbours")
    has_rows = isinstance(model, InternalDataTrainingLossMixin)
    is_dataset = isinstance(data, tf.data.Dataset)
    if batch_size is not None:
        check_count("batch_size", batch_size)
    if (
        data is not None
        and not is_dataset
        and not (isinstance(data, (tuple, list)) and len(data) in (2, 3))
    ):
        raise ValueError(
            "data must be rows (X, y), or (X, y, weights), or a tf.data.Dataset of batches, but is of "
            f"type {type(data).__name__}. Of an iterator, pass the dataset."
        )
    if data is not None and has_rows and not has_neighbours:
        raise ValueError(f"{name} has its rows already: leave out data.")
    if data is None and not has_rows:
        more = (
            "" if batch_size is None else f", from which batch_size={batch_size!r} rows are drawn"
        )
        raise ValueError(f"{name} keeps no rows: pass data=(X, y){more}.")
    if batch_size is not None and is_dataset:
        raise ValueError(
            f"batch_size={batch_size!r} is for arrays: leave it out and batch the dataset, "
            f"data.batch({batch_size!r})."
        )
    if batch_size is not None and has_rows and not has_neighbours:
        raise ValueError(
            f"batch_size={batch_size!r} cannot be: {name} trains on all its rows at once. Leave it "
            "out, or use a model with inducing points or nearest neighbours."
        )
    if has_neighbours:
        is_batched = is_dataset or batch_size is not None
        rows = model.labelled_rows.tensors if data is None else data
        source = _batches(rows, batch_size, seed) if is_batched else data
        return Loss(model.training_loss_closure(source, compile=compile), is_batched, False)
    if data is None:
        return Loss(model.training_loss_closure(compile=False), False, True)
    if not is_dataset:
        rows = labelled_rows(model, data)
        size = len(rows[0]) if batch_size is None else batch_size
        if size < len(rows[0]):
            _check_num_data(model)
        return Loss(minibatch_loss(model, rows, size, seed), size < len(rows[0]), True)
    _check_num_data(model)
    iterator = _repeated(data)

    def of_next() -> tf.Tensor:
        return model.training_loss(as_batch(next(iterator)))

    return Loss(of_next, True, True)


def _check_num_data(model: Any) -> None:
    """GPflow's own models would take a minibatch for all rows without a word."""
    if getattr(model, "num_data", 0) is None:
        raise ValueError(missing_num_data(model, "fit gives it minibatches"))


def minibatch_loss(
    model: Any, rows: LabelledData, batch_size: int, seed: int
) -> Callable[[], tf.Tensor]:
    """The training loss of rows that are drawn anew at each call, or of all where they are few.

    :param model: the model.
    :param rows: X [N, D], labels with a last axis and, if there are some, weights [N].
    :param batch_size: how many are drawn.
    :param seed: of the draws.
    """
    draw = _draws(rows, batch_size, seed) if batch_size < len(rows[0]) else lambda: rows

    def loss() -> tf.Tensor:
        return model.training_loss(draw())

    return loss


def _draws(rows: LabelledData, batch_size: int, seed: int) -> Callable[[], LabelledData]:
    """Some of the rows, others at each call, also inside a compiled function."""
    num_rows = len(rows[0])
    generator = tf.random.Generator.from_seed(seed)

    def draw() -> LabelledData:
        drawn = generator.uniform([batch_size], maxval=num_rows, dtype=tf.int32)
        return tuple(tf.gather(x, drawn) for x in rows)

    return draw


def _batches(rows: Any, batch_size: int | None, seed: int) -> Iterator[LabelledData]:
    """Batches of a dataset, or draws from arrays, without an end."""
    if isinstance(rows, tf.data.Dataset):
        return _repeated(rows)
    rows = as_batch(rows)
    return iter(_draws(rows, min(batch_size or 1, len(rows[0])), seed), None)


def _repeated(dataset: tf.data.Dataset) -> Iterator[LabelledData]:
    """The batches of a dataset, from the first again after the last."""
    spec = dataset.element_spec
    if not isinstance(spec, (tuple, list)) or len(spec) not in (2, 3):
        raise ValueError(
            "data must be a dataset of pairs (X, y), or of (X, y, weights), but its elements are "
            f"{spec}."
        )
    if spec[0].shape.rank not in (None, 2):
        raise ValueError(
            f"data must be a dataset of batches, X of shape [n, D], but its X has shape "
            f"{spec[0].shape}. Batch it: data.batch(256)."
        )
    if int(dataset.cardinality()) == 0:
        raise ValueError("data is a dataset without a batch: pass one with rows.")
    return iter(dataset.repeat())
