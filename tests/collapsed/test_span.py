"""What rows mean for a span of outputs: tables and features give targets, sums give what they say."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.codes import DirichletCode, ILRCode
from gpflow_ilr.collapsed.span import CollapsedSpan
from gpflow_ilr.collapsed.statistics import RowGroups, Rows
from gpflow_ilr.inputs import LabelledRows
from gpflow_ilr.inputs.kernels import OutputSpan

RNG = np.random.default_rng(0)
X, Z = tf.constant(RNG.normal(size=(8, 2))), RNG.normal(size=(3, 2))
Y = tf.constant(np.arange(8) % 3, tf.int32)
MEANS = {
    "zero": gpflow.mean_functions.Zero(),
    "linear": gpflow.mean_functions.Linear(np.ones((2, 1)), [0.3]),
}
CODES = {"ilr": ILRCode(3), "per_class": ILRCode(3, noise="per_class"), "gpd": DirichletCode(3)}


def span_of(code: str, mean: str, start: int = 0, stop: int | None = None) -> CollapsedSpan:
    stop = CODES[code].num_outputs if stop is None else stop
    inducing = gpflow.inducing_variables.InducingPoints(Z)
    outputs = OutputSpan(gpflow.kernels.Matern52(0.7), start, stop, inducing)
    return CollapsedSpan(outputs, CODES[code], MEANS[mean], None)


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("stop", [1, None])
def test_features_times_table_are_the_targets_less_the_mean(code, mean, stop) -> None:
    span = span_of(code, mean, 0, stop)
    E, T = span.features(X, Y).numpy(), span.table.numpy()
    group = Y.numpy() if CODES[code].depends_on_class else np.zeros(8, int)
    found = np.einsum("nc,ncp->np", E, T[group])
    targets = CODES[code].targets.numpy()[Y.numpy(), 0 : span.span.stop]
    offset = MEANS[mean](X).numpy()
    np.testing.assert_allclose(found, targets - offset, atol=1e-14)
    terms = span.row_terms(span.whitening(), LabelledRows(X, Y))
    np.testing.assert_allclose(terms.targets, targets - offset, atol=1e-14)


def test_sums_are_over_whitened_rows() -> None:
    span = span_of("ilr", "zero")
    L_inv = span.whitening()
    sums = span.sums(L_inv, Rows(LabelledRows(X, Y), RowGroups(None, 8, 1)))
    terms = span.row_terms(L_inv, LabelledRows(X, Y))
    np.testing.assert_allclose(sums.second[0], terms.A @ tf.transpose(terms.A), rtol=1e-12)
    np.testing.assert_allclose(
        L_inv @ span.covariance() @ tf.transpose(L_inv), np.eye(3), atol=1e-5
    )
    residual = 0.7 - np.sum(terms.A.numpy() ** 2, axis=0)
    np.testing.assert_allclose(terms.residual[:, 0], residual, rtol=1e-10)
