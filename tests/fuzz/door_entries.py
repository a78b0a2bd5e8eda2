"""Training, files and devices: what is done to a whole model that awkward data have built."""

from __future__ import annotations

import functools
import pickle
import tempfile
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

import gpflow_ilr as gi
from gpflow_ilr import distributed, saving
from gpflow_ilr.training import CalibrationToTensorBoard, fit, fit_auto, polish
from tests.fuzz import awkward
from tests.fuzz.answers import Draw, Entry, finite, predicted
from tests.fuzz.built import KEEP_ROWS, SAMPLED, SPARSE, VARIATIONAL, Built

__all__ = ["CHOSEN_ENTRIES", "DOOR_ENTRIES", "TRAINING_ENTRIES"]

RATES = st.sampled_from([0.1, 0.1, 0.1, 1.0, 1e-30, 1e30, 0.0, -1.0, np.nan, "a", None])
FEW = st.sampled_from([2, 2, 1, 3, 0, 2.5, "2", None])


# Training


def _built(draw: Draw, classes: list[Any]) -> Built:
    return Built(draw, draw(st.sampled_from(classes)))


def _options(draw: Draw, strategies: dict[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
    """One or two of the options, drawn."""
    names = draw(st.lists(st.sampled_from(sorted(strategies)), max_size=2, unique=True))
    return {name: draw(strategies[name]) for name in names}


def _rows(built: Built) -> Any:
    w = built.draw(awkward.weights(built.N))
    return built.rows() if w is None else (*built.rows(), w)


def _fitted(draw: Draw) -> Any:
    built = _built(draw, [*KEEP_ROWS, *SPARSE, *VARIATIONAL])
    methods = ["auto", "l-bfgs", "adam", "natural", "newton", None]
    options = _options(
        draw,
        {
            "method": st.sampled_from(methods),
            "batch_size": st.sampled_from([None, 1, 2, 99, 0, "2"]),
            "learning_rate": RATES,
            "natural_step": RATES,
            "check_every": FEW,
            "patience": FEW,
            "max_seconds": RATES,
            "seed": awkward.SEEDS_GIVEN,
        },
    )
    if draw(st.booleans()):
        options["validation"] = _rows(built)
    data = _rows(built) if isinstance(built.model, gpflow.models.SVGP) else None
    done = fit(built.model, data, max_iterations=2, compile=False, **options)
    assert done.success in (False, True)
    assert done.message
    return built.probabilities()


def _polished(draw: Draw) -> Any:
    built = _built(draw, VARIATIONAL)
    options = _options(
        draw,
        {
            "batch_size": awkward.counts(),
            "max_steps": FEW,
            "max_seconds": RATES,
            "natural_step": RATES,
            "learning_rate": RATES,
            "check_every": FEW,
            "patience": FEW,
            "seed": awkward.SEEDS_GIVEN,
        },
    )
    if draw(st.booleans()):
        options["validation"] = _rows(built)
    done = polish(built.model, _rows(built), **{"max_steps": 2} | options)
    finite([done.nll_before, done.nll_after])
    return built.probabilities()


def _to_tensorboard(draw: Draw) -> None:
    built = _built(draw, KEEP_ROWS)
    with tempfile.TemporaryDirectory() as folder:
        task = CalibrationToTensorBoard(
            folder, built.model, built.rows(), picture=False, num_bins=draw(awkward.counts())
        )
        task(0)
        assert list(Path(folder).iterdir())


@functools.cache
def _pickled() -> bytes:
    """One that was chosen for right rows: predictions and updates take no second."""
    X = np.random.default_rng(0).standard_normal((9, 2))
    return pickle.dumps(
        fit_auto(X, np.arange(9) % 3, num_classes=3, max_seconds=1e-3, updatable=True)
    )


def _of_chosen(draw: Draw) -> Any:
    chosen = pickle.loads(_pickled())
    return predicted(chosen.predict_y(draw(awkward.rows(draw(awkward.SIZES), 2))))


def _chosen_updated(draw: Draw) -> Any:
    chosen, n = pickle.loads(_pickled()), draw(awkward.SIZES)
    options = {"sample_weight": draw(awkward.weights(n))}
    options["num_classes"] = draw(st.sampled_from([None, None, 3, 4, 2, "4"]))
    chosen.update(draw(awkward.rows(n, 2)), draw(awkward.labels(n, 3)), **options)
    return predicted(chosen.predict_y(draw(awkward.rows(3, 2))))


def _set_of_chosen(draw: Draw) -> None:
    chosen, n = pickle.loads(_pickled()), draw(awkward.SIZES)
    data = draw(awkward.rows(n, 2)), draw(awkward.labels(n, 3))
    new = draw(awkward.rows(draw(awkward.SIZES), 2))
    sets = chosen.predict_set(new, draw(awkward.LEVELS), "split", data)
    assert sets.dtype == bool


CHOSEN_ENTRIES: dict[str, Entry] = {
    "training.AutoClassifier.predict_y": _of_chosen,
    "training.AutoClassifier.update": _chosen_updated,
    "training.AutoClassifier.predict_set": _set_of_chosen,
}
TRAINING_ENTRIES: dict[str, Entry] = {
    "training.fit": _fitted,
    "training.polish": _polished,
    "training.CalibrationToTensorBoard.run": _to_tensorboard,
}

# Files


def _saved_and_loaded(draw: Draw) -> Any:
    """A model that comes back predicts what it did, to the last bit."""
    built = _built(draw, [*KEEP_ROWS, *SPARSE, *VARIATIONAL, *SAMPLED])
    new = built.new()
    expected = predicted(built.model.predict_y(new))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model"
        saving.save(built.model, file)
        found = predicted(saving.load(file).predict_y(new))
    np.testing.assert_array_equal(found, expected)
    return found


def _exported(draw: Draw) -> Any:
    built = _built(draw, [*KEEP_ROWS, *SPARSE, *VARIATIONAL, *SAMPLED])
    X = np.random.default_rng(0).standard_normal((4, built.D))
    expected = predicted(built.model.predict_y(X))
    with tempfile.TemporaryDirectory() as folder:
        count = draw(st.sampled_from([None, None, built.D, 0, "2"]))
        saving.export_saved_model(built.model, Path(folder) / "model", count)
        loaded = tf.saved_model.load(str(Path(folder) / "model"))
        found = loaded.predict_proba(tf.constant(X))["probabilities"]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    return found


def _registered(draw: Draw) -> None:
    thing = draw(st.sampled_from([type("Own", (), {}), "a", 3, None]))
    saving.register(
        thing, name=draw(st.sampled_from([None, "own.Name", "", 3, "gpflow_ilr.ILRGPR"]))
    )


# Devices


def _alone() -> tf.distribute.Strategy:
    return tf.distribute.get_strategy()


def _distributed_loss(draw: Draw) -> None:
    built = _built(draw, [*SPARSE, *VARIATIONAL])
    data = _rows(built) if isinstance(built.model, gpflow.models.SVGP) else None
    loss = distributed.training_loss_closure(built.model, _alone(), data, compile=False)
    finite(loss())


def _shared(draw: Draw) -> Any:
    built = _built(draw, SPARSE)
    distributed.share_statistics(built.model, _alone())
    return built.probabilities()


def _synchronised(draw: Draw) -> Any:
    built = Built(draw, gi.ILRGPR)
    distributed.synchronise(_alone(), built.model.variables)
    return built.probabilities()


def _summed(draw: Draw) -> None:
    given = [[tf.ones(2)], [tf.Variable(1.0)], [], [1.0], "a", None, 3]
    finite(distributed.sum_over_workers(_alone(), draw(st.sampled_from(given))))


DOOR_ENTRIES: dict[str, Entry] = {
    "saving.save": _saved_and_loaded,
    "saving.load": _saved_and_loaded,
    "saving.register": _registered,
    "saving.export_saved_model": _exported,
    "distributed.training_loss_closure": _distributed_loss,
    "distributed.share_statistics": _shared,
    "distributed.synchronise": _synchronised,
    "distributed.sum_over_workers": _summed,
}
