"""The table of public entries and of wrong inputs that users give, and what must be said of each.

An entry is a callable with arguments that are right. A row changes one of them, and names what the
sentence must show of the value, and a part of the fix. Rows that many entries have in common are
written once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import gpflow_ilr as gi
from gpflow_ilr import calibration, metrics, plotting, simplex, training
from tests.whole.test_guard import K, X, Y, Z, kernel

P = np.array([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]])
WITH_NAN = X.copy()
WITH_NAN[3, 1] = np.nan
ENTROPIES = ([1.0, 1.0], [0.5, 0.5], [0.5, 0.5])


class Bad(NamedTuple):
    """A wrong value of an argument."""

    argument: str
    value: Any
    shown: str
    fix: str
    called: str | None = None
    """What the sentence calls the argument, where that is a part of it: X and labels of data."""


class Entry(NamedTuple):
    """A public entry, arguments that are right, and wrong ones."""

    call: Callable[..., Any]
    right: Callable[[], dict[str, Any]]
    bad: list[Bad]


@functools.cache
def exact() -> gi.ILRGPR:
    return gi.ILRGPR((X, Y), kernel(), num_classes=K)


@functools.cache
def collapsed() -> gi.ILRSGPR:
    return gi.ILRSGPR((X, Y), kernel(), Z, num_classes=K)


@functools.cache
def svgp() -> gi.ILRSVGP:
    return gi.ILRSVGP(kernel(), Z, num_classes=K, num_data=9)


def counts(*names: str) -> Iterator[Bad]:
    for name in names:
        for value in (0, 2.5, "ten"):
            yield Bad(name, value, repr(value), "an integer of at least")


def seeds(name: str = "seed") -> Iterator[Bad]:
    for value in ("a", -1, 2.5):
        yield Bad(name, value, repr(value), "Pass 0")


def classes(name: str = "num_classes") -> Iterator[Bad]:
    yield Bad(name, 1, "is 1", "num_classes=2")
    for value in (None, "3", 2.5):
        yield Bad(name, value, repr(value), "Pass the number of classes")


def rows(name: str = "X", called: str | None = None) -> Iterator[Bad]:
    shown = called or name
    yield Bad(name, None, "None", "an array, a tensor, a data frame or nested lists", shown)
    yield Bad(name, WITH_NAN, "row 3, column 1 is nan", "Impute or drop", shown)
    yield Bad(name, X[:, 0], "[9]", f"{shown}[:, None]", shown)
    yield Bad(name, [["a", "b"]] * 9, "'a'", "Encode categories", shown)
    yield Bad(name, X[:0], "[0, 2]", "at least one row", shown)


def probabilities() -> Iterator[Bad]:
    name = "probabilities"
    yield Bad(name, None, "None", "Pass what predict_y")
    yield Bad(name, [["a", "b", "c"]] * 2, "'a'", "Pass what predict_y")
    yield Bad(name, P[0], "[3]", "Pass a row for each input")
    yield Bad(name, P[:0], "[0, 3]", "Pass a row for each input")
    yield Bad(name, np.log(P), "row 0 has a negative entry", "exp")
    yield Bad(name, [[np.nan, 0.5, 0.5]] * 2, "nan", "repair")
    yield Bad(name, (P, P), "a tuple of 2", "pass the first")


def probabilities_of_any_rank() -> Iterator[Bad]:
    yield Bad("probabilities", None, "None", "Pass what predict_y")
    yield Bad("probabilities", P - 0.5, "row 0 has a negative entry", "exp")
    yield Bad("probabilities", np.nan * P, "nan", "repair")


def labels(num_rows: int = 2, name: str = "labels") -> Iterator[Bad]:
    right = (np.arange(num_rows) + 1) % K
    last = int(np.argmax(right == 2))
    yield Bad(name, ["a"] * num_rows, "'a'", "np.unique", "Labels")
    yield Bad(name, right + 1, f"row {last} has label 3", "subtract 1", "Labels")
    yield Bad(name, np.where(right == 2, np.nan, right), "nan", "relabel", "Labels")


def data(name: str = "data") -> Iterator[Bad]:
    """Rows and labels as a pair, of nine rows."""
    yield Bad(name, X, "ndarray", "(X, y)")
    yield Bad(name, (X, Y[:3]), "9 rows", "as many labels as rows", "X")
    yield Bad(name, (X[:, 0], Y), "[9]", "X[:, None]", "X")
    yield Bad(name, (WITH_NAN, Y), "nan", "Impute or drop", "X")
    yield Bad(name, (X, Y + 1), "label 3", "subtract 1", "Labels")
    yield Bad(name, (X, ["a"] * 9), "'a'", "np.unique", "Labels")
    yield Bad(name, (X[:0], Y[:0]), "[0, 2]", "at least one row", "X")


def with_columns(name: str = "data") -> Bad:
    return Bad(name, (X[:, :1], Y), "1 columns", "Pass the same features", "X")


def one_of(name: str, value: Any, fix: str) -> Bad:
    return Bad(name, value, repr(value), fix)


def model_of(name: str = "model") -> list[Bad]:
    return [
        Bad(name, None, "NoneType", "Build one"),
        Bad(name, gi.ILRGPR, "the class ILRGPR", "Build one"),
        Bad(name, X, "[9, 2]", "Build one"),
    ]


def functions(value: Any, *names: str) -> Iterator[Bad]:
    yield from (Bad(name, value, repr(value), "leave it out") for name in names)


def metric(function: Callable[..., Any], *more: Bad) -> Entry:
    bad = [*probabilities(), *labels(), Bad("labels", [0], "[1]", "of the same rows"), *more]
    return Entry(function, lambda: {"probabilities": P, "labels": [0, 1]}, bad)


BINS = list(counts("num_bins"))
AXES = Bad("ax", 3, "int", "plt.subplots()")
NAMES = [Bad("class_names", value, repr(value), "3 names") for value in (["a"], "abc", 3)]
POSITIVE = "Add a little to all"
SIMPLEX = [
    Bad("x", None, "None", "Pass class probabilities"),
    Bad("x", [["a", "b", "c"]], "string", "Pass class probabilities"),
    Bad("x", [[0.0, 0.5, 0.5]], "x[0, 0] is 0.0", POSITIVE),
    Bad("x", [[0.5, -0.5, 0.5]], "x[0, 1] is -0.5", POSITIVE),
    Bad("x", [[0.5, 0.5, np.nan]], "x[0, 2] is nan", POSITIVE),
    Bad("x", 0.3, "[]", "Pass class probabilities"),
]
OTHER_COLUMNS = Bad("y", [[0.5, 0.5]], "[1, 2]", "Pass probabilities of the same classes")
OTHER_ROWS = Bad("y", P[[0, 1, 0]], "[3, 3]", "Pass pairs of rows")

LENGTHS = [
    *(one_of("learning_rate", value, "Try 0.01") for value in (0.0, "a", None, np.nan)),
    *(one_of("natural_step", value, "Try 0.1") for value in (0.0, 2.0, "a", None)),
    *(one_of("max_seconds", value, "or None for no limit") for value in (0, -1, "a")),
]

CHECKPOINTS = [
    Bad("checkpoint", 3, "is 3", "Pass text"),
    Bad("checkpoint", "no such folder/file", "no such folder", "Make it first"),
    *(one_of("checkpoint_every", value, "Try 10") for value in (-1.0, "a", None, np.nan)),
]

ENTRIES: dict[str, Entry] = {
    # Metrics
    "metrics.accuracy": metric(metrics.accuracy, Bad("labels", P, "row 0 is soft", "np.argmax")),
    "metrics.negative_log_likelihood": metric(metrics.negative_log_likelihood),
    "metrics.brier_score": metric(metrics.brier_score),
    "metrics.expected_calibration_error": metric(metrics.expected_calibration_error, *BINS),
    "metrics.classwise_calibration_error": metric(metrics.classwise_calibration_error, *BINS),
    "metrics.adaptive_calibration_error": metric(metrics.adaptive_calibration_error, *BINS),
    "metrics.reliability_curve": metric(
        metrics.reliability_curve,
        *BINS,
        one_of("class_index", 3, "counted from 0"),
        *(one_of("class_index", value, "an integer") for value in (-1, 1.0, "a", True)),
    ),
    # The simplex
    "simplex.check_num_classes": Entry(simplex.check_num_classes, dict, list(classes())),
    "simplex.helmert": Entry(simplex.helmert, dict, list(classes())),
    "simplex.ILR": Entry(simplex.ILR, dict, list(classes())),
    "simplex.ILR.forward": Entry(
        simplex.ILR(3).forward,
        dict,
        [
            Bad("x", np.zeros([2, 3]), "(2, 3)", "Check num_classes", "ILR(num_classes=3)"),
            Bad("x", [[1, 2]], "int32", "tf.cast", "ILR(num_classes=3)"),
        ],
    ),
    "simplex.aitchison_norm": Entry(simplex.aitchison_norm, dict, SIMPLEX),
    "simplex.aitchison_distance": Entry(
        simplex.aitchison_distance, lambda: {"x": P, "y": P}, [*SIMPLEX, OTHER_COLUMNS, OTHER_ROWS]
    ),
    "simplex.aitchison_inner_product": Entry(
        simplex.aitchison_inner_product,
        lambda: {"x": P, "y": P},
        [*SIMPLEX, OTHER_COLUMNS, OTHER_ROWS],
    ),
    # Starting values
    "starting_kernel": Entry(
        gi.starting_kernel,
        lambda: {"X": X, "code": K},
        [
            *rows(),
            *(Bad("code", value, repr(value), "Pass num_classes") for value in (None, "a", Y)),
            Bad("code", 1, "is 1", "num_classes=2", "num_classes"),
            *(
                Bad("kernel_class", value, repr(value), "not an instance")
                for value in (None, "rbf")
            ),
        ],
    ),
    "kmeans_plusplus": Entry(
        gi.kmeans_plusplus,
        lambda: {"X": X, "num_inducing": 3},
        [
            *rows(),
            *counts("num_inducing"),
            *seeds(),
            Bad("num_inducing", 100, "is 100", "Use num_inducing=9"),
        ],
    ),
    "greedy_variance": Entry(
        gi.greedy_variance,
        lambda: {"X": X, "num_inducing": 3, "kernel": kernel()},
        [
            *rows(),
            *counts("num_inducing"),
            *(Bad("kernel", value, repr(value), "starting_kernel") for value in (None, "rbf")),
        ],
    ),
    # Training
    "training.fit": Entry(
        training.fit,
        lambda: {"model": svgp(), "data": (X, Y), "max_iterations": 1},
        [
            *model_of(),
            *data(),
            with_columns(),
            Bad("data", None, "ILRSVGP keeps no rows", "data=(X, y)"),
            one_of("method", "lbfgs", "l-bfgs"),
            *(Bad("variables", v, repr(v), "trainable_variables") for v in ("kernel", 3, [1.0])),
            *counts("max_iterations", "batch_size", "check_every", "patience"),
            *LENGTHS,
            *data("validation"),
            with_columns("validation"),
            *functions(3, "callback", "monitor"),
            *CHECKPOINTS,
            *seeds(),
        ],
    ),
    "training.polish": Entry(
        training.polish,
        lambda: {"model": svgp(), "data": (X, Y), "max_steps": 1},
        [
            Bad("model", None, "NoneType", "from_collapsed"),
            Bad("model", exact(), "ILRGPR", "from_collapsed"),
            Bad("data", None, "polish needs data", "(X, y)"),
            *data(),
            with_columns(),
            *data("validation"),
            *counts("max_steps", "batch_size", "check_every", "patience"),
            *LENGTHS,
            *functions(3, "loss", "report"),
            *seeds(),
        ],
    ),
    "training.fit_auto": Entry(
        training.fit_auto,
        lambda: {"X": X, "y": Y, "num_classes": K, "max_seconds": 1e-3},
        [
            *rows(),
            *labels(9, "y"),
            Bad("y", Y[:3], "y has 3", "as many labels as rows"),
            Bad("y", np.full([9, 3], 1 / 3), "soft rows", "ILRGPR"),
            *classes(),
            *(one_of("max_seconds", value, "Pass a number") for value in (0, -1, "a", None)),
            *(one_of("max_bytes", value, "Pass a number") for value in (0, "a", None)),
            *seeds(),
        ],
    ),
    "training.CalibrationToTensorBoard": Entry(
        training.CalibrationToTensorBoard,
        lambda: {"log_dir": "never written", "model": exact(), "validation": (X, Y)},
        [Bad("log_dir", None, "None", "Pass text"), *model_of(), *data("validation"), *BINS],
    ),
    # Calibration
    "calibration.calibrate": Entry(
        lambda model, **options: calibration.calibrate(model, **options),
        lambda: {"model": exact(), "max_rows": 4},
        [
            *(Bad("model", value, type(value).__name__, "Use an ILRGPR") for value in (None, X)),
            Bad("model", svgp(), "ILRSVGP", "Use an ILRGPR"),
            *data(),
            with_columns(),
            *counts("max_rows"),
            Bad("neighbours", True, "ILRGPR", "ILRNNGPR"),
        ],
    ),
    "calibration.balanced_class_weights": Entry(
        calibration.balanced_class_weights,
        lambda: {"y": Y, "num_classes": K},
        [*classes(), *labels(9, "y"), Bad("y", np.full((9, K), 1 / K), "soft rows", "argmax")],
    ),
    "calibration.undo_class_weights": Entry(
        calibration.undo_class_weights,
        lambda: {"probabilities": P, "class_weights": np.ones(K)},
        [
            *(
                one_of("class_weights", v, "one for each")
                for v in ([1.0, 2.0], [0.0, 1.0, 1.0], 2.0)
            ),
            *probabilities_of_any_rank(),
        ],
    ),
    "calibration.smoothing": Entry(
        lambda smoothing: setattr(exact(), "smoothing", smoothing),
        dict,
        [one_of("smoothing", value, "0.99 is a good start") for value in (0.0, 1, "a", None)],
    ),
    # Pictures
    "plotting.plot_reliability": metric(
        plotting.plot_reliability,
        *BINS,
        *NAMES,
        AXES,
        *(one_of("level", value, "Try 0.9") for value in (2, "a", None)),
    ),
    "plotting.plot_confusion": metric(plotting.plot_confusion, *NAMES, AXES),
    "plotting.plot_simplex": Entry(
        plotting.plot_simplex,
        lambda: {"probabilities": P, "labels": [0, 1]},
        [Bad("probabilities", P[:, :2], "[2, 2]", "plot_reliability"), *labels(), *NAMES, AXES],
    ),
    "plotting.plot_entropies": Entry(
        plotting.plot_entropies,
        lambda: {"entropies": ENTROPIES},
        [
            Bad("entropies", None, "NoneType", "as predict_entropy returns"),
            Bad("entropies", (P, P, P), "[2, 3]", "Predict rows"),
            Bad("entropies", ENTROPIES[::-1], "0.5, 0.5, 1", "as it is"),
            Bad("correct", [1, 0], "int64", "np.argmax"),
            *counts("num_columns"),
            AXES,
        ],
    ),
    "plotting.plot_decision_regions": Entry(
        plotting.plot_decision_regions,
        lambda: {"predict": exact(), "X": X, "labels": Y},
        [
            Bad("predict", None, "NoneType", "predict_proba"),
            *rows(),
            Bad("X", X[:, :1], "[9, 1]", "two columns"),
            *labels(9),
            *counts("resolution"),
            AXES,
        ],
    ),
    "plotting.plot_trace": Entry(
        plotting.plot_trace,
        dict,
        [
            Bad("losses", None, "None", "must be numbers"),
            Bad("losses", [[1.0]], "[1, 1]", "Pass the loss of each step"),
        ],
    ),
    "plotting.plot_smoothing": Entry(
        plotting.plot_smoothing, dict, [Bad("model", svgp(), "ILRSVGP", "Pass an ILRGPR")]
    ),
}
