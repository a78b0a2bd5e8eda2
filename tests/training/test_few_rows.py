"""Claims about the automatic fit of few rows: everything is judged by folds."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_breast_cancer, load_wine, make_classification

import gpflow_ilr as gi
from gpflow_ilr.calibration.criterion import MeanNLL, label_nll
from gpflow_ilr.calibration.search import choose_sharpness
from gpflow_ilr.inputs.scaling import SCALINGS, suitable_scalings
from gpflow_ilr.training import few_rows as module
from gpflow_ilr.training.few_rows import (
    _Search,
    cautious_sharpness,
    choose_for_few_rows,
    stratified_folds,
    uncollapsed,
)
from gpflow_ilr.training.report import Budget, Report
from gpflow_ilr.training.settings import Setting, ranked_settings
from tests.calibration.held_out import draw, link_of

SETTING = Setting("standardised", "SquaredExponential", ard=False)


def rows(num_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three classes that overlap, in columns of different scale."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, num_rows)
    X = rng.normal(size=(num_rows, 2)) + 1.3 * np.stack([np.cos(2 * y), np.sin(2 * y)], 1)
    return X * [1.0, 100.0], y


def test_every_class_is_dealt_out_evenly_and_by_the_seed() -> None:
    y = np.random.default_rng(0).choice(4, 103, p=[0.6, 0.2, 0.12, 0.08])
    folds = stratified_folds(y, 5, seed=1)
    assert set(folds) == set(range(5))
    for k in range(4):
        counts = np.bincount(folds[y == k], minlength=5)
        assert counts.max() - counts.min() <= 1
    sizes = np.bincount(folds)
    assert sizes.max() - sizes.min() <= 1
    np.testing.assert_array_equal(folds, stratified_folds(y, 5, seed=1))
    assert np.any(folds != stratified_folds(y, 5, seed=2))


def test_a_fold_is_predicted_by_a_model_that_has_not_seen_it() -> None:
    X, y = rows(40)
    folds = stratified_folds(y, 2, 0)
    search = _Search((X, y), 3, folds, Report())
    nll = search.exact(SETTING)
    sharpness = search.models[SETTING][0].code.sharpness.numpy()
    for fold in (0, 1):
        held_out = folds == fold
        scaling = SCALINGS["standardised"](X[~held_out])
        model = SETTING.fitted((scaling(X[~held_out]).numpy(), y[~held_out]), 3)
        model.code.sharpness.assign(sharpness)
        p = model.predict_y(scaling(X[held_out]))[0].numpy()
        expected = -np.log(p[np.arange(len(p)), y[held_out]])
        np.testing.assert_allclose(nll[held_out], expected, rtol=1e-6)
    whole = search.candidates.best()
    assert whole.model.code.sharpness.numpy() == sharpness
    assert whole.model.num_data == 40


def test_models_of_all_rows_are_fitted_for_what_is_chosen_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fitted = []
    original = Setting.fitted
    monkeypatch.setattr(
        Setting, "fitted", lambda self, *rows: fitted.append(self) or original(self, *rows)
    )
    X, y = rows(40)
    search = _Search((X, y), 3, stratified_folds(y, 2, 0), Report())
    for scaling in ("standardised", "normal quantiles"):
        search.exact(Setting(scaling, "SquaredExponential", ard=False))
    assert not fitted
    search.whole(SETTING)
    assert search.whole(SETTING) is search.whole(SETTING)
    assert fitted == [SETTING]


@pytest.mark.parametrize("num_rows", [30, 3000])
def test_the_sharpness_is_no_larger_than_labels_can_tell(num_rows: int) -> None:
    held_out, link = draw(3, num_rows, 3.0), link_of(3)
    best, _ = choose_sharpness(MeanNLL(held_out, link))
    chosen = cautious_sharpness(held_out, link)
    assert chosen <= best
    excess, least = (
        label_nll(held_out, link, tf.constant(L, link.dtype)).numpy() for L in (chosen, best)
    )
    excess -= least
    assert np.mean(excess) <= np.std(excess) / np.sqrt(num_rows) + 1e-12
    if num_rows == 3000:  # many labels leave little doubt
        assert chosen > 0.85 * best


def test_the_uncollapsed_start_with_all_rows_predicts_as_the_exact_model() -> None:
    X, y = rows(30)
    scaled = SCALINGS["standardised"](X)(X).numpy()
    exact = SETTING.fitted((scaled, y), 3, max_iterations=5)
    model = uncollapsed(exact, 100, seed=0)
    assert not model.inducing_variable.trainable_variables
    p, expected = (m.predict_y(scaled[:9] + 0.1)[0] for m in (model, exact))
    np.testing.assert_allclose(p, expected, atol=1e-3)


def test_natural_gradients_win_where_the_start_is_poor_and_keep_their_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FAMILIES", ["SquaredExponential"])
    monkeypatch.setattr(module, "LINEAR_FAMILIES", ["Linear"])
    monkeypatch.setattr(module, "MAX_STEPS", 60)
    monkeypatch.setattr(module, "MANY_FOLDS", 50)
    # A start that is far too cautious: the exact likelihood finds a better one.
    monkeypatch.setattr(module, "cautious_sharpness", lambda *_: 1.5)
    X, y = rows(90)
    report = Report()
    classifier = choose_for_few_rows((X, y), 3, Budget(1000.0, 1e9), report, 0)
    kinds = [trial.model for trial in report.trials]
    assert kinds.count("exact") == 6
    assert "3 folds" in report.criterion
    assert kinds.count("polished") == 3  # of the best setting, and of a plane in each scaling
    assert report.chosen in report.trials
    best = {kind: min(t.nll for t in report.trials if t.model == kind) for kind in kinds}
    assert best["polished"] < best["exact"] - 0.05
    assert report.chosen.nll <= best["polished"] + 0.05
    X_new, y_new = rows(500, seed=1)
    nll = gi.metrics.negative_log_likelihood(classifier.predict_y(X_new)[0], y_new)
    assert nll < report.chosen.nll + 0.1


@pytest.mark.parametrize("hopeless", [False, True])
def test_later_folds_go_no_further_than_is_of_use(
    hopeless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    class NoSteps:
        """They change nothing, so that the first look is as good as any."""

        def __init__(self, *_: object, **__: object) -> None: ...

        def restart(self) -> None:
            looks.append(0)

        def take(self, num_steps: int) -> bool:
            assert num_steps == module.CHECK_EVERY
            looks[-1] += 1
            return True

    X, y = rows(60)
    report = Report()
    search = _Search((X, y), 3, stratified_folds(y, 3, 0), report)
    search.exact(SETTING)
    monkeypatch.setattr(module, "NaturalSteps", NoSteps)
    monkeypatch.setattr(search.candidates, "is_hopeless", lambda *_: hopeless)
    search.polished(SETTING, Budget(1e6, 1e9), 0)
    remark = report.trials[-1].remark
    if hopeless:
        assert looks == [12]
        assert remark == "given up after 1 of 3 folds"
    else:
        assert looks == [12, 6, 6]
        assert remark == "10 natural-gradient steps"


def test_planes_share_their_compiled_steps_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_STEPS", 20)
    X, y = rows(60)

    def fitted(*scalings: str) -> tuple[list[np.ndarray], int]:
        """Probabilities of each of some planes, and how often steps were compiled."""
        search = _Search((X, y), 3, stratified_folds(y, 2, 0), Report())
        built = []
        monkeypatch.setattr(search.candidates, "is_hopeless", lambda *_: False)
        monkeypatch.setattr(
            search.candidates, "add", lambda *arguments: built.append(arguments[-1]) or 0.0
        )
        for scaling in scalings:
            setting = Setting(scaling, "Linear", ard=False)
            search.exact(setting)
            search.polished(setting, Budget(1e6, 1e9), 0)
        planes = [build() for build in built[1::2]]
        return [plane.predict_y(X)[0].numpy() for plane in planes], len(search._compiled)

    (first, second), num_compiled = fitted("standardised", "normal quantiles")
    assert num_compiled == 1
    assert np.max(np.abs(first - second)) > 1e-3
    np.testing.assert_allclose(second, fitted("normal quantiles")[0][0], atol=1e-8)


def test_a_short_budget_still_gives_a_model() -> None:
    X, y = rows(40)
    report = Report()
    classifier = choose_for_few_rows((X, y), 3, Budget(1e-3, 1e9), report, 0)
    assert [trial.model for trial in report.trials] == ["exact"]
    np.testing.assert_allclose(np.sum(classifier.predict_y(X)[0], axis=1), 1.0)


def sixth_of_classes() -> tuple[np.ndarray, np.ndarray]:
    return make_classification(
        1000,
        20,
        n_informative=6,
        n_redundant=0,
        n_classes=6,
        n_clusters_per_class=1,
        random_state=0,
    )


def half_of(load: object) -> tuple[np.ndarray, np.ndarray]:
    X, y = load(return_X_y=True)
    some = np.random.default_rng(0).permutation(len(X))[: len(X) // 2]
    return X[some], y[some]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ard"), [("wine", False), ("breast cancer", False), ("six classes", True)]
)
def test_lengthscales_for_each_column_only_where_rows_pay_for_them(name: str, ard: bool) -> None:
    loaders = {
        "wine": lambda: half_of(load_wine),
        "breast cancer": lambda: half_of(load_breast_cancer),
        "six classes": sixth_of_classes,
    }
    X, y = loaders[name]()
    report = Report()
    search = _Search((X, y), int(y.max()) + 1, stratified_folds(y, 3, 0), report)
    chosen, *_ = ranked_settings(
        search.exact, X.shape[1], suitable_scalings(X), ["Matern52"], lambda: False
    )
    assert chosen.ard == ard
