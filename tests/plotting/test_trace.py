"""The trace shows every loss, the smallest so far, and where held-out labels were best."""

from types import SimpleNamespace

import numpy as np
import pytest

from gpflow_ilr.plotting import plot_trace

LOSSES = [5.0, 9.0, 3.0, np.nan, 4.0, 2.0, np.inf, 2.5]
LOOKS = [(0, 0.9), (3, 0.4), (7, 0.6)]


def lines(ax) -> dict:
    return {line.get_label(): line.get_xydata() for line in ax.get_lines()}


def test_losses_and_the_smallest_so_far_are_drawn_at_their_steps() -> None:
    drawn = lines(plot_trace(LOSSES))
    expected = np.where(np.isfinite(LOSSES), LOSSES, np.nan)
    np.testing.assert_array_equal(drawn["loss"], np.stack([np.arange(8), expected], axis=1))
    smallest = [5.0, 5.0, 3.0, 3.0, 3.0, 2.0, 2.0, 2.0]
    np.testing.assert_array_equal(drawn["smallest loss so far"][:, 1], smallest)


def test_line_searches_leave_the_picture_and_failures_do_not() -> None:
    low, high = plot_trace([5.0, 1e9, 3.0, 2.0]).get_ylim()
    assert low < 2.0
    assert 5.0 < high < 6.0
    assert plot_trace([5.0, 3.0, 1e9]).get_ylim()[1] > 1e9


def test_the_smallest_validation_nll_is_marked_on_its_own_axis() -> None:
    ax = plot_trace(LOSSES, LOOKS)
    twin = ax.figure.axes[-1]
    assert twin is not ax
    looks, mark = (line.get_xydata() for line in twin.get_lines())
    np.testing.assert_array_equal(looks, LOOKS)
    np.testing.assert_array_equal(mark, [(3, 0.4)])
    assert twin.get_ylabel().endswith("smallest: 0.4 at step 3")


def test_a_result_is_drawn_as_its_sequences() -> None:
    result = SimpleNamespace(losses=tuple(LOSSES), validation=tuple(LOOKS))
    ax, same = plot_trace(result), plot_trace(LOSSES, LOOKS)
    np.testing.assert_array_equal(lines(ax)["loss"], lines(same)["loss"])
    np.testing.assert_array_equal(*(a.figure.axes[-1].lines[0].get_xydata() for a in (ax, same)))


@pytest.mark.parametrize(("method", "first"), [("l-bfgs", 1), ("adam", 0), ("natural", 0)])
def test_losses_after_a_step_stand_at_its_end(method: str, first: int) -> None:
    result = SimpleNamespace(losses=[3.0, 2.0], validation=[], method=method)
    np.testing.assert_array_equal(lines(plot_trace(result))["loss"][:, 0], [first, first + 1])


@pytest.mark.parametrize("none", [None, (), []])
def test_without_validation_there_is_one_axis(none) -> None:
    assert len(plot_trace(SimpleNamespace(losses=[2.0, 1.0], validation=none)).figure.axes) == 1


@pytest.mark.parametrize("losses", [[1.0], [1.0, 1.0], [3.0, np.inf], np.float32([2, 1])])
def test_short_and_flat_traces_can_be_drawn(losses) -> None:
    assert np.ptp(plot_trace(losses).get_ylim()) > 0.0


@pytest.mark.parametrize(
    ("losses", "validation", "sentence"),
    [
        ([], None, r"losses must be numbers .* have shape \[0\]"),
        ([np.nan], None, r"at least one of them finite, but have shape \[1\]"),
        ([[1.0, 2.0]], None, r"in one dimension, .* have shape \[1, 2\]"),
        (["a"], None, r"losses must be numbers, but are \['a'\]"),
        ([1.0], [0.4, 0.3], r"validation must be pairs .* shape \[2\]. Pass list\(zip"),
    ],
)
def test_what_is_no_trace_is_refused(losses, validation, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        plot_trace(losses, validation)
