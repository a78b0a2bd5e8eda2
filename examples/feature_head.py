"""A network that is trained already: a GP on its features instead of its softmax layer.

The network stays as it is. Rows that it was not trained on choose the head's smoothing λ and, for a
fair comparison, the temperature of the softmax layer: training rows would make both too certain.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import gpflow_ilr as gi

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(
    (X / 16).astype("float32"), y, train_size=800, random_state=0, stratify=y
)
X, X_val, y, y_val = train_test_split(X, y, train_size=500, random_state=0, stratify=y)

# Your network: anything that has a layer of features before its last one.
keras.utils.set_random_seed(0)
features = keras.Sequential([keras.layers.Dense(64, "relu"), keras.layers.Dense(32, "relu")])
network = keras.Sequential([keras.layers.Input((64,)), features, keras.layers.Dense(10)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
network.compile(keras.optimizers.Adam(3e-3), loss)
network.fit(X, y, batch_size=50, epochs=40, verbose=0)

# The head: a collapsed model of the features.
F, F_val, F_test = (features.predict(rows, verbose=0) for rows in (X, X_val, X_test))
head = gi.ILRSGPR((F, y), gi.starting_kernel(F, 10), gi.kmeans_plusplus(F, 100), num_classes=10)
gi.training.fit(head, max_iterations=50)
print(head.calibrate((F_val, y_val)))

logits_val, logits = (network.predict(rows, verbose=0) for rows in (X_val, X_test))
temperature = minimize_scalar(
    lambda t: gi.metrics.negative_log_likelihood(softmax(logits_val / t, axis=1), y_val),
    bounds=(0.1, 10.0),
).x
predictions = {
    "softmax layer": softmax(logits, axis=1),
    f"… at temperature {temperature:.2f}": softmax(logits / temperature, axis=1),
    "GP on the features": head.predict_y(F_test)[0],
}
print(f"{'last layer':<22} accuracy     NLL     ECE")
for name, p in predictions.items():
    nll = gi.metrics.negative_log_likelihood(p, y_test)
    ece = gi.metrics.expected_calibration_error(p, y_test)
    print(f"{name:<22} {gi.metrics.accuracy(p, y_test):8.3f} {nll:7.3f} {ece:7.3f}")

epistemic = np.asarray(head.predict_entropy(F_test).epistemic)
wrong = np.argmax(predictions["GP on the features"], axis=1) != y_test
print(f"epistemic entropy where it is wrong {epistemic[wrong].mean():.3f}, ", end="")
print(f"where it is right {epistemic[~wrong].mean():.3f} nats")
