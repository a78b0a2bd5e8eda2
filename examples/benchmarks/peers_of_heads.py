"""What the heads of this package are compared with in ``heads.py``, each in a few lines.

Every peer is given the training rows and what is tried, and returns a function from inputs to class
probabilities, with epistemic entropies where it has some.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from choosing import Predict, Prediction, nll
from laplace_torch import draws_of_probabilities
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from scores_of_heads import entropy


def trained(model: Any, X: np.ndarray, y: np.ndarray, rate: float, epochs: int, loss: Any) -> Any:
    """The model after training in batches of one static size."""
    rows = tf.data.Dataset.from_tensor_slices((X, y)).shuffle(len(X), seed=0)
    model.compile(keras.optimizers.Adam(rate), loss=loss)
    batches = rows.batch(64, drop_remainder=True)
    model.fit(batches, epochs=epochs, shuffle=False, verbose=0)  # the dataset shuffles
    return model


LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def softmax_network(
    body: Callable[..., Any], X: np.ndarray, y: np.ndarray, K: int, rate: float, epochs: int
) -> Any:
    """A network that ends with logits."""
    features = body()
    model = keras.Sequential([features, keras.layers.Dense(K)])
    return trained(model, X, y, rate, epochs, LOGITS)


def with_new_layer(
    features: Any, X: np.ndarray, y: np.ndarray, K: int, rate: float, epochs: int
) -> Any:
    """Trained features as they are, and logits that are trained on them."""
    H = features.predict(X, verbose=0)
    same = keras.Sequential([keras.Input(H.shape[1:]), keras.layers.Activation("linear")])
    last = softmax_network(lambda: same, H, y, K, rate, epochs)
    return keras.Sequential([features, last.layers[-1]])


def of_logits(network: Any, temperature: float = 1.0) -> Predict:
    return lambda X: (softmax(network.predict(X, verbose=0) / temperature, axis=1), None)


def temperature_of(network: Any, X: np.ndarray, y: np.ndarray) -> float:
    logits = network.predict(X, verbose=0)
    criterion = lambda t: nll(softmax(logits / np.exp(t), axis=1), y)  # noqa: E731
    return float(np.exp(minimize_scalar(criterion, bounds=(-2.0, 2.0), method="bounded").x))


def mixture(members: list[np.ndarray]) -> Prediction:
    """The average of several predictions, and the mutual information among them."""
    p = np.mean(members, axis=0)
    return p, entropy(p) - np.mean([entropy(m) for m in members], axis=0)


def ensemble(networks: list[Any]) -> Predict:
    return lambda X: mixture([of_logits(network)(X)[0] for network in networks])


def dropout(network: Any, passes: int = 30) -> Predict:
    run = tf.function(lambda X: tf.nn.softmax(network(X, training=True)))
    return lambda X: mixture([run(tf.constant(X)).numpy() for _ in range(passes)])


def last_layer_and_inputs(network: Any, X: np.ndarray) -> tuple[Any, np.ndarray]:
    features, last = network.layers
    return last, features.predict(X, verbose=0)


def laplace_by_torch(
    network: Any, X: np.ndarray, y: np.ndarray, precision: float, draws: int = 100
) -> Predict:
    """The posterior of :func:`last_layer_laplace` by the package laplace-torch."""
    last, H = last_layer_and_inputs(network, X)
    kernel, bias = (np.asarray(w) for w in last.get_weights())
    given = {"H": H, "y": y, "kernel": kernel, "bias": bias, "precision": precision, "draws": draws}

    def predict(X: np.ndarray) -> Prediction:
        H_new = last_layer_and_inputs(network, X)[1]
        return mixture(list(draws_of_probabilities(H_new=H_new, **given).astype("float64")))

    return predict


def last_layer_laplace(
    network: Any, X: np.ndarray, y: np.ndarray, precision: float, draws: int = 100
) -> Predict:
    """The full Gauss–Newton posterior of the last layer, and its predictive integral by draws."""
    last = network.layers[-1]
    W = np.vstack([np.asarray(w).reshape(-1, last.units) for w in last.get_weights()])

    def inputs(X: np.ndarray) -> np.ndarray:
        H = last_layer_and_inputs(network, X)[1]
        return np.hstack([H, np.ones((len(H), 1))])

    H = inputs(X)
    p = np.exp(log_softmax(H @ W, axis=1))
    size, K = W.size, W.shape[1]
    blocks = np.zeros([*W.shape, *W.shape])
    for k, j in np.ndindex(K, K):  # Σ_n h hᵀ ⊗ (diag q − q qᵀ), a pair of classes at a time
        curvature = p[:, k] * ((k == j) - p[:, j])
        blocks[:, k, :, j] = (curvature[:, None] * H).T @ H
    hessian = precision * np.eye(size) + blocks.reshape(size, size)
    root = np.linalg.cholesky(np.linalg.inv(hessian))
    noise = np.random.default_rng(0).normal(size=(draws, size)) @ root.T
    members = (W.ravel() + noise).reshape(draws, *W.shape)

    def predict(X: np.ndarray) -> Prediction:
        H = inputs(X)
        return mixture([softmax(H @ w, axis=1) for w in members])

    return predict


class RandomFeatures(keras.layers.Layer):
    """SNGP's last layer (Liu et al., 2020): random Fourier features of exp(−|h − h'|²/2ℓ²)."""

    def __init__(self, num_features: int, lengthscale: float) -> None:
        super().__init__()
        self.num_features, self.lengthscale = num_features, lengthscale

    def build(self, shape: Any) -> None:
        """Draw directions and phases."""
        rng = np.random.default_rng(0)
        directions = rng.normal(size=(shape[-1], self.num_features)) / self.lengthscale
        self.directions = tf.constant(directions, tf.float32)
        self.phases = tf.constant(rng.uniform(0.0, 2.0 * np.pi, self.num_features), tf.float32)

    def call(self, h: tf.Tensor) -> tf.Tensor:
        """Features [N, m]."""
        waves = tf.cos(tf.matmul(h, self.directions) + self.phases)
        return np.sqrt(2.0 / self.num_features) * waves


def sngp(
    body: Callable[..., Any],
    X: np.ndarray,
    y: np.ndarray,
    K: int,
    rate: float,
    lengthscale: float,
    epochs: int,
) -> tuple[Predict, Any]:
    """Spectral normalisation of the body, and SNGP's last layer; returned with the trained body."""
    features = body(spectral=True)
    waves = RandomFeatures(512, lengthscale)
    model = keras.Sequential([keras.Sequential([features, waves]), keras.layers.Dense(K)])
    trained(model, X, y, rate, epochs, LOGITS)
    return _with_variances(model, X), features


def sngp_layer(
    features: Any,
    X: np.ndarray,
    y: np.ndarray,
    K: int,
    rate: float,
    lengthscale: float,
    epochs: int,
) -> Predict:
    """SNGP's last layer on trained features as they are."""
    fixed = keras.Sequential([features, RandomFeatures(512, lengthscale)])
    return _with_variances(with_new_layer(fixed, X, y, K, rate, epochs), X)


def _with_variances(model: Any, X: np.ndarray) -> Predict:
    """A Laplace covariance of the random features, and mean-field logits."""
    features = model.layers[0]
    H = features.predict(X, verbose=0)
    covariance = np.linalg.inv(np.eye(H.shape[1]) + H.T @ H)  # as by default in edward2

    def predict(X: np.ndarray) -> Prediction:
        H = features.predict(X, verbose=0)
        variance = np.sum(H @ covariance * H, axis=1, keepdims=True)
        logits = model.predict(X, verbose=0) / np.sqrt(1.0 + np.pi / 8.0 * variance)
        return softmax(logits, axis=1), variance[:, 0]

    return predict
