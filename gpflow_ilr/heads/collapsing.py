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
from gpflow.config import default_float

from gpflow_ilr.calibration.calibrate import Calibration
from gpflow_ilr.calibration.criterion import Marginals, MeanNLL
from gpflow_ilr.calibration.search import choose_noise, noise_at_limit, sharpness_at_limit
from gpflow_ilr.heads.features import FeatureReader
from gpflow_ilr.inputs.labels import as_labels
from gpflow_ilr.inputs.rows import check_data
from gpflow_ilr.models import ILRSGPR

__all__ = ["absorb_features", "calibrate_on"]


def absorb_features(model: ILRSGPR, reader: FeatureReader, dataset: Any) -> int:
    """Let a model take in the features of all rows, in place of the rows that it has.

    :param model: with the kernel and the inducing inputs that it is to keep.
    :param reader: of the features.
    :param dataset: rows and labels.
    :returns: the number of rows.
    """
    K, soft = model.code.num_classes, model.has_soft_labels
    signature = (
        tf.TensorSpec([None, model.num_columns], default_float()),
        tf.TensorSpec([None, K] if soft else [None], model.labels.dtype),
    )

    def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for F, y in reader.batches(dataset):
            labels = as_labels(y, K, num_rows=len(F))
            if soft and labels.shape.rank == 1:
                labels = tf.one_hot(labels, K, dtype=model.labels.dtype)
            yield F.astype(default_float()), labels.numpy()

    return model.absorb(tf.data.Dataset.from_generator(pairs, output_signature=signature))


def calibrate_on(model: ILRSGPR, rows: Any) -> Calibration:
    """Set noise and smoothing λ to those with the smallest NLL of held-out rows.

    The sums over the training rows serve every noise, so each costs a factorisation of M × M.

    :param model: with one noise for all outputs.
    :param rows: features and labels that the model, and the network, have not seen.
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
