"""Claims about polishing: it never ends worse than it began, and says what it did."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.optimizers import NaturalGradient

import gpflow_ilr as gi
from gpflow_ilr import distributed
from gpflow_ilr.models.batches import as_batch
from gpflow_ilr.training.polish import NaturalSteps, minibatch_loss, polish

K, M = 3, 8


def rows(num_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes that overlap."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, num_rows)
    return rng.normal(size=(num_rows, 2)) + 1.2 * np.stack([np.cos(2 * y), np.sin(2 * y)], 1), y


DATA, HELD_OUT = rows(150, 0), rows(100, 1)


def start() -> gi.ILRSVGP:
    X, y = DATA
    collapsed = gi.ILRSGPR((X, y), gi.starting_kernel(X, K), X[:M].copy(), num_classes=K)
    return gi.ILRSVGP.from_collapsed(collapsed)


def nll(model: gi.ILRSVGP) -> float:
    return -float(np.mean(model.predict_log_density(HELD_OUT)))


def state(model: gi.ILRSVGP) -> list[np.ndarray]:
    return [v.numpy() for v in model.trainable_variables]


@pytest.fixture(scope="module")
def polished() -> tuple:
    model, seen = start(), []
    result = polish(
        model,
        DATA,
        validation=HELD_OUT,
        max_steps=30,
        check_every=5,
        report=lambda *look: seen.append(look),
    )
    return model, result, seen


def test_the_model_has_the_best_state_that_was_seen(polished: tuple) -> None:
    model, result, seen = polished
    assert result.nll_before == pytest.approx(nll(start()), rel=1e-9)
    assert result.nll_after == pytest.approx(nll(model), rel=1e-9)
    assert [step for step, _ in seen] == [5, 10, 15, 20, 25, 30]
    assert result.nll_after == min(value for _, value in seen) < result.nll_before - 0.01
    assert dict(seen)[result.best_step] == result.nll_after
    assert f"→ {result.nll_after:.4f}, after {result.best_step} of 30 steps" in str(result)


def test_absurd_steps_leave_the_model_where_it_was() -> None:
    model = start()
    before = state(model)
    result = polish(
        model,
        DATA,
        validation=HELD_OUT,
        natural_step=1.0,
        learning_rate=50.0,
        max_steps=12,
        check_every=3,
    )
    assert result.nll_after <= result.nll_before
    if result.best_step == 0:
        for ours, expected in zip(state(model), before, strict=True):
            np.testing.assert_array_equal(ours, expected)
    assert nll(model) == pytest.approx(result.nll_after, rel=1e-9)


def test_a_step_is_gpflows_natural_gradient_and_adam() -> None:
    ours, theirs = start(), start()
    batch = as_batch(DATA)
    NaturalSteps(ours, minibatch_loss(ours, batch, 1000, 0), 0.3, 0.02).take(2)
    adam = gpflow.keras.tf_keras.optimizers.Adam(0.02)
    others = [*theirs.kernel.trainable_variables, *theirs.inducing_variable.trainable_variables]
    for _ in range(2):
        loss = lambda: theirs.training_loss(batch)  # noqa: E731
        NaturalGradient(0.3).minimize(loss, [(theirs.q_mu, theirs.q_sqrt)])
        adam.minimize(loss, others)
    for one, other in zip(state(ours), state(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


def test_steps_that_were_restarted_are_those_of_a_new_start() -> None:
    model = start()
    steps, first = NaturalSteps(model, minibatch_loss(model, as_batch(DATA), 1000, 0)), state(model)
    steps.take(2)
    reached = state(model)
    for variable, value in zip(model.trainable_variables, first, strict=True):
        variable.assign(value)
    steps.restart()
    steps.take(2)
    for one, other in zip(state(model), reached, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_an_interruption_keeps_the_best_and_seconds_are_a_limit() -> None:
    model, looks = start(), []

    def interrupt(step: int, value: float) -> None:
        looks.append(value)
        if step == 4:
            raise KeyboardInterrupt

    result = polish(model, DATA, validation=HELD_OUT, check_every=2, report=interrupt)
    assert result.reason == "it was interrupted"
    assert result.nll_after == pytest.approx(nll(model), rel=1e-9)
    assert result.nll_after <= min(looks[0], result.nll_before)
    result = polish(model, DATA, validation=HELD_OUT, check_every=2, max_seconds=1e-3)
    assert result.num_steps == 1
    assert "seconds were over" in result.reason


def test_without_validation_rows_a_tenth_is_held_out_and_batches_follow_the_seed() -> None:
    results = []
    for _ in range(2):
        model = start()
        result = polish(model, DATA, batch_size=40, max_steps=4, check_every=4, seed=3)
        results.append((result.nll_before, *map(np.sum, state(model))))
    np.testing.assert_array_equal(*results)
    assert results[0][0] != pytest.approx(nll(start()))


def test_the_loss_of_all_workers_can_be_polished() -> None:
    model = start()
    batches = iter(tf.data.Dataset.from_tensor_slices(DATA).repeat().batch(50))
    strategy = tf.distribute.get_strategy()
    loss = distributed.training_loss_closure(model, strategy, batches, compile=False)
    result = polish(model, loss=loss, validation=HELD_OUT, max_steps=10, check_every=5)
    assert result.nll_after < result.nll_before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "polish needs data"),
        ({"data": DATA, "loss": lambda: 0.0}, "leave out data"),
        ({"loss": lambda: 0.0}, "needs validation rows"),
        ({"data": DATA, "natural_step": 1.5}, r"natural_step must be in \(0, 1\], but is 1.5"),
        ({"data": DATA, "learning_rate": -1.0}, "learning_rate must be positive, but is -1.0"),
        ({"data": DATA, "max_steps": 0}, "max_steps"),
        ({"data": DATA, "check_every": 0}, "check_every"),
        ({"data": (DATA[0][:1], DATA[1][:1])}, "one row"),
    ],
)
def test_what_cannot_be_polished_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        polish(start(), **options)
