"""What GPHead refuses: everything that would train something else than it says, with the fix named."""

from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.heads.stacks import STACKS, DeepKernel, K, Stack, X, Y


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest) -> Stack:
    return STACKS[request.param]


@pytest.mark.parametrize("run_eagerly", [True, False])
def test_built_in_cross_entropy_is_refused_for_the_elbo(stack: Stack, run_eagerly: bool) -> None:
    model = stack.model()
    before = model.layers[-1].gp.q_mu.numpy()
    stack.compiled(model, "sparse_categorical_crossentropy", run_eagerly=run_eagerly)
    with pytest.raises(TypeError, match=r"compile\(loss=ELBOLoss\(\)\)"):
        model.fit(X, Y, verbose=0)
    np.testing.assert_array_equal(model.layers[-1].gp.q_mu.numpy(), before)


@pytest.mark.parametrize("loss", ["categorical_crossentropy", "mse", "kl_divergence"])
def test_other_built_in_losses_are_refused_for_the_elbo(stack: Stack, loss: str) -> None:
    model = stack.compiled(stack.model(), loss, run_eagerly=True)
    with pytest.raises(TypeError, match="another loss"):
        model.fit(X, np.eye(K)[Y], verbose=0)


def test_a_second_head_with_another_loss_is_refused(stack: Stack) -> None:
    first, second = (stack.model(stack.head(name=name)) for name in ("a", "b"))
    inputs = stack.keras.layers.Input((4,))
    outputs = [m.layers[-1](m.layers[0](inputs)) for m in (first, second)]
    losses = [stack.ELBOLoss(), "sparse_categorical_crossentropy"]
    model = stack.compiled(stack.keras.Model(inputs, outputs), losses, run_eagerly=True)
    with pytest.raises(TypeError, match="another loss"):
        model.fit(X, [Y, Y], verbose=0)


def test_a_training_step_without_the_training_flag_is_refused(stack: Stack) -> None:
    model = stack.model()
    with tf.GradientTape() as tape:
        loss = stack.ELBOLoss()(Y, model(X, training=False))
    with pytest.raises(TypeError, match="training=True"):
        tape.gradient(loss, model.layers[-1].gp.trainable_variables)


def test_a_keras_3_model_that_drops_the_training_flag_is_refused() -> None:
    class Flagless(keras.Model):
        def __init__(self, head: Any) -> None:
            super().__init__()
            self.head = head

        def call(self, inputs: Any) -> Any:
            return self.head(inputs)

    stack = STACKS["keras"]
    for objective in ("elbo", "draw"):
        model = Flagless(stack.head(objective=objective))
        loss = stack.ELBOLoss() if objective == "elbo" else "sparse_categorical_crossentropy"
        stack.compiled(model, loss, run_eagerly=True)
        with pytest.raises(TypeError, match="give the model's call an argument training"):
            model.fit(X, Y, verbose=0)


def test_gradients_of_predictions_are_allowed(stack: Stack) -> None:
    model, inputs = stack.model(), tf.constant(X, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        probabilities = model(inputs, training=False)[:, 0]
    assert np.abs(tape.gradient(probabilities, inputs)).max() > 1e-4


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"num_data": None}, r"num_data=len\(X_train\)"),
        ({"num_data": 0}, "num_data must be an integer of at least 1, but is 0"),
        ({"num_inducing": 2.5}, "num_inducing must be an integer"),
        ({"objective": "map"}, "objective must be one of"),
        ({"frozen": ["lengthscale"]}, "frozen may hold"),
        ({"gp_dtype": "float16"}, "gp_dtype must be"),
    ],
)
def test_arguments_are_refused(stack: Stack, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        stack.head(**options)


def test_a_kernel_that_could_not_be_saved_is_refused(stack: Stack) -> None:
    with pytest.raises(TypeError, match="a function that returns"):
        stack.head(kernel=gpflow.kernels.Matern32())
    with pytest.raises(ValueError, match="no isotropic stationary kernel 'Linear'"):
        stack.head(kernel="Linear").adapt(X)


def test_features_must_be_rows(stack: Stack) -> None:
    with pytest.raises(ValueError, match="Flatten"):
        stack.head()(np.zeros((2, 3, 4)))
    with pytest.raises(ValueError, match="features must have shape"):
        stack.head().adapt(X[0])


def test_a_dataset_of_something_else_than_batches_of_features_is_refused(stack: Stack) -> None:
    rows = tf.data.Dataset.from_tensor_slices((X, Y))
    for dataset in (rows.batch(5), rows.map(lambda x, y: x)):
        with pytest.raises(ValueError, match="Map it to the features alone, and batch them"):
            stack.head().adapt(dataset)
    with pytest.raises(ValueError, match=r"features must have shape .* at least one row"):
        stack.head().adapt(rows.map(lambda x, y: x).batch(5).take(0))
    missing = tf.where(tf.range(len(X))[:, None] == 7, np.nan, X)
    with pytest.raises(ValueError, match="features must be finite, but row 7, column 0 is nan"):
        stack.head().adapt(tf.data.Dataset.from_tensor_slices(missing).batch(5))


def test_labels_that_could_be_misread_are_refused(stack: Stack) -> None:
    model = stack.compiled(stack.model(), run_eagerly=True)
    with pytest.raises(ValueError, match="subtract 1"):
        model.fit(X, Y + 1, verbose=0, batch_size=len(X))


def test_sums_of_rows_are_refused(stack: Stack) -> None:
    with pytest.raises(ValueError, match="KL/num_data"):
        stack.ELBOLoss(reduction="sum")


def test_a_kernel_with_a_keras_3_layer_inside_is_refused(stack: Stack) -> None:
    head = stack.head(kernel=lambda: DeepKernel(keras.layers.Dense(2)))
    with pytest.raises(TypeError, match=r"before a gpflow_ilr\.keras\.GPHead"):
        head.adapt(X)
