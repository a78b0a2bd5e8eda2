"""A scikit-learn classifier: rows in, calibrated probabilities out, nothing to choose.

:class:`ILRClassifier` is :func:`gpflow_ilr.training.fit_auto` behind scikit-learn's interface, so that
it stands in pipelines, searches and comparisons. It takes labels of any type; columns that it is told
are categories become indicators, missing values are filled in where it is told so. Needs scikit-learn:
``pip install 'gpflow_ilr[sklearn]'``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from gpflow.utilities import deepcopy

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.compose import ColumnTransformer, make_column_selector
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder
    from sklearn.utils import assert_all_finite, check_array, check_random_state, column_or_1d
    from sklearn.utils.class_weight import compute_class_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "gpflow_ilr.sklearn needs scikit-learn 1.7 or newer: pip install 'gpflow_ilr[sklearn]'."
    ) from error

from gpflow_ilr.calibration import undo_class_weights
from gpflow_ilr.calibration.prediction_sets import Score
from gpflow_ilr.inputs.counts import number_or_nan
from gpflow_ilr.inputs.labels import check_one_kind
from gpflow_ilr.inputs.rows import as_inputs, refuse_masked
from gpflow_ilr.inputs.weights import as_weights
from gpflow_ilr.training import AutoClassifier, fit_auto

__all__ = ["ILRClassifier"]

Missing = Literal["refuse", "impute"]


class ILRClassifier(ClassifierMixin, BaseEstimator):
    """A Gaussian-process classifier that chooses scaling, kernel and model by held-out labels.

    Up to 1,500 rows take about a minute, 15,000 about a minute and a half on two cores;
    ``time_limit`` makes it less. ``report_`` says what was tried and what NLL to expect.

    :param time_limit: seconds after which nothing more is tried; the best so far is kept. One kernel
        is fitted all the same.
    :param memory_limit: bytes of the largest matrix.
    :param categories: columns that are categories, by name or number; ``"from_dtype"`` for those that
        a data frame says are. They become indicators; a category not seen in training has none.
    :param missing: ``"refuse"`` missing values, or ``"impute"`` the median of their column, with an
        indicator of where they were missing.
    :param class_weight: None, ``"balanced"`` or a dictionary from classes to weights. It multiplies the
        weights of the rows. Classes are then predicted as if they were so many times as frequent:
        rare ones are found more often, and probabilities are those of a world with such frequencies.
    :param correct_prior: divide that factor out at prediction, which makes the probabilities those of
        this world again; what is left of the weights is what the model has paid attention to.
    :param progress: print each trial as it is made.
    :param random_state: of samples and folds.

    Fitted attributes: ``classes_``, ``n_features_in_``, ``feature_names_in_``, ``report_`` (what was
    tried and what it promised) and ``classifier_`` (a :class:`gpflow_ilr.training.AutoClassifier`).
    """

    classes_: np.ndarray
    classifier_: AutoClassifier
    _codes: np.ndarray
    """The model's number of each of ``classes_``: those that came later have the last numbers."""

    def __init__(
        self,
        *,
        time_limit: float = 120.0,
        memory_limit: float = 4e9,
        categories: Literal["from_dtype"] | Sequence[Any] | None = None,
        missing: Missing = "refuse",
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
        correct_prior: bool = False,
        progress: bool = False,
        random_state: Any = None,
    ) -> None:
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.categories = categories
        self.missing = missing
        self.class_weight = class_weight
        self.correct_prior = correct_prior
        self.progress = progress
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ILRClassifier:
        """Choose and fit a model.

        :param X: [N, D], an array or a data frame; no need to scale it.
        :param y: labels of any type, [N].
        :param sample_weight: [N], how much each row counts, relative to the others; None for alike.
        :raises ValueError: if there are fewer than two classes, or values that are missing or not
            numbers where nothing was said of them.
        """
        return self._fit(X, y, None, sample_weight, updatable=False)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> ILRClassifier:
        """Fit, at the first call; add rows, and the classes that appear in them, at later ones.

        The first call chooses among models that can take in rows (all but those trained by natural
        gradients); later ones keep its scaling, kernel and noise, and change the posterior alone.
        Fit anew when most rows have come later.

        :param X: [n, D].
        :param y: labels, [n]; at a later call they may be of new classes.
        :param classes: further classes, of which rows may come later; not needed.
        :param sample_weight: [n], in the same units at all calls; None for alike.
        :raises ValueError: as ``fit``; with ``class_weight="balanced"``, which needs all rows; and
            after a ``fit`` that chose a model which cannot take in rows.
        """
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs all rows, which partial_fit has not. Pass a dictionary "
                "of weights, or sample_weight."
            )
        if not hasattr(self, "classifier_"):
            return self._fit(X, y, classes, sample_weight, updatable=True)
        if not self.classifier_.updatable:
            raise ValueError(
                "fit chose a model that cannot take in rows. Use partial_fit from the first rows on, "
                "which leaves such models out."
            )
        rows = self._encoded(X)
        labels = _labels(y, len(rows))
        check_one_kind(labels, self.classes_, "y")
        named = _with_classes(labels, classes)
        new = np.setdiff1d(named, self.classes_)
        known = np.concatenate([self.classes_, new])
        codes = np.concatenate([self._codes, len(self._codes) + np.arange(len(new))])
        order = np.argsort(known)
        places = codes[order][np.searchsorted(known[order], labels)]
        of_class, weights = self._weights(known[order], labels, sample_weight)
        self.classifier_.update(rows, places, sample_weight=weights, num_classes=len(known))
        self.classes_, self._codes, self._class_weights = known[order], codes[order], of_class
        return self

    def _fit(
        self, X: Any, y: Any, classes: Any, sample_weight: Any, updatable: bool
    ) -> ILRClassifier:
        for name in ("time_limit", "memory_limit"):
            if not number_or_nan(getattr(self, name)) > 0:
                raise ValueError(
                    f"{name} must be positive, but is {getattr(self, name)!r}. Pass a number."
                )
        if self.missing not in ("refuse", "impute"):
            raise ValueError(f"missing must be 'refuse' or 'impute', but is {self.missing!r}.")
        try:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        except ValueError as error:
            raise ValueError(
                f"random_state must be an integer that is not negative, a RandomState or None, but is "
                f"{self.random_state!r}. Pass 0, for example."
            ) from error
        rows = self._encoded(X, fitting=True)
        labels = _labels(y, len(rows))
        named = _with_classes(labels, classes)
        self.classes_ = np.unique(named)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class only, {self.classes_[0]!r}: a classifier needs two or more."
            )
        self._codes = np.arange(len(self.classes_))
        self._class_weights, weights = self._weights(self.classes_, labels, sample_weight)
        self.classifier_ = fit_auto(
            rows,
            np.searchsorted(self.classes_, labels),
            num_classes=len(self.classes_),
            sample_weight=weights,
            updatable=updatable,
            max_seconds=self.time_limit,
            max_bytes=self.memory_limit,
            progress=self.progress,
            seed=seed,
        )
        self.report_ = self.classifier_.report
        return self

    def _weights(
        self, classes: np.ndarray, labels: np.ndarray, sample_weight: Any
    ) -> tuple[np.ndarray, Any]:
        """Weights of the classes, [K], and of the rows, those of their classes among them, or None."""
        if self.class_weight is None:
            return np.ones(len(classes)), sample_weight
        if isinstance(self.class_weight, dict):
            of_class = np.array([self.class_weight.get(c, 1.0) for c in classes], float)
        elif self.class_weight == "balanced":
            of_class = compute_class_weight("balanced", classes=classes, y=labels)
        else:
            raise ValueError(
                "class_weight must be None, 'balanced' or a dictionary from classes to weights, but is "
                f"{self.class_weight!r}."
            )
        if not np.all(np.isfinite(of_class) & (of_class > 0.0)):
            raise ValueError(
                f"class_weight must be positive, but is {self.class_weight!r}. Leave out the rows of a "
                "class that is not to count."
            )
        weights = of_class[np.searchsorted(classes, labels)]
        if sample_weight is not None:
            weights = weights * as_weights(sample_weight, len(labels)).numpy()
        return of_class, weights

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, [N, K], in the order of ``classes_``.

        :param X: [N, D].
        """
        check_is_fitted(self)
        p = self.classifier_.predict_y(self._encoded(X))[0].numpy()[:, self._codes]
        return undo_class_weights(p, self._class_weights).numpy() if self.correct_prior else p

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the class probabilities, [N, K].

        :param X: [N, D].
        """
        with np.errstate(divide="ignore"):  # the logarithm of a probability of zero is −∞
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, [N].

        :param X: [N, D].
        """
        best = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[best]

    def predict_set(
        self,
        X: Any,
        X_cal: Any,
        y_cal: Any,
        *,
        level: float = 0.9,
        score: Score = "adaptive",
        class_conditional: bool = False,
        seed: int | None = None,
    ) -> np.ndarray:
        """Which classes are in the set that holds the true one with probability ``level``, [N, K].

        By split-conformal prediction, so the promise holds whatever was fitted, for rows that are
        exchangeable with those of ``X_cal``. Columns are in the order of ``classes_``.

        :param X: [N, D].
        :param X_cal: rows that ``fit`` has not seen.
        :param y_cal: their labels.
        :param level: in (0, 1).
        :param score: ``"adaptive"`` or ``"plain"``, see :mod:`gpflow_ilr.models.prediction_sets`.
        :param class_conditional: keep the promise for the rows of each class alone.
        :param seed: draw adaptive scores; None for none.
        :raises ValueError: if an argument makes no sense, or ``y_cal`` has a class that ``fit`` has
            not seen.
        """
        check_is_fitted(self)
        rows, known = self._encoded(X), self._encoded(X_cal, name="X_cal")
        labels = _labels(y_cal, len(known), "_cal")
        check_one_kind(labels, self.classes_, "y_cal")
        unknown = ~np.isin(labels, self.classes_)
        if unknown.any():
            raise ValueError(
                f"y_cal has the class {labels[unknown][0]!r}, which fit has not seen. Leave such rows "
                "out: no set holds their class."
            )
        places = self._codes[np.searchsorted(self.classes_, labels)]
        sets = self.classifier_.predict_set(
            rows,
            level,
            data=(known, places),
            score=score,
            class_conditional=class_conditional,
            seed=seed,
        )
        return sets.numpy()[:, self._codes]

    def _encoded(self, X: Any, fitting: bool = False, name: str = "X") -> np.ndarray:
        """Rows of finite numbers, [N, D]."""
        check = {"reset": fitting, "dtype": np.float64, "ensure_min_samples": 2 if fitting else 1}
        refuse_masked(X, name)
        try:
            if self.categories is None and self.missing == "refuse":
                return as_inputs(validate_data(self, X, **check), name=name).numpy()
            validate_data(self, X, reset=fitting, skip_check_array=True)  # keeps the columns' names
            if fitting:
                self._encoder = self._columns(X)
                self._fit_encoder(X)
            rows = check_array(self._encoder.transform(X), dtype=np.float64)
            return as_inputs(rows, name=name).numpy()
        except (ValueError, TypeError, LookupError) as error:
            raise _with_advice(error, name) from error

    def _fit_encoder(self, X: Any) -> None:
        """Look at the columns, those that are named in ``categories`` first."""
        try:
            self._encoder.fit(X)
        except (ValueError, TypeError, KeyError) as error:
            if "feature" not in str(error) and "column" not in str(error):
                raise
            raise ValueError(
                f"categories must be columns of X, by name or number, or 'from_dtype', but is "
                f"{self.categories!r} ({error}). X has shape {list(np.shape(X))}."
            ) from error

    def _columns(self, X: Any) -> ColumnTransformer:
        """What turns categories into indicators and fills in missing values."""
        found = self.categories
        if found == "from_dtype":
            found = make_column_selector(dtype_include=["category", "object", "string"])(X)
        numbers = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
        return ColumnTransformer(
            [
                (
                    "categories",
                    OneHotEncoder(handle_unknown="ignore", sparse_output=False),
                    found or [],
                )
            ],
            remainder=numbers if self.missing == "impute" else "passthrough",
            sparse_threshold=0.0,
        )

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "classifier_" in state:  # bijectors keep tensors that cannot be pickled
            state["classifier_"] = deepcopy(state["classifier_"])
        return state


def _labels(y: Any, num_rows: int, ending: str = "") -> np.ndarray:
    """Labels [N] of classes, one for each row."""
    name = f"y{ending}"
    if y is None:
        raise ValueError(
            f"ILRClassifier requires {name} to be passed, but the target {name} is None. Pass one "
            f"label for each row of X{ending}."
        )
    labels = _read_labels(y, name)
    if len(labels) != num_rows:
        raise ValueError(
            f"Every row of X{ending} needs one label, but X{ending} has {num_rows} rows and {name} has "
            f"{len(labels)}. Pass as many labels as rows."
        )
    return labels


def _read_labels(y: Any, name: str) -> np.ndarray:
    """Labels in one dimension, as scikit-learn admits them."""
    refuse_masked(y, name)
    try:
        labels = column_or_1d(y, warn=True)
        assert_all_finite(labels, input_name=name)
        check_classification_targets(labels)
    except (ValueError, TypeError) as error:
        raise _with_advice(error, name) from error
    return labels


def _with_classes(labels: np.ndarray, classes: Any) -> np.ndarray:
    """Labels, and the names of further classes."""
    if classes is None:
        return labels
    further = _read_labels(classes, "classes")
    if not len(further):
        return labels
    check_one_kind(further, labels, "classes")
    return np.concatenate([labels, further])


def _with_advice(error: Exception, name: str) -> Exception:
    """scikit-learn's error, with the argument it is about and what can be done about it here."""
    message = str(error)
    if isinstance(error, LookupError):
        message = "it has no rows and columns. Pass an array [N, D] or a data frame."
    elif "contains NaN" in message:
        fill = "Use missing='impute', or fill the values in yourself."
        advice = fill if name.startswith("X") else "Drop the rows without a label."
        message = f"Input {name} contains NaN. {advice}"
    elif "could not convert string" in message:
        message = (
            f"{name}: {message}. Name such columns in categories=[...], or use "
            "categories='from_dtype'."
        )
    elif "not supported between" in message:
        message = f"{name} has labels of several kinds ({message}). Pass labels of one kind."
    if not re.search(rf"\b({name}|categories)\b", message):
        message = f"{name} cannot be read: {message}"
    return TypeError(message) if isinstance(error, TypeError) else ValueError(message)
