"""Bad inputs get the same sentence in prediction as in training, from every model and its posterior."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import gpflow_ilr as gi
from tests.whole.test_guard import MODELS, XNEW, K, X, Y, kernel, name_of

WITH_NAN = XNEW.copy()
WITH_NAN[3, 1] = np.nan
BAD: dict[str, tuple[Any, str]] = {
    "NaN": (WITH_NAN, "X must be finite, but row 3, column 1 is nan"),
    "columns": (XNEW[:, :1], "X has 1 columns, but the training data have 2"),
    "vector": (XNEW[:, 0], r"For one feature use X\[:, None\]"),
    "sparse": (scipy.sparse.csr_matrix(XNEW), r"Pass X.toarray\(\)"),
    "category": (
        pd.DataFrame(
            {"a": XNEW[:, 0], "colour": pd.Categorical(["red", "blue", "red", "red", "b"])}
        ),
        "colour",
    ),
    "strings": (np.array([["1", "2"]]), "real numbers"),
}
METHODS: dict[str, Callable[[Any, Any], Any]] = {
    "predict_f": lambda model, X: model.predict_f(X),
    "predict_y": lambda model, X: model.predict_y(X),
    "predict_entropy": lambda model, X: model.predict_entropy(X),
    "predict_f_samples": lambda model, X: model.predict_f_samples(X, 2),
    "predict_log_density": lambda model, X: model.predict_log_density((X, Y[:5])),
}


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {name_of(case): case.build() for case in MODELS}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", [name_of(case) for case in MODELS])
def test_every_prediction_refuses_it_with_the_sentence_of_training(name, bad, models) -> None:
    inputs, sentence = BAD[bad]
    for predict in METHODS.values():
        with pytest.raises((ValueError, TypeError), match=sentence):
            predict(models[name], inputs)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", ["ILRGPR", "ILRSGPR"])
def test_posteriors_refuse_it_too(name, bad, models) -> None:
    inputs, sentence = BAD[bad]
    posterior = models[name].posterior()
    for method in ("predict_f", "predict_y", "predict_entropy"):
        with pytest.raises((ValueError, TypeError), match=sentence):
            METHODS[method](posterior, inputs)


@pytest.mark.parametrize("bad", [bad for bad in BAD if bad != "columns"])
def test_training_refuses_it(bad) -> None:
    inputs, sentence = BAD[bad]
    with pytest.raises((ValueError, TypeError), match=sentence):
        gi.ILRGPR((inputs, Y[: inputs.shape[0]]), kernel(), num_classes=K)


def test_batches_of_an_svgp_refuse_it() -> None:
    model = gi.ILRSVGP(kernel(), X[:4], num_classes=K, num_data=9)
    for inputs, sentence in BAD.values():
        with pytest.raises((ValueError, TypeError), match=sentence):
            model.training_loss((inputs, Y[:5]))


def test_frames_with_numbers_and_booleans_are_read(models) -> None:
    frame = pd.DataFrame({"a": [1, 2, 0], "b": [True, False, True]})
    for model in models.values():
        p = model.predict_y(frame)[0]
        np.testing.assert_array_equal(p, model.predict_y(frame.to_numpy(float))[0])


@pytest.fixture
def _single_precision() -> Iterator[None]:
    with gpflow.config.as_context(replace(gpflow.config.config(), float=np.float32)):
        yield


@pytest.mark.usefixtures("_single_precision")
def test_models_of_another_default_float_say_so(models) -> None:
    sentence = "was built in float64, but GPflow's default float is float32 now"
    for name, model in models.items():
        for predict in METHODS.values():
            with pytest.raises(ValueError, match=sentence):
                predict(model, XNEW)
        data = [(X, Y)] if name.endswith("SVGP") else []
        with pytest.raises(ValueError, match=sentence):
            model.training_loss(*data)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "update": lambda model: model.update(X[:2], Y[:2]),
    "forget": lambda model: model.forget(X[:2], Y[:2]),
    "remove_class": lambda model: model.remove_class(0),
    "merge_classes": lambda model: model.merge_classes([0, 1]),
    "absorb": lambda model: model.absorb((X, Y)),
    "calibrate": lambda model: model.calibrate(),
    "predict_set": lambda model: (
        model.predict_set(XNEW)
        if hasattr(model, "predict_loo")
        else model.predict_set(XNEW, data=(X, Y))
    ),
    "posterior": lambda model: model.posterior().predict_f(XNEW),
    "sample": lambda model: model.sample(num_samples=2, num_burnin=0),
    "fit": lambda model: gi.training.fit(model, data=(X, Y), method="adam", max_iterations=1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_models_of_another_default_float_says_so_first(change, models) -> None:
    of_classes = {"update", "forget", "remove_class", "merge_classes", "calibrate", "absorb"}
    for name, model in models.items():
        if change != "fit" and not hasattr(model, change):
            continue
        if change in of_classes and name.endswith("SVGP"):
            continue
        if change == "calibrate" and not name.startswith("ILR"):
            continue
        single = gpflow.config.as_context(replace(gpflow.config.config(), float=np.float32))
        with (
            single,
            pytest.raises(ValueError, match=f"^{type(model).__name__} was built in float64"),
        ):
            CHANGES[change](model)


def test_posteriors_of_another_default_float_say_so(models) -> None:
    posteriors = [models[name].posterior() for name in ("ILRGPR", "ILRSGPR", "ILRSVGP")]
    with gpflow.config.as_context(replace(gpflow.config.config(), float=np.float32)):
        for posterior in posteriors:
            with pytest.raises(ValueError, match="was built in float64"):
                posterior.predict_f(XNEW)
