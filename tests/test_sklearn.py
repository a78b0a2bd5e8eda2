"""Claims about the scikit-learn classifier."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpflow_ilr import ILRSVGP
from gpflow_ilr.sklearn import ILRClassifier

SHORT = {"time_limit": 1e-3, "random_state": 0}
X, Y = load_iris(return_X_y=True, as_frame=True)
X, Y = X[::3], Y[::3]
NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]


EXCEPTIONS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "Models are judged by folds: copies of a row may be in several, a weighted row is in one."
    )
}


@parametrize_with_checks([ILRClassifier(**SHORT)], expected_failed_checks=lambda _: EXCEPTIONS)
def test_it_is_an_estimator(estimator: ILRClassifier, check: object) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def fitted() -> ILRClassifier:
    return ILRClassifier(**SHORT).fit(X, NAMES)


def test_labels_and_columns_keep_their_names(fitted: ILRClassifier) -> None:
    assert list(fitted.classes_) == ["setosa", "versicolor", "virginica"]
    assert list(fitted.feature_names_in_) == list(X.columns)
    p = fitted.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[p.argmax(axis=1)])
    np.testing.assert_allclose(fitted.predict_log_proba(X), np.log(p))
    assert fitted.score(X, NAMES) > 0.9
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(X.rename(columns=str.upper))


def test_other_labels_of_the_same_rows_give_the_same_probabilities(fitted: ILRClassifier) -> None:
    numbered = ILRClassifier(**SHORT).fit(X.to_numpy(), Y.to_numpy() * 10 - 3)
    np.testing.assert_allclose(
        numbered.predict_proba(X.to_numpy()), fitted.predict_proba(X), atol=1e-9
    )
    assert list(numbered.classes_) == [-3, 7, 17]


def test_the_report_says_what_was_tried(
    fitted: ILRClassifier, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fitted.report_.chosen.nll == pytest.approx(fitted.report_.trials[0].nll)
    ILRClassifier(**SHORT, progress=True).fit(X, NAMES)
    shown = capsys.readouterr().out
    assert "NLL" in shown
    assert str(fitted.report_.trials[0]).split()[0] in shown


def test_pickles_predict_the_same_in_another_process(
    fitted: ILRClassifier, tmp_path: object
) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps((fitted, X)))
    script = (
        "import pickle, sys; model, X = pickle.load(open(sys.argv[1], 'rb'));"
        "pickle.dump(model.predict_proba(X), open(sys.argv[1] + '.out', 'wb'))"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    there = pickle.loads((tmp_path / "model.pkl.out").read_bytes())
    np.testing.assert_allclose(there, fitted.predict_proba(X), atol=1e-12)


def test_categories_become_indicators_and_missing_values_are_filled_in() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=60), "colour": rng.choice(["r", "g", "b"], 60)})
    y = (frame["colour"] == "r").astype(int)
    frame.loc[::7, "size"] = np.nan
    with pytest.raises(ValueError, match=r"could not convert string.*categories="):
        ILRClassifier(**SHORT).fit(frame, y)
    with pytest.raises(ValueError, match=r"contains NaN\. Use missing='impute'"):
        ILRClassifier(**SHORT, categories=["colour"]).fit(frame, y)
    named = ILRClassifier(**SHORT, categories=["colour"], missing="impute").fit(frame, y)
    assert named.score(frame, y) == 1.0
    by_type = clone(named).set_params(categories="from_dtype").fit(frame, y)
    np.testing.assert_allclose(by_type.predict_proba(frame), named.predict_proba(frame))
    unknown = frame.assign(colour="violet")
    np.testing.assert_allclose(named.predict_proba(unknown).sum(axis=1), 1.0)


def test_it_stands_in_pipelines_searches_and_calibration() -> None:
    pipeline = make_pipeline(PolynomialFeatures(1, include_bias=False), ILRClassifier(**SHORT))
    search = GridSearchCV(
        pipeline, {"polynomialfeatures__degree": [1, 2]}, cv=2, scoring="neg_log_loss"
    )
    search.fit(X, NAMES)
    assert search.best_score_ > -0.4
    calibrated = CalibratedClassifierCV(ILRClassifier(**SHORT), cv=2).fit(X, NAMES)
    assert log_loss(NAMES, calibrated.predict_proba(X)) < 0.5


def test_sets_are_those_of_rows_that_fit_has_not_seen(fitted: ILRClassifier) -> None:
    all_rows, all_labels = load_iris(return_X_y=True, as_frame=True)
    X_cal, X_new = all_rows[1::3], all_rows[2::3]
    y_cal = np.array(["setosa", "versicolor", "virginica"])[all_labels[1::3]]
    sets = fitted.predict_set(X_new, X_cal, y_cal, level=0.8, score="plain")
    # The 41st of 50 scores in the order of their size: ⌈0.8 · 51⌉.
    p = fitted.predict_proba(X_cal)[np.arange(50), all_labels[1::3]]
    np.testing.assert_array_equal(sets, fitted.predict_proba(X_new) >= np.sort(p)[-41])
    assert np.all(fitted.predict_set(X_new, X_cal, y_cal, level=0.8).any(axis=1))
    with pytest.raises(ValueError, match="y_cal has the class 'iris', which fit has not seen"):
        fitted.predict_set(X_new, X_cal, np.where(y_cal == "setosa", "iris", y_cal))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"time_limit": 0}, "time_limit must be positive, but is 0"),
        ({"memory_limit": -1.0}, "memory_limit must be positive, but is -1.0"),
        ({"missing": "ignore"}, "missing must be 'refuse' or 'impute', but is 'ignore'"),
        ({"categories": ["colour"]}, "colour"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ILRClassifier(**(SHORT | arguments)).fit(X, NAMES)


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="one class only, 'setosa'"):
        ILRClassifier(**SHORT).fit(X[:10], ["setosa"] * 10)


def test_weights_are_those_of_fit_auto_and_only_ratios_count() -> None:
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=len(X))
    model = ILRClassifier(**SHORT).fit(X, NAMES, sample_weight=weights)
    again = ILRClassifier(**SHORT).fit(X, NAMES, sample_weight=1e4 * weights)
    np.testing.assert_allclose(model.predict_proba(X), again.predict_proba(X), atol=1e-6)
    plain = ILRClassifier(**SHORT).fit(X, NAMES)
    assert np.max(np.abs(model.predict_proba(X) - plain.predict_proba(X))) > 1e-4
    by_class = {"setosa": 1.0, "versicolor": 3.0}
    both = ILRClassifier(**SHORT, class_weight=by_class).fit(X, NAMES, sample_weight=weights)
    factors = np.array([1.0, 3.0, 1.0])[Y]
    product = ILRClassifier(**SHORT).fit(X, NAMES, sample_weight=factors * weights)
    np.testing.assert_allclose(both.predict_proba(X), product.predict_proba(X), atol=1e-9)


def test_weights_are_routed_through_pipelines() -> None:
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=len(X))
    direct = ILRClassifier(**SHORT).fit(X.to_numpy(), NAMES, sample_weight=weights)
    with config_context(enable_metadata_routing=True):
        step = ILRClassifier(**SHORT).set_fit_request(sample_weight=True)
        pipeline = make_pipeline(PolynomialFeatures(1, include_bias=False), step)
        pipeline.fit(X, NAMES, sample_weight=weights)
    np.testing.assert_allclose(
        pipeline.predict_proba(X), direct.predict_proba(X.to_numpy()), atol=1e-9
    )


def rare_class(num_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A class of 8 % of the rows, inside the other."""
    rng = np.random.default_rng(seed)
    y = (rng.uniform(size=num_rows) < 0.08).astype(int)
    return rng.normal(size=(num_rows, 2)) * np.where(y == 1, 0.8, 1.5)[:, None], y


def test_balanced_classes_are_found_more_often_and_the_correction_restores_calibration() -> None:
    train, (X_new, y_new) = rare_class(400, 0), rare_class(4000, 1)
    plain = ILRClassifier(**SHORT).fit(*train)
    balanced = ILRClassifier(**SHORT, class_weight="balanced").fit(*train)
    rare = y_new == 1
    assert np.mean(plain.predict(X_new[rare])) < 0.2
    assert np.mean(balanced.predict(X_new[rare])) > 0.6
    p = balanced.predict_proba(X_new)
    assert np.mean(p[:, 1]) > 0.3  # a world in which both are as frequent
    assert log_loss(y_new, p) > 1.5 * log_loss(y_new, plain.predict_proba(X_new))
    balanced.set_params(correct_prior=True)
    corrected = balanced.predict_proba(X_new)
    assert np.mean(corrected[:, 1]) == pytest.approx(np.mean(rare), abs=0.03)
    assert log_loss(y_new, corrected) < 1.05 * log_loss(y_new, plain.predict_proba(X_new))


def test_rows_and_classes_may_come_later() -> None:
    first = NAMES != "setosa"  # the first in the order of names comes last
    model = ILRClassifier(**SHORT).partial_fit(X[first], NAMES[first])
    assert list(model.classes_) == ["versicolor", "virginica"]
    rest = np.flatnonzero(~first)
    model.partial_fit(X.iloc[rest[:1]], NAMES[rest[:1]]).partial_fit(
        X.iloc[rest[1:]], NAMES[rest[1:]]
    )
    assert list(model.classes_) == ["setosa", "versicolor", "virginica"]
    assert model.score(X, NAMES) > 0.9
    p = model.predict_proba(X)
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])
    sets = model.predict_set(X, X, NAMES, level=0.9, score="plain")
    assert np.mean(sets[np.arange(len(X)), Y]) >= 0.9
    (exact,) = [m for m in model.classifier_.submodules if hasattr(m, "labelled_rows")]
    whole = type(exact)(
        (exact.data[0], exact.labels),
        exact.kernel,
        num_classes=3,
        smoothing=exact.smoothing,
        noise_variance=float(exact.code.noise_variance[0, 0]),
    )
    scaled = model.classifier_.classifier.scaling(X)
    np.testing.assert_allclose(p[:, [1, 2, 0]], whole.predict_y(scaled)[0], atol=1e-8)


def test_classes_may_be_named_before_they_have_rows() -> None:
    model = ILRClassifier(**SHORT)
    model.partial_fit(X[:60:2], NAMES[:60:2], classes=["setosa", "versicolor", "virginica", "iris"])
    assert len(model.classes_) == 4
    assert model.predict_proba(X).shape == (len(X), 4)


@pytest.mark.parametrize(
    ("options", "call", "sentence"),
    [
        (
            {"class_weight": "balance"},
            "fit",
            "class_weight must be None, 'balanced' or a dictionary",
        ),
        ({"class_weight": {"setosa": -1.0}}, "fit", "class_weight must be positive, but is"),
        ({"class_weight": "balanced"}, "partial_fit", "class_weight='balanced' needs all rows"),
    ],
)
def test_weights_of_classes_that_make_no_sense(options: dict, call: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        getattr(ILRClassifier(**SHORT, **options), call)(X, NAMES)


def test_a_fit_that_cannot_take_in_rows_says_so() -> None:
    polished = ILRClassifier(**SHORT).fit(X, NAMES)
    scaled = polished.classifier_.classifier
    exact = scaled.model
    scaled.model = ILRSVGP(exact.kernel, exact.data[0][:5], num_classes=3)
    with pytest.raises(ValueError, match="Use partial_fit from the first rows on"):
        polished.partial_fit(X, NAMES)


ROWS, NUMBERS = np.random.default_rng(0).normal(size=(9, 2)), np.arange(9) % 3


@pytest.fixture(name="small", scope="module")
def _small() -> ILRClassifier:
    return ILRClassifier(time_limit=1e-3).partial_fit(ROWS, NUMBERS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": NUMBERS.astype(str)}, r"^y has labels of dtype <U.*the others are of dtype int64"),
        ({"y": np.array([None] * 9)}, "^y cannot be read: .*Unknown label type"),
        ({"y": NUMBERS[:-1]}, r"X has 9 rows and y has 8\. Pass as many"),
        ({"y": None}, "requires y to be passed"),
        ({"X": ROWS[:, 0]}, "^X cannot be read: Expected 2D"),
        (
            {"X": [["a", "b"]] * 9},
            r"^X: could .*in categories=\[...\], or use categories=",
        ),
        ({"classes": ["new"]}, "^classes has labels of dtype <U3"),
        ({"classes": [np.nan]}, "^Input classes contains NaN"),
        ({"classes": 3}, "^classes cannot be read"),
        ({"sample_weight": "w"}, "^sample_weight must hold real numbers"),
        ({"sample_weight": ["w"] * 9}, "^sample_weight must hold real numbers"),
        ({"X": np.full([9, 2], 1e159)}, "^X must be within .*overflow float64"),
        ({"X": np.ma.masked_less(ROWS, 0.0)}, r"^X must not be masked, but row \d, column \d is"),
        ({"y": np.ma.masked_equal(NUMBERS, 1)}, "^y must not be masked, but row 1 is"),
    ],
)
def test_later_rows_that_cannot_be_read_are_refused_by_name(
    small: ILRClassifier, arguments: dict[str, Any], message: str
) -> None:
    before = small.predict_proba(ROWS)
    with pytest.raises((TypeError, ValueError), match=message):
        small.partial_fit(**{"X": ROWS, "y": NUMBERS} | arguments)
    np.testing.assert_array_equal(small.classes_, [0, 1, 2])
    np.testing.assert_array_equal(small.predict_proba(ROWS), before)


def test_rows_of_calibration_are_refused_by_their_own_names(small: ILRClassifier) -> None:
    for X_cal, y_cal, message in (
        (ROWS[:, 0], NUMBERS, "^X_cal cannot be read: Expected 2D"),
        (ROWS * 1e159, NUMBERS, "^X_cal must be within"),
        (ROWS, None, r"requires y_cal to be passed.* for each row of X_cal\."),
        (ROWS, NUMBERS[:3], "X_cal has 9 rows and y_cal has 3"),
        (ROWS, NUMBERS.astype(str), "^y_cal has labels of dtype <U"),
    ):
        with pytest.raises(ValueError, match=message):
            small.predict_set(ROWS, X_cal, y_cal)
