"""Gaussian expectations of softmax and log-softmax: identities, batching, chunks, dtypes, gradients."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
import tensorflow as tf
from scipy.linalg import helmert
from scipy.special import log_softmax, softmax

import gpflow_ilr.expectations.softmax as module
from gpflow_ilr.expectations import (
    GaussHermite,
    MonteCarlo,
    NodeRule,
    Sobol,
    default_rule,
    expected_entropy,
    expected_log_softmax,
    expected_softmax,
    logits_at_nodes,
    predictive_log_density,
    softmax_variance,
)
from tests.expectations.gumbel_oracle import expectations as oracle

ALL = [expected_softmax, expected_log_softmax, softmax_variance, expected_entropy]
Expectation = Callable[..., tf.Tensor]


def problem(rng: np.random.Generator, K: int, *batch: int) -> tuple[np.ndarray, ...]:
    """Means, variances and a link with mixing."""
    L = K - 1
    C = helmert(K).T @ (np.eye(L) + 0.2 * rng.normal(size=(L, L)))
    return rng.normal(size=(*batch, L)), rng.uniform(0.2, 2.0, size=(*batch, L)), C


def brute_force(
    m: np.ndarray, v: np.ndarray, C: np.ndarray, g: np.ndarray
) -> dict[str, np.ndarray]:
    logits = (m + np.sqrt(v) * g) @ C.T
    pi, log_pi = softmax(logits, axis=-1), log_softmax(logits, axis=-1)
    return {
        "expected_softmax": pi,
        "expected_log_softmax": log_pi,
        "softmax_variance": (pi - pi.mean(axis=0)) ** 2,
        "expected_entropy": -np.sum(pi * log_pi, axis=-1),
    }


@pytest.mark.parametrize("expectation", ALL)
@pytest.mark.parametrize("K", [2, 3, 10])
def test_expectations_equal_brute_force_sampling(
    expectation: Expectation, K: int, rng: np.random.Generator
) -> None:
    m, v, C = problem(rng, K, 4)
    samples = brute_force(m, v, C, rng.normal(size=(40_000, 4, K - 1)))[expectation.__name__]
    value = expectation(m, v, C, Sobol(num_nodes=1024))
    error = samples.std(axis=0) / np.sqrt(len(samples))
    np.testing.assert_array_less(np.abs(value - samples.mean(axis=0)), 4.5 * error + 5e-4)


@pytest.mark.parametrize("K", [2, 5, 26])
@pytest.mark.parametrize("v", [0.1, 4.0])
def test_expectations_of_independent_logits_equal_their_exact_integrals(
    K: int, v: float, rng: np.random.Generator
) -> None:
    m, var = 1.5 * rng.normal(size=(3, K)), v * rng.uniform(0.5, 1.5, size=(3, K))
    pi, log_pi = oracle(m, var)
    draws = brute_force(m, var, np.eye(K), rng.normal(size=(1000, 3, K)))
    rule = Sobol(num_nodes=8192)
    for expectation, exact in ((expected_softmax, pi), (expected_log_softmax, log_pi)):
        # No worse than plain sampling with as many draws.
        error = draws[expectation.__name__].std(axis=0) / np.sqrt(8192)
        np.testing.assert_array_less(np.abs(expectation(m, var, np.eye(K), rule) - exact), error)


@pytest.mark.parametrize("K", [2, 3, 26])
@pytest.mark.parametrize("rule", [None, Sobol(num_nodes=8), MonteCarlo(num_samples=3)])
def test_probabilities_are_positive_and_sum_to_one(
    K: int, rule: NodeRule | None, rng: np.random.Generator
) -> None:
    m, v, C = problem(rng, K, 6)
    p = expected_softmax(5.0 * m, 10.0 * v, C, rule or default_rule(K - 1)).numpy()
    assert np.all(p > 0.0)
    np.testing.assert_allclose(p.sum(axis=-1), 1.0, rtol=1e-13)


@pytest.mark.parametrize("rule", [Sobol(), Sobol(num_nodes=6), MonteCarlo(num_samples=7)])
def test_without_variance_expectations_are_values(rule: NodeRule, rng: np.random.Generator) -> None:
    m, v, C = problem(rng, 5, 6)
    value = brute_force(m, 0.0 * v, C, np.zeros((1, 6, 4)))
    # Variances are floored at machine epsilon, and plain draws feel its square root.
    for expectation in ALL:
        np.testing.assert_allclose(
            expectation(m, 0.0 * v, C, rule), value[expectation.__name__][0], atol=1e-7
        )
    np.testing.assert_allclose(
        expected_log_softmax(m, 0.0 * v, C, rule), value["expected_log_softmax"][0], atol=1e-13
    )


@pytest.mark.parametrize("expectation", ALL)
@pytest.mark.parametrize("rule", [Sobol(), Sobol(num_nodes=8)])
def test_a_common_variance_may_be_given_once(
    expectation: Expectation, rule: NodeRule, rng: np.random.Generator
) -> None:
    m, v, C = problem(rng, 4, 3, 5)
    once = expectation(m, v[..., :1], C, rule)
    repeated = expectation(m, np.repeat(v[..., :1], 3, axis=-1), C, rule)
    np.testing.assert_allclose(once, repeated, rtol=1e-12)


def test_ilr_and_softmax_agree_when_the_variance_is_common(rng: np.random.Generator) -> None:
    # Hᵀf and g ~ N(Hᵀm, s²I) differ by a common shift of all logits, which the softmax does not see.
    m, v, _ = problem(rng, 5, 4)
    C, s2, rule = helmert(5).T, v[:, :1], Sobol(num_nodes=8192)
    for expectation, atol in ((expected_softmax, 3e-4), (expected_log_softmax, 2e-3)):
        np.testing.assert_allclose(
            expectation(m, s2, C, rule), expectation(m @ C.T, s2, np.eye(5), rule), atol=atol
        )


@pytest.mark.parametrize("expectation", ALL)
def test_rows_do_not_depend_on_their_batch(
    expectation: Expectation, rng: np.random.Generator
) -> None:
    m, v, C = problem(rng, 6, 2, 4)
    whole = expectation(m, v, C, Sobol())
    for i in range(2):
        for j in range(4):
            row = expectation(m[i, j], v[i, j], C, Sobol())
            np.testing.assert_allclose(row, whole[i, j], rtol=1e-12)


@pytest.mark.parametrize("expectation", ALL)
def test_means_and_variances_broadcast(expectation: Expectation, rng: np.random.Generator) -> None:
    m, v, C = problem(rng, 4, 2, 3)
    broadcast = expectation(m[:, :1], v, C, Sobol(num_nodes=16))
    repeated = expectation(np.repeat(m[:, :1], 3, axis=1), v, C, Sobol(num_nodes=16))
    np.testing.assert_allclose(broadcast, repeated, rtol=1e-13)


@pytest.mark.parametrize("kept", [0, 10**9])
@pytest.mark.parametrize("expectation", [expected_softmax, expected_log_softmax])
def test_chunks_of_rows_change_neither_values_nor_gradients(
    expectation: Expectation, kept: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [tf.constant(x) for x in problem(rng, 4, 23)]

    def value_and_gradients() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            value = expectation(*arguments, Sobol(num_nodes=16))
            total = tf.reduce_sum(
                value * tf.cos(tf.range(1.0, 1.0 + value.shape[-1], dtype=value.dtype))
            )
        return [value, *tape.gradient(total, arguments)]

    direct = value_and_gradients()
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 8 * 16 * 4)
    monkeypatch.setattr(module, "KEPT_ELEMENTS", kept)
    graph = expectation is expected_softmax
    chunked = tf.function(value_and_gradients)() if graph else value_and_gradients()
    for x, y in zip(direct, chunked, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-13)


@dataclass
class Noting(NodeRule):
    """Sixteen draws; notes the coordinates it is asked for: some at first, to count the nodes."""

    per_row: bool  # type: ignore[misc]
    asked: list[int] = field(default_factory=list)

    def __call__(self, dimension: int | tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
        self.asked.append(int(dimension))
        return MonteCarlo(16)(dimension, dtype)


@pytest.mark.parametrize(
    ("expectation", "kept", "chunk", "sizes"),
    [
        (expected_softmax, 23, 8.5, [8, 8, 7]),
        (expected_softmax, 0, 0.1, [1] * 23),
        (expected_log_softmax, 23, 20, [23]),  # a minibatch, which is kept
        (expected_log_softmax, 22.99, 20, [20, 3]),
    ],
)
def test_rows_are_worked_off_in_chunks_of_so_many_elements(
    expectation: Expectation, kept: float, chunk: float, sizes: list[int], rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(module, "KEPT_ELEMENTS", int(kept * 16 * 4))
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", int(chunk * 16 * 4))
    rule = Noting(per_row=True)
    expectation(*problem(rng, 4, 23), rule)
    assert rule.asked == [1, *(3 * size for size in sizes)]


@pytest.mark.parametrize("kept", [23 * 16 * 4, 23 * 16 * 4 - 1])
@pytest.mark.parametrize("rule", [Noting(per_row=False), Noting(per_row=True)])
def test_gradients_compute_again_what_is_not_kept_but_never_draw_again(
    rule: Noting, kept: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_ELEMENTS", kept)
    m, v, C = (tf.constant(x) for x in problem(rng, 4, 23))
    with tf.GradientTape() as tape:
        tape.watch(m)
        value = expected_softmax(m, v, C, rule)
    before = len(rule.asked)
    tape.gradient(value, m)
    assert (len(rule.asked) > before) == (kept < 23 * 16 * 4 and not rule.per_row)


@pytest.mark.parametrize("rule", [Sobol(16), Sobol(4), GaussHermite(5), GaussHermite(1)])
def test_gradients_are_those_of_the_value(rule: NodeRule, rng: np.random.Generator) -> None:
    arguments = problem(rng, 4, 3)
    for expectation in ALL:
        variables = [tf.constant(x) for x in arguments]
        with tf.GradientTape() as tape:
            tape.watch(variables)
            value = tf.reduce_sum(tf.square(expectation(*variables, rule)))
        for i, gradient in enumerate(tape.gradient(value, variables)):
            step = rng.normal(size=arguments[i].shape)
            shifted = [
                [x + h * step if j == i else x for j, x in enumerate(arguments)]
                for h in (1e-5, -1e-5)
            ]
            high, low = (tf.reduce_sum(tf.square(expectation(*s, rule))) for s in shifted)
            slope = (high - low).numpy() / 2e-5
            assert slope == pytest.approx(np.sum(gradient * step), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("var", [0.0, 1e-14, 1e-3, 1e6])
def test_gradients_are_finite_at_every_scale_of_variance(
    var: float, rng: np.random.Generator
) -> None:
    m, _, C = problem(rng, 4, 3)
    for dtype in (tf.float32, tf.float64):
        for scale in (0.0, 1.0, 300.0):
            inputs = [tf.cast(x, dtype) for x in (scale * m, np.full((3, 3), var), C)]
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                value = tf.reduce_sum(expected_log_softmax(*inputs, Sobol()))
            gradients = tape.gradient(value, inputs)
            assert all(bool(tf.reduce_all(tf.math.is_finite(g))) for g in [value, *gradients])


@pytest.mark.parametrize("expectation", ALL)
def test_float32_agrees_with_float64(expectation: Expectation, rng: np.random.Generator) -> None:
    arguments = problem(rng, 10, 8)
    single = expectation(*(tf.constant(x, tf.float32) for x in arguments), default_rule(9))
    assert single.dtype == tf.float32
    np.testing.assert_allclose(single, expectation(*arguments, default_rule(9)), atol=5e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("expectation", ALL)
def test_graphs_and_xla_give_the_eager_value(
    expectation: Expectation, jit_compile: bool, rng: np.random.Generator
) -> None:
    m, v, C = problem(rng, 4, 3)
    compiled = tf.function(lambda m, v: expectation(m, v, C, Sobol()), jit_compile=jit_compile)
    np.testing.assert_allclose(compiled(m, v), expectation(m, v, C, Sobol()), rtol=1e-10)


@pytest.mark.parametrize("expectation", ALL)
def test_the_number_of_rows_may_be_unknown_when_tracing(
    expectation: Expectation, rng: np.random.Generator
) -> None:
    m, v, C = problem(rng, 4, 7)
    spec = tf.TensorSpec([None, 3], tf.float64)
    traced = tf.function(lambda m, v: expectation(m, v, C, Sobol()), input_signature=[spec, spec])
    for means, variances in ((0, 0), (1, 1), (7, 7), (1, 7), (7, 1)):  # one broadcasts
        rows = m[:means], v[:variances]
        np.testing.assert_allclose(traced(*rows), expectation(*rows, C, Sobol()), rtol=1e-12)


@pytest.mark.parametrize("K", [2, 4])
def test_rows_of_unknown_number_are_one_chunk_in_training(K: int, rng: np.random.Generator) -> None:
    C, spec = problem(rng, K)[2], tf.TensorSpec([None, K - 1], tf.float64)
    for expectation in ALL:
        traced = tf.function(lambda m, v, f=expectation: f(m, v, C, Sobol()))
        operations = traced.get_concrete_function(spec, spec).graph.get_operations()
        loops = any("While" in operation.type for operation in operations)
        assert loops == (expectation is not expected_log_softmax)


@pytest.mark.parametrize("options", [{}, {"one_hot": True}])
@pytest.mark.parametrize("K", [2, 3, 10])
def test_log_densities_of_labels_are_logarithms_of_their_probabilities(
    K: int, options: dict[str, bool], rng: np.random.Generator
) -> None:
    m, v, C = problem(rng, K, 2, 3)
    labels = np.eye(K)[rng.integers(0, K, (2, 3))] if options else rng.dirichlet(np.ones(K), (2, 3))
    for rows in (labels, labels[0, 0]):
        found = predictive_log_density(m, v, C, Sobol(), rows, **options)
        expected = np.sum(rows * np.log(expected_softmax(m, v, C, Sobol())), axis=-1)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    found = predictive_log_density(1e4 * m, 0 * v, C, Sobol(), labels, **options)  # underflow
    expected = np.sum(labels * log_softmax(1e4 * m @ C.T, axis=-1), axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-6)


def test_two_classes_ask_no_rule(rng: np.random.Generator) -> None:
    rule, arguments = Noting(per_row=True), problem(rng, 2, 3)
    for expectation in ALL:
        expectation(*arguments, rule)
    predictive_log_density(*arguments, rule, np.eye(2)[[0, 1, 1]])
    assert not rule.asked


def test_monte_carlo_is_fresh_for_every_row_and_call(rng: np.random.Generator) -> None:
    m, v, C = problem(rng, 4, 1)
    m, v = np.repeat(m, 5, axis=0), np.repeat(v, 5, axis=0)
    first, second = (
        expected_softmax(m, v, C, MonteCarlo(num_samples=10)).numpy() for _ in range(2)
    )
    assert len(np.unique(np.concatenate([first, second])[:, 0])) == 10


def test_a_rule_of_ones_own_needs_a_call_only(rng: np.random.Generator) -> None:
    class Centre(NodeRule):
        def __call__(self, dimension: int, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:  # type: ignore[override]
            return tf.zeros([1, dimension], dtype), tf.ones([1], dtype)

    m, v, C = problem(rng, 5, 3)
    np.testing.assert_allclose(
        expected_softmax(m, v, C, Centre()), softmax(m @ C.T, axis=-1), rtol=1e-13
    )


def test_jensens_inequality_holds_for_every_set_of_centred_nodes(rng: np.random.Generator) -> None:
    # E[log π] ≤ log π(m) bounds what an optimiser can gain from any nodes whatever.
    m, v, C = problem(rng, 6, 50)
    for scale in (1e-6, 1e-2, 1.0, 1e2, 1e6):
        for rule in (Sobol(), Sobol(num_nodes=2), Sobol(num_nodes=6)):
            gap = log_softmax(m @ C.T, axis=-1) - expected_log_softmax(m, scale * v, C, rule)
            assert np.min(gap) > -1e-12


@pytest.mark.parametrize("common", [False, True])
@pytest.mark.parametrize("rule", [Sobol(num_nodes=16), Sobol(num_nodes=4), GaussHermite(5)])
def test_logits_at_nodes_have_the_moments_and_the_softmax_of_the_nodes(
    rule: NodeRule, common: bool, rng: np.random.Generator
) -> None:
    m, v, C = (tf.constant(x) for x in problem(rng, 4, 6))
    v = v[:, :1] if common else v
    logits, weights = logits_at_nodes(m, v, C, rule)
    nodes = rule(3, tf.float64)[0].numpy()
    expected = (m + np.sqrt(v) * nodes[:, None, :]) @ C.numpy().T
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(
        np.einsum("s,srk->rk", weights, softmax(logits, axis=-1)),
        expected_softmax(m, v, C, rule),
        rtol=1e-12,
    )


@pytest.mark.parametrize("common", [False, True])
@pytest.mark.parametrize("rule", [Sobol(), Sobol(num_nodes=4), GaussHermite(5)])
@pytest.mark.parametrize("scale", [1e-3, 0.7, 40.0])
def test_logits_at_nodes_are_linear_in_the_scale_of_the_latent(
    scale: float, rule: NodeRule, common: bool, rng: np.random.Generator
) -> None:
    m, v, C = (tf.constant(x) for x in problem(rng, 4, 6))
    v = v[:, :1] if common else v
    logits, weights = logits_at_nodes(m, v, C, rule)
    scaled, same = logits_at_nodes(scale * m, scale**2 * v, C, rule)
    np.testing.assert_array_equal(weights, same)
    np.testing.assert_allclose(scaled, scale * logits, rtol=0, atol=1e-14 * scale * np.max(logits))


@pytest.mark.slow
def test_a_million_rows_of_26_classes_take_less_than_two_gibibytes() -> None:
    program = """
        import resource
        import numpy as np
        import tensorflow as tf
        from scipy.linalg import helmert
        from gpflow_ilr.expectations import Sobol, expected_softmax

        rule, C = Sobol(num_nodes=64), tf.constant(helmert(26).T)
        predict = tf.function(lambda m, v: expected_softmax(m, v, C, rule), autograph=False)
        predict(tf.zeros([100_000, 25], tf.float64), tf.ones([100_000, 1], tf.float64))
        m, v = tf.zeros([1_000_000, 25], tf.float64), tf.ones([1_000_000, 1], tf.float64)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        p = predict(m, v)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print((after - before) * 1024 - p.shape.num_elements() * 8)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    assert int(result.stdout.split()[-1]) < 2**31
