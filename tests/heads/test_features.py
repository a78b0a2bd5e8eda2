"""The features of a dataset: the same rows, whatever they come as, and a sentence for what is wrong."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.heads.features import FeatureReader, has_weights
from gpflow_ilr.heads.networks import before_layer
from gpflow_ilr.inputs.counts import evenly_spaced
from tests.heads.stacks import IMAGES, STACKS, D, K, N, Stack, Y


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest) -> Stack:
    return STACKS[request.param]


def test_arrays_and_datasets_have_the_same_features(stack: Stack) -> None:
    network = before_layer(stack.classifier(), -1, stack.keras)
    reader = FeatureReader(network, stack.keras)
    batches = tf.data.Dataset.from_tensor_slices((IMAGES, Y)).batch(7)
    expected = network.predict(IMAGES, verbose=0)
    for dataset in ((IMAGES, Y), batches):
        F, y = reader.rows(dataset)
        np.testing.assert_allclose(F, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(y, Y)


def test_a_sample_has_rows_of_all_arrays_and_the_first_of_a_dataset(stack: Stack) -> None:
    reader = FeatureReader(None, stack.keras)
    F = np.arange(2.0 * N).reshape(N, 2)
    dataset = tf.data.Dataset.from_tensor_slices((F, Y)).batch(7)
    for source, places in (((F, Y), evenly_spaced(N, 6)), (dataset, np.arange(6))):
        (rows, labels), is_all = reader.sample(source, 6)
        np.testing.assert_array_equal(rows, F[places])
        np.testing.assert_array_equal(labels, Y[places])
        assert not is_all
        (rows, _), is_all = reader.sample(source, N + 1)
        np.testing.assert_array_equal(rows, F)
        assert is_all


def test_weights_come_with_their_rows_and_rows_without_weight_are_no_sample(stack: Stack) -> None:
    reader = FeatureReader(None, stack.keras)
    F, weights = np.arange(2.0 * N).reshape(N, 2), np.arange(N) % 3
    dataset = tf.data.Dataset.from_tensor_slices((F, Y, weights)).batch(7)
    for source in ((F, Y, weights), (F, Y, weights[:, None]), dataset):
        assert has_weights(source)
        for found, given in zip(reader.rows(source), (F, Y, weights), strict=True):
            np.testing.assert_array_equal(found, given)
        sample, is_all = reader.sample(source, N)
        for found, given in zip(sample, (F, Y, weights), strict=True):
            np.testing.assert_array_equal(found, given[weights > 0])
        assert is_all
    assert not has_weights((F, Y, None))
    assert len(reader.rows((F, Y, None))) == 2


def test_weights_that_make_no_sense_are_refused(stack: Stack) -> None:
    reader = FeatureReader(None, stack.keras)
    F = np.ones((N, D))
    with pytest.raises(ValueError, match="one weight for each of the 24 rows"):
        reader.rows((F, Y, np.ones(N - 1)))
    with pytest.raises(ValueError, match=r"not negative, but row 23 has -1.0. A weight of 0"):
        reader.rows((F, Y, np.r_[np.ones(N - 1), -1.0]))
    unbatched = tf.data.Dataset.from_tensors((F, Y, 1.0))
    with pytest.raises(
        ValueError, match=r"one weight, but a batch of 24 rows has weights of shape"
    ):
        reader.rows(unbatched)
    nothing = tf.data.Dataset.from_tensor_slices((F, Y, np.zeros(N))).batch(5)
    with pytest.raises(ValueError, match="at least one row that counts, but has none"):
        reader.sample(nothing, 5)


def test_features_are_those_of_evaluation_mode(stack: Stack) -> None:
    layers = stack.keras.layers
    network = stack.keras.Sequential([layers.Input((D,)), layers.Dropout(0.9)])
    rows = np.ones((5, D), "float32")
    np.testing.assert_array_equal(FeatureReader(network, stack.keras).features(rows), rows)


def test_any_function_of_a_batch_will_do(stack: Stack) -> None:
    reader = FeatureReader(lambda batch: batch.reshape(len(batch), -1), stack.keras)
    np.testing.assert_array_equal(reader.all_features(IMAGES), IMAGES.reshape(N, 16))


@pytest.mark.parametrize("layer", [-1, "softmax"])
def test_the_part_before_a_layer_computes_what_goes_into_it(stack: Stack, layer: Any) -> None:
    classifier = stack.classifier()
    features = before_layer(classifier, layer, stack.keras)
    assert features.output_shape == (None, D)
    logits = features.predict(IMAGES, verbose=0) @ classifier.layers[-1].get_weights()[0]
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(classifier.predict(IMAGES, verbose=0), probabilities, rtol=1e-4)


def test_a_layer_without_features_before_it_is_refused(stack: Stack) -> None:
    classifier = stack.classifier()
    with pytest.raises(ValueError, match=r"'flat' has shape .* behind a Flatten"):
        before_layer(classifier, "flat", stack.keras)
    with pytest.raises(ValueError, match="no layer='head' whose input is known"):
        before_layer(classifier, "head", stack.keras)
    alone = stack.keras.Sequential([stack.keras.layers.Input((D,)), stack.keras.layers.Dense(K)])
    with pytest.raises(ValueError, match="no row of features that the network computes"):
        before_layer(alone, -1, stack.keras)


def test_a_network_that_ends_with_probabilities_is_refused(stack: Stack) -> None:
    with pytest.raises(
        ValueError, match=r"'softmax' is a softmax. Pass feature_network\(network\)"
    ):
        FeatureReader(stack.classifier(), stack.keras)
    with pytest.raises(TypeError, match="network must be a Keras model, a function"):
        FeatureReader("network", stack.keras)


def test_a_network_without_rows_of_features_is_refused(stack: Stack) -> None:
    with pytest.raises(ValueError, match=r"returned shape \[24, 4, 4, 1\]. End it with a Flatten"):
        FeatureReader(lambda batch: batch, stack.keras).features(IMAGES)
    with pytest.raises(ValueError, match=r"X must be features .* network=network"):
        FeatureReader(None, stack.keras).features(IMAGES)


def test_inputs_that_do_not_belong_together_are_refused(stack: Stack) -> None:
    reader = FeatureReader(lambda batch: batch["a"] + batch["b"], stack.keras)
    F = np.ones((N, D))
    assert reader.rows(({"a": F, "b": F}, Y))[0].shape == (N, D)
    with pytest.raises(ValueError, match=r"as many rows each, .* but they have \[23, 24\] rows"):
        reader.rows(({"a": F, "b": F[1:]}, Y))
    with pytest.raises(ValueError, match=r"X has 2 rows and y has 24\. Pass the inputs .* a tuple"):
        reader.rows(([F, F], Y))


def test_a_dataset_without_labels_is_refused(stack: Stack) -> None:
    reader = FeatureReader(None, stack.keras)
    X = np.ones((N, D))
    with pytest.raises(
        ValueError, match=r"its elements are TensorSpec.* Add labels with dataset.map"
    ):
        reader.rows(tf.data.Dataset.from_tensor_slices(X).batch(5))
    with pytest.raises(TypeError, match="but is a ndarray"):
        reader.rows(X)
    with pytest.raises(ValueError, match="X has 24 rows and y has 23"):
        reader.rows((X, Y[1:]))
    with pytest.raises(ValueError, match="has none"):
        reader.rows(tf.data.Dataset.from_tensor_slices((X, Y)).batch(5).take(0))
