"""A scikit-learn classifier: rows in, calibrated probabilities out, nothing to choose.

:class:`ILRClassifier` is :func:`gpflow_ilr.training.fit_auto` behind scikit-learn's interface, so that
it stands in pipelines, searches and comparisons. It takes labels of any type; columns that it is told
are categories become indicators, missing values are filled in where it is told so. Needs scikit-learn
(``pip install 'gpflow_ilr[sklearn]'``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from gpflow.utilities import deepcopy

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.compose import ColumnTransformer, make_column_selector
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder
    from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "gpflow_ilr.sklearn needs scikit-learn 1.7 or newer: pip install 'gpflow_ilr[sklearn]'."
    ) from error

from gpflow_ilr.inputs.counts import number_or_nan
from gpflow_ilr.training import fit_auto

__all__ = ["ILRClassifier"]

Missing = Literal["refuse", "impute"]


class ILRClassifier(ClassifierMixin, BaseEstimator):
    """A Gaussian-process classifier that chooses scaling, kernel and model by held-out labels.

    Up to 1,500 rows take about a minute, 15,000 about a minute and a half on two cores;
    ``time_limit`` makes it less. ``report_`` says what was tried and what NLL to expect. Weights of
    rows and of classes are not supported.

    :param time_limit: seconds after which nothing more is tried; the best so far is kept. One kernel
        is fitted all the same.
    :param memory_limit: bytes of the largest matrix.
    :param categories: columns that are categories, by name or number; ``"from_dtype"`` for those that
        a data frame says are. They become indicators; a category not seen in training has none.
    :param missing: ``"refuse"`` missing values, or ``"impute"`` the median of their column, with an
        indicator of where they were missing.
    :param progress: print each trial as it is made.
    :param random_state: of samples and folds.

    Fitted attributes: ``classes_``, ``n_features_in_``, ``feature_names_in_``, ``report_`` (what was
    tried and what it promised) and ``classifier_`` (a :class:`gpflow_ilr.training.AutoClassifier`).
    """

    def __init__(
        self,
        *,
        time_limit: float = 120.0,
        memory_limit: float = 4e9,
        categories: Literal["from_dtype"] | Sequence[Any] | None = None,
        missing: Missing = "refuse",
        progress: bool = False,
        random_state: Any = None,
    ) -> None:
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.categories = categories
        self.missing = missing
        self.progress = progress
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> ILRClassifier:
        """Choose and fit a model.

        :param X: [N, D], an array or a data frame; no need to scale it.
        :param y: labels of any type, [N].
        :raises ValueError: if there are fewer than two classes, or values that are missing or not
            numbers where nothing was said of them.
        """
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
        rows, labels = self._encoded(X, y)
        check_classification_targets(labels)
        self.classes_, indices = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class only, {self.classes_[0]!r}: a classifier needs two or more."
            )
        self.classifier_ = fit_auto(
            rows,
            indices,
            num_classes=len(self.classes_),
            max_seconds=self.time_limit,
            max_bytes=self.memory_limit,
            progress=self.progress,
            seed=seed,
        )
        self.report_ = self.classifier_.report
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, [N, K], in the order of ``classes_``.

        :param X: [N, D].
        """
        check_is_fitted(self)
        p, _ = self.classifier_.predict_y(self._encoded(X)[0])
        return p.numpy()

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

    def _encoded(self, X: Any, y: Any = None) -> tuple[np.ndarray, Any]:
        """Rows of finite numbers, and labels [N]; with labels, this is what training sees."""
        fitting = y is not None
        check = {"reset": fitting, "dtype": np.float64, "ensure_min_samples": 2 if fitting else 1}
        try:
            if self.categories is None and self.missing == "refuse":
                if not fitting:
                    return validate_data(self, X, **check), None
                return validate_data(self, X, y, **check)
            validate_data(self, X, reset=fitting, skip_check_array=True)  # keeps the columns' names
            if fitting:
                self._encoder = self._columns(X)
                self._fit_encoder(X)
            X = check_array(self._encoder.transform(X), dtype=np.float64)
        except ValueError as error:
            raise _with_advice(error) from error
        if not fitting:
            return X, None
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        return X, y

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


def _with_advice(error: ValueError) -> ValueError:
    """scikit-learn's error, with what can be done about it here."""
    message = str(error)
    if "y contains NaN" in message:
        message = "Input y contains NaN. Drop the rows without a label."
    elif "contains NaN" in message:
        message = "Input X contains NaN. Use missing='impute', or fill the values in yourself."
    elif "could not convert string" in message:
        message += ". Name columns of strings in categories=[...], or use categories='from_dtype'."
    return ValueError(message)
