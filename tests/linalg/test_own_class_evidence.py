"""One factor for all outputs that differ on the rows of one class, against one for each output."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.linalg import inverse_factors
from gpflow_ilr.linalg.evidence import dense_log_evidence
from gpflow_ilr.linalg.own_class_evidence import own_class_log_evidence

RNG = np.random.default_rng(0)
N, P = 23, 4


def problem(own: float) -> tuple[list[tf.Tensor], tf.Tensor]:
    """K, Y and V; and E, where the last class has no output here, and one output has no rows."""
    A = RNG.normal(size=(N, 5))
    E = np.eye(P + 1)[RNG.choice([0, 1, 3, 4], N)][:, :P]
    others = RNG.uniform(2.0, 4.0, size=(N, 1))
    V = np.where(E > 0.0, own * others, others)
    return [tf.constant(x) for x in (A @ A.T, RNG.normal(size=(N, P)), V)], tf.constant(E)


@pytest.mark.parametrize("own", [1.0, 0.3, 1e-3])
@pytest.mark.parametrize("block", [512, 8])
def test_value_and_gradients_are_those_of_a_factor_for_each_output(
    own: float, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inverse_factors, "LARGE_FACTOR", block)
    inputs, E = problem(own)
    results = []
    for evidence in (lambda *x: own_class_log_evidence(*x, E), dense_log_evidence):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            value = evidence(*inputs)
        results.append([value, *tape.gradient(value, inputs)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())


def test_other_noises_are_an_error_that_says_what_to_do() -> None:
    (K, Y, V), E = problem(0.3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="compile it again"):
        own_class_log_evidence(K, Y, V * np.linspace(1.0, 2.0, P), E)
