"""Entropies stand in their order, split as predict_entropy splits them."""

import numpy as np
import pytest

from gpflow_ilr.plotting import plot_entropies


def parts(N: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    aleatoric, epistemic = rng.uniform(size=[2, N])
    return aleatoric + epistemic, aleatoric, epistemic


def stairs(ax) -> dict:
    return {patch.get_label().split(":")[0]: patch.get_data() for patch in ax.patches}


def test_columns_are_rows_in_the_order_of_their_total() -> None:
    total, aleatoric, epistemic = parts(30)
    drawn = stairs(plot_entropies((total, aleatoric, epistemic)))
    order = np.argsort(total)
    np.testing.assert_allclose(drawn["aleatoric"].values, aleatoric[order])
    np.testing.assert_allclose(drawn["epistemic"].values, total[order])
    np.testing.assert_allclose(drawn["epistemic"].baseline, aleatoric[order])
    np.testing.assert_allclose(drawn["total"].values, total[order])


def test_many_rows_share_columns_of_their_means() -> None:
    total, aleatoric, epistemic = parts(1003)
    drawn = stairs(plot_entropies((total, aleatoric, epistemic), num_columns=50))
    values, edges, _ = drawn["aleatoric"]
    assert len(values) == 50
    assert np.sum(values * np.diff(edges)) == pytest.approx(aleatoric.sum())
    assert np.sum(drawn["total"].values * np.diff(edges)) == pytest.approx(total.sum())
    assert np.all(np.diff(drawn["total"].values) > 0)


def test_wrong_rows_are_marked_below_where_they_stand() -> None:
    entropies = parts(20)
    correct = np.arange(20) % 4 != 0
    ax = plot_entropies(entropies, correct=correct)
    places = np.asarray(ax.collections[0].get_offsets())
    rank = np.argsort(np.argsort(entropies[0]))
    np.testing.assert_array_equal(places[:, 0], np.sort(rank[~correct]) + 0.5)
    assert np.all(places[:, 1] < 0.0)
    assert ax.collections[0].get_label() == "predicted wrongly:\n5 of 20"


def test_a_models_entropies_can_be_drawn_as_they_are(model) -> None:
    X = np.asarray(model.data[0])
    entropies = model.predict_entropy(X)
    drawn = stairs(plot_entropies(entropies))
    np.testing.assert_allclose(drawn["total"].values, np.sort(entropies.total), atol=1e-3)


def test_certain_rows_can_be_drawn() -> None:
    assert np.ptp(plot_entropies(np.zeros([3, 4])).get_ylim()) > 0.0


@pytest.mark.parametrize(
    ("entropies", "sentence"),
    [
        (np.ones(4), r"must be three arrays, total, .* but is a ndarray"),
        (None, "as predict_entropy returns them, but is a NoneType"),
        (
            np.ones([3, 2, 2]),
            r"three arrays \[N\], but have shapes \[\[2, 2\], \[2, 2\], \[2, 2\]\]",
        ),
        (parts(5)[::-1], r"in this order, but row 0 has .* Pass what predict_entropy returns"),
        (([np.nan], [np.nan], [0.0]), "but row 0 has nan, nan, 0"),
        (([-1.0], [-1.0], [0.0]), "none negative"),
    ],
)
def test_what_are_no_entropies_is_refused(entropies, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        plot_entropies(entropies)


@pytest.mark.parametrize("correct", [np.ones(4, bool), np.ones(5)])
def test_correct_is_a_boolean_for_each_row(correct: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"correct must be 5 booleans.* Pass np.argmax"):
        plot_entropies(parts(5), correct=correct)
