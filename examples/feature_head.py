"""A network that is trained already: a GP on its features instead of its softmax layer.

The network stays as it is. Rows that it was not trained on choose λ and noise of the head and, for a
fair comparison, the temperature of the softmax layer: training rows would make all too certain.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gpflow_ilr import metrics
from gpflow_ilr.keras import ClosedFormHead, feature_network

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(
    (X / 16).astype("float32"), y, train_size=800, random_state=0, stratify=y
)
X, X_val, y, y_val = train_test_split(X, y, train_size=500, random_state=0, stratify=y)

# Your network: anything that has a layer of features before its last one.
keras.utils.set_random_seed(0)
dense = keras.layers.Dense
network = keras.Sequential(
    [keras.layers.Input((64,)), dense(64, "relu"), dense(32, "relu"), dense(10)]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
network.compile(keras.optimizers.Adam(3e-3), loss)
network.fit(X, y, batch_size=50, epochs=40, verbose=0)

# The head: one pass over the rows, then λ and noise by rows that the network has not seen.
head = ClosedFormHead(10, num_inducing=100, network=feature_network(network))
print(head.fit((X, y), validation=(X_val, y_val)))
with_head = head.attach(outputs=("probabilities", "epistemic"))  # a Keras model: save, export
found = with_head.predict(X_test, verbose=0)

logits_val, logits = (network.predict(rows, verbose=0) for rows in (X_val, X_test))
temperature = minimize_scalar(
    lambda t: metrics.negative_log_likelihood(softmax(logits_val / t, axis=1), y_val),
    bounds=(0.1, 10.0),
).x
predictions = {
    "softmax layer": softmax(logits, axis=1),
    f"… at temperature {temperature:.2f}": softmax(logits / temperature, axis=1),
    "GP on the features": found["probabilities"],
}
print(f"{'last layer':<22} accuracy     NLL     ECE")
for name, p in predictions.items():
    nll = metrics.negative_log_likelihood(p, y_test)
    ece = metrics.expected_calibration_error(p, y_test)
    print(f"{name:<22} {metrics.accuracy(p, y_test):8.3f} {nll:7.3f} {ece:7.3f}")

wrong = np.argmax(found["probabilities"], axis=1) != y_test
print(f"epistemic entropy where it is wrong {found['epistemic'][wrong].mean():.3f}, ", end="")
print(f"where it is right {found['epistemic'][~wrong].mean():.3f} nats")
