"""Every op of every training and prediction graph has a GPU kernel for its dtype.

A necessary condition only: no GPU is needed, and none is used.
"""

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.models import GPModel
from gpflow.models.training_mixins import ExternalDataTrainingLossMixin

import gpflow_ilr as gi
from tests.gpu_kernels import op_names, ops_without_gpu_kernel

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
    "ILRSVGP": lambda X, _: gi.ILRSVGP(kernel(), X[:5], num_classes=K, num_data=N),
    "SoftmaxSVGP": lambda X, _: gi.SoftmaxSVGP(kernel(), X[:5], num_classes=K, num_data=N),
    "CodeSVGP": lambda X, _: gi.CodeSVGP(kernel(), X[:5], gi.ILRCode(K), num_data=N),
}


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential() * gpflow.kernels.Matern52(active_dims=[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_training_and_prediction_have_gpu_kernels(name: str) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, 2)), rng.integers(0, K, N).astype(np.int32)
    model = MODELS[name](X, y)
    data = (tf.constant(X), tf.constant(y[:, None]))

    def train() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            external = isinstance(model, ExternalDataTrainingLossMixin)
            loss = model.training_loss(data) if external else model.training_loss()
        return loss, tape.gradient(loss, model.trainable_variables)

    def predict(X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return model.predict_y(X)[0], model.predict_f(X)[1]

    traced_train = tf.function(train, autograph=False).get_concrete_function()
    signature = tf.TensorSpec([None, 2], tf.float64)
    traced_predict = tf.function(predict, autograph=False).get_concrete_function(signature)
    assert op_names(traced_train) & {
        "Cholesky",
        "SelfAdjointEigV2",
    }  # the walk sees the mathematics
    for floats in (tf.float32, tf.float64):
        assert ops_without_gpu_kernel(traced_train, floats) == set()
        assert ops_without_gpu_kernel(traced_predict, floats) == set()


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
