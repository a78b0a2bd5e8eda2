"""A collapsed model of a network's features: all rows in one pass, λ and noise by rows held out.

Leave-one-out is closed-form, but the features have seen the rows: the network was trained on them. It
then promises far too much, for λ and for the noise alike, so both are chosen by other rows, where the
user has some.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_ilr.calibration.calibrate import Calibration
from gpflow_ilr.calibration.criterion import Marginals, MeanNLL
from gpflow_ilr.calibration.search import choose_noise, noise_at_limit, sharpness_at_limit
from gpflow_ilr.heads.features import FeatureReader, has_weights
from gpflow_ilr.inputs.rows import check_data
from gpflow_ilr.models import ILRSGPR
from gpflow_ilr.models.absorb import checked_batch

__all__ = ["absorb_features", "calibrate_on"]


def absorb_features(model: ILRSGPR, reader: FeatureReader, dataset: Any) -> int:
    """Let a model take in the features of all rows, in place of the rows that it has.

    :param model: with the kernel and the inducing inputs that it is to keep.
    :param reader: of the features.
    :param dataset: rows, labels and, if there are some, weights.
    :returns: the number of rows whose weight is not zero.
    :raises TypeError: if features are no real numbers.
    :raises ValueError: if a row makes no sense, named by its place in the dataset.
    """
    X, labels = model.data[0], model.labels
    shapes = [(X.shape[1:], X.dtype), (labels.shape[1:], labels.dtype)]
    shapes += [([], X.dtype)] * has_weights(dataset)
    signature = tuple(tf.TensorSpec([None, *shape], dtype) for shape, dtype in shapes)
    refused: list[Exception] = []

    def batches() -> Iterator[tuple[np.ndarray, ...]]:
        first = 0
        try:
            for batch in reader.batches(dataset):
                rows = checked_batch(model, batch, first)
                first += len(batch[0])
                if len(rows):
                    yield tuple(tensor.numpy() for tensor in rows.tensors)
        except Exception as error:
            refused.append(error)
            raise

    try:
        return model.absorb(tf.data.Dataset.from_generator(batches, output_signature=signature))
    except tf.errors.OpError:
        if refused:  # what TensorFlow raises has the sentence among a hundred lines of traceback
            raise refused[0] from None
        raise


def calibrate_on(model: ILRSGPR, rows: Any) -> Calibration:
    """Set noise and smoothing λ to those with the smallest NLL of held-out rows.

    The sums over the training rows serve every noise, so each costs a factorisation of M × M.

    :param model: with one noise for all outputs.
    :param rows: features, labels and, if there are some, weights, of rows that neither the model nor
        the network has seen.
    """
    code = model.code
    unseen = check_data(rows, code.num_classes, model.num_columns)
    noise_before, sharpness_before = float(code.noise_variance[0, 0]), float(code.scale)

    def set_noise(noise: float) -> None:
        code.rescale_noise(noise / float(code.noise_variance[0, 0]))

    def at(noises: Any) -> list[Marginals]:
        found = []
        for noise in noises:
            set_noise(noise)
            found.append(model.held_out(unseen))
        set_noise(noise_before)
        return found

    before = after = MeanNLL(model.held_out(unseen), code.link)(sharpness_before)
    chosen = choose_noise(at, code.link, noise_before)
    if chosen.nll < before:
        set_noise(chosen.noise)
        code.sharpness.assign(chosen.sharpness)
        after = chosen.nll
    noise = float(code.noise_variance[0, 0])
    return Calibration(
        smoothing=code.smoothing,
        nll_before=before,
        nll_after=after,
        noise_variance=noise,
        num_rows=len(unseen),
        leave_one_out=False,
        num_training_rows=model.num_data,
        num_hyperparameters=0,
        smoothing_at_limit=sharpness_at_limit(float(code.scale), code.num_classes),
        noise_at_limit=not chosen.flat and noise_at_limit(noise, noise_before),
        noise_is_flat=chosen.flat,
    )
