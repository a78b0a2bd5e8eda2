"""Functions of arrays: metrics, pictures, starting values, scalings, weights of classes."""

from __future__ import annotations

from typing import Any

import gpflow
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from hypothesis import strategies as st

import gpflow_ilr as gi
from gpflow_ilr import calibration, metrics, plotting
from gpflow_ilr.inputs.scaling import SCALINGS
from tests.fuzz import awkward
from tests.fuzz.answers import Draw, Entry, finite
from tests.fuzz.built import Built

__all__ = ["NUMBER_ENTRIES", "PICTURE_ENTRIES"]

matplotlib.use("Agg")


# Metrics and pictures of predictions


def _probabilities_and_labels(draw: Draw, classes: list[int]) -> tuple[Any, Any]:
    K = draw(st.sampled_from(classes))
    p = draw(awkward.probabilities(K))
    return p, draw(awkward.labels(len(p) if hasattr(p, "__len__") else 3, K))


def _metric(name: str) -> Entry:
    def call(draw: Draw) -> None:
        p, y = _probabilities_and_labels(draw, [3, 2, 1000])
        binned = "calibration" in name or "reliability" in name
        options = {"num_bins": draw(awkward.counts())} if binned else {}
        if name == "reliability_curve":
            options["class_index"] = draw(st.sampled_from([None, 0, 2, 7, -1, "a"]))
        result = getattr(metrics, name)(p, y, **options)
        if name == "negative_log_likelihood":  # ∞, with a warning, where what occurred had p = 0
            assert result >= 0.0
        else:
            finite(result if name != "reliability_curve" else result.calibration_error)

    return call


def _picture(name: str) -> Entry:
    def call(draw: Draw) -> None:
        p, y = _probabilities_and_labels(draw, [3, 2])
        options: dict[str, Any] = {}
        if name == "plot_reliability":
            options = {"num_bins": draw(awkward.counts()), "level": draw(awkward.LEVELS)}
        names = st.sampled_from([None, None, ["a", "b", "c"], ["a"], 3])
        _drawn(getattr(plotting, name), p, y, class_names=draw(names), **options)

    return call


def _drawn(plot: Any, *arguments: Any, **options: Any) -> None:
    """A picture, whose numbers are finite when it is drawn."""
    try:
        plot(*arguments, **options).figure.canvas.draw()
    finally:
        plt.close("all")


def _entropies(draw: Draw) -> None:
    built = Built(draw, gi.ILRGPR)
    correct = draw(st.sampled_from([None, None, [True, False], np.ones(3, bool), "a"]))
    entropies = built.model.predict_entropy(built.new())
    _drawn(plotting.plot_entropies, entropies, correct=correct, num_columns=draw(awkward.counts()))


def _regions(draw: Draw) -> None:
    built = Built(draw, gi.ILRGPR)
    X, y = built.rows()
    _drawn(plotting.plot_decision_regions, built.model, X, y, resolution=draw(awkward.counts()))


def _trace(draw: Draw) -> None:
    losses = draw(awkward.rows(draw(awkward.SIZES), 1))
    _drawn(plotting.plot_trace, losses if draw(st.booleans()) else [3.0, np.nan, 2.0])


def _smoothing(draw: Draw) -> None:
    built = Built(draw, gi.ILRGPR)
    data = built.rows() if draw(st.booleans()) else None
    options = {"max_rows": draw(awkward.counts()), "num_points": draw(awkward.counts())}
    _drawn(plotting.plot_smoothing, built.model, data, **options)


# Starting values, scalings, weights of classes


def _starting_kernel(draw: Draw) -> None:
    X = draw(awkward.rows(draw(awkward.SIZES), draw(st.sampled_from([1, 2]))))
    code = draw(awkward.CLASSES)
    kernel = gi.starting_kernel(X, code, ard=draw(st.booleans()))
    assert isinstance(kernel, gpflow.kernels.Kernel)
    finite([p.numpy() for p in kernel.parameters])


def _kmeans(draw: Draw) -> None:
    X = draw(awkward.rows(draw(awkward.SIZES), draw(st.sampled_from([1, 2]))))
    finite(gi.kmeans_plusplus(X, draw(awkward.counts()), draw(awkward.SEEDS_GIVEN)))


def _greedy(draw: Draw) -> None:
    D = draw(st.sampled_from([1, 2]))
    X = draw(awkward.rows(draw(awkward.SIZES), D))
    finite(gi.greedy_variance(X, draw(awkward.counts()), draw(awkward.kernels(D))))


def _scaling(draw: Draw) -> None:
    N, D = draw(awkward.SIZES), draw(st.sampled_from([1, 2]))
    scaling = draw(st.sampled_from(list(SCALINGS.values())))(draw(awkward.rows(N, D)))
    finite(scaling(draw(awkward.rows(N, D))))


def _class_weights(draw: Draw) -> None:
    finite(calibration.balanced_class_weights(draw(awkward.labels(6, 3)), draw(awkward.CLASSES)))


def _unweighted(draw: Draw) -> Any:
    given = [np.ones(3), [1.0, 2.0, 1e30], [1e-30, 1.0, 1.0], [0, 1, 1], [1.0], "a", None, np.nan]
    return calibration.undo_class_weights(
        draw(awkward.probabilities(3)), draw(st.sampled_from(given))
    )


def _calibrated(draw: Draw) -> Any:
    """The function that is every model's method, of any model."""
    built = Built(draw, draw(st.sampled_from([gi.ILRGPR, gi.DirichletGPR, gi.ILRSVGP])))
    calibration.calibrate(built.model, built.rows())
    return built.probabilities()


FUNCTIONS = [name for name in metrics.__all__ if name[0].islower()]
NUMBER_ENTRIES: dict[str, Entry] = {
    **{f"metrics.{name}": _metric(name) for name in FUNCTIONS},
    "starting_kernel": _starting_kernel,
    "kmeans_plusplus": _kmeans,
    "greedy_variance": _greedy,
    "scaling": _scaling,
    "calibration.balanced_class_weights": _class_weights,
    "calibration.undo_class_weights": _unweighted,
    "calibration.calibrate": _calibrated,
}
PICTURE_ENTRIES: dict[str, Entry] = {
    **{
        f"plotting.{name}": _picture(name)
        for name in ("plot_reliability", "plot_confusion", "plot_simplex")
    },
    "plotting.plot_entropies": _entropies,
    "plotting.plot_decision_regions": _regions,
    "plotting.plot_trace": _trace,
    "plotting.plot_smoothing": _smoothing,
}
