"""A class that appears later: the model takes it in, with its rows, without being trained again.

Digits 0 to 8 are known. Then nines arrive, a few at a time. Until they have a label, high epistemic
entropy says that something is new; with labels they become a class of their own. Each update costs its
own rows alone, and the posterior is that of a model built on all rows.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import gpflow_ilr as gi

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X / 16.0, y, test_size=600, random_state=0, stratify=y)
old, new = y < 9, y == 9

Z = gi.kmeans_plusplus(X[old], 200)
kernel = gi.starting_kernel(X[old], 9)
model = gi.ILRSGPR((X[old], y[old]), kernel, Z, num_classes=9, noise="shared")
gi.training.fit(model, max_iterations=40)
print(model.calibrate(noise=True))

entropy = model.predict_entropy(X_test).epistemic.numpy()
is_new = y_test == 9
above = np.mean(entropy[is_new][:, None] > entropy[~is_new])
print(f"before: epistemic entropy ranks a 9 above another digit in {above:.1%} of pairs")

X_new, seen = X[new], 0
print("9s learned  accuracy of 9s  of the others  NLL")
for count in (1, 5, 20, 80):
    rows = X_new[seen:count]
    model.update(rows, np.full(len(rows), 9), num_classes=10)
    model.calibrate(noise=True)
    seen = count
    p = model.predict_y(X_test)[0].numpy()
    right = np.argmax(p, axis=1) == y_test
    nll = gi.metrics.negative_log_likelihood(p, y_test)
    print(
        f"{count:10d}  {np.mean(right[is_new]):14.3f}  {np.mean(right[~is_new]):13.3f}  {nll:.3f}"
    )
