"""Sums that are kept are used again only where they would come out the same."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr.collapsed.kept import Elsewhere, KeptStatistics
from gpflow_ilr.collapsed.statistics import RowGroups, Rows
from gpflow_ilr.inputs import LabelledRows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 2))
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
XNEW = RNG.normal(size=(7, 2))


class Powered(gpflow.kernels.SquaredExponential):
    """A user's kernel with a plain attribute that GPflow knows nothing of."""

    exponent = 1.0

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        return super().K(X, X2) ** self.exponent

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return super().K_diag(X) ** self.exponent


class Tilted(gpflow.mean_functions.MeanFunction):
    """A user's mean function with a plain attribute."""

    slope = 0.1

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return self.slope * X[:, :1]


class Shifted(gpflow.inducing_variables.InducingPoints):
    """Inducing points with a plain attribute, and covariances of their own."""

    shift = 0.0


@gpflow.covariances.Kuu.register(Shifted, gpflow.kernels.SquaredExponential)
def shifted_Kuu(inducing: Shifted, kernel: Any, *, jitter: float = 0.0) -> tf.Tensor:
    return kernel(inducing.Z + inducing.shift) + jitter * tf.eye(
        inducing.num_inducing, dtype=tf.float64
    )


@gpflow.covariances.Kuf.register(Shifted, gpflow.kernels.SquaredExponential, object)
def shifted_Kuf(inducing: Shifted, kernel: Any, Xnew: tf.Tensor) -> tf.Tensor:
    return kernel(inducing.Z + inducing.shift, Xnew)


def build() -> gi.ILRSGPR:
    model = gi.ILRSGPR((X, Y), Powered(0.4), Shifted(X[:9]), num_classes=3, mean_function=Tilted())
    model.predict_y(XNEW)  # the sums are kept now
    return model


@pytest.mark.parametrize(
    ("part", "attribute", "value"),
    [
        ("kernel", "exponent", 0.5),
        ("kernel", "active_dims", slice(0, 1)),
        ("mean_function", "slope", 0.7),
        ("inducing_variable", "shift", 0.4),
    ],
)
def test_plain_attributes_of_users_classes_are_followed(part, attribute, value) -> None:
    model, fresh = build(), build()
    kernel = model.kernel if attribute != "active_dims" else gpflow.kernels.SquaredExponential(0.4)
    if attribute == "active_dims":
        for m in (model, fresh):
            m.kernel = gpflow.utilities.deepcopy(kernel)
            m.predict_y(XNEW)
    before = model.predict_y(XNEW)[0]
    for m in (model, fresh):
        setattr(getattr(m, part), attribute, value)
    fresh.data = (X, Y)  # which forgets all sums
    np.testing.assert_array_equal(model.predict_y(XNEW)[0], fresh.predict_y(XNEW)[0])
    assert np.max(np.abs(model.predict_y(XNEW)[0] - before)) > 1e-3


def test_other_parameters_data_and_jitters_are_followed() -> None:
    model = build()
    assert model.known_statistics() is not None
    model.kernel.variance.assign(0.5)
    assert model.known_statistics() is None
    model.predict_y(XNEW)
    assert model.known_statistics() is not None
    model.data = (X[::-1].copy(), Y[::-1].copy())
    assert model.known_statistics() is None
    model.predict_y(XNEW)
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-4)):
        assert model.known_statistics() is None
    model.smoothing = 0.5  # which hard labels do not see
    assert model.known_statistics() is not None


def test_copies_keep_their_sums() -> None:
    model = build()
    assert gpflow.utilities.deepcopy(model).known_statistics() is not None


def test_rounding_of_another_processor_is_no_change_but_more_is() -> None:
    rows = Rows(LabelledRows(tf.zeros([1, 1]), tf.zeros([1], tf.int32)), RowGroups(None, 1, 1))
    probes = [np.array([1.0, 3.0]), np.array([])]
    own, shared = (
        KeptStatistics([], rows, probes, where) for where in (Elsewhere.NOWHERE, Elsewhere.SHARED)
    )
    rounded = [probes[0] * (1 + 1e-14), probes[1]]
    assert own.valid(probes)
    assert not own.valid(rounded)  # computed again, at no risk
    assert shared.valid(rounded)
    with pytest.raises(ValueError, match="Take new ones"):
        shared.valid([probes[0] * (1 + 1e-6), probes[1]])
    with pytest.raises(ValueError, match="Take new ones"):
        shared.valid(probes[:1])
