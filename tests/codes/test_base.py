"""Claims about the noise of label codes: what it depends on, what is learned, where it stays."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gpflow_ilr.codes import (
    MAX_NOISE_RATIO,
    DirichletCode,
    ILRCode,
    LabelCode,
)
from gpflow_ilr.inputs.labels import as_labels

EPS = np.finfo(np.float64).eps
KINDS = ["ilr", "gpd"]
NOISES = ["fixed", "shared", "per_output", "per_class"]


def make(kind: str, noise: str, K: int = 4) -> LabelCode:
    return ILRCode(K, noise=noise) if kind == "ilr" else DirichletCode(K, noise=noise)


def unconstrain(code: LabelCode, values: Callable[[tuple], np.ndarray]) -> None:
    """Put every learned variable where an optimiser might."""
    for variable in code.trainable_variables:
        variable.assign(values(tuple(variable.shape)))


@pytest.mark.parametrize(
    ("kind", "noise", "shape", "learned"),
    [
        ("ilr", "fixed", (1, 1), 0),
        ("ilr", "shared", (1, 1), 1),
        ("ilr", "per_output", (1, 3), 3),
        ("ilr", "per_class", (4, 1), 4),
        ("gpd", "fixed", (4, 4), 0),
        ("gpd", "shared", (4, 4), 1),
        ("gpd", "per_output", (4, 4), 4),
        ("gpd", "per_class", (4, 4), 4),
    ],
)
def test_the_shape_of_the_noise_says_what_it_depends_on(
    kind: str, noise: str, shape: tuple, learned: int
) -> None:
    code = make(kind, noise)
    assert code.noise_variance.shape == shape
    assert code.depends_on_class == (shape[0] > 1)
    assert code.depends_on_output == (shape[1] > 1)
    assert (code.targets.shape, code.link.shape) == ((4, code.num_outputs),) * 2
    assert code.num_outputs == (3 if kind == "ilr" else 4)
    # The learned variables move V in as many directions as the option promises.
    with tf.GradientTape() as tape:
        V = tf.reshape(code.noise_variance, [-1])
    jacobians = tape.jacobian(V, code.trainable_variables, unconnected_gradients="zero")
    flat = np.concatenate(
        [np.zeros((len(V), 1)), *(np.reshape(J, (len(V), -1)) for J in jacobians)], axis=1
    )
    assert np.linalg.matrix_rank(flat) == learned


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", NOISES[1:])
def test_the_learned_part_is_added_to_the_base(kind: str, noise: str) -> None:
    code, base = make(kind, noise), make(kind, "fixed").noise_variance.numpy()
    # At the start close to the fixed model, with a gradient alive.
    assert np.all(code.noise_variance > base)
    assert np.all(code.noise_variance < 1.5 * base)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(code.noise_variance)
    for gradient in tape.gradient(total, code.trainable_variables):
        assert np.all(abs(gradient) > 1e-3 * base.min())
    extra = 3.0 * code.extra_noise.numpy()
    code.extra_noise.assign(extra)
    expected = np.broadcast_to(base + extra, code.noise_variance.shape)
    np.testing.assert_allclose(code.noise_variance, expected, rtol=64 * EPS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", NOISES[1:])
@pytest.mark.parametrize("value", [-1e6, -100.0, 0.0, 100.0, 1e6])
def test_noise_is_finite_and_at_least_its_base_wherever_an_optimiser_goes(
    kind: str, noise: str, value: float
) -> None:
    code, base = make(kind, noise), make(kind, "fixed").noise_variance.numpy()
    unconstrain(code, lambda shape: np.full(shape, value))
    with tf.GradientTape() as tape:
        V = code.noise_variance
    assert np.all(base <= V)
    assert np.all(np.isfinite(V))
    assert all(np.all(np.isfinite(g)) for g in tape.gradient(V, code.trainable_variables))


@given(st.data())
def test_no_class_can_be_explained_away_as_noise(data: st.DataObject) -> None:
    # Left free, the bound gave one class of MAGIC seventy times the noise of the other.
    kind, K = data.draw(st.sampled_from(KINDS)), data.draw(st.integers(2, 5))
    code, base = make(kind, "per_class", K), make(kind, "fixed", K).noise_variance.numpy()
    far = st.floats(-1e3, 1e3)
    unconstrain(code, lambda shape: data.draw(arrays(np.float64, shape, elements=far)))
    V = code.noise_variance.numpy()
    # Relative to the base, which is symmetric in the classes.
    ratio = np.max(V / base) / np.min(V / base) if kind == "ilr" else 1.0
    learned = V - base
    assert ratio <= MAX_NOISE_RATIO * (1 + 8 * EPS)
    # Differences from the base lose what is small beside it.
    assert np.max(learned) <= MAX_NOISE_RATIO * np.min(learned) * (1 + 8 * EPS) + 8 * EPS * V.max()


class OwnCode(ILRCode):
    """A code of one's own, with a base noise of any shape that broadcasts to [K, P]."""

    def __init__(self, base_noise: np.ndarray) -> None:
        super().__init__(3)
        LabelCode.__init__(self, 3, 2, base_noise, "fixed")


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("outputs", [1, 2])
def test_the_noise_of_ones_own_code_depends_on_what_its_base_depends_on(
    classes: int, outputs: int
) -> None:
    code = OwnCode(np.full((classes, outputs), 0.1))
    assert code.depends_on_class == (classes > 1)
    assert code.depends_on_output == (outputs > 1)


def test_classes_take_their_noise_factors_with_them_and_new_ones_have_the_factor_one() -> None:
    code = ILRCode(4, noise="per_class")
    code.class_factor.assign([[0.9], [1.1], [0.95], [1.05]])
    old, new = code.noise_variance.numpy(), code.base_noise.numpy() + code.extra_noise.numpy()
    code.change_classes([3, 0, -1, 0], 5)  # the third is gone; the second and the last become one
    assert (code.num_classes, code.num_outputs) == (5, 4)
    expected = np.concatenate([old[[1]], new, new, old[[0]], new])
    np.testing.assert_allclose(code.noise_variance, expected, rtol=64 * EPS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("factor", [0.01, 0.5, 2.0])
def test_rescaling_multiplies_base_and_learned_part(kind: str, noise: str, factor: float) -> None:
    code = make(kind, noise)
    old, old_base = code.noise_variance.numpy(), code.base_noise.numpy()
    code.rescale_noise(factor)
    np.testing.assert_allclose(code.noise_variance, factor * old, rtol=64 * EPS)
    np.testing.assert_allclose(code.base_noise, factor * old_base, rtol=64 * EPS)


def test_an_explicit_noise_variance_is_the_base() -> None:
    for noise_variance in (1e-9, 0.003, 2.0):
        code = ILRCode(5, noise_variance=noise_variance)
        np.testing.assert_allclose(code.noise_variance, [[noise_variance]], rtol=32 * EPS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", NOISES)
def test_codes_follow_the_default_float(kind: str, noise: str) -> None:
    reference = make(kind, noise)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        code = make(kind, noise)
        labels = as_labels([1, 0], 4)
        for name in ("targets", "noise_variance", "link", "scale"):
            ours = getattr(code, name)
            assert ours.dtype == tf.float32
            np.testing.assert_allclose(ours, getattr(reference, name), rtol=1e-5)
        assert code.features(labels).dtype == tf.float32


def test_class_factors_can_be_read_and_assigned_wherever_training_took_them() -> None:
    code = ILRCode(3, noise="per_class")
    code.class_factor.unconstrained_variable.assign([[-1e6], [60.0], [1e6]])
    values = gpflow.utilities.read_values(code)
    gpflow.utilities.multiple_assign(code, values)
    for path, value in gpflow.utilities.read_values(code).items():
        np.testing.assert_allclose(value, values[path], rtol=1e-12)
    factors = code.class_factor.numpy()
    assert np.max(factors) / np.min(factors) <= MAX_NOISE_RATIO


@pytest.mark.parametrize("code", [ILRCode(3, noise="per_class"), DirichletCode(3)])
def test_soft_labels_are_refused_where_noise_depends_on_the_class(code: LabelCode) -> None:
    with pytest.raises(ValueError, match=r"Soft labels need .* has noise='\w+'. Use an ILR model"):
        code.features(as_labels([[0.2, 0.3, 0.5]], 3))
    np.testing.assert_array_equal(code.features(as_labels([2, 0], 3)), np.eye(3)[[2, 0]])


def test_error_rate_is_reproducible() -> None:
    code = DirichletCode(3, 0.1)
    assert code.error_rate(1000, seed=1) == code.error_rate(1000, seed=1)
    assert code.error_rate(1000, seed=1) != code.error_rate(1000, seed=2)
