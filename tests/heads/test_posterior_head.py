"""The layer of a posterior: an ordinary part of Keras models, saved with them."""

from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.heads.outputs import OUTPUTS
from tests.heads.stacks import IMAGES, STACKS, D, K, M, Stack, Y


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest) -> Stack:
    return STACKS[request.param]


def test_outputs_on_request_are_the_outputs_of_the_model(stack: Stack) -> None:
    network = stack.door.feature_network(stack.classifier())
    head = stack.closed_form(network=network)
    head.fit((IMAGES, Y), validation=(IMAGES, Y))
    outputs = ("probabilities", "epistemic", "mean", "variance")
    found = head.attach(outputs=outputs).predict(IMAGES, verbose=0)
    assert set(found) == set(outputs)
    np.testing.assert_allclose(found["probabilities"], head.predict(IMAGES), atol=1e-6)
    np.testing.assert_allclose(
        found["epistemic"], head.predict_entropy(IMAGES).epistemic, atol=1e-6
    )
    latents = head.model.predict_f(network.predict(IMAGES, verbose=0))
    for name, expected in zip(("mean", "variance"), latents, strict=True):
        assert found[name].shape == (len(IMAGES), K - 1)
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-5)


def test_layer_has_no_trainable_weights_and_its_configuration_makes_it_again(stack: Stack) -> None:
    layer = stack.door.PosteriorHead(K, M, kernel="Matern52", outputs=("mean", "entropy"))
    again = stack.door.PosteriorHead.from_config(layer.get_config())
    for head in (layer, again):
        head.build((None, D))
        assert head.trainable_weights == []
        assert isinstance(head.gp.kernel, gpflow.kernels.Matern52)
        assert head.outputs == ("mean", "entropy")
        assert head.compute_output_shape((5, D)) == {"mean": (5, K - 1), "entropy": (5,)}
    assert again.get_config() == layer.get_config()


def test_saved_loaded_and_exported_models_predict_the_same(stack: Stack, tmp_path: Path) -> None:
    head = stack.closed_form(network=stack.door.feature_network(stack.classifier()))
    head.fit((IMAGES, Y), validation=(IMAGES, Y))
    model = head.attach()
    expected = model.predict(IMAGES, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = stack.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(IMAGES, verbose=0), expected)
    model.save_weights(tmp_path / "head.weights.h5")
    fresh = stack.closed_form(network=stack.door.feature_network(stack.classifier()), seed=3)
    fresh.fit((IMAGES[:12], Y[:12]), validation=(IMAGES, Y))
    other = fresh.attach()
    assert not np.allclose(other.predict(IMAGES, verbose=0), expected)
    other.load_weights(tmp_path / "head.weights.h5")
    np.testing.assert_array_equal(other.predict(IMAGES, verbose=0), expected)
    options = {"verbose": False} if stack is STACKS["keras"] else {}
    model.export(str(tmp_path / "served"), **options)
    served = tf.saved_model.load(str(tmp_path / "served"))
    np.testing.assert_allclose(served.serve(IMAGES), expected, atol=1e-6)


@pytest.mark.slow
def test_a_polished_head_with_a_new_class_is_saved_and_exported(
    stack: Stack, tmp_path: Path
) -> None:
    head = stack.closed_form(network=stack.door.feature_network(stack.classifier()))
    head.fit((IMAGES[:6], Y[:6]), validation=(IMAGES, Y))
    later = np.r_[Y[:20], np.full(4, K)]
    head.update(IMAGES[20:], later[20:], num_classes=K + 1)
    options = {"row_weights": 1.0, "max_steps": 10, "check_every": 5}
    assert head.polish((IMAGES, later), validation=(IMAGES, later), **options).kept
    model = head.attach(outputs=("probabilities", "variance"))
    expected = model.predict(IMAGES, verbose=0)
    assert expected["probabilities"].shape == (len(IMAGES), K + 1)
    assert np.ptp(expected["variance"], axis=1).max() > 1e-6  # each latent has its own by then
    model.save(tmp_path / "model.keras")
    loaded = stack.keras.models.load_model(tmp_path / "model.keras").predict(IMAGES, verbose=0)
    options = {"verbose": False} if stack is STACKS["keras"] else {}
    model.export(str(tmp_path / "served"), **options)
    module = tf.saved_model.load(str(tmp_path / "served"))
    served = module.serve(IMAGES)
    for name, values in expected.items():
        np.testing.assert_array_equal(loaded[name], values)
        np.testing.assert_allclose(served[name], values, rtol=1e-5, atol=1e-6)


def test_features_of_another_shape_are_refused(stack: Stack) -> None:
    with pytest.raises(ValueError, match=r"PosteriorHead wants features .* Put a Flatten"):
        stack.door.PosteriorHead(K, M)(np.zeros((2, 3, 4)))


@pytest.mark.slow
@pytest.mark.parametrize("polished", [False, True], ids=["closed form", "polished"])
def test_xla_predicts_and_evaluates_the_same(stack: Stack, polished: bool) -> None:
    head = stack.closed_form(network=stack.door.feature_network(stack.classifier()))
    head.fit((IMAGES[:6], Y[:6]), validation=(IMAGES, Y))
    if (
        polished
    ):  # each latent has its own covariance then; the rows that are new leave much to gain
        options = {"row_weights": 1.0, "max_steps": 10, "check_every": 5}
        assert head.polish((IMAGES, Y), validation=(IMAGES, Y), **options).kept
        assert head.polished is not None
    results = []
    for jit_compile in (True, False):
        model = head.attach()
        model.compile(loss=stack.ELBOLoss(), metrics=["accuracy"], jit_compile=jit_compile)
        rows = {"batch_size": 20, "verbose": 0}  # of 20 and of 4
        results.append([model.predict(IMAGES, **rows), model.evaluate(IMAGES, Y, **rows)])
    for ours, usual in zip(*results, strict=True):
        np.testing.assert_allclose(ours, usual, rtol=1e-5)


@pytest.mark.slow
def test_xla_computes_every_output(stack: Stack) -> None:
    head = stack.closed_form(network=stack.door.feature_network(stack.classifier()))
    head.fit((IMAGES, Y), validation=(IMAGES, Y))
    model = head.attach(outputs=OUTPUTS)
    usual = model.predict(IMAGES, verbose=0)
    model.compile(jit_compile=True)
    compiled = model.predict(IMAGES, verbose=0)
    for name in OUTPUTS:
        np.testing.assert_allclose(compiled[name], usual[name], rtol=1e-4, atol=1e-6)
