"""What a span of outputs hands to the regression of each row: covariances, noise and targets."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Matern32
from gpflow.mean_functions import MeanFunction, Zero

from gpflow_ilr.codes import DirichletCode, ILRCode, LabelCode
from gpflow_ilr.inputs import LabelledRows
from gpflow_ilr.inputs.kernels import OutputSpan
from gpflow_ilr.linalg.local_regression import LocalPrediction
from gpflow_ilr.models.local_span import LocalSpan

K, D, ROWS, NEIGHBOURS = 3, 2, 4, 5
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(ROWS, NEIGHBOURS, D))
XNEW = _RNG.normal(size=(ROWS, D))
HARD = _RNG.integers(0, K, size=(ROWS, NEIGHBOURS)).astype(np.int32)
SOFT = _RNG.dirichlet(np.ones(K), size=(ROWS, NEIGHBOURS))
LINEAR = gpflow.functions.Linear(np.array([[0.1, 0.2], [-0.3, 0.4]]), np.array([0.5, -0.1]))


def code_of(noise: str) -> LabelCode:
    """A code whose noises all differ."""
    code = DirichletCode(K) if noise == "dirichlet" else ILRCode(K, 0.9, noise=noise)
    if noise in ("per_output", "per_class"):
        variable = code.extra_noise if noise == "per_output" else code.class_factor
        steps = np.reshape(np.arange(1.0, 1.0 + np.size(variable)), variable.shape)
        variable.unconstrained_variable.assign_add(steps)
    return code


def ask(code: LabelCode, labels: Any, start: int, stop: int, mean: MeanFunction) -> Any:
    """What the span hands over, and what it makes of weights that are not those of a regression."""
    handed: list[tf.Tensor] = []
    seen: list[np.ndarray] = []

    def weigh(joint: tf.Tensor, V: tf.Tensor) -> list[LocalPrediction]:
        handed.extend([joint, V])
        weights = np.random.default_rng(1).normal(size=V.shape)
        seen.append(weights)
        variance = tf.constant(np.random.default_rng(2).uniform(size=V.shape[:2]))
        return [
            LocalPrediction(tf.constant(weights), variance),
            LocalPrediction(tf.constant(weights[..., :2]), 2.0 * variance),
        ]

    span = LocalSpan(OutputSpan(Matern32(0.7), start, stop), code, mean)
    results = span.predict(
        tf.constant(XNEW), LabelledRows(tf.constant(X), tf.constant(labels)), weigh
    )
    return handed, seen[0], results


@pytest.mark.parametrize("noise", ["fixed", "per_output", "per_class", "dirichlet"])
def test_covariances_are_those_of_the_row_and_its_neighbours(noise: str) -> None:
    (joint, _), _, _ = ask(code_of(noise), HARD, 0, 2, Zero())
    for n in range(ROWS):
        rows = np.concatenate([XNEW[n : n + 1], X[n]])
        np.testing.assert_allclose(joint[n], Matern32(0.7)(rows), rtol=1e-10)


@pytest.mark.parametrize(("start", "stop"), [(0, 2), (1, 2)])
@pytest.mark.parametrize("noise", ["fixed", "per_output", "per_class", "dirichlet"])
def test_noise_is_that_of_the_neighbours_labels_and_of_the_outputs(noise, start, stop) -> None:
    code = code_of(noise)
    (_, V), _, _ = ask(code, HARD, start, stop, Zero())
    table = code.noise_variance.numpy()
    columns = table if table.shape[1] == 1 else table[:, start:stop]
    expected = np.broadcast_to(columns, [K, columns.shape[1]])[HARD]
    np.testing.assert_array_equal(V, np.swapaxes(expected, 1, 2))


@pytest.mark.parametrize("mean", [Zero(), gpflow.functions.Constant([0.3]), LINEAR])
@pytest.mark.parametrize(("start", "stop"), [(0, 2), (1, 2)])
@pytest.mark.parametrize("noise", ["fixed", "per_output"])
@pytest.mark.parametrize("soft", [False, True])
def test_means_are_weighted_targets_less_the_mean_function(soft, noise, start, stop, mean) -> None:
    code, labels = code_of(noise), SOFT if soft else HARD
    _, weights, results = ask(code, labels, start, stop, mean)
    # Unit code: the ilr of the smoothed labels, divided by L.
    rows = labels if soft else np.eye(K)[labels]
    smoothed = np.log(0.9 * rows + 0.1 / K)
    targets = smoothed @ code.link.numpy() / float(code.scale)
    offset = np.zeros(D) if isinstance(mean, Zero) else mean(X.reshape(-1, D))
    offset = np.broadcast_to(offset, [ROWS * NEIGHBOURS, K - 1]).reshape(targets.shape)
    T = (targets - offset)[..., start:stop]
    weights = np.broadcast_to(weights, [ROWS, stop - start, NEIGHBOURS])
    assert len(results) == 4
    np.testing.assert_allclose(results[0], np.einsum("npm,nmp->np", weights, T), atol=1e-12)
    first = np.einsum("npm,nmp->np", weights[..., :2], T[:, :2])
    np.testing.assert_allclose(results[2], first, atol=1e-12)
    np.testing.assert_array_equal(results[3], 2.0 * results[1])
