"""A batch that is not known to be all data is refused where the number of all rows is unknown."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr.models.batches import DataMark, as_batch

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = np.arange(30) % 3


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential()


MODELS = {
    "ILRSVGP": lambda **options: gi.ILRSVGP(kernel(), X[:4], num_classes=3, **options),
    "SoftmaxSVGP": lambda **options: gi.SoftmaxSVGP(kernel(), X[:4], num_classes=3, **options),
    "CodeSVGP": lambda **options: gi.CodeSVGP(kernel(), X[:4], gi.ILRCode(3), **options),
}
MISSING = "num_data is missing: .*num_data=len"


def batches(size: int = 10) -> Any:
    return iter(tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(size))


@pytest.mark.parametrize("name", MODELS)
def test_minibatches_without_num_data_are_refused(name: str) -> None:
    model = MODELS[name]()
    with pytest.raises(ValueError, match=MISSING):
        model.training_loss_closure(batches())

    @tf.function(autograph=False)
    def step(X: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return model.training_loss((X, y))

    with pytest.raises(ValueError, match=MISSING):
        step(*next(batches()))
    model.training_loss((X[:10], Y[:10]))  # what comes first may be all there is
    for data in [(X[10:20], Y[10:20]), (X[:9], Y[:9]), (X, Y)]:
        with pytest.raises(ValueError, match=MISSING):
            model.training_loss(data)
        with pytest.raises(ValueError, match=MISSING):
            model.elbo(data)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, int])
@pytest.mark.parametrize("name", MODELS)
def test_all_data_need_no_num_data(name: str, dtype: Any) -> None:
    model, told = MODELS[name](), MODELS[name](num_data=30)
    rows = (X * 10).astype(dtype)
    expected = told.training_loss((rows, Y))
    for compile_it in (False, True):
        loss = model.training_loss_closure((rows, Y), compile=compile_it)
        np.testing.assert_allclose(loss(), expected, rtol=1e-12)
    np.testing.assert_allclose(model.elbo((rows, Y)), -expected, rtol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_minibatches_with_num_data_are_scaled_to_all_rows(name: str) -> None:
    model = MODELS[name](num_data=30)
    closure = model.training_loss_closure(batches())
    losses = [float(closure()) for _ in range(3)]
    np.testing.assert_allclose(np.mean(losses), model.training_loss((X, Y)), rtol=1e-10)


def test_marks_tell_data_sets_apart() -> None:
    mark = DataMark.of(X)
    assert mark == DataMark.of(X.copy()) == DataMark.of(X.tolist()) == DataMark.of(tf.constant(X))
    assert mark != DataMark.of(X[1:])
    assert mark != DataMark.of(np.roll(X, 1, axis=0))
    traced = []
    tf.function(lambda: traced.append(DataMark.of(X)), autograph=False)()
    assert traced == [mark]


def test_a_batch_has_a_label_for_each_row() -> None:
    inputs, labels = as_batch((X.astype(np.float32), Y))
    assert inputs.dtype == tf.float64
    assert labels.shape == (30, 1)
    with pytest.raises(ValueError, match="as many labels as rows"):
        as_batch((X, Y[:1]))
    with pytest.raises(ValueError, match="columns"):
        as_batch((X, Y), num_columns=3)
