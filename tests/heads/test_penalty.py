"""A loop that forgets the KL term is refused, and none that has a reason to leave it out."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.heads.stacks import STACKS, Stack, X, Y


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest) -> Stack:
    return STACKS[request.param]


def step(stack: Stack, model: Any, with_losses: bool, variables: list[tf.Variable]) -> None:
    with tf.GradientTape() as tape:
        builtin = model.layers[-1].objective == "draw"
        loss_of = stack.keras.losses.SparseCategoricalCrossentropy if builtin else stack.ELBOLoss
        loss = loss_of()(Y, model(X, training=True))
        if with_losses:
            loss += sum(model.losses)
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(0.01 * gradient)


@pytest.mark.parametrize("objective", ["elbo", "code", "draw"])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_loop_without_the_losses_is_refused(stack: Stack, compiled: bool, objective: str) -> None:
    model = stack.model(stack.head(objective=objective))
    gp = model.layers[-1].gp
    q = [(gp.q if objective == "code" else gp.q_mu).unconstrained_variable]
    run = tf.function(step, autograph=False) if compiled else step
    run(stack, model, False, q)
    with pytest.raises(RuntimeError, match=r"\+ sum\(model.losses\)"):
        model(X)


def test_a_loop_with_the_losses_goes_on(stack: Stack) -> None:
    model = stack.model()
    q = [model.layers[-1].gp.q_mu.unconstrained_variable]
    before = q[0].numpy()
    for _ in range(2):
        step(stack, model, True, q)
    assert np.abs(q[0].numpy() - before).max() > 1e-4
    assert np.isfinite(model(X)).all()


def test_training_the_network_alone_needs_no_losses(stack: Stack) -> None:
    model = stack.model()
    kernels = [getattr(v, "_value", v) for v in model.layers[0].trainable_variables]
    for _ in range(2):
        step(stack, model, False, kernels)
    assert np.isfinite(model(X)).all()
