"""The part of the table of wrong inputs that is about files, devices and other libraries."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

import gpflow_ilr.keras
import gpflow_ilr.tf_keras
from gpflow_ilr import distributed, saving
from gpflow_ilr.sklearn import ILRClassifier
from tests.whole.bad_arguments import (
    WITH_NAN,
    Bad,
    Entry,
    classes,
    collapsed,
    counts,
    exact,
    model_of,
    one_of,
    seeds,
)
from tests.whole.test_guard import K, X, Y

NO_FOLDER = "/nowhere/at/all"
PATH = [
    Bad("path", None, "None", "Pass text"),
    Bad("path", f"{NO_FOLDER}/x", NO_FOLDER, "Make it first"),
]
STRATEGY = [Bad("strategy", value, repr(value), "MirroredStrategy()") for value in (None, "all")]
TEXT = np.array(list("abc"))[Y]


def fitted(X: Any = X, y: Any = TEXT, **options: Any) -> Any:
    return ILRClassifier(**{"time_limit": 1e-3, **options}).fit(X, y)


@functools.cache
def classifier() -> ILRClassifier:
    return fitted()


def head(gp_head: Any) -> Entry:
    return Entry(
        gp_head,
        lambda: {"num_classes": K, "num_data": 9, "num_inducing": 4},
        [
            *classes(),
            *counts("num_data", "num_inducing"),
            Bad("num_data", None, "missing", "num_data=len(X_train)"),
            *(one_of("kernel", value, "Pass a function") for value in (3, None)),
            one_of("objective", "elb", "'elbo'"),
            one_of("frozen", ["kernl"], "'kernel'")._replace(shown="'kernl'"),
            *(one_of("gp_dtype", value, "'float32' or 'float64'") for value in ("float16", "f", 3)),
            *(one_of("jitter", value, "at least 0") for value in ("a", -1.0, np.nan)),
            *seeds(),
        ],
    )


def closed_form(closed_form_head: Any) -> Entry:
    def fit(X: Any = X, y: Any = Y, **options: Any) -> Any:
        return closed_form_head(**{"num_classes": K, "num_inducing": 4, **options}).fit((X, y))

    return Entry(
        fit,
        dict,
        [
            *classes(),
            *counts("num_inducing", "sample_size"),
            *(one_of("kernel", value, "Pass a function") for value in (3, None)),
            *(one_of("network", value, "Pass") for value in (3, "features")),
            *(one_of("gp_dtype", value, "'float32' or 'float64'") for value in ("float16", 3)),
            *(one_of("jitter", value, "at least 0") for value in ("a", -1.0)),
            *seeds(),
            Bad("X", WITH_NAN, "nan", "drop such rows"),
            Bad("y", Y + 1, "3", "subtract 1", "Labels"),
        ],
    )


def feature_network(function: Any) -> Entry:
    return Entry(function, dict, [one_of("network", value, "Pass") for value in (None, "a")])


def with_earlier_layers(function: Any) -> Entry:
    return Entry(
        function, lambda: {"X": X}, [one_of("network", value, "Pass") for value in (None, "a")]
    )


def loss(elbo_loss: Any) -> Entry:
    return Entry(elbo_loss, dict, [one_of("reduction", "sum", "sum_over_batch_size")])


ENTRIES: dict[str, Entry] = {
    # Files and devices
    "saving.save": Entry(
        saving.save,
        lambda: {"model": exact(), "path": "never written"},
        [
            *(Bad("model", value, repr(value)[:9], "Pass a model") for value in (None, "a", X)),
            *PATH,
            Bad("path", "/tmp", "/tmp", "Pass a file"),
        ],
    ),
    "saving.load": Entry(
        saving.load,
        dict,
        [Bad("path", 3, "3", "Pass text"), Bad("path", NO_FOLDER, NO_FOLDER, "Pass one of save's")],
    ),
    "saving.register": Entry(
        saving.register,
        lambda: {"thing": Bad},
        [
            *(Bad("thing", value, repr(value), "Pass its class") for value in (3, "a")),
            *(Bad("name", value, repr(value), "Pass 'my_") for value in (3, "gpflow_ilr.ILRGPR")),
        ],
    ),
    "saving.export_saved_model": Entry(
        saving.export_saved_model,
        lambda: {"model": exact(), "path": "never written"},
        [*model_of(), *PATH, *counts("num_inputs")],
    ),
    "distributed.training_loss_closure": Entry(
        distributed.training_loss_closure,
        lambda: {"model": collapsed(), "strategy": tf.distribute.get_strategy()},
        [
            *(Bad("model", m, type(m).__name__, "Use a collapsed") for m in (None, exact())),
            *STRATEGY,
            Bad("data", (X, Y), "has its rows already", "leave out data"),
        ],
    ),
    "distributed.share_statistics": Entry(
        distributed.share_statistics,
        lambda: {"model": collapsed(), "strategy": tf.distribute.get_strategy()},
        [
            *(Bad("model", m, type(m).__name__, "Use an ILRSGPR") for m in (None, exact())),
            *STRATEGY,
        ],
    ),
    "distributed.synchronise": Entry(
        distributed.synchronise,
        lambda: {"strategy": tf.distribute.get_strategy(), "variables": []},
        [*STRATEGY, *(one_of("variables", v, "Pass model.variables") for v in ("ab", None, [1.0]))],
    ),
    "distributed.sum_over_workers": Entry(
        distributed.sum_over_workers,
        lambda: {"strategy": tf.distribute.get_strategy(), "values": []},
        [
            *STRATEGY,
            *(one_of("values", value, "a list of tensors") for value in ("ab", None, [1.0])),
        ],
    ),
    # Other libraries
    "keras.GPHead": head(gpflow_ilr.keras.GPHead),
    "tf_keras.GPHead": head(gpflow_ilr.tf_keras.GPHead),
    "keras.ClosedFormHead": closed_form(gpflow_ilr.keras.ClosedFormHead),
    "tf_keras.ClosedFormHead": closed_form(gpflow_ilr.tf_keras.ClosedFormHead),
    "keras.feature_network": feature_network(gpflow_ilr.keras.feature_network),
    "tf_keras.feature_network": feature_network(gpflow_ilr.tf_keras.feature_network),
    "keras.with_earlier_layers": with_earlier_layers(gpflow_ilr.keras.with_earlier_layers),
    "tf_keras.with_earlier_layers": with_earlier_layers(gpflow_ilr.tf_keras.with_earlier_layers),
    "keras.ELBOLoss": loss(gpflow_ilr.keras.ELBOLoss),
    "tf_keras.ELBOLoss": loss(gpflow_ilr.tf_keras.ELBOLoss),
    "sklearn.ILRClassifier": Entry(
        fitted,
        dict,
        [
            *(one_of("time_limit", value, "Pass a number") for value in (0, "a", None, np.nan)),
            *(one_of("memory_limit", value, "Pass a number") for value in (0, "a", None)),
            *(one_of("class_weight", v, "'balanced' or a dictionary") for v in ("balance", 3)),
            Bad("class_weight", {"a": -1.0}, "-1.0", "Leave out the rows"),
            *(one_of("missing", value, "'refuse' or 'impute'") for value in ("x", None)),
            *(one_of("categories", value, "'from_dtype'") for value in (["colour"], [7])),
            *seeds("random_state"),
            Bad("X", WITH_NAN, "NaN", "missing='impute'"),
            Bad("X", [["a", "b"]] * 9, "'a'", "categories=", "could not convert string"),
            Bad("X", X[:, 0], "1D array", "Reshape your data", "array="),
            Bad("X", X[:4], "4 rows and y has 9", "as many labels as rows"),
            Bad("y", ["a"] * 9, "'a'", "two or more"),
            Bad("y", np.where(Y == 2, np.nan, Y), "NaN", "Drop the rows"),
            Bad("y", X[:, 0], "continuous", "discrete classes", "label type"),
            Bad("y", np.eye(3)[Y], "(9, 3)", "1d array"),
        ],
    ),
    "sklearn.ILRClassifier.predict_proba": Entry(
        lambda X: classifier().predict_proba(X),
        dict,
        [
            Bad("X", X[:, :1], "1 features", "expecting 2 features"),
            Bad("X", WITH_NAN, "NaN", "missing='impute'"),
        ],
    ),
}
