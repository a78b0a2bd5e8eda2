"""GPHead in both generations of Keras: what it computes, and that it trains as any layer does."""

from collections.abc import Iterator
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr import Sobol, metrics
from tests.heads.stacks import STACKS, D, K, M, N, Stack, X, Y, loss_by_hand

ONE_HOT = np.eye(K)[Y]


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest) -> Stack:
    return STACKS[request.param]


@pytest.fixture
def double(stack: Stack) -> Iterator[Stack]:
    """Keras in float64 throughout, for comparisons to round-off."""
    # Keras 3 settles on a policy at its first layer, which a test of another file may have made.
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    stack.keras.backend.set_floatx("float64")
    yield stack
    stack.keras.backend.set_floatx("float32")
    keras.config.set_dtype_policy(policy)


def total_loss(stack: Stack, model: Any, y: np.ndarray) -> tf.Tensor:
    output = model(X, training=True)
    return stack.ELBOLoss()(y, output) + sum(model.losses)


def test_loss_of_fit_is_the_negative_elbo_per_row_of_a_model_built_by_hand(double: Stack) -> None:
    model = double.compiled(double.model(dtype="float64"), metrics=["accuracy"])
    features = model.layers[0](X)
    expected = loss_by_hand(model.layers[-1], features)
    history = model.fit(X, Y, batch_size=N, epochs=1, verbose=0).history
    assert history["loss"][0] == pytest.approx(expected, rel=1e-10)


def test_loss_of_a_float32_network_is_that_of_its_float64_gp_to_single_precision(
    stack: Stack,
) -> None:
    model = stack.compiled(stack.model(), run_eagerly=True)
    features = tf.cast(model.layers[0](X), tf.float64)
    expected = loss_by_hand(model.layers[-1], features)
    history = model.fit(X.astype("float32"), Y, batch_size=N, epochs=1, verbose=0).history
    assert history["loss"][0] == pytest.approx(expected, rel=2e-6)


@pytest.mark.parametrize(
    "labels", [Y, Y[:, None], Y.astype(float), ONE_HOT, 0.9 * ONE_HOT + 0.1 / K]
)
def test_gradient_of_gp_and_backbone_is_that_of_the_elbo(double: Stack, labels: np.ndarray) -> None:
    model = double.model(dtype="float64")
    backbone, head = model.layers
    kernels = [getattr(v, "_value", v) for v in backbone.trainable_variables]  # Keras 3 wraps them
    sources = [*kernels, *head.gp.trainable_variables]
    with tf.GradientTape() as tape:
        loss = total_loss(double, model, labels)
    with tf.GradientTape() as by_hand:
        expected = -head.gp.elbo((backbone(X), labels)) / N
    np.testing.assert_allclose(loss, expected, rtol=1e-12)
    for got, wanted in zip(
        tape.gradient(loss, sources), by_hand.gradient(expected, sources), strict=True
    ):
        assert np.abs(wanted).max() > 1e-6
        np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-12)


def test_priors_of_the_kernel_count_in_the_loss(double: Stack) -> None:
    import tensorflow_probability as tfp

    model = double.model(dtype="float64")
    gp = model.layers[-1].gp
    without = total_loss(double, model, Y)
    gp.kernel.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    difference = total_loss(double, model, Y) - without
    np.testing.assert_allclose(difference, -gp.log_prior_density() / N, rtol=1e-10)


def test_cross_entropy_of_draws_estimates_the_expectation_without_bias(stack: Stack) -> None:
    head = stack.model(stack.head(objective="draw")).layers[-1]
    count = 40_000
    row = np.random.default_rng(0).normal(size=(1, D)).astype("float32")
    draws = np.asarray(head(np.repeat(row, count, axis=0), training=True))
    losses = np.asarray(
        stack.keras.losses.sparse_categorical_crossentropy(np.ones(count), tf.constant(draws))
    )
    gp = head.gp
    (expected,) = gp.likelihood.variational_expectations(row, *gp.predict_f(row), np.array([[1]]))
    standard_error = losses.std() / np.sqrt(count)
    assert abs(losses.mean() + expected) < 4 * standard_error + 1e-4  # and the nodes' own error
    np.testing.assert_allclose(
        sum(float(loss) for loss in head.losses), gp.prior_kl() / N, rtol=1e-6
    )


@pytest.mark.parametrize("objective", ["elbo", "draw"])
def test_fit_learns_and_evaluate_and_predict_agree_with_the_gp(
    stack: Stack, objective: str
) -> None:
    model = stack.model(stack.head(objective=objective))
    loss = stack.ELBOLoss() if objective == "elbo" else "sparse_categorical_crossentropy"
    stack.compiled(model, loss, rate=0.05, metrics=["accuracy"])
    stopping = stack.keras.callbacks.EarlyStopping(patience=100, restore_best_weights=True)
    # Batches of a static size, for graphs of unknown batches take several times as long to trace.
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(N // 2, drop_remainder=True)
    fit = {"validation_data": data, "shuffle": False, "verbose": 0, "callbacks": [stopping]}
    values = model.fit(data, epochs=30, **fit).history["val_loss"]
    assert min(values) < 0.6 * values[0]
    probabilities = model.predict(X, verbose=0)
    assert probabilities.shape == (N, K)
    by_gp, _ = model.layers[-1].gp.predict_y(model.layers[0](X))
    np.testing.assert_allclose(probabilities, by_gp, atol=1e-6)
    reported, accuracy = model.evaluate(X, Y, verbose=0)
    assert reported == pytest.approx(metrics.negative_log_likelihood(by_gp, Y), abs=1e-5)
    assert reported == pytest.approx(min(values), abs=1e-5)  # the callback put the best epoch back
    assert accuracy == pytest.approx(metrics.accuracy(by_gp, Y))


def test_accuracy_is_the_same_for_integer_and_one_hot_labels(stack: Stack) -> None:
    model = stack.model()
    hard, one_hot = (
        stack.compiled(model, metrics=["accuracy"], run_eagerly=True).evaluate(X, y, verbose=0)
        for y in (Y, ONE_HOT)
    )
    np.testing.assert_allclose(hard, one_hot, rtol=1e-6)


def test_functional_and_subclassed_models_train_as_sequential_ones(stack: Stack) -> None:
    layers, Model = stack.keras.layers, stack.keras.Model

    class Subclassed(Model):
        def __init__(self, backbone: Any, head: Any) -> None:
            super().__init__()
            self.backbone, self.head = backbone, head

        def call(self, inputs: Any, training: Any = None) -> Any:
            return self.head(self.backbone(inputs), training=training)

    losses = []
    for kind in ("sequential", "functional", "subclassed"):
        backbone, head = stack.model().layers
        if kind == "sequential":
            model = stack.keras.Sequential([backbone, head])
        elif kind == "functional":
            inputs = layers.Input((4,))
            model = Model(inputs, head(backbone(inputs)))
        else:
            model = Subclassed(backbone, head)
        stack.compiled(model, run_eagerly=True)
        history = model.fit(X.astype("float32"), Y, batch_size=N, epochs=2, verbose=0).history
        losses.append(history["loss"])
        assert len(model.trainable_variables) == 8
    assert losses[0][1] < losses[0][0]
    np.testing.assert_allclose(losses[1:], [losses[0]] * 2, rtol=1e-5)


def test_frozen_parts_stay_and_the_others_move(stack: Stack) -> None:
    head = stack.head(frozen=("inducing",))
    model = stack.compiled(stack.model(head), run_eagerly=True)
    assert len(head.trainable_variables) == 5
    before = gpflow.utilities.read_values(head.gp)
    model.fit(X, Y, epochs=1, verbose=0)
    after = gpflow.utilities.read_values(head.gp)
    moved = {path for path in before if not np.array_equal(before[path], after[path])}
    assert moved == set(before) - {".inducing_variable.Z", ".scale"}


def test_flags_follow_the_layer_and_survive_it(stack: Stack) -> None:
    head = stack.head(frozen="kernel")
    model = stack.model(head)
    assert len(model.trainable_variables) == 2 + 4
    head.frozen = ("kernel", "q", "mixing")
    assert [tuple(v.shape) for v in head.trainable_variables] == [(M, D)]
    head.trainable = False
    assert [len(head.trainable_variables), len(head.non_trainable_variables)] == [0, 7]
    assert len(model.trainable_variables) == 2
    head.trainable = True
    assert [len(head.trainable_variables), len(head.non_trainable_variables)] == [1, 6]


def test_adapt_starts_inducing_inputs_at_rows_and_lengthscales_at_their_distances(
    stack: Stack,
) -> None:
    features = 100.0 * np.random.default_rng(0).normal(size=(50, D))
    head = stack.head()
    head.adapt(tf.data.Dataset.from_tensor_slices(features).batch(20))
    Z = head.gp.inducing_variable.Z.numpy()
    assert len(np.unique(Z, axis=0)) == M
    assert all((features == z).all(axis=1).any() for z in Z)
    distances = np.linalg.norm(features[:, None] - features[None], axis=-1)
    median = np.median(distances[np.triu_indices(50, 1)])
    assert head.gp.kernel.lengthscales.numpy() == pytest.approx(3.0 * median)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_head_of_a_half_precision_network_computes_in_its_own_precision(
    stack: Stack, policy: str
) -> None:
    stack.keras.mixed_precision.set_global_policy(policy)
    try:
        model = stack.compiled(stack.model(stack.head(), dtype=policy), run_eagerly=True)
    finally:
        stack.keras.mixed_precision.set_global_policy("float32")
    features, output = model.layers[0](X), model(X)
    assert (features.dtype, output.dtype) == (
        tf.as_dtype(policy.removeprefix("mixed_")),
        tf.float32,
    )
    np.testing.assert_allclose(output, model.layers[-1].gp.predict_y(features)[0], atol=1e-6)
    losses = model.fit(X, Y, batch_size=N, epochs=2, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("labels", [Y, ONE_HOT], ids=["hard", "one-hot"])
@pytest.mark.parametrize("objective", ["elbo", "code"])
def test_weights_of_classes_are_those_of_their_rows(
    stack: Stack, objective: str, labels: np.ndarray
) -> None:
    of_class = {0: 0.5, 1: 1.0, 2: 3.0}
    of_rows = np.array([of_class[k] for k in Y])
    trained = []
    for weights in ({"class_weight": of_class}, {"sample_weight": of_rows}, {}):
        model = stack.compiled(stack.model(stack.head(objective=objective)), run_eagerly=True)
        model.fit(X, labels, batch_size=N // 2, shuffle=False, verbose=0, **weights)
        trained.append(model.get_weights())
    for by_class, by_row in zip(*trained[:2], strict=True):
        np.testing.assert_allclose(by_class, by_row, rtol=1e-6, atol=1e-7)
    assert max(np.abs(a - b).max() for a, b in zip(trained[0], trained[2], strict=True)) > 1e-3


def same_draws(shape: Any, dtype: Any) -> tf.Tensor:
    """Numbers like noise, which XLA and TensorFlow have in common."""
    return tf.reshape(2.0 * tf.sin(10.0 * tf.range(tf.reduce_prod(shape), dtype=dtype)), shape)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "num_classes"), [("elbo", 2), ("elbo", K), ("code", K), ("draw", K)]
)
def test_xla_trains_evaluates_and_predicts_the_same(
    stack: Stack, objective: str, num_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = np.minimum(
        Y, num_classes - 1
    )  # of two classes expectations have closed forms, of more nodes
    options = {"num_classes": num_classes, "objective": objective, "nodes": Sobol(8)}
    loss = "sparse_categorical_crossentropy" if objective == "draw" else None
    monkeypatch.setattr(tf.random, "normal", same_draws)
    results = []
    for jit_compile in (True, False):
        model = stack.model(stack.head(**options))
        stack.compiled(model, loss, jit_compile=jit_compile)
        data = tf.data.Dataset.from_tensor_slices((X, y)).batch(N, drop_remainder=True)
        losses = model.fit(data, epochs=2, verbose=0, shuffle=False).history["loss"]
        assert losses[1] < losses[0]
        # Batches of 20 and of 4 rows: the number is unknown when the functions are traced.
        rows = {"batch_size": 20, "verbose": 0}
        evaluated, p = model.evaluate(X, y, **rows), model.predict(X, **rows)
        results.append([losses, evaluated, p, *model.get_weights()])
    for ours, usual in zip(*results, strict=True):
        np.testing.assert_allclose(ours, usual, rtol=1e-5, atol=1e-6)
