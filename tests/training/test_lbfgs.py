"""Claims about L-BFGS under a watch: it is GPflow's, and what it passes is offered."""

import numpy as np
import tensorflow as tf
from gpflow.optimizers import Scipy

from gpflow_ilr.training.lbfgs import LBFGS
from gpflow_ilr.training.watch import Watch


def rosenbrock(x: tf.Variable) -> tf.Tensor:
    return (1.0 - x[0]) ** 2 + 100.0 * (x[1] - x[0] ** 2) ** 2


def start() -> tf.Variable:
    return tf.Variable([-1.0, 1.5], dtype=tf.float64)


def watching(x: tf.Variable, **options) -> Watch:
    options = {"check_every": None, "max_steps": 100, **options}
    return Watch([x], lambda _: float(rosenbrock(x)), **options)


def test_it_is_gpflows_and_the_trace_has_every_iteration() -> None:
    ours, theirs = start(), start()
    watch = watching(ours)
    success, message, failed = watch.run(
        lambda: LBFGS(lambda: rosenbrock(ours), [ours]).train(watch, 100)
    )
    expected = Scipy().minimize(
        lambda: rosenbrock(theirs), [theirs], options={"maxiter": 100}, track_loss_history=True
    )
    assert success
    assert not failed
    assert message == expected.message
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_allclose(watch.losses, expected.loss_history, rtol=1e-12)
    assert watch.best.value == min(watch.losses)


def test_observers_find_the_variables_where_the_iteration_ended() -> None:
    x = start()
    found = []
    watch = watching(x, observers=[lambda _: found.append(float(rosenbrock(x)))])
    watch.run(lambda: LBFGS(lambda: rosenbrock(x), [x]).train(watch, 20))
    np.testing.assert_allclose(found, watch.losses, rtol=1e-12)


def test_by_looks_the_best_look_is_kept() -> None:
    x = start()
    target = np.array([-1.0, 1.0])  # on the way to the minimum
    watch = Watch([x], lambda _: float(tf.norm(x - target)), check_every=1, max_steps=100)
    watch.run(lambda: LBFGS(lambda: rosenbrock(x), [x]).train(watch, 100, by_loss=False))
    assert watch.best.value == min(value for _, value in watch.looks)
    assert 0 < watch.best.step < watch.num_steps
    np.testing.assert_allclose(np.linalg.norm(x.numpy() - target), watch.best.value)


def test_a_loss_that_is_not_finite_ends_with_the_best_where_scipy_gives_up() -> None:
    x = start()

    def loss() -> tf.Tensor:
        return tf.where(x[0] > 0.0, tf.constant(np.nan, x.dtype), rosenbrock(x))

    watch = watching(x)
    success, message, failed = watch.run(lambda: LBFGS(loss, [x]).train(watch, 100))
    assert failed
    assert not success
    assert message == f"the loss was not finite after step {watch.num_steps}"
    np.testing.assert_allclose(loss(), watch.best.value, rtol=1e-12)
    assert watch.best.value < float(rosenbrock(start()))


def test_training_again_needs_no_other_trace() -> None:
    x, traces = start(), []

    def loss() -> tf.Tensor:
        traces.append(None)
        return rosenbrock(x)

    lbfgs = LBFGS(loss, [x])
    for _ in range(3):
        x.assign(start())
        watch = watching(x)
        watch.run(lambda watch=watch: lbfgs.train(watch, 100))
        np.testing.assert_allclose(x, [1.0, 1.0], atol=1e-4)
    assert len(traces) == 1
