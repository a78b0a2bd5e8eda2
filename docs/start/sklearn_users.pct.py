# %% [markdown]
# # For users of scikit-learn
#
# `ILRClassifier` is a classifier like any other, with nothing to choose but how long it may take
# (`pip install -e '.[sklearn]'`). It wants no scaled columns and no validation rows: it tries
# scalings, kernels and models, and judges them by labels that it has held out itself.

# %%
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from gpflow_ilr.sklearn import ILRClassifier

X, y = load_iris(return_X_y=True, as_frame=True)
X, X_test, y, y_test = train_test_split(X, y, stratify=y, random_state=0)

classifier = ILRClassifier(time_limit=5, random_state=0).fit(X, y)
classifier.predict_proba(X_test)[:3].round(3)

# %% [markdown]
# `report_` says what was tried, what NLL each promised, and which was taken. Hold it against new
# rows:

# %%
print(classifier.report_)
print(f"NLL of {len(X_test)} test rows: {log_loss(y_test, classifier.predict_proba(X_test)):.4f}")

# %% [markdown]
# It stands in pipelines, `cross_val_score` and `clone`, and labels may be of any type. Columns of
# strings and missing values are refused until you say what they are:

# %%
mixed = X.assign(soil="clay")
mixed.iloc[0, 0] = None
for columns in (mixed, X.assign(soil=1.0).where(X > 5.0)):
    try:
        ILRClassifier().fit(columns, y)
    except ValueError as error:
        print(error)

# %% [markdown]
# `ILRClassifier(categories=["soil"], missing="impute")` takes them: categories become indicators
# (`categories="from_dtype"` asks the data frame which they are), and missing values the median of
# their column, with an indicator. `progress=True` prints each trial as it is made.
#
# Rows may have weights (`fit(X, y, sample_weight=...)`, also by metadata routing), classes too
# (`class_weight="balanced"` or a dictionary). Only their ratios matter. Classes that weigh more are
# found more often, and their probabilities are too large by that factor, until
# `correct_prior=True` divides it out ({doc}`../choosing`).
#
# Rows, and classes that nobody knew of, may also come later. `partial_fit` chooses a model at its
# first call; later calls add rows to it, and train nothing:

# %%
late = ILRClassifier(time_limit=5, random_state=0).partial_fit(X[y < 2], y[y < 2])
late.partial_fit(X[y == 2], y[y == 2])
print(late.classes_, f"NLL {log_loss(y_test, late.predict_proba(X_test)):.4f}")

# %% [markdown]
# What the probabilities mean is in {doc}`../uncertainty`; for a model of your own choice see
# {doc}`../which_model`.
