"""Saving models: whole, for later work in Python, and as TensorFlow SavedModels, for serving.

:func:`save` keeps everything a model is: parameters, priors, data, statistics, samples. :func:`load`
needs ``gpflow_ilr`` and, like every unpickling, trusts the file's author. :func:`export_saved_model`
keeps only what predictions need, in a form that loads where neither GPflow nor this package is
installed. Both write atomically: a crash leaves the old file or the new one, never half of one. During
training ``tf.train.Checkpoint(model=model, optimizer=optimizer, data=iterator)`` resumes exactly.
"""

import hashlib
import io
import json
import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.models import SVGP, GPModel
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import deepcopy

from gpflow_ilr.augmented.sampled import SampledPredictions
from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.inputs.model_parts import check_model
from gpflow_ilr.inputs.paths import check_path, path_to_write
from gpflow_ilr.version import __version__

__all__ = ["export_saved_model", "load", "save"]

_MAGIC = b"gpflow_ilr model\n"


def save(model: GPModel, path: str | os.PathLike[str]) -> int:
    """Write a model to a file, atomically.

    :param model: any model of this package (or of GPflow).
    :param path: the file; an existing one is replaced once the new one is complete.
    :returns: the size of the file in bytes.
    :raises TypeError: if it is no model, or no path.
    :raises OSError: if the file cannot be there.
    """
    if not isinstance(model, tf.Module):
        raise TypeError(
            f"model must be a model, but is {model!r}. Pass a model of this package or of GPflow, or "
            "what fit_auto returns."
        )
    path = path_to_write(path)
    if path.is_dir():
        raise IsADirectoryError(
            f"path is {os.fspath(path)!r}, which is a folder. Pass a file in it, such as "
            f"{os.fspath(path / 'model')!r}."
        )
    # Bijectors cache tensors that cannot be pickled; GPflow's deepcopy leaves them behind.
    payload = pickle.dumps(deepcopy(model), protocol=pickle.HIGHEST_PROTOCOL)
    header = {
        "version": __version__,
        "class": type(model).__name__,
        "float": tf.as_dtype(default_float()).name,
        "bytes": len(payload),
        "sha256": hashlib.sha256(payload).hexdigest(),
    }
    content = _MAGIC + json.dumps(header).encode() + b"\n" + payload
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return len(content)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that :func:`save` wrote. Only load files that you trust.

    :param path: the file.
    :raises FileNotFoundError: if there is no such file.
    :raises ValueError: if the file is not a saved model, is incomplete or damaged, was saved under
        another default float, or has classes that cannot be imported.
    """
    if not check_path("path", path).is_file():
        raise FileNotFoundError(
            f"path is {os.fspath(path)!r}, which is no file. Pass one of save's."
        )
    stream = io.BytesIO(Path(path).read_bytes())
    if stream.read(len(_MAGIC)) != _MAGIC:
        raise ValueError(f"{os.fspath(path)!r} is not a model saved by gpflow_ilr.saving.save.")
    try:
        header = json.loads(stream.readline())
        expected, digest = header["bytes"], header["sha256"]
    except (ValueError, KeyError):
        raise ValueError(f"{os.fspath(path)!r} is damaged: its header cannot be read.") from None
    payload = stream.read()
    if len(payload) != expected or hashlib.sha256(payload).hexdigest() != digest:
        raise ValueError(
            f"{os.fspath(path)!r} is damaged: it has {len(payload)} bytes of model where "
            f"{expected} were written, or other ones. Restore it from a copy."
        )
    if header["float"] != tf.as_dtype(default_float()).name:
        raise ValueError(
            f"The {header['class']} was saved with {header['float']}, but GPflow's default float "
            f"is now {tf.as_dtype(default_float()).name}. Call "
            f"gpflow.config.set_default_float(tf.{header['float']}) before loading."
        )
    try:
        return pickle.loads(payload)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ValueError(
            f"The {header['class']} was saved by gpflow_ilr {header['version']} with a class that is "
            f"not here ({error}). Load it with that version, where modules have other names, or "
            "import the module of your own class first."
        ) from error


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
    :param path: the directory; an existing one is replaced once the new one is complete.
    :param num_inputs: D; found from the model's data or inducing inputs if None.
    :returns: the size of the files in bytes.
    :raises RuntimeError: if a sampled model has no samples of its present hyperparameters.
    """
    check_model(model)
    path = path_to_write(path)
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
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=path.name) as scratch:
        new, old = Path(scratch) / "new", Path(scratch) / "old"
        tf.saved_model.save(exported, os.fspath(new), signatures=signatures)
        if path.exists():
            os.replace(path, old)
        os.replace(new, path)
        shutil.rmtree(old, ignore_errors=True)
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


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
