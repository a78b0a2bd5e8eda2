"""Training ends with the best parameters it has seen, whatever ends it."""

import warnings

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr.training import fit

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)


def exact(**options) -> gi.ILRGPR:
    return gi.ILRGPR((X, Y), gi.starting_kernel(X, 3), num_classes=3, **options)


class Failing(gi.ILRGPR):
    """Fails, or is interrupted, as soon as the lengthscale is beyond a limit."""

    limit = 1.2
    error: type[BaseException] = tf.errors.InvalidArgumentError

    def log_evidence(self) -> tf.Tensor:
        if self.kernel.lengthscales.numpy() < self.limit:
            arguments = (None, None, "The Cholesky factor is not finite.\nmore")
            raise (
                self.error(*arguments) if issubclass(self.error, tf.errors.OpError) else self.error
            )
        return super().log_evidence()


def failing(error: type[BaseException] = tf.errors.InvalidArgumentError) -> Failing:
    model = Failing((X, Y), gpflow.kernels.SquaredExponential(0.3, 3.0), num_classes=3)
    model.error = error
    return model


def test_without_a_failure_it_is_gpflows_optimiser() -> None:
    ours, theirs = exact(), exact()
    result = fit(ours)
    expected = gpflow.optimizers.Scipy().minimize(
        theirs.training_loss, theirs.trainable_variables, options={"maxiter": 1000}
    )
    assert result.success
    np.testing.assert_allclose(result.fun, expected.fun, rtol=1e-12)
    np.testing.assert_allclose(ours.kernel.lengthscales, theirs.kernel.lengthscales, rtol=1e-10)


def test_models_without_data_of_their_own_are_given_some() -> None:
    model = gi.ILRSVGP(gi.starting_kernel(X, 3), X[:5], num_classes=3, num_data=len(X))
    before = float(model.training_loss((X, Y)))
    result = fit(model, (X, Y), max_iterations=5)
    assert result.fun < before
    np.testing.assert_allclose(model.training_loss((X, Y)), result.fun, rtol=1e-10)
    with pytest.raises(ValueError, match=r"pass data=\(X, y\)"):
        fit(model)
    with pytest.raises(ValueError, match="leave out data"):
        fit(exact(), (X, Y))


@pytest.mark.parametrize("error", [tf.errors.InvalidArgumentError, KeyboardInterrupt])
def test_a_failure_in_the_middle_leaves_the_best_parameters(error) -> None:
    model = failing(error)
    before = float(model.training_loss())
    with pytest.warns(RuntimeWarning, match="Training stopped early"):
        result = fit(model, compile=False)
    assert not result.success
    assert model.kernel.lengthscales.numpy() >= model.limit
    assert result.fun < before
    np.testing.assert_allclose(model.training_loss(), result.fun, rtol=1e-12)


def test_gpflows_own_optimiser_would_lose_them() -> None:
    model = failing()
    with pytest.raises(tf.errors.InvalidArgumentError):
        gpflow.optimizers.Scipy().minimize(
            model.training_loss, model.trainable_variables, compile=False
        )
    assert model.kernel.lengthscales.numpy() < model.limit


def test_a_loss_that_fails_where_training_starts_is_an_error() -> None:
    model = failing()
    model.kernel.lengthscales.assign(1.0)
    with pytest.raises(tf.errors.InvalidArgumentError):
        fit(model, compile=False)


def test_other_variables_are_left_alone() -> None:
    model = exact()
    variance = model.kernel.variance.numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(model, variables=model.kernel.lengthscales.trainable_variables, max_iterations=3)
    assert model.kernel.variance.numpy() == variance


def test_neighbours_are_sought_again_until_they_fit_the_metric() -> None:
    # Of three columns only one tells the classes, which the metric does not know at the start.
    inputs = RNG.normal(size=(60, 3))
    labels = (inputs[:, 0] > 0).astype(int)
    kernel = gi.starting_kernel(inputs, 2, ard=True)
    model = gi.ILRNNGPR((inputs, labels), kernel, num_classes=2, num_neighbours=8)
    once = gpflow.utilities.deepcopy(model)
    closure = once.training_loss_closure()
    gpflow.optimizers.Scipy().minimize(closure, once.trainable_variables)
    assert once.has_stale_neighbours()
    result = fit(model, max_iterations=20)
    assert not model.has_stale_neighbours()
    np.testing.assert_allclose(model.training_loss(), result.fun, rtol=1e-6)


def test_a_model_of_neighbours_is_trained_on_some_of_its_rows() -> None:
    model = gi.ILRNNGPR((X, Y), gi.starting_kernel(X, 3), num_classes=3, num_neighbours=8)
    some = X[::4], Y[::4]
    before = float(model.training_loss_closure(some)())
    assert fit(model, some, max_iterations=3).fun < before
