"""After training: the collapsed optimum, a calibrated scale, a layer that stays as it is."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr import ILRSGPR, metrics
from tests.heads.stacks import STACKS, K, M, N, Stack, X, Y

RNG = np.random.default_rng(5)
X_VAL = RNG.normal(size=(60, 4)).astype("float32")
Y_VAL = np.where(
    RNG.random(60) < 0.3, RNG.integers(0, K, 60), (X_VAL[:, 0] > 0) + (X_VAL[:, 1] > 0)
)


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest) -> Stack:
    return STACKS[request.param]


@pytest.mark.parametrize("objective", ["elbo", "code"])
def test_scale_is_the_best_for_the_validation_rows(stack: Stack, objective: str) -> None:
    model = stack.model(stack.head(objective=objective))
    network, head = model.layers
    # Labels that are less certain than the head believes.
    scale = head.gp.scale if objective == "elbo" else head.gp.likelihood.code.sharpness
    start = float(scale.numpy())
    scale.assign(0.4 * start)
    draws = RNG.random((60, 1)) > np.cumsum(model(X_VAL), axis=1)
    scale.assign(start)
    y_val = np.minimum(draws.sum(axis=1), K - 1)
    before = metrics.negative_log_likelihood(model.predict(X_VAL, verbose=0), y_val)
    found = head.calibrate((X_VAL, y_val), network)
    assert found.num_rows == 60
    assert found.nll_after < found.nll_before - 0.01
    model = stack.keras.Sequential([network, head])  # traced anew
    after = metrics.negative_log_likelihood(model.predict(X_VAL, verbose=0), y_val)
    assert after == pytest.approx(found.nll_after, abs=5e-3)  # of fewer nodes
    assert after < before
    for factor in (0.5, 2.0):
        scale.assign(factor * found.scale)
        assert metrics.negative_log_likelihood(model(X_VAL), y_val) > after
    assert "NLL" in str(found)


def test_a_scale_that_the_rows_do_not_determine_is_said(stack: Stack) -> None:
    network, head = stack.model().layers
    p = np.asarray(stack.keras.Sequential([network, head])(X_VAL))
    drawn = np.sum(RNG.random((60, 1)) > np.cumsum(p, axis=1), axis=1)
    sure = np.argmax(p, axis=1)  # of which the head is right about all
    found = head.calibrate((X_VAL, sure), network)
    assert found.nll_after < found.nll_before
    assert found.scale_at_limit
    assert "separable" in str(found)
    assert head.calibrate((X_VAL, sure), network).scale_at_limit  # and again, at the scale found
    found = head.calibrate((X_VAL, np.minimum(drawn, K - 1)), network)
    assert not found.scale_at_limit
    assert "separable" not in str(found)


def test_calibration_does_not_change_the_training_loss(stack: Stack) -> None:
    model = stack.model()
    head = model.layers[-1]

    def loss() -> float:
        return float(stack.ELBOLoss()(Y, model(X, training=True)) + sum(model.losses))

    before = loss()
    head.gp.scale.assign(0.3)
    assert loss() == before


def test_code_trains_and_collapses_to_the_collapsed_model(stack: Stack) -> None:
    model = stack.compiled(stack.model(stack.head(objective="code")), metrics=["accuracy"])
    network, head = model.layers
    losses = model.fit(X, Y, batch_size=N, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(7)
    collapsed = head.collapse(dataset, network)
    F = network.predict(X, verbose=0)
    by_hand = ILRSGPR(
        (F, Y),
        head.gp.kernel,
        head.gp.inducing_variable,
        num_classes=K,
        noise_variance=float(collapsed.code.noise_variance[0, 0]),
    )
    np.testing.assert_allclose(model.predict(X, verbose=0), by_hand.predict_y(F)[0], atol=1e-6)
    final = model.evaluate(X, Y, verbose=0)
    assert final[0] == pytest.approx(
        metrics.negative_log_likelihood(by_hand.predict_y(F)[0], Y), abs=1e-5
    )
    noise = float(head.gp.likelihood.code.noise_variance[0, 0])
    head.collapse(dataset, network, validation=(X_VAL, Y_VAL))
    assert float(head.gp.likelihood.code.noise_variance[0, 0]) != noise


def test_loss_of_fit_with_code_is_the_negative_bound_per_row(stack: Stack) -> None:
    head = stack.head(objective="code")
    model = stack.compiled(stack.model(head))
    rows, constant, kl = head.gp.bound(model.layers[0](X))
    expected = constant - tf.reduce_mean(tf.gather(rows, Y, batch_dims=1)) + kl / N
    loss = model.fit(X, Y, batch_size=N, verbose=0).history["loss"][0]
    assert loss == pytest.approx(expected.numpy(), rel=1e-5)


@pytest.mark.parametrize("objective", ["elbo", "code"])
def test_posterior_layer_predicts_as_the_head(stack: Stack, objective: str, tmp_path: Path) -> None:
    model = stack.model(stack.head(objective=objective))
    network, head = model.layers
    head.calibrate((X_VAL, Y_VAL), network)
    layer = head.posterior_layer(("probabilities", "epistemic", "mean", "variance"))
    inputs = stack.keras.layers.Input((4,))
    served = stack.keras.Model(inputs, layer(network(inputs)))
    served.save(tmp_path / "served.keras")
    served = stack.keras.models.load_model(tmp_path / "served.keras")
    found = served.predict(X_VAL, verbose=0)
    np.testing.assert_allclose(found["probabilities"], model(X_VAL), atol=1e-6)
    mean, variance = head.predict_latents(network(X_VAL))
    L = head.gp.likelihood.code.scale if objective == "code" else 1.0  # which its link has
    np.testing.assert_allclose(found["mean"], L * mean, rtol=1e-4, atol=1e-5)
    expected = np.broadcast_to(L**2 * variance, mean.shape)
    np.testing.assert_allclose(found["variance"], expected, rtol=1e-4, atol=1e-5)
    entropies = head.predict_entropy(network(X_VAL))
    np.testing.assert_allclose(found["epistemic"], entropies.epistemic, atol=1e-6)
    np.testing.assert_allclose(
        entropies.total, entropies.aleatoric + entropies.epistemic, atol=1e-9
    )


def test_weights_of_rows_count_as_repetitions(stack: Stack) -> None:
    counts = np.arange(N) % 3
    rows = np.repeat(np.arange(N), counts)
    for objective in ("elbo", "code"):
        weighted, repeated = (
            stack.compiled(stack.model(stack.head(objective=objective, num_data=n)), rate=1e-3)
            for n in (N, len(rows))
        )
        # Σ w ℓ + KL, divided by N once, and by the number of repetitions once.
        first = weighted.fit(X, Y, sample_weight=counts, batch_size=N, verbose=0).history["loss"][0]
        second = repeated.fit(X[rows], Y[rows], batch_size=N * 2, verbose=0).history["loss"][0]
        constant = 0.0
        if objective == "code":
            constant = float(weighted.layers[-1].gp.bound(weighted.layers[0](X))[1])
        assert N * (first - constant) == pytest.approx(len(rows) * (second - constant), rel=1e-5)


@pytest.mark.parametrize("objective", ["elbo", "code"])
def test_weights_of_validation_rows_count_as_repetitions(stack: Stack, objective: str) -> None:
    counts = np.arange(60) % 3
    repeated = np.repeat(np.arange(60), counts)
    weighted, by_hand = (stack.model(stack.head(objective=objective)).layers[-1] for _ in range(2))
    network = stack.model().layers[0]
    found = weighted.calibrate((X_VAL, Y_VAL, counts), network)
    expected = by_hand.calibrate((X_VAL[repeated], Y_VAL[repeated]), network)
    assert found.num_rows == np.count_nonzero(counts)
    assert found.scale == pytest.approx(expected.scale, rel=1e-6)
    assert found.nll_after == pytest.approx(expected.nll_after, rel=1e-6)


def test_weights_of_rows_count_as_repetitions_when_collapsed(stack: Stack) -> None:
    counts = np.arange(N) % 3
    repeated = np.repeat(np.arange(N), counts)
    dataset = tf.data.Dataset.from_tensor_slices((X, Y, counts)).batch(7)
    collapsed = []
    for rows in (dataset, (X, Y, counts), (X[repeated], Y[repeated])):
        network, head = stack.model(stack.head(objective="code")).layers
        head.collapse(rows, network, validation=(X_VAL, Y_VAL))
        collapsed.append(head.gp.predict_y(np.asarray(network(X_VAL)))[0])
    np.testing.assert_allclose(collapsed[:2], [collapsed[2]] * 2, rtol=1e-6)


def test_no_rows_are_refused(stack: Stack) -> None:
    head = stack.model(stack.head(objective="code")).layers[-1]
    nothing = tf.data.Dataset.from_tensor_slices((X, Y)).batch(5).take(0)
    for use in (head.collapse, head.calibrate):
        with pytest.raises(ValueError, match="dataset must have at least one row"):
            use(nothing)


def test_what_has_no_closed_form_is_not_collapsed(stack: Stack) -> None:
    head = stack.model().layers[-1]
    with pytest.raises(ValueError, match="collapse needs GPHead"):
        head.collapse((X, Y))
    with pytest.raises(ValueError, match="has 2 latents, one less than classes"):
        stack.head(objective="code", num_latent_gps=1)
    assert head.num_inducing == M


def test_a_head_that_has_seen_no_features_says_what_comes_first(stack: Stack) -> None:
    head = stack.head(objective="code", name="last")
    for use in (
        lambda: head.calibrate((X, Y)),
        lambda: head.collapse((X, Y)),
        head.posterior_layer,
        lambda: head.predict_entropy(X),
        lambda: head.predict_latents(X),
    ):
        with pytest.raises(ValueError, match=r"'last'.* has no GP yet.* head\.adapt\(features\)"):
            use()
