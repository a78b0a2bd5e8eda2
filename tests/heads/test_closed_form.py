"""A head in closed form: an ILRSGPR of the features, at the end of a network that stays as it is."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr import ILRSGPR, ILRSVGP, metrics
from tests.heads.stacks import IMAGES, STACKS, D, K, M, N, Stack, X, Y

RNG = np.random.default_rng(7)
Y_VAL = RNG.integers(0, K, 40)
IMAGES_VAL = RNG.normal(size=(40, 4, 4, 1)).astype("float32") + Y_VAL[:, None, None, None]
VALIDATION = (IMAGES_VAL, Y_VAL)


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest) -> Stack:
    return STACKS[request.param]


def network_of(stack: Stack, dtype: str = "float32") -> Any:
    return stack.door.feature_network(stack.classifier(dtype))


def refitted(head: Any, F: np.ndarray, y: np.ndarray) -> ILRSGPR:
    """A model of features, built by hand with the head's kernel, inducing inputs, noise and λ."""
    theirs = head.model
    return ILRSGPR(
        (F, y),
        theirs.kernel,
        theirs.inducing_variable,
        num_classes=head.num_classes,
        smoothing=theirs.smoothing,
        noise_variance=float(theirs.code.noise_variance[0, 0]),
    )


@pytest.fixture
def double(stack: Stack) -> Iterator[Stack]:
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    stack.keras.backend.set_floatx("float64")
    yield stack
    stack.keras.backend.set_floatx("float32")
    keras.config.set_dtype_policy(policy)


def test_attached_model_predicts_as_the_model_of_its_features(stack: Stack) -> None:
    network = network_of(stack)
    weights = [w.copy() for w in network.get_weights()]
    head = stack.closed_form(network=network)
    head.fit((IMAGES, Y), validation=VALIDATION)
    F = network.predict(IMAGES, verbose=0)
    expected = refitted(head, F, Y).predict_y(F)[0]
    np.testing.assert_allclose(head.attach().predict(IMAGES, verbose=0), expected, atol=1e-6)
    np.testing.assert_allclose(head.predict(IMAGES), expected, rtol=1e-9)
    for now, before in zip(network.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(now, before)


def test_attached_model_in_double_precision_agrees_to_rounding(double: Stack) -> None:
    network = network_of(double, "float64")
    head = double.closed_form(network=network)
    head.fit((IMAGES, Y), validation=VALIDATION)
    F = network.predict(IMAGES.astype("float64"), verbose=0)
    assert F.dtype == np.float64
    p = head.attach().predict(IMAGES.astype("float64"), verbose=0)
    np.testing.assert_allclose(p, refitted(head, F, Y).predict_y(F)[0], rtol=0.0, atol=1e-10)


def test_a_dataset_in_one_pass_is_all_rows_at_once(stack: Stack) -> None:
    network = network_of(stack)
    head = stack.closed_form(network=network, sample_size=10)
    dataset = tf.data.Dataset.from_tensor_slices((IMAGES, Y)).batch(7)
    report = head.fit(dataset, validation=VALIDATION)
    assert report.num_rows == head.num_rows == N
    F = network.predict(IMAGES, verbose=0)
    np.testing.assert_allclose(
        head.predict(IMAGES), refitted(head, F, Y).predict_y(F)[0], rtol=1e-6
    )


def test_rows_that_are_added_count_as_those_of_the_fit(stack: Stack) -> None:
    network = network_of(stack)
    head = stack.closed_form(network=network)
    weights = [w.copy() for w in network.get_weights()]
    head.fit((IMAGES[:16], Y[:16]), validation=VALIDATION)
    head.update(IMAGES[16:], Y[16:])
    assert head.num_rows == N
    for now, before in zip(network.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(now, before)
    F = network.predict(IMAGES, verbose=0)
    expected = refitted(head, F, Y).predict_y(F)[0]
    np.testing.assert_allclose(head.attach().predict(IMAGES, verbose=0), expected, atol=1e-6)


def test_a_class_may_appear_after_the_fit(stack: Stack) -> None:
    network = network_of(stack)
    head = stack.closed_form(network=network)
    head.fit((IMAGES[16:], Y[16:]), validation=VALIDATION)
    new = np.full(16, K)
    head.update(IMAGES[:16], new, num_classes=K + 1)
    F = network.predict(IMAGES, verbose=0)
    expected = refitted(head, F, np.r_[new, Y[16:]]).predict_y(F)[0]
    assert expected.shape == (len(IMAGES), K + 1)
    np.testing.assert_allclose(head.predict(IMAGES), expected, atol=1e-8)
    np.testing.assert_allclose(head.attach().predict(IMAGES, verbose=0), expected, atol=1e-5)


def test_a_new_fit_has_the_classes_that_the_head_has(stack: Stack) -> None:
    head = stack.closed_form()
    head.fit((X, Y), validation=(X, Y))
    head.update(X[:1], [K], num_classes=K + 1)
    later = np.where(np.arange(N) % 5 == 0, K, Y)
    head.fit((X, later), validation=(X, later))
    assert head.num_classes == K + 1
    expected = stack.closed_form(num_classes=K + 1)
    expected.fit((X, later), validation=(X, later))
    np.testing.assert_allclose(head.predict(X), expected.predict(X), rtol=1e-8)
    head.fit((X, Y), validation=(X, Y))  # without a row of the new class, which remains
    assert head.predict(X).shape == (N, K + 1)


def test_a_fit_that_fails_leaves_the_head_as_it_was() -> None:
    head = STACKS["keras"].closed_form()
    head.fit((X, Y), validation=(X, Y))
    before = head.predict(X)
    for dataset, validation in (((X, Y + 1), (X, Y)), ((X[:5], Y[:5]), (X, Y + 1))):
        with pytest.raises(ValueError, match="subtract 1"):
            head.fit(dataset, validation=validation)
    np.testing.assert_array_equal(head.predict(X), before)
    assert head.num_rows == N


def as_dataset(*arrays: np.ndarray) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(arrays).batch(7)


@pytest.mark.parametrize("source", [lambda *arrays: arrays, as_dataset], ids=["arrays", "dataset"])
@pytest.mark.parametrize("sample_size", [10, 4096], ids=["one pass", "at once"])
def test_weight_two_is_the_row_twice_and_weight_zero_the_row_absent(
    source: Any, sample_size: int
) -> None:
    stack, counts = STACKS["keras"], np.arange(N) % 3
    repeated = np.repeat(np.arange(N), counts)
    of_validation = np.arange(40) % 3
    often = np.repeat(np.arange(40), of_validation)
    F, F_val = IMAGES.reshape(N, -1)[:, :4], IMAGES_VAL.reshape(40, -1)[:, :4]
    head = stack.closed_form(sample_size=sample_size)
    report = head.fit(source(F, Y, counts), validation=source(F_val, Y_VAL, of_validation))
    assert report.num_rows == head.num_rows == np.count_nonzero(counts)
    assert report.calibration.num_rows == np.count_nonzero(of_validation)
    expected = refitted(head, F[repeated], Y[repeated]).predict_y(F)[0]
    np.testing.assert_allclose(head.predict(F), expected, rtol=1e-7)
    nll = metrics.negative_log_likelihood(head.predict(F_val[often]), Y_VAL[often])
    assert report.calibration.nll_after == pytest.approx(nll, abs=1e-3)  # of other nodes


@pytest.mark.parametrize("sample_size", [10, 4096])
def test_a_row_of_weight_zero_changes_nothing_at_all(sample_size: int) -> None:
    weights = np.where(np.arange(N) % 4 == 0, 0.0, 1.0)
    heads = [
        STACKS["keras"].closed_form(sample_size=sample_size, max_iterations=2) for _ in range(2)
    ]
    heads[0].fit((X, Y, weights), validation=(X, Y, weights))
    there = weights > 0
    heads[1].fit((X[there], Y[there]), validation=(X[there], Y[there]))
    np.testing.assert_allclose(heads[0].predict(X), heads[1].predict(X), rtol=1e-7)


@pytest.mark.parametrize("max_iterations", [0, 3])
def test_a_whole_fit_of_weighted_rows_is_that_of_repeated_ones(max_iterations: int) -> None:
    counts = 1 + np.arange(N) % 3
    repeated = np.repeat(np.arange(N), counts)
    weighted, by_hand = (
        STACKS["keras"].closed_form(kernel="Linear", max_iterations=max_iterations)
        for _ in range(2)
    )
    weighted.fit((X, Y, counts), validation=(X, Y, counts))
    by_hand.fit((X[repeated], Y[repeated]), validation=(X[repeated], Y[repeated]))
    np.testing.assert_allclose(weighted.predict(X), by_hand.predict(X), rtol=1e-5)


def test_rows_that_are_added_may_have_weights(stack: Stack) -> None:
    head = stack.closed_form()
    head.fit((X[:16], Y[:16]), validation=(X, Y))
    head.update(X[16:], Y[16:], sample_weight=np.arange(8) % 3)
    assert head.num_rows == 16 + 5
    rows = np.r_[np.arange(16), np.repeat(np.arange(16, N), np.arange(8) % 3)]
    np.testing.assert_allclose(
        head.predict(X), refitted(head, X[rows], Y[rows]).predict_y(X)[0], rtol=1e-7
    )


def test_polish_leaves_out_rows_without_weight() -> None:
    weights = np.where(np.arange(N) % 4 == 0, 0.0, 1.5)
    there = weights > 0
    options = {"max_steps": 2, "check_every": 1, "validation": (X, Y), "row_weights": 1.0}
    found = []
    for rows in ((X, Y, weights), (X[there], Y[there], weights[there])):
        head = STACKS["keras"].closed_form()
        head.fit(rows, validation=(X, Y))
        found.append(head.polish(rows, **options).nll_after)
    assert found[0] == pytest.approx(found[1], rel=1e-8)


def test_errors_name_rows_of_the_dataset_not_of_the_sample(stack: Stack) -> None:
    head = stack.closed_form(sample_size=10)
    wrong = np.where(np.arange(N) == 15, 7, Y)
    for dataset in ((X, wrong), as_dataset(X, wrong)):
        with pytest.raises(ValueError, match="row 15 has label 7"):
            head.fit(dataset)


def test_linear_kernel_is_bayesian_regression_on_features_and_a_bias() -> None:
    head = STACKS["keras"].closed_form(kernel="Linear")
    head.fit((X, Y), validation=(X, Y))
    code, kernel = head.model.code, head.model.kernel
    v, c = (float(k.variance.numpy()) for k in kernel.kernels)
    H = np.hstack([np.sqrt(v) * X, np.full((N, 1), np.sqrt(c))])
    noise, L = float(code.noise_variance[0, 0]), float(code.scale)
    S = np.linalg.inv(np.eye(5) + H.T @ H / noise)
    mean = S @ H.T @ code.targets.numpy()[Y] / noise
    found = head.model.predict_f(X)
    np.testing.assert_allclose(found[0], L * H @ mean, atol=1e-4)  # of GPflow's jitter
    expected = L**2 * np.sum(H @ S * H, axis=1)
    np.testing.assert_allclose(found[1][:, 0], expected, rtol=1e-3, atol=1e-4)


def test_kernel_and_inducing_inputs_are_trained_on_a_sample() -> None:
    starts, fitted = (STACKS["keras"].closed_form(max_iterations=i) for i in (0, 5))
    for head in (starts, fitted):
        head.fit((X, Y), network_saw_rows=False)
    assert fitted.model.elbo() > starts.model.elbo() + 1.0


def test_optimism_of_leave_one_out_is_said_where_the_network_saw_the_rows(stack: Stack) -> None:
    head = stack.closed_form(network=network_of(stack))
    assert "promises too much" in str(head.fit((IMAGES, Y)))
    assert "promises too much" not in str(head.fit((IMAGES, Y), network_saw_rows=False))
    assert "promises too much" not in str(head.calibrate())
    held_out = head.fit((IMAGES, Y), validation=VALIDATION)
    assert "promises too much" not in str(held_out)
    assert held_out.calibration.num_rows == len(Y_VAL)
    again = head.calibrate()
    assert again.optimistic
    assert str(again).endswith("rows that it has not seen.")
    assert again.leave_one_out
    assert not head.calibrate(VALIDATION).optimistic


def test_polish_says_so_where_rows_that_are_held_out_have_trained_the_network() -> None:
    head = STACKS["keras"].closed_form()
    options = {"max_steps": 1, "check_every": 1, "row_weights": 1.0}
    for saw_rows, validation in ((True, None), (False, None), (True, (X, Y))):
        head.fit((X, Y), validation=(X, Y), network_saw_rows=saw_rows)
        said = str(head.polish((X, Y), validation=validation, **options))
        optimistic = saw_rows and validation is None
        assert ("held-out rows have trained the network" in said) == optimistic


def test_polish_keeps_what_held_out_rows_prefer_and_is_attached() -> None:
    stack = STACKS["keras"]
    network = network_of(stack)
    head = stack.closed_form(network=network)
    head.fit((IMAGES, Y), validation=VALIDATION)
    before = head.predict(IMAGES_VAL)
    options = {"max_steps": 6, "check_every": 3, "batch_size": N, "row_weights": (1.0, 0.5)}
    found = head.polish((IMAGES, Y), validation=VALIDATION, **options)
    assert found.row_weight in options["row_weights"]
    nll = metrics.negative_log_likelihood(head.predict(IMAGES_VAL), Y_VAL)
    assert nll <= found.nll_before + 1e-6
    if not found.kept:
        assert "given up" in str(found)
        assert head.polished is None
        np.testing.assert_array_equal(head.predict(IMAGES_VAL), before)
    else:
        assert isinstance(head.polished, ILRSVGP)
    attached = head.attach().predict(IMAGES_VAL, verbose=0)
    np.testing.assert_allclose(attached, head.predict(IMAGES_VAL), atol=1e-6)
    head.update(IMAGES[:1], Y[:1])
    assert head.polished is None


def test_head_of_any_function_predicts_and_is_a_layer_of_features() -> None:
    stack = STACKS["keras"]
    head = stack.closed_form(network=lambda batch: batch.reshape(len(batch), -1)[:, :D])
    head.fit((IMAGES, Y), validation=VALIDATION)
    with pytest.raises(TypeError, match="must be a model of keras"):
        head.attach()
    features = IMAGES.reshape(N, -1)[:, :D]
    alone = stack.keras.Sequential([stack.keras.layers.Input((D,)), head.layer()])
    np.testing.assert_allclose(alone.predict(features, verbose=0), head.predict(IMAGES), atol=1e-6)


def test_a_subclassed_network_is_attached_too(stack: Stack) -> None:
    class Subclassed(stack.keras.Model):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.flat, self.dense = stack.keras.layers.Flatten(), stack.keras.layers.Dense(D)

        def call(self, inputs: Any) -> Any:
            return self.dense(self.flat(inputs))

    network = Subclassed()
    network(IMAGES[:1])
    head = stack.closed_form(network=network)
    head.fit((IMAGES, Y), validation=VALIDATION)
    attached = head.attach().predict(IMAGES, verbose=0)
    np.testing.assert_allclose(attached, head.predict(IMAGES), atol=1e-6)


@pytest.mark.parametrize("given", ["dictionary", "tuple"])
def test_a_network_with_several_inputs_takes_them_as_keras_does(stack: Stack, given: str) -> None:
    layers = stack.keras.layers
    inputs = [layers.Input((4,), name="second"), layers.Input((3,), name="first")]
    features = layers.Dense(D)(layers.Concatenate()(inputs))
    other = np.random.default_rng(3).normal(size=(N, 3))
    named = {"second": X, "first": other}  # another order than that of their names
    if given == "dictionary":
        network = stack.keras.Model({i.name.split(":")[0]: i for i in inputs}, features)
    else:
        network = stack.keras.Model(inputs, features)
    rows = named if given == "dictionary" else (X, other)
    kernel, bias = network.layers[-1].get_weights()
    head = stack.closed_form(network=network, sample_size=10)
    head.fit((rows, Y), validation=(rows, Y))
    F = np.hstack([X, other]) @ kernel + bias
    expected = refitted(head, F, Y).predict_y(F)[0]
    np.testing.assert_allclose(head.predict(rows), expected, atol=1e-4)  # features in float32
    for_keras = named if given == "dictionary" else [X, other]
    attached = head.attach().predict(for_keras, verbose=0)
    np.testing.assert_allclose(attached, head.predict(rows), atol=1e-6)


@pytest.mark.parametrize("many", [300, pytest.param(2000, marks=pytest.mark.slow)])
def test_many_classes_need_one_root(many: int) -> None:
    y = np.arange(2 * many) % many
    F = np.random.default_rng(0).normal(size=(2 * many, 3)) + y[:, None] % 7
    head = STACKS["keras"].closed_form(num_classes=many, num_inducing=20)
    head.fit((F, y), validation=(F[:3], y[:3]))
    layer = head.layer()
    assert layer.gp.root.shape == [1, 20, 20]
    np.testing.assert_allclose(layer(F[:2]), head.predict(F[:2]), atol=1e-6)


def test_what_does_not_fit_is_refused(stack: Stack) -> None:
    head = stack.closed_form(network=network_of(stack))
    with pytest.raises(ValueError, match=r"call head.fit\(\(X, y\)\) first"):
        head.predict(IMAGES)
    with pytest.raises(ValueError, match="subtract 1"):
        head.fit((IMAGES, Y + 1))
    head.fit((IMAGES, Y), validation=VALIDATION)
    other = stack.keras.Sequential(
        [stack.keras.layers.Input((4, 4, 1)), stack.keras.layers.Flatten()]
    )
    with pytest.raises(ValueError, match=r"has 16 features, but the head was fitted on 2"):
        head.attach(other)
    for options in ({"num_inducing": 0}, {"sample_size": 0}, {"max_iterations": -1}):
        with pytest.raises(ValueError, match="must be an integer"):
            stack.closed_form(**options)
    assert head.num_inducing == M
