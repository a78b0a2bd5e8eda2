"""Training the uncollapsed classifiers: labels and inputs of any kind, batches, optimisers."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_ilr.expectations import GaussHermite
from tests.models.uncollapsed import MODELS, K, N, X, Y, Z, gradients, ilr, kernel

# Training on external data


def test_average_of_minibatch_elbos_is_the_elbo():
    model = ilr()
    batches = [model.elbo((X[i : i + 3], Y[i : i + 3])) for i in range(0, N, 3)]
    np.testing.assert_allclose(np.mean(batches), model.elbo((X, Y)), rtol=1e-12)
    assert np.std(batches) > 0.1


def test_gpflows_functions_and_closures_agree_on_the_loss():
    model, data = ilr(), (X, Y)
    model.kernel.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    loss = -float(model.elbo(data)) - float(model.log_prior_density())
    np.testing.assert_allclose(model.training_loss(data), loss)
    column = (X, Y[:, None])  # GPflow's functions check this shape
    np.testing.assert_allclose(gpflow.models.training_loss(model, column), loss)
    np.testing.assert_allclose(gpflow.models.training_loss_closure(model, column)(), loss)
    batches = iter(tf.data.Dataset.from_tensor_slices(data).batch(N // 2))
    closure = model.training_loss_closure(batches)
    np.testing.assert_allclose(np.mean([closure(), closure()]), loss, rtol=1e-12)


def test_labels_of_every_kind_mean_the_same():
    model = ilr()
    elbo, density = model.elbo((X, Y)), model.predict_log_density((X, Y))
    one_hot = np.eye(K)[Y]
    for labels in (Y[:, None], Y.astype(float), Y.astype(np.uint8), Y.tolist(), one_hot,
                   one_hot.astype(int), tf.constant(Y)):  # fmt: skip
        np.testing.assert_allclose(model.elbo((X, labels)), elbo)
        np.testing.assert_allclose(model.training_loss((X, labels)), -elbo)
        np.testing.assert_allclose(model.predict_log_density((X, labels)), density)


def test_soft_labels_are_averages_of_hard_ones():
    model = ilr()
    other = (Y + 1) % K
    soft = 0.3 * np.eye(K)[Y] + 0.7 * np.eye(K)[other]
    expected = 0.3 * model.elbo((X, Y)) + 0.7 * model.elbo((X, other))
    np.testing.assert_allclose(model.elbo((X, soft)), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (Y + 1, "subtract 1"),
        (Y[:1], "as many labels as rows"),
        (Y[:-1], "as many labels as rows"),
        (np.eye(K + 1)[Y], "Check num_classes"),
        (Y.astype(str), "Number the classes"),
    ],
    ids=["from-one", "one-label", "too-few", "too-many-classes", "strings"],
)
def test_labels_that_cannot_be_read_are_refused(labels, words):
    model = ilr()
    for call in (model.elbo, model.training_loss, model.predict_log_density):
        with pytest.raises(ValueError, match=words):
            call((X, labels))


def test_a_compiled_closure_refuses_labels_too():
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"integers 0..{K - 1}"):
        ilr().training_loss_closure((X, Y + 1))()
    with pytest.raises(ValueError, match="as many labels as rows"):
        ilr().training_loss_closure((X, Y[:1]))()


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_inputs_of_other_dtypes_are_cast(dtype):
    model = ilr()
    inputs = X.astype(dtype)
    exact = inputs.astype(np.float64)
    np.testing.assert_array_equal(model.elbo((inputs, Y)), model.elbo((exact, Y)))
    for method in (model.predict_f, model.predict_y, model.predict_credible_interval):
        np.testing.assert_array_equal(method(inputs)[0], method(exact)[0])
    assert model.predict_f_samples(inputs, 2).shape == (2, N, K - 1)


def test_xla_computes_the_same_loss_and_gradients():
    model = ilr(nodes=GaussHermite(3))

    @tf.function(jit_compile=True, autograph=False)
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = model.training_loss((X, Y))
        return loss, tape.gradient(loss, model.trainable_variables)

    loss, found = step()
    np.testing.assert_allclose(loss, model.training_loss((X, Y)), rtol=1e-10)
    for a, b in zip(found, gradients(model, (X, Y)), strict=True):
        np.testing.assert_allclose(tf.convert_to_tensor(a), b, rtol=1e-8, atol=1e-10)


# Optimisers


def test_natural_gradients_of_length_one_reach_the_optimum_that_scipy_finds():
    model, reference = ilr(), ilr()
    closure = model.training_loss_closure((X, Y))
    optimiser = gpflow.optimizers.NaturalGradient(gamma=1.0)
    step = tf.function(
        lambda: optimiser.minimize(closure, [(model.q_mu, model.q_sqrt)]), autograph=False
    )
    for _ in range(12):
        step()
    variables = [reference.q_mu.unconstrained_variable, reference.q_sqrt.unconstrained_variable]
    loss = reference.training_loss_closure((X, Y))
    gpflow.optimizers.Scipy().minimize(loss, variables, options={"maxiter": 500, "ftol": 1e-14})
    np.testing.assert_allclose(closure(), loss(), rtol=1e-7)
    np.testing.assert_allclose(model.q_mu, reference.q_mu, atol=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_scipy_and_minibatch_adam_train_all_parameters(name):
    model = MODELS[name][0](kernel(), Z, num_classes=K, num_data=N)
    before = [v.numpy() for v in model.trainable_variables]
    start = float(model.training_loss((X, Y)))
    closure = model.training_loss_closure((X, Y))
    gpflow.optimizers.Scipy().minimize(closure, model.trainable_variables, options={"maxiter": 10})
    middle = float(closure())
    assert middle < start - 0.5
    batches = (
        tf.data.Dataset.from_tensor_slices((X, Y))
        .repeat()
        .shuffle(N, seed=0)
        .batch(6, drop_remainder=True)
    )
    loss = model.training_loss_closure(iter(batches))
    adam = gpflow.keras.tf_keras.optimizers.Adam(0.02)
    for _ in range(40):
        adam.minimize(loss, model.trainable_variables)
    assert float(closure()) < middle
    for v, old in zip(model.trainable_variables, before, strict=True):
        assert np.max(np.abs(v.numpy() - old)) > 1e-4
