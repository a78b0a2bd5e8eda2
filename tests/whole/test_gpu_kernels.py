"""Every op of every training and prediction graph has a GPU kernel for its dtype.

A necessary condition only: no GPU is needed, and none is used. Kernels are looked up for float32 and
float64, and for graphs that TensorFlow runs op by op as for those that XLA compiles.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.models import GPModel
from gpflow.models.training_mixins import ExternalDataTrainingLossMixin

import gpflow_ilr as gi
from tests.heads.stacks import STACKS
from tests.whole.gpu_kernels import op_names, ops_without_gpu_kernel

N, K = 24, 3

MODELS: dict[str, Callable[[np.ndarray, np.ndarray], GPModel]] = {
    "ILRGPR": lambda X, y: gi.ILRGPR((X, y), kernel(), num_classes=K),
    "ILRGPR per-output": lambda X, y: gi.ILRGPR(
        (X, y), kernel(), num_classes=K, noise="per_output"
    ),
    "ILRGPR loo": lambda X, y: gi.ILRGPR((X, y), kernel(), num_classes=K, objective="loo"),
    "DirichletGPR": lambda X, y: gi.DirichletGPR((X, y), kernel(), num_classes=K),
    "ILRSGPR": lambda X, y: gi.ILRSGPR((X, y), kernel(), X[:5], num_classes=K),
    "ILRSGPR per-output": lambda X, y: gi.ILRSGPR(
        (X, y), kernel(), X[:5], num_classes=K, noise="per_output"
    ),
    "ILRSGPR per-class": lambda X, y: gi.ILRSGPR(
        (X, y), kernel(), X[:5], num_classes=K, noise="per_class"
    ),
    "ILRSGPR loo": lambda X, y: gi.ILRSGPR((X, y), kernel(), X[:5], num_classes=K, objective="loo"),
    "DirichletSGPR": lambda X, y: gi.DirichletSGPR((X, y), kernel(), X[:5], num_classes=K),
    "ILRNNGPR": lambda X, y: gi.ILRNNGPR((X, y), kernel(), num_classes=K, num_neighbours=5),
    "ILRNNGPR per-class": lambda X, y: gi.ILRNNGPR(
        (X, y), kernel(), num_classes=K, num_neighbours=5, noise="per_class"
    ),
    "DirichletNNGPR": lambda X, y: gi.DirichletNNGPR(
        (X, y), kernel(), num_classes=K, num_neighbours=5
    ),
    "ILRSVGP": lambda X, _: gi.ILRSVGP(kernel(), X[:5], num_classes=K, num_data=N),
    "SoftmaxSVGP": lambda X, _: gi.SoftmaxSVGP(kernel(), X[:5], num_classes=K, num_data=N),
    "CodeSVGP": lambda X, _: gi.CodeSVGP(kernel(), X[:5], gi.ILRCode(K), num_data=N),
    "LogisticSoftmaxGP": lambda X, y: short_chains(
        gi.LogisticSoftmaxGP((X, y), kernel(), num_classes=K)
    ),
    "BijectiveSoftmaxGP": lambda X, y: short_chains(
        gi.BijectiveSoftmaxGP((X, y), kernel(), num_classes=K)
    ),
    "SVGP LSM": lambda X, _: svgp(gi.LogisticSoftmaxLikelihood(K), X),
    "SVGP BSM factorised": lambda X, _: svgp(
        gi.BijectiveSoftmaxLikelihood(K, bound="factorised"), X
    ),
}


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential() * gpflow.kernels.Matern52(active_dims=[0])


def short_chains(model: GPModel) -> GPModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of chains so short
        model.sample(num_samples=4, num_burnin=1)
    return model


def svgp(likelihood: Any, X: np.ndarray) -> GPModel:
    L = likelihood.latent_dim
    return gpflow.models.SVGP(kernel(), likelihood, X[:5], num_latent_gps=L, num_data=N)


def trace(function: Callable[..., Any], *inputs: tf.TensorSpec) -> Any:
    return tf.function(function, autograph=False).get_concrete_function(*inputs)


@functools.cache
def training_and_prediction(name: str, dtype: type) -> tuple[Any, Any]:
    """The traced value and gradient of the loss, and the traced predictions."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, 2)), rng.integers(0, K, N).astype(np.int32)
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        model = MODELS[name](X, y)
        batch = tf.constant(X, dtype), tf.constant(y[:, None])
        external = isinstance(model, ExternalDataTrainingLossMixin)

        def train() -> tuple[tf.Tensor, list[tf.Tensor]]:
            with tf.GradientTape() as tape:
                loss = model.training_loss(batch) if external else model.training_loss()
            return loss, tape.gradient(loss, model.trainable_variables)

        def predict(X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return model.predict_y(X)[0], model.predict_f(X)[1]

        return trace(train), trace(predict, tf.TensorSpec([None, 2], dtype))


def assert_gpu_kernels(traced: Any) -> None:
    for floats in (tf.float32, tf.float64):
        assert ops_without_gpu_kernel(traced, floats) == set()
        assert ops_without_gpu_kernel(traced, floats, compiled=True) == set()


@pytest.mark.parametrize("name", MODELS)
def test_training_and_prediction_have_gpu_kernels(name: str) -> None:
    # Traced in float32, which has all ops of float64 and those of its jitter.
    train, predict = training_and_prediction(name, np.float32)
    assert op_names(train) & {"Cholesky", "SelfAdjointEigV2"}  # the walk sees the mathematics
    assert_gpu_kernels(train)
    assert_gpu_kernels(predict)


@pytest.mark.parametrize("name", ["ILRGPR", "ILRSGPR", "ILRSVGP"])
def test_ops_of_float64_are_among_those_of_float32(name: str) -> None:
    double, single = (training_and_prediction(name, dtype) for dtype in (np.float64, np.float32))
    for a, b in zip(double, single, strict=True):
        assert op_names(a) <= op_names(b)


@pytest.mark.parametrize("objective", ["elbo", "draw"])
def test_head_of_a_network_has_gpu_kernels(objective: str) -> None:
    stack = STACKS["keras"]
    model = stack.model(stack.head(objective=objective, gp_dtype="float32"))
    # Not Keras' sparse loss: in float64 that one has no GPU kernel itself.
    built_in = stack.keras.losses.CategoricalCrossentropy
    loss = stack.ELBOLoss() if objective == "elbo" else built_in()

    def train(X: tf.Tensor, Y: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            value = loss(Y, model(X, training=True)) + tf.add_n(model.losses)
        return tape.gradient(value, [v.value for v in model.trainable_variables])

    X = tf.TensorSpec([N, 4], tf.float32)
    traced = trace(train, X, tf.TensorSpec([N, K], tf.float32))
    assert "Cholesky" in op_names(traced)
    assert_gpu_kernels(traced)
    assert_gpu_kernels(trace(lambda X: model(X, training=False), X))


@pytest.mark.parametrize(
    ("op", "body"),
    [
        ("Qr", lambda x: tf.linalg.qr(x).r),
        ("SobolSample", lambda x: x + tf.math.sobol_sample(2, 3, dtype=tf.float64)[0, 0]),
        ("EagerPyFunc", lambda x: tf.py_function(lambda v: v, [x], tf.float64)),
        (
            "SparseSoftmaxCrossEntropyWithLogits",
            lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits([0, 1, 2], x),
        ),
    ],
)
def test_ops_without_gpu_kernel_are_noticed_in_nested_functions(
    op: str, body: Callable[[tf.Tensor], tf.Tensor]
) -> None:
    @tf.function(autograph=False)
    def nested(x: tf.Tensor) -> tf.Tensor:
        return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.function(body)(x), lambda: body(x))

    traced = nested.get_concrete_function(tf.TensorSpec([3, 3], tf.float64))
    assert any(name.startswith(op) for name in ops_without_gpu_kernel(traced))
    # XLA has what TensorFlow's GPU kernels lack of linear algebra and losses.
    compilable = op in ("Qr", "SparseSoftmaxCrossEntropyWithLogits")
    found = ops_without_gpu_kernel(traced, compiled=True)
    assert any(name.startswith(op) for name in found) != compilable
