"""Training ends with the best parameters it has seen, whatever ends it."""

import warnings

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr.training import fit
from tests.models import coded

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


# Adam, natural gradients, minibatches

X_NEW = np.random.default_rng(2).normal(size=(30, 2))
HELD_OUT = X_NEW, (X_NEW[:, 0] > 0).astype(int) + (X_NEW[:, 1] > 0)


def sparse(**options) -> gi.ILRSVGP:
    kernel = gpflow.kernels.SquaredExponential()
    return gi.ILRSVGP(kernel, X[:5].copy(), num_classes=3, num_data=len(X), **options)


def nll(model) -> float:
    return -float(np.mean(model.predict_log_density(HELD_OUT)))


def test_adam_with_all_rows_lowers_the_loss_and_keeps_the_smallest() -> None:
    model = exact()
    before = float(model.training_loss())
    result = fit(model, method="adam", learning_rate=0.05, max_iterations=25, check_every=10)
    assert (result.method, result.success, result.num_steps) == ("adam", True, 25)
    assert result.losses[0] == pytest.approx(before, rel=1e-10)
    assert result.losses[-1] < before
    assert result.validation == []
    np.testing.assert_allclose(model.training_loss(), result.fun, rtol=1e-10)
    assert result.fun <= result.losses[[0, 10, 20]].min()


def test_one_natural_gradient_of_length_one_is_the_closed_form() -> None:
    with coded.jitter(1e-13):
        collapsed, model = coded.pair("ILR", "fixed")
        data, fixed = (coded.X, coded.Y), model.kernel.variance.numpy()
        options = {"method": "natural", "natural_step": 1.0, "variables": (), "max_iterations": 1}
        assert fit(model, data, **options).best_step == 1
        coded.assert_at_collapsed_optimum(model, collapsed, data)
    assert model.kernel.variance.numpy() == fixed


def test_minibatches_of_arrays_are_those_of_an_equal_pipeline() -> None:
    generator = tf.random.Generator.from_seed(3)
    drawn = [generator.uniform([8], maxval=len(X), dtype=tf.int32).numpy() for _ in range(12)]
    pipeline = tf.data.Dataset.from_tensor_slices(drawn).map(
        lambda rows: (tf.gather(X, rows), tf.gather(Y, rows))
    )
    options = {"method": "adam", "max_iterations": 12, "check_every": 4}
    ours, theirs = sparse(), sparse()
    arrays = fit(ours, (X, Y), batch_size=8, seed=3, **options)
    batches = fit(theirs, pipeline, **options)
    np.testing.assert_allclose(arrays.losses, batches.losses, rtol=1e-10)
    np.testing.assert_allclose(ours.q_mu, theirs.q_mu, rtol=1e-8, atol=1e-10)
    # Of minibatches the best are those with the smallest mean of the last losses.
    means = arrays.losses.reshape(3, 4).mean(axis=1)
    assert arrays.fun == pytest.approx(means.min(), rel=1e-12)
    assert arrays.best_step == 4 * (np.argmin(means) + 1)


def test_minibatches_are_trained_by_natural_gradients_unless_told_otherwise() -> None:
    model = sparse()
    before = float(model.training_loss((X, Y)))
    result = fit(model, (X, Y), batch_size=20, max_iterations=30, check_every=10)
    assert result.method == "natural"
    assert float(model.training_loss((X, Y))) < before - 1.0


def test_gpflows_own_models_are_trained_too() -> None:
    model = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(),
        gi.ILRLikelihood(3),
        X[:5].copy(),
        num_latent_gps=2,
        num_data=len(X),
    )
    result = fit(model, (X, Y), max_iterations=5)  # labels [N]
    assert result.fun < result.losses[0]
    np.testing.assert_allclose(model.training_loss((X, Y[:, None])), result.fun, rtol=1e-10)


@pytest.mark.parametrize("data", [None, (X[::2], Y[::2])])
def test_a_model_of_neighbours_is_trained_by_minibatches(data) -> None:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=5.0)
    model = gi.ILRNNGPR((X, Y), kernel, num_classes=3, num_neighbours=8)
    before = float(model.training_loss())
    result = fit(model, data, batch_size=10, max_iterations=30, learning_rate=0.1)
    assert result.method == "adam"
    assert float(model.training_loss()) < before


# What ends it


@pytest.mark.parametrize("method", ["l-bfgs", "natural"])
def test_validation_rows_stop_it_and_their_best_parameters_are_kept(method: str) -> None:
    # Labels by chance alone: what is learned of them does not help with others.
    labels = np.random.default_rng(1).integers(0, 3, len(X))
    model = sparse()
    result = fit(
        model,
        (X, labels),
        method=method,
        validation=HELD_OUT,
        check_every=2,
        patience=3,
        natural_step=0.5,
        learning_rate=0.1,
    )
    assert result.success
    assert result.message == "no gain in 3 looks"
    steps, values = zip(*result.validation, strict=True)
    assert steps == tuple(range(0, result.num_steps + 1, 2))
    assert result.fun == min(values) == pytest.approx(nll(model), rel=1e-9)
    assert result.best_step == steps[int(np.argmin(values))] == result.num_steps - 6


@pytest.mark.parametrize(
    ("method", "validation"), [("l-bfgs", None), ("l-bfgs", HELD_OUT), ("adam", None)]
)
def test_an_interruption_keeps_the_best_parameters(method: str, validation) -> None:
    model = exact()

    def interrupt(step: int, _: float) -> None:
        if step == 4:
            raise KeyboardInterrupt

    with pytest.warns(RuntimeWarning, match="Training stopped early: it was interrupted. The mo"):
        result = fit(model, method=method, validation=validation, check_every=1, callback=interrupt)
    assert not result.success
    assert result.num_steps == 4
    found = float(model.training_loss()) if validation is None else nll(model)
    assert found == pytest.approx(result.fun, rel=1e-9)
    assert result.fun <= (result.losses.min() if validation is None else result.validation[0][1])


class Vanishing(gi.ILRGPR):
    """Its loss is NaN beyond a limit."""

    def log_evidence(self) -> tf.Tensor:
        value, lengthscale = super().log_evidence(), self.kernel.lengthscales
        return tf.where(lengthscale < 1.2, tf.constant(np.nan, value.dtype), value)


@pytest.mark.parametrize("method", ["l-bfgs", "adam"])
def test_nan_keeps_the_best_parameters(method: str) -> None:
    model = Vanishing((X, Y), gpflow.kernels.SquaredExponential(0.3, 3.0), num_classes=3)
    before = float(model.training_loss())
    with pytest.warns(RuntimeWarning, match="Training stopped early: .*(nan|not finite)"):
        result = fit(model, method=method, learning_rate=0.3, check_every=2)
    assert not result.success
    assert result.fun < before
    np.testing.assert_allclose(model.training_loss(), result.fun, rtol=1e-10)


def test_callbacks_monitors_and_seconds_see_and_end_it() -> None:
    steps: list[int] = []
    group = gpflow.monitor.MonitorTaskGroup(
        gpflow.monitor.ExecuteCallback(lambda: steps.append(len(losses))), period=2
    )
    losses: list[float] = []

    def note(step: int, loss: float) -> None:
        losses.append(loss)
        if step == 5:
            raise StopIteration

    result = fit(exact(), callback=note, monitor=gpflow.monitor.Monitor(group))
    assert result.message == "a callback ended it"
    assert result.success
    assert steps == [2, 4]
    np.testing.assert_array_equal(losses, result.losses)
    result = fit(exact(), max_seconds=1e-3)
    assert (result.num_steps, result.message) == (1, "0.001 seconds were over")


def test_progress_is_shown(capsys) -> None:
    pytest.importorskip("tqdm")
    fit(exact(), max_iterations=3, validation=HELD_OUT, progress=True)
    shown = capsys.readouterr().err
    assert "ILRGPR: 100%" in shown
    assert "loss=" in shown
    assert "NLL=" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "newton"}, "method must be one of .*, but is 'newton'"),
        ({"method": "natural"}, "method='natural' needs a full q"),
        ({"batch_size": 4}, "batch_size=4 cannot be"),
        ({"variables": ()}, "variables has nothing to train"),
        ({"validation": (X[:0], Y[:0])}, "validation .* has none"),
        ({"max_iterations": -1}, "max_iterations must be .* at least 1, but is -1"),
        ({"max_seconds": 0.0}, "max_seconds must be positive"),
        ({"natural_step": 0.0}, "natural_step must be in"),
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(exact(), **options)
