"""Kernels and inducing variables are matched to latent functions in one place, or refused."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import (
    LinearCoregionalization,
    Matern32,
    SeparateIndependent,
    SharedIndependent,
    SquaredExponential,
)

from gpflow_ilr.inputs.kernels import (
    check_columns,
    for_conditional,
    independent_kernels,
    output_spans,
)

PLAIN = SquaredExponential()
OTHERS = [Matern32(), SquaredExponential(), Matern32()]
Z = [InducingPoints(np.full((2, 1), float(p))) for p in range(3)]


def test_one_kernel_is_one_span() -> None:
    for kernel in (PLAIN, SharedIndependent(PLAIN, 3)):
        (span,) = output_spans(kernel, 3)
        assert span.kernel is PLAIN
        assert (span.start, span.stop, span.inducing) == (0, 3, None)


@pytest.mark.parametrize("separate_kernels", [True, False])
@pytest.mark.parametrize("separate_sets", [True, False])
def test_what_is_separate_is_a_span_each(separate_kernels: bool, separate_sets: bool) -> None:
    kernel = SeparateIndependent(OTHERS) if separate_kernels else PLAIN
    inducing = SeparateIndependentInducingVariables(Z) if separate_sets else Z[0]
    spans = output_spans(kernel, 3, inducing)
    if not separate_kernels and not separate_sets:
        assert spans == [(PLAIN, 0, 3, Z[0])]
        return
    assert [(s.start, s.stop) for s in spans] == [(0, 1), (1, 2), (2, 3)]
    for p, span in enumerate(spans):
        assert span.kernel is (OTHERS[p] if separate_kernels else PLAIN)
        assert span.inducing is (Z[p] if separate_sets else Z[0])


def test_a_span_has_its_columns_or_the_one_for_all() -> None:
    span = output_spans(SeparateIndependent(OTHERS), 3)[1]
    X = tf.constant([[1.0], [2.0]], tf.float64)
    np.testing.assert_array_equal(span.columns(tf.constant([[1, 2, 3]])), [[2]])
    np.testing.assert_array_equal(span.columns(tf.constant([[7]])), [[7]])
    assert span.mean(gpflow.mean_functions.Zero(), X) is None
    each = gpflow.mean_functions.Linear([[1.0, 10.0, 100.0]])
    np.testing.assert_array_equal(span.mean(each, X), [[10.0], [20.0]])
    common = gpflow.mean_functions.Constant([5.0])
    np.testing.assert_array_equal(span.mean(common, X), [[5.0], [5.0]])


@pytest.mark.parametrize("match", [independent_kernels, output_spans])
@pytest.mark.parametrize(
    ("kernel", "error", "sentence"),
    [
        ("RBF", TypeError, "must be a GPflow kernel .* but is 'RBF'"),
        (SeparateIndependent(OTHERS), ValueError, "for 3 latent functions, .* Build it for 2"),
        (SharedIndependent(PLAIN, 5), ValueError, "for 5 latent functions, .* Build it for 2"),
        (LinearCoregionalization(OTHERS, np.eye(2, 3)), TypeError, "mixes the latent functions"),
    ],
)
def test_kernels_that_do_not_fit_are_refused(match: Any, kernel: Any, error: Any, sentence: str):
    with pytest.raises(error, match=sentence):
        match(kernel, 2)


def test_inducing_variables_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="3 separate sets, but the model has 2"):
        output_spans(PLAIN, 2, SeparateIndependentInducingVariables(Z))

    class Mixing(gpflow.inducing_variables.MultioutputInducingVariables):
        inducing_variables = ()
        num_inducing = 2
        shape = None

    with pytest.raises(TypeError, match="Mixing; use an array"):
        output_spans(PLAIN, 2, Mixing())
    uneven = SeparateIndependentInducingVariables([Z[0], InducingPoints(np.ones((3, 1)))])
    assert len(output_spans(PLAIN, 2, uneven)) == 2
    with pytest.raises(ValueError, match=r"sizes \[2, 3\]"):
        for_conditional(PLAIN, uneven, 2)


@pytest.mark.parametrize(
    "kernel", [PLAIN, SharedIndependent(PLAIN, 3), SeparateIndependent(OTHERS)]
)
@pytest.mark.parametrize(
    "inducing",
    [
        Z[0],
        SharedIndependentInducingVariables(Z[0]),
        SeparateIndependentInducingVariables(Z),
    ],
)
def test_gpflow_has_a_conditional_for_every_combination(kernel: Any, inducing: Any) -> None:
    k, iv = for_conditional(kernel, inducing, 3)
    mean, variance = gpflow.conditionals.conditional(
        tf.constant([[0.3], [0.6]], tf.float64), iv, k, tf.ones([2, 3], tf.float64), white=True
    )
    assert mean.shape == variance.shape == (2, 3)


ARD = Matern32(lengthscales=[1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "kernel",
    [
        PLAIN,
        ARD,
        ARD + PLAIN,
        Matern32(lengthscales=[1.0]),
        Matern32(active_dims=[0, 2], lengthscales=[1.0, 2.0]),
        Matern32(active_dims=slice(1, 3), lengthscales=[1.0, 2.0]),
        gpflow.kernels.Linear(variance=[1.0, 2.0, 3.0]),
        gpflow.kernels.White(),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_kernels_of_as_many_columns_are_accepted_and_can_be_computed(kernel: Any) -> None:
    check_columns(kernel, 3)
    check_columns(SharedIndependent(kernel, 2), 3)
    check_columns(SeparateIndependent([PLAIN, kernel]), 3)
    assert kernel(np.ones([2, 3])).shape == [2, 2]


@pytest.mark.parametrize(
    ("kernel", "sentence"),
    [
        (ARD, "a Matern32 with 3 lengthscales, one for each column, but of X it sees 2 columns"),
        (PLAIN * (PLAIN + ARD), "3 lengthscales.*Pass one, or 2"),
        (SharedIndependent(ARD, 2), "3 lengthscales"),
        (SeparateIndependent([PLAIN, ARD]), "3 lengthscales"),
        (Matern32(active_dims=[0], lengthscales=[1.0]) + ARD, "3 lengthscales"),
        (Matern32(active_dims=[0, 2]), "active_dims up to 2, but X has 2 columns.*up to 1"),
        (gpflow.kernels.Linear(variance=[1.0, 2.0, 3.0]), "3 variance"),
    ],
)
def test_kernels_of_other_columns_are_refused(kernel: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_columns(kernel, 2)
