"""Predictions as TensorFlow SavedModels, for serving where neither GPflow nor this package is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.models import SVGP, GPModel
from gpflow.posteriors import PrecomputeCacheType

from gpflow_ilr.augmented.sampled import SampledPredictions
from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.inputs.model_parts import check_float, check_model
from gpflow_ilr.inputs.paths import path_to_write, unfinished_folder
from gpflow_ilr.saving.folders import put_in_place, restore

__all__ = ["export_saved_model"]

_PARTS = frozenset(
    ["saved_model.pb", "saved_model.pbtxt", "fingerprint.pb", "variables", "assets", "assets.extra"]
)


def export_saved_model(
    model: GPModel, path: str | os.PathLike[str], num_inputs: int | None = None
) -> int:
    """Write the model's predictions as a TensorFlow SavedModel, atomically.

    Its signatures ``predict_proba`` (class probabilities [N, K]) and ``predict_f`` (latent mean and
    variance) take inputs [N, D] and load with ``tf.saved_model.load`` alone. What predictions need
    of the data is computed now, and the data themselves are left out where they are not needed.
    Of a sampled model both are averages over all samples, as its own methods are; an SVGP may be
    GPflow's own with a likelihood of this package.

    :param model: a fitted model of this package; a sampled one after ``sample``.
    :param path: the directory; an older SavedModel there is replaced once the new one is complete.
        Where the system cannot exchange two directories (Linux can), a kill in the middle of that
        leaves the older one beside it, as ``<path>.<digits>.old``; the next export brings it back.
    :param num_inputs: D; found from the model's data or inducing inputs if None.
    :returns: the size of the files in bytes.
    :raises FileExistsError: if something else than a SavedModel is there.
    :raises RuntimeError: if a sampled model has no samples of its present hyperparameters.
    """
    check_model(model)
    check_float(model)
    path = path_to_write(path)
    restore(path)
    _check_replaceable(path)
    if num_inputs is not None:
        check_count("num_inputs", num_inputs)
    predictor = _predictor(model)
    predict_y = getattr(predictor, "predict_y", None) or _through_likelihood(model, predictor)
    D = _num_inputs(model) if num_inputs is None else num_inputs
    signature = [tf.TensorSpec([None, D], default_float(), name="X")]

    exported = tf.Module()
    exported.held = [
        *model.variables,
        *predictor.variables,
    ]  # a SavedModel keeps only what is tracked
    exported.predict_proba = tf.function(
        lambda X: {"probabilities": predict_y(X)[0]}, input_signature=signature, autograph=False
    )
    exported.predict_f = tf.function(
        lambda X: dict(zip(("mean", "variance"), predictor.predict_f(X), strict=True)),
        input_signature=signature,
        autograph=False,
    )
    signatures = {"predict_proba": exported.predict_proba, "predict_f": exported.predict_f}
    with unfinished_folder(path) as scratch:
        tf.saved_model.save(exported, os.fspath(scratch / "new"), signatures=signatures)
        put_in_place(scratch / "new", path)
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _check_replaceable(path: Path) -> None:
    """Refuse to remove what no export has written."""
    if not path.exists():
        return
    found = {entry.name for entry in path.iterdir()} if path.is_dir() else {path.name}
    others = sorted(found - _PARTS) if path.is_dir() else [path.name]
    if others or (found and "saved_model.pb" not in found):
        raise FileExistsError(
            f"path is {os.fspath(path)!r}, where there is something else than a SavedModel "
            f"({', '.join((others or sorted(found))[:3])}). Name a folder that does not exist, or "
            "remove it first."
        )


def _predictor(model: GPModel) -> Any:
    """What predicts with the least work left: the posterior, or the model where that is the better."""
    # A sampled model keeps its posterior itself. What GPflow keeps of its own SVGP cancels in float32
    # (gpflow_ilr.models.svgp_posterior): the model factorises K_uu at each call instead.
    single = type(model) is SVGP and default_float() == np.float32
    if single or isinstance(model, SampledPredictions) or not hasattr(model, "posterior"):
        return model
    return model.posterior(PrecomputeCacheType.TENSOR)


def _through_likelihood(model: GPModel, posterior: Any) -> Any:
    """GPflow's own posteriors predict latents only."""
    return lambda X: model.likelihood.predict_mean_and_var(X, *posterior.predict_f(X))


def _num_inputs(model: GPModel) -> int:
    data = getattr(model, "data", None)
    if data is not None:
        return int(data[0].shape[-1])
    inducing: InducingVariables = model.inducing_variable
    (first, *_) = (v for v in inducing.variables if v.shape.rank == 2)
    return int(first.shape[-1])
