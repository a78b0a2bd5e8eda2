"""Parts of networks, of models inside networks, and what cannot be a network of features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.heads.features import FeatureReader
from gpflow_ilr.heads.networks import before_layer, with_layer_outputs
from tests.heads.stacks import IMAGES, STACKS, D, K, Stack, Y


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest) -> Stack:
    return STACKS[request.param]


def backbone(stack: Stack, kind: str) -> Any:
    """Convolution, BatchNormalization, a skip connection if it can have one, and an average."""
    layers = stack.keras.layers
    inputs = layers.Input((4, 4, 1))
    parts = [
        layers.Conv2D(3, 3, padding="same", activation="relu", name="first"),
        layers.BatchNormalization(name="norm"),
        layers.Conv2D(4, 2, name="second"),
        layers.GlobalAveragePooling2D(name="average"),
    ]
    if kind == "sequential":
        return stack.keras.Sequential([inputs, *parts], name="backbone")
    x = parts[0](inputs)
    x = layers.Add(name="skip")([parts[1](x), x])
    return stack.keras.Model(inputs, parts[3](parts[2](x)), name="backbone")


def nested(stack: Stack, kind: str, *ends: Any) -> Any:
    """A backbone from elsewhere as the first layer of a network, or behind another one."""
    layers = stack.keras.layers
    stack.keras.utils.set_random_seed(0)
    inside = backbone(stack, kind.split()[0])
    inside(layers.Input((4, 4, 1)))  # another network has it, too, and had it first
    # Averages of BatchNormalization that are not those at the start.
    state = np.random.default_rng(0)
    inside.set_weights([w + 0.3 * state.random(w.shape) for w in inside.get_weights()])
    ends = ends or (layers.Dense(K, activation="softmax", name="softmax"),)
    if "within" not in kind:
        return stack.keras.Sequential([layers.Input((4, 4, 1)), inside, *ends])
    x = inputs = layers.Input((4, 4, 1))
    x = inside(layers.Rescaling(2.0, name="scaling")(x), training=False)
    for layer in ends:
        x = layer(x)
    return stack.keras.Model(inputs, x)


KINDS = ["sequential", "functional", "sequential within", "functional within"]


def by_hand(network: Any, name: str, stack: Stack) -> np.ndarray:
    """What a layer of the backbone inside returns for the images."""
    inside = network.get_layer("backbone")
    part = stack.keras.Model(inside.inputs[0], inside.get_layer(name).output)
    scaled = 2.0 * IMAGES if any(layer.name == "scaling" for layer in network.layers) else IMAGES
    return np.asarray(part(scaled))


@pytest.mark.parametrize("kind", KINDS)
def test_layers_of_a_model_inside_are_reached(stack: Stack, kind: str) -> None:
    network = nested(stack, kind)
    inside = network.get_layer("backbone")
    wanted = [network.layers[-1], inside.get_layer("second"), inside, inside.get_layer("norm")]
    found = with_layer_outputs(network, wanted, stack.keras).predict(IMAGES, verbose=0)
    p = network.predict(IMAGES, verbose=0)
    second, average, norm = (
        by_hand(network, name, stack) for name in ("second", "average", "norm")
    )
    for ours, expected in zip(found, [p, second, average, norm, p], strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def with_features(stack: Stack, kind: str) -> Any:
    layers = stack.keras.layers
    ends = (layers.Dense(D, activation="relu", name="features"), layers.Dense(K, name="logits"))
    return nested(stack, kind, *ends)


@pytest.mark.parametrize("kind", KINDS)
def test_averages_of_a_model_inside_join_the_features(stack: Stack, kind: str) -> None:
    classifier = with_features(stack, kind)
    weights = classifier.get_weights()
    features = stack.door.feature_network(classifier)
    expected = features.predict(IMAGES, verbose=0)
    means = [by_hand(classifier, x, stack).mean(axis=(1, 2)) for x in ("first", "norm", "second")]
    for named, columns in (
        (None, means),
        (["first", "second"], [means[0], means[2]]),
        (["second", "first"], [means[2], means[0]]),
        (["backbone"], [by_hand(classifier, "average", stack)]),
    ):
        whole = stack.door.with_earlier_layers(features, IMAGES, named)
        values = whole.predict(IMAGES, verbose=0)
        np.testing.assert_allclose(values[:, :D], expected, rtol=1e-5, atol=1e-6)
        for ours, theirs in zip(values[:, D:].T, np.hstack(columns).T, strict=True):
            one, other = (x - x.mean() for x in (ours, theirs))
            assert one @ other == pytest.approx(
                np.linalg.norm(one) * np.linalg.norm(other), rel=1e-4, abs=1e-9
            )
    for now, before in zip(classifier.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(now, before)


def test_a_head_of_both_is_attached_and_saved(stack: Stack, tmp_path: Path) -> None:
    features = stack.door.feature_network(with_features(stack, "functional within"))
    head = stack.closed_form(network=stack.door.with_earlier_layers(features, IMAGES))
    head.fit((IMAGES, Y))
    attached = head.attach()
    attached.save(tmp_path / "whole.keras")
    loaded = stack.keras.models.load_model(tmp_path / "whole.keras")
    for model in (attached, loaded):
        np.testing.assert_allclose(
            model.predict(IMAGES, verbose=0), head.predict(IMAGES), atol=1e-5
        )


ENDS = {
    "dense and activation": lambda k: [k.layers.Dense(K), k.layers.Activation("softmax")],
    "dense and softmax": lambda k: [k.layers.Dense(K), k.layers.Softmax()],
    "a model": lambda k: [k.Sequential([k.layers.Dense(K, activation="softmax")])],
    "a model and softmax": lambda k: [k.Sequential([k.layers.Dense(K)]), k.layers.Softmax()],
    "a model of both": lambda k: [k.Sequential([k.layers.Dense(K), k.layers.Softmax()])],
}


@pytest.mark.parametrize("end", ENDS)
def test_a_softmax_is_found_wherever_it_is_and_taken_off_with_its_logits(
    stack: Stack, end: str
) -> None:
    layers = stack.keras.layers
    body = [layers.Input((4, 4, 1)), layers.Flatten(), layers.Dense(D, name="features")]
    network = stack.keras.Sequential([*body, *ENDS[end](stack.keras)])
    network.build((None, 4, 4, 1))
    with pytest.raises(ValueError, match=r"is a softmax\. Pass feature_network\(network\)"):
        FeatureReader(network, stack.keras)
    with pytest.raises(ValueError, match=r"is a softmax\. Pass feature_network\(network\)"):
        stack.door.with_earlier_layers(network, IMAGES)
    features = stack.door.feature_network(network)
    kernel, bias = network.get_layer("features").get_weights()
    expected = IMAGES.reshape(len(IMAGES), -1) @ kernel + bias
    np.testing.assert_allclose(features.predict(IMAGES, verbose=0), expected, rtol=1e-4, atol=1e-5)
    assert len(features.weights) == 2
    FeatureReader(features, stack.keras)


def test_features_within_a_model_at_the_end_are_those_before_its_last_layer(stack: Stack) -> None:
    layers = stack.keras.layers
    top = [layers.Dense(D, activation="relu", name="hidden"), layers.Dense(K, activation="softmax")]
    network = nested(stack, "functional", stack.keras.Sequential(top, name="top"))
    average = by_hand(network, "average", stack)
    expected = np.asarray(top[0](average))
    for layer, values in ((-1, expected), ("top", average), ("hidden", average)):
        features = before_layer(network, layer, stack.keras)
        np.testing.assert_allclose(
            features.predict(IMAGES, verbose=0), values, rtol=1e-4, atol=1e-5
        )
    with pytest.raises(ValueError, match=r"input of layer 'norm' has shape .* behind a Flatten"):
        before_layer(network, "norm", stack.keras)
    with pytest.raises(ValueError, match=r"its layers are \['backbone', 'top'\]"):
        before_layer(network, "tip", stack.keras)


def test_a_softmax_of_tensorflow_is_one_too(stack: Stack) -> None:
    layers = stack.keras.layers
    network = stack.keras.Sequential(
        [layers.Input((D,)), layers.Dense(K, activation=tf.nn.softmax)]
    )
    with pytest.raises(ValueError, match="is a softmax"):
        FeatureReader(network, stack.keras)


def test_a_network_with_several_outputs_is_refused(stack: Stack) -> None:
    layers = stack.keras.layers
    inputs = layers.Input((4,))
    both = [layers.Dense(D)(inputs), layers.Dense(K)(inputs)]
    network = stack.keras.Model(inputs, both)
    head = stack.closed_form()
    rows = np.random.default_rng(0).normal(size=(len(Y), D))
    head.fit((rows, Y))
    sentence = r"network must have one output, but has 2\. Pass the part that computes the features"
    for refused in (
        lambda: head.attach(network),
        lambda: stack.closed_form(network=network),
        lambda: stack.door.feature_network(network),
    ):
        with pytest.raises(ValueError, match=sentence):
            refused()

    class Subclassed(stack.keras.Model):  # type: ignore[name-defined]
        def call(self, inputs: Any) -> Any:
            return inputs, inputs

    for several in (Subclassed(), lambda batch: (batch, batch)):
        head = stack.closed_form(network=several)
        with pytest.raises(
            ValueError, match=r"returned a tuple of 2\. Pass a function that returns"
        ):
            head.fit((rows, Y))


@pytest.mark.slow
def test_a_backbone_of_keras_applications_gets_a_head(stack: Stack, tmp_path: Path) -> None:
    stack.keras.utils.set_random_seed(0)
    options = {"weights": None, "include_top": False, "pooling": "avg"}
    mobile = stack.keras.applications.MobileNetV2((32, 32, 3), alpha=0.35, **options)
    X = np.tile(np.kron(IMAGES, np.ones((1, 8, 8, 1), "float32")), 3)
    head = stack.closed_form(network=mobile)
    assert head.fit((X, Y)).num_rows == len(X)
    attached = head.attach()
    p = attached.predict(X, verbose=0)
    features = mobile.predict(X, verbose=0)
    of_features = stack.closed_form()
    of_features.fit((features, Y))
    np.testing.assert_allclose(p, of_features.predict(features), atol=1e-5)
    attached.save(tmp_path / "mobile.keras")
    loaded = stack.keras.models.load_model(tmp_path / "mobile.keras")
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), p)
    layers = stack.keras.layers
    classifier = stack.keras.Sequential(
        [layers.Input((32, 32, 3)), mobile, layers.Dense(K, activation="softmax")]
    )
    network = stack.door.feature_network(classifier)
    whole = stack.door.with_earlier_layers(network, X, ["Conv1_relu", "block_5_add"])
    values = whole.predict(X, verbose=0)
    assert values.shape == (len(X), 1280 + 16 + 16)
    np.testing.assert_allclose(values[:, :1280], features, rtol=1e-4, atol=1e-6)
