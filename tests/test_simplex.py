"""Claims about the ILR bijection and Aitchison's geometry."""

from __future__ import annotations

from collections.abc import Callable

import composition_stats
import gpflow
import numpy as np
import pytest
import scipy.linalg
import scipy.special
import tensorflow as tf
import tensorflow_probability as tfp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gpflow_ilr.simplex import (
    ILR,
    aitchison_distance,
    aitchison_inner_product,
    aitchison_norm,
    check_num_classes,
    helmert,
)

EPS = np.finfo(np.float64).eps
tfd = tfp.distributions

num_classes = st.integers(2, 9)


def coordinates(draw: st.DrawFn, K: int, limit: float = 20.0) -> np.ndarray:
    return draw(arrays(np.float64, K - 1, elements=st.floats(-limit, limit)))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[int, np.ndarray, np.ndarray]:
    K = draw(num_classes)
    return K, coordinates(draw, K), coordinates(draw, K)


def paper_inner_product(x: np.ndarray, y: np.ndarray) -> float:
    """The double sum over log-ratios that defines Aitchison's inner product in the paper."""
    log_ratios = [np.log(v)[:, None] - np.log(v)[None, :] for v in (x, y)]
    return float((log_ratios[0] * log_ratios[1]).sum() / (2 * len(x)))


# --- Helmert's matrix ---------------------------------------------------------------------------


@pytest.mark.parametrize("K", [2, 3, 10])
def test_helmert_is_scipys_and_an_orthonormal_basis_of_the_contrasts(K: int) -> None:
    H = helmert(K).numpy()
    np.testing.assert_array_equal(H, scipy.linalg.helmert(K))
    np.testing.assert_allclose(H @ H.T, np.eye(K - 1), atol=8 * EPS)
    np.testing.assert_allclose(H.sum(axis=1), 0, atol=8 * EPS)
    np.testing.assert_allclose(H.T @ H, np.eye(K) - 1 / K, atol=8 * EPS)


def test_helmert_reads_the_default_float_when_called() -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        assert helmert(3).dtype == tf.float32
    assert helmert(3).dtype == tf.float64
    assert helmert(3, tf.float32).dtype == tf.float32


@pytest.mark.parametrize("K", [1, 0, -3, 2.0, "3", None, True, np.nan])
def test_too_few_classes_and_non_integers_are_refused(K: object) -> None:
    for make in (check_num_classes, helmert, ILR):
        with pytest.raises(ValueError, match="num_classes must be"):
            make(K)


@pytest.mark.parametrize("K", [5, np.int8(5), np.uint64(5), tf.constant(5)])
def test_integers_of_any_kind_are_numbers_of_classes(K: object) -> None:
    assert check_num_classes(K) == 5
    assert type(check_num_classes(K)) is int


# --- The bijection ------------------------------------------------------------------------------


@given(pairs())
def test_forward_is_softmax_of_the_transposed_matrix_product(case: tuple) -> None:
    K, z, _ = case
    H = scipy.linalg.helmert(K)
    y = ILR(K).forward(z).numpy()
    # Relative error of exp(v): the absolute error of v, K roundings of numbers up to ‖z‖.
    rtol = 8 * K * EPS * (1 + np.linalg.norm(z))
    np.testing.assert_allclose(y, scipy.special.softmax(z @ H), rtol=rtol)
    np.testing.assert_allclose(ILR(K).log_forward(z), scipy.special.log_softmax(z @ H), atol=rtol)


@given(pairs())
def test_forward_lands_on_the_open_simplex(case: tuple) -> None:
    K, z, _ = case
    y = ILR(K).forward(z).numpy()
    assert (y > 0).all()
    assert abs(y.sum() - 1) <= K * EPS


@given(pairs())
def test_inverse_undoes_forward_and_is_the_matrix_product(case: tuple) -> None:
    K, z, _ = case
    y = ILR(K).forward(z).numpy()
    # A fresh bijector, for tfp caches pairs. Log-probabilities reach 2‖z‖, hence their round-off.
    inverse = ILR(K).inverse(y).numpy()
    atol = 8 * K * EPS * (1 + np.linalg.norm(z))
    np.testing.assert_allclose(inverse, z, atol=atol)
    np.testing.assert_allclose(inverse, scipy.linalg.helmert(K) @ np.log(y), atol=atol)


@given(pairs())
def test_log_det_jacobians_equal_autodiff_in_the_free_coordinates(case: tuple) -> None:
    K, z, _ = case
    z = (
        z / 10
    )  # ‖z‖ ≤ 6: an ill-conditioned Jacobian would test the determinant of autodiff instead
    with tf.GradientTape(persistent=True) as tape:
        x = tf.Variable(z)
        y = ILR(K).forward(x)[:-1]
    log_det = np.linalg.slogdet(tape.jacobian(y, x, experimental_use_pfor=False))[1]
    forward = ILR(K).forward_log_det_jacobian(z, 1)
    np.testing.assert_allclose(forward, log_det, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(
        ILR(K).inverse_log_det_jacobian(ILR(K).forward(z).numpy(), 1), -forward, rtol=1e-13
    )


@given(pairs())
def test_ilr_is_an_isometry(case: tuple) -> None:
    K, z, w = case
    x, y = ILR(K).forward(z), ILR(K).forward(w)
    atol = 8 * K * EPS * (1 + np.linalg.norm(z) + np.linalg.norm(w))
    np.testing.assert_allclose(aitchison_distance(x, y), np.linalg.norm(z - w), atol=atol)
    np.testing.assert_allclose(aitchison_norm(x), np.linalg.norm(z), atol=atol)
    scale = 1 + np.linalg.norm(z) + np.linalg.norm(w)
    np.testing.assert_allclose(aitchison_inner_product(x, y), z @ w, atol=atol * scale)


@given(pairs(), st.randoms(use_true_random=False))
def test_aitchison_geometry_is_the_papers_and_knows_neither_scale_nor_order(
    case: tuple, random: object
) -> None:
    K, z, w = case
    x, y = ILR(K).forward(z).numpy(), ILR(K).forward(w).numpy()
    atol = 8 * K * EPS * (1 + np.linalg.norm(z) + np.linalg.norm(w)) ** 2
    expected = paper_inner_product(x, y)
    np.testing.assert_allclose(aitchison_inner_product(x, y), expected, atol=atol)
    order = list(range(K))
    random.shuffle(order)
    np.testing.assert_allclose(
        aitchison_inner_product(3.0 * x[order], 0.25 * y[order]), expected, atol=atol
    )
    # d(x, y)² = ⟨x, x⟩ - 2⟨x, y⟩ + ⟨y, y⟩
    squared = paper_inner_product(x, x) - 2 * expected + paper_inner_product(y, y)
    np.testing.assert_allclose(aitchison_distance(x, y) ** 2, squared, atol=4 * atol)


@given(pairs())
def test_addition_of_coordinates_is_perturbation_of_compositions(case: tuple) -> None:
    K, z, w = case
    product = ILR(K).forward(z).numpy() * ILR(K).forward(w).numpy()
    rtol = 16 * K * EPS * (1 + np.linalg.norm(z) + np.linalg.norm(w))
    np.testing.assert_allclose(ILR(K).forward(z + w), product / product.sum(), rtol=rtol)


@pytest.mark.parametrize("K", [2, 3, 12])
def test_composition_stats_agrees_in_sign_and_order(K: int, rng: np.random.Generator) -> None:
    y = rng.dirichlet(np.ones(K), size=20)
    np.testing.assert_allclose(
        ILR(K).inverse(y), composition_stats.ilr(y).reshape(-1, K - 1), atol=1e-13
    )


# --- Extremes, precision and cost ---------------------------------------------------------------


@pytest.mark.parametrize("K", [2, 3, 50])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [-700.0, 700.0])
def test_everything_forward_is_finite_at_700(K: int, dtype: type, size: float) -> None:
    z = np.concatenate([np.full((1, K - 1), size), size * np.eye(K - 1)]).astype(dtype)
    with tf.GradientTape() as tape:
        x = tf.Variable(z)
        bijector = ILR(K)
        outputs = (
            bijector.forward(x),
            bijector.log_forward(x),
            bijector.forward_log_det_jacobian(x, 1),
        )
    for output in (*outputs, tape.gradient(outputs, x)):
        assert output.dtype == dtype
        assert np.isfinite(output).all()
    exact = scipy.special.log_softmax(z.astype(np.float64) @ scipy.linalg.helmert(K), axis=-1)
    np.testing.assert_allclose(
        outputs[1], exact, rtol=K * np.finfo(dtype).eps, atol=700 * K * np.finfo(dtype).eps
    )


@pytest.mark.parametrize("K", [2, 3, 50])
def test_everything_inverse_is_finite_and_right_at_1e_minus_300(K: int) -> None:
    y = np.full((K, K), 1e-300)
    np.fill_diagonal(y, 1.0)
    with tf.GradientTape() as tape:
        x = tf.Variable(y)
        z, log_det = ILR(K).inverse(x), ILR(K).inverse_log_det_jacobian(x, 1)
        log_z = tf.math.log(abs(z) + 1.0)
    # The gradient of log y is 1e300, so a tame function of z is differentiated.
    assert np.isfinite(tape.gradient(log_z, x)).all()
    np.testing.assert_allclose(z, np.log(y) @ scipy.linalg.helmert(K).T, atol=K * 700 * EPS)
    np.testing.assert_allclose(log_det, (K - 1) * 300 * np.log(10) - np.log(K) / 2, rtol=1e-13)


def test_float32_keeps_five_digits_with_10000_classes(rng: np.random.Generator) -> None:
    K = 10_000
    logits = np.stack([np.repeat([1.0, -1.0], K // 2), np.sort(rng.normal(size=K))])
    logits = np.concatenate([logits, rng.normal(size=[2, K])])
    y = scipy.special.softmax(logits, axis=-1).astype(np.float32)
    exact = ILR(K).inverse(y.astype(np.float64)).numpy()
    error = np.linalg.norm(ILR(K).inverse(y) - exact, axis=1) / np.linalg.norm(exact, axis=1)
    # Roundings of K additions that do not conspire; a sum that is not centred misses it by far.
    bound = np.sqrt(K) * np.finfo(np.float32).eps
    assert error.max() < bound
    log_y = ILR(K).log_forward(exact.astype(np.float32)).numpy()
    assert abs(log_y - ILR(K).log_forward(exact).numpy()).max() < bound


def graph_cost(function: Callable[[tf.Tensor], tf.Tensor], size: int) -> tuple[int, int, set[str]]:
    """Elements of the largest tensor and of all tensors of a traced graph, and its kinds of ops."""
    graph = tf.function(function).get_concrete_function(tf.TensorSpec([1, size], tf.float64)).graph
    sizes = [t.shape.num_elements() or 0 for op in graph.get_operations() for t in op.outputs]
    return max(sizes), sum(sizes), {op.type for op in graph.get_operations()}


@pytest.mark.parametrize("name", ["forward", "inverse", "forward_ldj", "inverse_ldj", "gradient"])
def test_cost_grows_linearly_up_to_10000_classes(name: str) -> None:
    def build(K: int) -> tuple[Callable[[tf.Tensor], tf.Tensor], int]:
        bijector = ILR(K)
        return {
            "forward": (bijector.forward, K - 1),
            "inverse": (bijector.inverse, K),
            "forward_ldj": (lambda z: bijector.forward_log_det_jacobian(z, 1), K - 1),
            "inverse_ldj": (lambda y: bijector.inverse_log_det_jacobian(y, 1), K),
            "gradient": (lambda z: tf.gradients(bijector.forward(z)[..., 0], z)[0], K - 1),
        }[name]

    totals = {}
    for K in (100, 1_000, 10_000):
        largest, totals[K], kinds = graph_cost(*build(K))
        assert largest <= K
        assert not kinds & {"MatMul", "BatchMatMul", "BatchMatMulV2", "Einsum"}
        assert not any("Call" in kind or "While" in kind for kind in kinds)  # nothing is hidden
    # Exactly linear but for a constant.
    assert (totals[10_000] - totals[1_000]) == 10 * (totals[1_000] - totals[100])


def test_the_count_of_cost_would_notice_a_matrix_product() -> None:
    largest, _, kinds = graph_cost(lambda z: tf.nn.softmax(z @ helmert(100)), 99)
    assert largest > 100
    assert "MatMul" in kinds


# --- As part of TensorFlow Probability ----------------------------------------------------------


@pytest.mark.parametrize("batch", [(), (4,), (2, 3), (0,), (2, 1, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_batch_shape_in_eager_graph_and_xla(
    batch: tuple[int, ...], dtype: type, rng: np.random.Generator
) -> None:
    K = 4
    z = rng.normal(size=(*batch, K - 1)).astype(dtype)

    def all_of_it(z: tf.Tensor) -> tuple[tf.Tensor, ...]:
        y = ILR(K).forward(z)
        return (
            y,
            ILR(K).inverse(y),
            ILR(K).forward_log_det_jacobian(z, 1),
            ILR(K).inverse_log_det_jacobian(y, 1),
        )

    eager = all_of_it(z)
    assert [e.shape for e in eager] == [(*batch, K), (*batch, K - 1), batch, batch]
    for compiled in (tf.function(all_of_it), tf.function(all_of_it, jit_compile=True)):
        for ours, theirs in zip(compiled(z), eager, strict=True):
            assert ours.dtype == dtype
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=64 * np.finfo(dtype).eps)


def test_shapes_known_only_when_run_are_mapped_or_refused_but_never_broadcast() -> None:
    forward = tf.function(ILR(4).forward, input_signature=[tf.TensorSpec(None, tf.float64)])
    np.testing.assert_allclose(forward(np.zeros([2, 3])), np.full([2, 4], 0.25))
    with pytest.raises(tf.errors.InvalidArgumentError):
        forward(np.zeros([2, 1]))


def test_event_shapes_change_by_one_and_wrong_ones_are_refused() -> None:
    bijector = ILR(4)
    assert bijector.forward_event_shape([3]) == [4]
    assert bijector.inverse_event_shape([4]) == [3]
    assert bijector.forward_event_shape_tensor([3]).numpy() == [4]
    assert bijector.inverse_event_shape_tensor([4]).numpy() == [3]
    for call, shape in [(bijector.forward, [2, 4]), (bijector.inverse, [2, 1])]:
        with pytest.raises(ValueError, match=r"maps \[..., 3\] to \[..., 4\].*Check num_classes"):
            call(np.ones(shape))


@pytest.mark.parametrize("row", [[0.5, 0.5, 0.0], [0.5, 0.4, 0.2]])
def test_validate_args_asserts_the_open_simplex(row: list[float]) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"ILR\.inverse needs"):
        ILR(3, validate_args=True).inverse(row)
    ILR(3, validate_args=True).inverse([0.5, 0.3, 0.2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_validate_args_accepts_the_round_off_of_ten_thousand_classes(
    dtype: type, rng: np.random.Generator
) -> None:
    bijector = ILR(10_000, validate_args=True)
    y = bijector.forward(rng.standard_normal((20, 9999)).astype(dtype))
    bijector.inverse(tf.identity(y))  # another tensor, whose inverse TensorFlow does not remember


def test_a_transformed_normal_has_a_density_that_integrates_to_one() -> None:
    loc = np.array([0.5, -0.3])
    normal = tfd.TransformedDistribution(tfd.MultivariateNormalDiag(loc), ILR(3))
    # y_1 = u, y_2 = (1 - u) v covers the triangle of free coordinates with the Jacobian 1 - u.
    nodes, weights = np.polynomial.legendre.leggauss(240)
    u, v = np.meshgrid((nodes + 1) / 2, (nodes + 1) / 2, indexing="ij")
    y = np.stack([u, (1 - u) * v, (1 - u) * (1 - v)], axis=-1)
    integral = np.sum(np.outer(weights, weights) / 4 * (1 - u) * normal.prob(y))
    assert abs(integral - 1) < 1e-10  # 160 nodes are off by 3e-11, 320 nodes by 5e-13


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_transformed_distribution_samples_and_passes_through_functions(dtype: type) -> None:
    loc = np.zeros(3, dtype)
    normal = tfd.TransformedDistribution(tfd.MultivariateNormalDiag(loc), ILR(4))
    assert normal.event_shape == [4]
    y = normal.sample(7, seed=1)
    assert y.dtype == dtype
    assert y.shape == [7, 4]
    log_prob = normal.log_prob(tf.identity(y))
    # The distribution itself is an argument: the bijector is a composite tensor.
    for jit_compile in (False, True):
        compiled = tf.function(lambda d, y: d.log_prob(y), jit_compile=jit_compile)
        np.testing.assert_allclose(compiled(normal, y), log_prob, rtol=100 * np.finfo(dtype).eps)


def test_aitchison_functions_broadcast() -> None:
    x, y = np.full([2, 1, 4], 0.25), np.random.default_rng(0).dirichlet(np.ones(4), size=3)
    assert aitchison_distance(x, y).shape == [2, 3]
    assert aitchison_inner_product(x, y).shape == [2, 3]
    np.testing.assert_allclose(aitchison_distance(x, y)[1], aitchison_norm(y), rtol=1e-14)


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan])
def test_the_first_entry_that_is_not_positive_is_named(wrong: float) -> None:
    x = [[0.5, 0.5], [0.2, wrong], [wrong, 0.3]]
    with pytest.raises(ValueError, match=r"x\[1, 1\] is"):
        aitchison_norm(x)
