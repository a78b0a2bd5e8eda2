"""Averages of earlier layers beside the features of a network, by which unknown inputs are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.heads.stacks import IMAGES, STACKS, D, Stack, Y

SHARE = 0.5


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest) -> Stack:
    return STACKS[request.param]


def features(stack: Stack) -> Any:
    return stack.door.feature_network(stack.classifier())


def joined(stack: Stack, **options: Any) -> tuple[Any, np.ndarray]:
    network = features(stack)
    whole = stack.door.with_earlier_layers(network, IMAGES, **options)
    return network, whole.predict(IMAGES, verbose=0)


def test_averages_stand_beside_the_features_and_have_their_share_of_the_spread(
    stack: Stack,
) -> None:
    network, values = joined(stack, share=SHARE)
    convolution = stack.keras.Model(network.inputs, network.get_layer("convolution").output)
    averages = convolution.predict(IMAGES, verbose=0).mean(axis=(1, 2))
    np.testing.assert_array_equal(values[:, :D], network.predict(IMAGES, verbose=0))
    spread, others = np.std(values[:, :D], axis=0), np.std(values[:, D:], axis=0)
    np.testing.assert_allclose(others, SHARE * np.linalg.norm(spread) / np.sqrt(5), rtol=1e-5)
    scales = np.std(averages, axis=0) / others
    np.testing.assert_allclose(values[:, D:] * scales, averages, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layers", [["convolution"], "convolution", [1], None])
def test_layers_have_names_or_numbers_or_are_all_that_come_before_the_last(
    stack: Stack, layers: Any
) -> None:
    if layers == [1]:
        layers = [[x.name for x in features(stack).layers].index("convolution")]
    named = joined(stack, layers=["convolution"])[1]
    np.testing.assert_array_equal(joined(stack, layers=layers)[1], named)


def test_a_column_that_never_varies_counts_once_it_does(stack: Stack) -> None:
    network = features(stack)
    weights, bias = network.get_layer("convolution").get_weights()
    weights[..., 0], bias[0] = 0.0, 0.0
    weights[..., 0] -= 1e3  # images here are positive but for a few: the channel is dead
    network.get_layer("convolution").set_weights([weights, bias])
    X = np.abs(IMAGES)
    whole = stack.door.with_earlier_layers(network, X)
    known, other = (whole.predict(x, verbose=0)[:, D] for x in (X, -X))
    np.testing.assert_array_equal(known, 0.0)
    assert np.all(np.isfinite(other))
    assert np.min(other) > 1.0


def test_a_head_of_both_is_attached_saved_and_knows_shuffled_images_better(
    stack: Stack, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    stripes = np.tile(np.arange(4)[:, None] % 2, (1, 4))[None, :, :, None]
    X = (IMAGES + 4.0 * stripes).astype("float32")
    strange = rng.permuted(X.reshape(len(X), -1), axis=1).reshape(X.shape)
    network = features(stack)
    rise = {}
    for name, used in {
        "features": network,
        "both": stack.door.with_earlier_layers(network, X, share=2.0),
    }.items():
        head = stack.closed_form(network=used)
        head.fit((X, Y))
        known, unknown = (np.mean(head.predict_entropy(x).epistemic) for x in (X, strange))
        rise[name] = unknown / known
    assert rise["both"] > rise["features"]
    whole = head.attach()
    path = tmp_path / "whole.keras"
    whole.save(path)
    loaded = stack.keras.models.load_model(path)
    np.testing.assert_allclose(loaded.predict(X, verbose=0), whole.predict(X, verbose=0), atol=1e-6)


def test_what_is_no_network_or_no_layer_is_refused(stack: Stack) -> None:
    network = features(stack)
    join = stack.door.with_earlier_layers
    with pytest.raises(TypeError, match=r"network must be a Sequential .* feature_network"):
        join(lambda x: x, IMAGES)
    with pytest.raises(ValueError, match=r"is a softmax\. Pass feature_network"):
        join(stack.classifier(), IMAGES)
    images = stack.keras.Model(network.inputs, network.get_layer("convolution").output)
    with pytest.raises(ValueError, match=r"ends with shape \(None, 2, 2, 5\). Pass the part"):
        join(images, IMAGES)
    both = stack.keras.Model(network.inputs, [*network.outputs, *images.outputs])
    with pytest.raises(TypeError, match=r"with one output"):
        join(both, IMAGES)
    with pytest.raises(ValueError, match=r"no layers=\['conv'\] whose outputs are known"):
        join(network, IMAGES, layers=["conv"])
    with pytest.raises(ValueError, match=r"layers=\[\] of network give no numbers to average"):
        join(network, IMAGES, layers=[])
    alone = stack.keras.Sequential([stack.keras.layers.Input((3,)), stack.keras.layers.Dense(2)])
    with pytest.raises(ValueError, match=r"layers=None of network give no numbers to average"):
        join(alone, np.ones((4, 3)))
    for share in (0.0, -1.0, np.nan, "much"):
        with pytest.raises(ValueError, match=r"share must be a number above 0.* Pass 1.0"):
            join(network, IMAGES, share=share)
