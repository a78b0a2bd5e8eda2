"""Where pictures go, in which colours, and what is said without matplotlib."""

import importlib
import inspect
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest

from gpflow_ilr import plotting
from gpflow_ilr.plotting.axes import class_colours, drawn_into, legend
from tests.plotting.forecasts import perfect

P, Y = perfect(40, 3)
X = np.random.default_rng(0).normal(size=[40, 2])
CALLS = {
    "plot_reliability": lambda **ax: plotting.plot_reliability(P, Y, **ax),
    "plot_decision_regions": lambda **ax: plotting.plot_decision_regions(
        lambda rows: np.full([len(rows), 3], 1 / 3), X, Y, resolution=5, **ax
    ),
    "plot_simplex": lambda **ax: plotting.plot_simplex(P, Y, **ax),
    "plot_trace": lambda **ax: plotting.plot_trace([3.0, 2.0, 1.0], [(0, 1.0), (2, 0.5)], **ax),
    "plot_entropies": lambda **ax: plotting.plot_entropies((P[:, 0], P[:, 0], 0 * P[:, 0]), **ax),
    "plot_confusion": lambda **ax: plotting.plot_confusion(P, Y, **ax),
}


@pytest.fixture
def calls(model):
    return {**CALLS, "plot_smoothing": lambda **ax: plotting.plot_smoothing(model, **ax)}


def test_every_function_returns_the_axes_that_it_was_given(calls) -> None:
    assert set(calls) == set(plotting.__all__)
    for name, call in calls.items():
        _, (given, other) = plt.subplots(1, 2)
        assert call(ax=given) is given, name
        assert given.has_data(), name
        assert not other.has_data(), name


def test_every_function_makes_a_figure_where_it_is_given_none(calls) -> None:
    _, other = plt.subplots()
    for name, call in calls.items():
        ax = call()
        assert ax.figure is not other.figure, name
        assert ax.get_ylabel() or name == "plot_simplex", name
    assert not other.has_data()


def test_no_legend_covers_the_data(calls) -> None:
    for name, call in calls.items():
        ax = call()
        ax.figure.canvas.draw()
        drawn = ax.get_legend()
        assert drawn is None or not drawn.get_window_extent().overlaps(ax.get_window_extent()), name


def test_every_function_takes_axes_by_name_and_documents_every_argument() -> None:
    for name in plotting.__all__:
        function = getattr(plotting, name)
        parameters = inspect.signature(function).parameters
        assert parameters["ax"].kind is inspect.Parameter.KEYWORD_ONLY, name
        assert all(f":param {argument}:" in function.__doc__ for argument in parameters), name


def test_what_is_no_axes_is_refused() -> None:
    figure, axes = plt.subplots(1, 2)
    with pytest.raises(TypeError, match="ax must be the axes to draw into, but is a Figure"):
        drawn_into(figure)
    with pytest.raises(TypeError, match=r"is a ndarray\. Pass one of those that plt\.subplots"):
        drawn_into(axes)


def seen_by_dichromats(colours: np.ndarray) -> list[np.ndarray]:
    """Colours without red cones, and without green ones (Viénot, Brettel and Mollon, 1999)."""
    linear = np.where(colours > 0.04045, ((colours + 0.055) / 1.055) ** 2.4, colours / 12.92)
    to_cones = np.array(
        [[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]]
    )
    protan = np.array([[0.0, 2.02344, -2.52581], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    deutan = np.array([[1.0, 0.0, 0.0], [0.494207, 0.0, 1.24827], [0.0, 0.0, 1.0]])
    seen = [np.linalg.solve(to_cones, lost @ to_cones @ linear.T).T for lost in (protan, deutan)]
    return [np.clip(colour, 0.0, 1.0) ** (1 / 2.2) for colour in seen]


def smallest_distance(colours: np.ndarray) -> float:
    """Between any two colours, for whichever reader sees it smallest."""
    others = ~np.eye(len(colours), dtype=bool)
    return min(
        np.linalg.norm(seen[:, None] - seen, axis=-1)[others].min()
        for seen in [colours, *seen_by_dichromats(colours)]
    )


@pytest.mark.parametrize("K", [2, 3, 8])
def test_colours_of_classes_differ_for_colour_blind_readers(K: int) -> None:
    assert smallest_distance(class_colours(K)) > 0.12
    # matplotlib's own colours do not.
    assert smallest_distance(np.array(plt.get_cmap("tab10").colors[:8])) < 0.06


def test_many_classes_have_as_many_colours() -> None:
    assert class_colours(30).shape == (30, 3)
    assert len(np.unique(class_colours(30), axis=0)) == 30


def test_a_legend_has_its_title_and_entries() -> None:
    ax = drawn_into(None)
    ax.plot([0, 1], label="line")
    legend(ax, "title")
    assert ax.get_legend().get_title().get_text() == "title"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["line"]


def test_without_matplotlib_the_error_says_how_to_install_it(monkeypatch) -> None:
    for name in [name for name in sys.modules if name.startswith("gpflow_ilr.plotting")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'gpflow_ilr\[plot\]'"):
        importlib.import_module("gpflow_ilr.plotting")
