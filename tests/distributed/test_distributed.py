"""Claims about training on several devices and workers, checked in processes of their own.

TensorFlow has one strategy in a process, so each strategy runs one program for all cases; the tests
compare what it wrote with one device.
"""

import functools
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.models import GPModel

import gpflow_ilr as gi
from gpflow_ilr.distributed import share_statistics, training_loss_closure
from gpflow_ilr.saving import load
from tests.distributed.local_cluster import LocalCluster
from tests.distributed.programs.cases import (
    CASES,
    X_NEW,
    X,
    Y,
    Z,
    batches,
    kernel,
    parameters,
    svgp,
    value_and_gradient,
)

Results = list[dict[str, np.ndarray]]
PROGRAM = ["-m", "tests.distributed.programs.losses"]


@pytest.fixture(name="folder", scope="module", params=["mirrored", "workers"])
def _folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    num_workers = 1 if request.param == "mirrored" else 2
    with LocalCluster([*PROGRAM, request.param, str(folder)], num_workers, folder) as cluster:
        cluster.finish()
    return folder


@pytest.fixture(name="results", scope="module")
def _results(folder: Path) -> Results:
    return [dict(np.load(path)) for path in sorted(folder.glob("results-*.npz"))]


@functools.cache
def one_device_fit() -> tuple[GPModel, float]:
    model = gi.ILRSGPR(CASES["per output"].rows(None), kernel(), Z, num_classes=3)
    fit = gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure(), model.trainable_variables, options={"maxiter": 10}
    )
    return model, fit.fun


@functools.cache
def one_device_steps() -> np.ndarray:
    model = svgp(())
    loss = model.training_loss_closure(iter(batches(None)), compile=False)
    adam = gpflow.keras.tf_keras.optimizers.Adam(0.01)
    for _ in range(3):
        adam.minimize(loss, model.trainable_variables)
        gpflow.optimizers.NaturalGradient(0.1).minimize(loss, [(model.q_mu, model.q_sqrt)])
    return parameters(model)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_equal_those_of_one_device(name: str, results: Results) -> None:
    case = CASES[name]
    model = case.build(case.rows(None))
    loss = training_loss_closure(
        model, tf.distribute.get_strategy(), case.data(model, case.rows(None)), compile=False
    )
    expected = value_and_gradient(loss, model)
    for worker in results:
        np.testing.assert_allclose(worker[name], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_models_built_in_the_scope_have_the_same_value_and_gradient(results: Results) -> None:
    for worker in results:
        np.testing.assert_allclose(
            worker["in the scope"], worker["per output"], rtol=1e-10, atol=1e-10
        )


@pytest.mark.slow
def test_lbfgs_takes_the_same_steps_on_all_workers_and_on_one_device(results: Results) -> None:
    model, loss = one_device_fit()
    expected = np.append(parameters(model), loss)
    # Ten steps carry round-off of 1e-13 along.
    np.testing.assert_allclose(results[0]["fitted"], expected, rtol=1e-7, atol=1e-7)
    for worker in results[1:]:
        np.testing.assert_array_equal(worker["fitted"], results[0]["fitted"])


@pytest.mark.slow
def test_fitted_model_predicts_as_one_built_on_all_rows(results: Results, folder: Path) -> None:
    for index, worker in enumerate(results):
        model = load(folder / f"model-{index}")
        assert type(model) is gi.ILRSGPR
        built = gi.ILRSGPR(CASES["per output"].rows(None), kernel(), Z, num_classes=3)
        gpflow.utilities.multiple_assign(built, gpflow.utilities.read_values(model))
        expected = built.predict_y(X_NEW)[0]
        np.testing.assert_allclose(worker["predicted"], expected, rtol=1e-10)
        np.testing.assert_allclose(worker["predicted, compiled"], expected, rtol=1e-10)
        np.testing.assert_allclose(model.predict_y(X_NEW)[0], expected, rtol=1e-10)
        np.testing.assert_allclose(worker["elbo"], built.elbo(), rtol=1e-10)
        model.update(X_NEW, np.zeros(7, int))
        built.update(X_NEW, np.zeros(7, int))
        np.testing.assert_allclose(model.predict_y(X_NEW)[0], built.predict_y(X_NEW)[0], rtol=1e-10)


@pytest.mark.slow
def test_model_without_all_rows_refuses_what_would_miss_them(results: Results) -> None:
    for worker in results:
        if len(results) == 1:  # all rows are in the one process
            assert not {"gradient refused", "stale refused"} & set(worker)
        else:
            assert "its gradient would miss them" in str(worker["gradient refused"])
            assert "share_statistics(model, strategy)" in str(worker["stale refused"])


@pytest.mark.slow
def test_shards_that_workers_absorb_are_one_model(results: Results) -> None:
    whole = gi.ILRSGPR(CASES["per output"].rows(None), kernel(), Z, num_classes=3)
    for worker in results:
        np.testing.assert_allclose(worker["absorbed"], whole.predict_y(X_NEW)[0], rtol=1e-9)
        np.testing.assert_allclose(worker["absorbed, elbo"], whole.elbo(), rtol=1e-9)
        assert worker["absorbed, calibrated on"] == 4
        if len(results) > 1:  # what was absorbed is lost in the sum, so it cannot be added again
            assert "model.absorb(dataset) again" in str(worker["shared twice refused"])


@pytest.mark.slow
def test_minibatches_of_uneven_size_train_as_their_union(results: Results) -> None:
    expected = one_device_steps()
    np.testing.assert_allclose(results[0]["minibatches"], expected, rtol=1e-10, atol=1e-10)
    for worker in results[1:]:
        np.testing.assert_array_equal(worker["minibatches"], results[0]["minibatches"])


@pytest.mark.slow
def test_sum_over_workers_counts_each_worker_once(results: Results) -> None:
    assert [int(worker["count"]) for worker in results] == [len(X)] * len(results)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "tolerance"),
    [("keras float64", 1e-10), ("keras float32", 1e-6), ("tf_keras float64", 1e-10)],
)
def test_two_replicas_train_a_head_as_one_device(
    network: str, tolerance: float, results: Results
) -> None:
    if network.startswith("keras") and len(results) > 1:
        assert not any(network in worker for worker in results)  # Keras 3 cannot: see the program
        return
    for worker in results:
        expected, reported = worker[network]
        assert expected[1] < expected[0]
        np.testing.assert_allclose(reported, expected, rtol=tolerance)


def test_on_one_device_the_closure_is_the_models_own_loss() -> None:
    model = gi.ILRSGPR((X, Y), kernel(), Z, num_classes=3)
    strategy = tf.distribute.get_strategy()
    loss = training_loss_closure(model, strategy, compile=False)
    np.testing.assert_array_equal(
        value_and_gradient(loss, model), value_and_gradient(model.training_loss, model)
    )
    share_statistics(model, strategy)
    model.kernel.variance.assign(2.0)
    model.predict_y(X_NEW)  # all rows are here, so parameters may change


@pytest.mark.parametrize(
    ("build", "data", "message"),
    [
        (lambda: gi.ILRSGPR((X, Y), kernel(), Z, num_classes=3), (X, Y), "leave out data"),
        (
            lambda: gi.ILRSGPR((X, Y), kernel(), Z, num_classes=3, objective="loo"),
            None,
            "objective='loo' cannot be distributed",
        ),
        (lambda: svgp(()), None, "ILRSVGP needs data"),
        (lambda: gi.ILRSVGP(kernel(), Z, num_classes=3), (X, Y), "with num_data"),
    ],
)
def test_what_cannot_be_distributed_is_refused(build, data, message) -> None:
    with pytest.raises(ValueError, match=message):
        training_loss_closure(build(), tf.distribute.get_strategy(), data)


def test_models_of_other_kinds_are_refused() -> None:
    with pytest.raises(TypeError, match="ILRGPR cannot be distributed"):
        training_loss_closure(
            gi.ILRGPR((X, Y), kernel(), num_classes=3), tf.distribute.get_strategy()
        )
