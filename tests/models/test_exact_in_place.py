"""The exact classifiers need one matrix of the size of the data, and lose nothing by it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.linalg import evidence, in_place
from tests.linalg.memory import peak_bytes
from tests.models.oracles import XNEW, X, build, gradients

SOME = [("ILRGPR", "shared"), ("DirichletGPR", "per_class")]


@pytest.mark.parametrize(("name", "noise"), SOME)
def test_eager_predictions_and_their_gradients_are_those_of_graphs(name, noise):
    model = build(name, noise)

    def in_squares() -> tf.Tensor:
        return tf.add_n([tf.reduce_sum(tf.square(x)) for x in model.predict_f(XNEW)])

    compiled = tf.function(in_squares, autograph=False)
    np.testing.assert_allclose(in_squares(), compiled(), rtol=1e-10)
    expected = gradients(compiled, model.trainable_variables)
    ours = gradients(in_squares, model.trainable_variables)
    for eager, graph in zip(ours, expected, strict=True):
        assert np.any(graph != 0)
        np.testing.assert_allclose(eager, graph, rtol=1e-8, atol=1e-10)


def test_leave_one_out_at_a_noise_is_that_of_a_model_with_it():
    model, rows = build("ILRGPR"), tf.constant([3, 11, 4])
    noises = (0.001, 0.3)
    for noise, held_out in zip(noises, model.loo_at_noise(rows)(noises), strict=True):
        other = build("ILRGPR", noise_variance=noise)
        for ours, theirs in zip(held_out[:2], other.leave_one_out(rows), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10)
        np.testing.assert_array_equal(held_out.labels, tf.gather(model.labels, rows))


def test_no_kernel_matrix_and_no_decomposition_of_one_in_eager_mode(monkeypatch):
    def refuse(*_: Any) -> None:
        raise AssertionError("this takes several matrices")

    for module, name in (
        (tf.linalg, "eigh"),
        (tf.linalg, "cholesky"),
        (evidence, "inverse_cholesky"),
    ):
        monkeypatch.setattr(module, name, refuse)
    sizes: list[int] = []
    covariance = in_place.covariance
    monkeypatch.setattr(in_place, "_BLOCK_ROWS", 4)
    monkeypatch.setattr(
        in_place, "covariance", lambda k, *rows: sizes.append(len(rows[0])) or covariance(k, *rows)
    )
    model = build("ILRGPR")
    model.calibrate(noise=True)
    model.posterior().predict_y(XNEW)
    assert max(sizes) == 4 < len(X)


N = 3000  # 72 MB a matrix
TASKS: dict[str, Callable[[Any], Any]] = {
    "leave-one-out": lambda model: model.predict_loo(),
    "predictions": lambda model: model.posterior().predict_y(XNEW),
    "two noises": lambda model: model.loo_at_noise(tf.range(100))([0.02, 0.1]),
}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_one_matrix_is_all_the_memory(task):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(N, 2))
    labels = (rows[:, 0] + rng.normal(size=N) > 0).astype(int)
    task(build("ILRGPR", data=(rows[:100], labels[:100]), num_classes=2))  # loads what it needs
    model = build("ILRGPR", data=(rows, labels), num_classes=2)
    assert 0.4 < peak_bytes(lambda: task(model)) / (8 * N**2) < 1.3
