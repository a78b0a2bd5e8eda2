"""Claims about the collapsed bound, its posterior and leave-one-out, against N × N brute force."""

from __future__ import annotations

from typing import NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import multivariate_normal

from gpflow_ilr.collapsed import bound
from gpflow_ilr.collapsed.bound import collapsed_bound, leave_one_out, whitened_posterior
from gpflow_ilr.collapsed.statistics import GroupStatistics
from gpflow_ilr.linalg import evidence

EPS = np.finfo(np.float64).eps
N, M, P, K = 17, 5, 3, 4
SHAPES = [(1, 1), (1, P), (K, 1), (K, P)]


class Problem(NamedTuple):
    """Rows as the collapsed model sees them, and tables for one group or for the classes."""

    A: np.ndarray
    """Whitened features, [M, N]."""
    diagonal: np.ndarray
    """k(x_n, x_n), [N]."""
    E: np.ndarray
    """Label features, [N, C]."""
    labels: np.ndarray
    T: np.ndarray
    V: np.ndarray

    @property
    def groups(self) -> np.ndarray:
        """Which row belongs to which group, [G, N]."""
        return np.ones((1, N)) if len(self.V) == 1 else np.eye(K)[:, self.labels]

    def statistics(self, A: tf.Tensor | None = None) -> GroupStatistics:
        A = tf.constant(self.A) if A is None else A
        rows, E = tf.constant(self.groups), tf.constant(self.E)
        return GroupStatistics(
            tf.reduce_sum(rows, axis=1),
            tf.linalg.matvec(rows, tf.constant(self.diagonal)),
            tf.einsum("gn,mn,nc->gmc", rows, A, E),
            tf.einsum("gn,mn,kn->gmk", rows, A, A),
            tf.einsum("gn,nc,nd->gcd", rows, E, E),
        )

    def targets(self) -> np.ndarray:
        """t_n = e_n T_g, [N, P]."""
        return np.einsum("gn,nc,gcp->np", self.groups, self.E, self.T)

    def noise(self) -> np.ndarray:
        """v_n, [N, P]."""
        return np.broadcast_to(np.einsum("gn,gu->nu", self.groups, self.V), (N, P))

    def without(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f_n, [P] each, from all rows but ``row`` by weights of zero."""
        means, variances = [], []
        for p in range(P):
            weights = np.delete(1 / self.noise()[:, p], row)
            A, t = np.delete(self.A, row, axis=1), np.delete(self.targets()[:, p], row)
            covariance = np.linalg.inv(np.eye(M) + (A * weights) @ A.T)
            a = self.A[:, row]
            means.append(a @ covariance @ A @ (weights * t))
            variances.append(self.diagonal[row] - a @ a + a @ covariance @ a)
        return np.array(means), np.array(variances)


def problem(shape: tuple[int, int], soft: bool = False) -> Problem:
    rng = np.random.default_rng(0)
    X, Z = rng.uniform(-2, 2, size=(N, 2)), rng.uniform(-2, 2, size=(M, 2))
    kernel = gpflow.kernels.Matern32(variance=1.4)
    L = np.linalg.cholesky(kernel(Z) + 1e-6 * np.eye(M))
    labels = rng.choice([0, 1, 3], size=N)  # class 2 has no rows
    V = rng.uniform(0.02, 0.5, size=shape)
    if shape[0] == 1:
        E = rng.normal(size=(N, 6)) if soft else np.eye(K)[labels]
        T = rng.normal(size=(1, E.shape[1], P))
    else:
        E, T = np.ones((N, 1)), rng.normal(size=(K, 1, P))
    diagonal = kernel(X, full_cov=False).numpy()
    return Problem(np.linalg.solve(L, kernel(Z, X)), diagonal, E, labels, T, V)


def brute_force_bound(p: Problem) -> float:
    """Σ_p log N(t_p | 0, Q + diag v_p) − ½ Σ_n (k_nn − q_nn)/v_np, with Q = AᵀA."""
    Q, t, v = p.A.T @ p.A, p.targets(), p.noise()
    total = 0.0
    for j in range(P):
        total += multivariate_normal.logpdf(t[:, j], cov=Q + np.diag(v[:, j]))
        total -= 0.5 * np.sum((p.diagonal - np.diag(Q)) / v[:, j])
    return total


def differentiable_bound(p: Problem, A: tf.Tensor, T: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    """The same in TensorFlow, from inverses and determinants, for autodiff."""
    Q, rows = tf.matmul(A, A, transpose_a=True), tf.constant(p.groups)
    t = tf.einsum("gn,nc,gcp->pn", rows, p.E, T)
    v = tf.broadcast_to(tf.einsum("gn,gu->un", rows, V), [P, N])
    S = Q + tf.linalg.diag(v)
    quadratic = tf.einsum("pn,pnm,pm->", t, tf.linalg.inv(S), t)
    log_det = tf.reduce_sum(tf.linalg.slogdet(S).log_abs_determinant)
    trace = tf.reduce_sum((p.diagonal - tf.linalg.diag_part(Q)) / v)
    return -0.5 * (quadratic + log_det + trace + N * P * np.log(2 * np.pi))


# --- The bound ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_bound_is_the_gaussian_log_density_less_the_trace_term(shape: tuple[int, int]) -> None:
    p = problem(shape)
    bound = collapsed_bound(p.statistics(), tf.constant(p.T), tf.constant(p.V))
    assert bound.shape == ()
    np.testing.assert_allclose(bound, brute_force_bound(p), rtol=1e-11)


@pytest.mark.parametrize("shape", SHAPES[:2])
def test_bound_takes_features_that_are_not_one_hot(shape: tuple[int, int]) -> None:
    p = problem(shape, soft=True)
    bound = collapsed_bound(p.statistics(), tf.constant(p.T), tf.constant(p.V))
    np.testing.assert_allclose(bound, brute_force_bound(p), rtol=1e-11)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("graph", [False, True])
def test_gradient_of_the_bound_equals_autodiff_of_brute_force(
    shape: tuple[int, int], graph: bool
) -> None:
    p = problem(shape)
    sources = [tf.constant(x) for x in (p.A, p.T, p.V)]

    def gradients(direct: bool) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(sources)
            A, T, V = sources
            value = (
                differentiable_bound(p, A, T, V)
                if direct
                else collapsed_bound(p.statistics(A), T, V)
            )
        return [value, *tape.gradient(value, sources, unconnected_gradients="zero")]

    compute = tf.function(gradients, autograph=False) if graph else gradients
    for ours, theirs in zip(compute(False), gradients(True), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11 * np.max(abs(theirs)))


@pytest.mark.parametrize("shape", SHAPES)
def test_equal_noises_give_the_same_bound_in_every_form(shape: tuple[int, int]) -> None:
    one, other = problem((1, 1)), problem(shape)
    T = one.T[0] if shape[0] == 1 else one.T[0][:, None, :]
    T = T[None] if shape[0] == 1 else T
    V = np.full(shape, one.V[0, 0])
    bound = collapsed_bound(other.statistics(), tf.constant(T), tf.constant(V))
    np.testing.assert_allclose(bound, brute_force_bound(one), rtol=1e-11)


def test_bound_equals_gpflows_sgpr(rng: np.random.Generator) -> None:
    X, Z = rng.uniform(-2, 2, size=(N, 2)), rng.uniform(-2, 2, size=(M, 2))
    kernel, labels = gpflow.kernels.SquaredExponential(), rng.integers(K, size=N)
    T, V = rng.normal(size=(1, K, P)), 0.05
    sgpr = gpflow.models.SGPR((X, T[0][labels]), kernel, Z, noise_variance=V)
    L = np.linalg.cholesky(kernel(Z) + gpflow.config.default_jitter() * np.eye(M))
    p = Problem(np.linalg.solve(L, kernel(Z, X)), np.ones(N), np.eye(K)[labels], labels, T, V)
    p = p._replace(V=np.full((1, 1), V))
    bound = collapsed_bound(p.statistics(), tf.constant(T), tf.constant(p.V))
    np.testing.assert_allclose(bound, sgpr.elbo(), rtol=1e-11)
    q = whitened_posterior(tf.constant(np.linalg.inv(L)), p.statistics(), T, tf.constant(p.V))
    mean, covariance = sgpr.compute_qu()
    np.testing.assert_allclose(L @ q.mean, mean, atol=1e-9)
    np.testing.assert_allclose(q.covariance(tf.constant(L.T))[0], covariance, atol=1e-9)


def test_a_residual_that_rounding_made_negative_counts_as_zero() -> None:
    p = problem((1, 1))
    exact = p._replace(diagonal=np.sum(p.A**2, axis=0))
    rounded = exact._replace(diagonal=exact.diagonal - 1e-9)
    bounds = [
        collapsed_bound(q.statistics(), tf.constant(q.T), tf.constant(q.V))
        for q in (exact, rounded)
    ]
    np.testing.assert_allclose(bounds[1], bounds[0], rtol=1e-14)


# --- The posterior ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("differentiable", [False, True])
@pytest.mark.parametrize("large", [False, True])
def test_posterior_equals_brute_force(
    shape: tuple[int, int], differentiable: bool, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:  # as many inducing inputs as make eigenbases dear
        monkeypatch.setattr(bound, "LARGE_EIGENBASIS", M)
        monkeypatch.setattr(evidence, "LARGE_EIGENBASIS", M)
    p = problem(shape)
    T, V = tf.constant(p.T), tf.constant(p.V)
    q = whitened_posterior(tf.eye(M, dtype=T.dtype), p.statistics(), T, V, differentiable)
    rng = np.random.default_rng(1)
    A = rng.normal(size=(2, M, 7))  # a batch of new rows
    variance, covariance = q.variance(A), q.covariance(A)
    assert q.mean.shape == (M, P)
    assert variance.shape == (2, 7, shape[1])
    assert covariance.shape == (2, shape[1], 7, 7)
    np.testing.assert_allclose(q.variance(A[1]), variance[1], rtol=1e-13)
    np.testing.assert_allclose(q.covariance(A[1]), covariance[1], atol=1e-14)
    for j in range(P):
        weights = 1 / p.noise()[:, j]
        exact = np.linalg.inv(np.eye(M) + (p.A * weights) @ p.A.T)
        mean = exact @ p.A @ (weights * p.targets()[:, j])
        np.testing.assert_allclose(q.mean[:, j], mean, atol=1e-11 * np.max(abs(mean)))
        expected = np.swapaxes(A, 1, 2) @ exact @ A
        u = j if shape[1] > 1 else 0
        np.testing.assert_allclose(covariance[:, u], expected, atol=1e-12)
        diagonal = np.diagonal(expected, axis1=1, axis2=2)
        np.testing.assert_allclose(variance[..., u], diagonal, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_differentiable_posterior_has_the_gradient_of_brute_force(shape: tuple[int, int]) -> None:
    # Two rows in five dimensions: three eigenvalues of G coincide.
    p = problem(shape)
    A = p.A.copy()
    A[:, 2:] = 0.0
    sources = [tf.constant(x) for x in (A, p.T, p.V)]
    new = tf.constant(np.random.default_rng(1).normal(size=(M, 4)))

    def gradients(direct: bool) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(sources)
            A, T, V = sources
            if direct:
                rows = tf.constant(p.groups)
                t = tf.einsum("gn,nc,gcp->pn", rows, p.E, T)
                v = tf.broadcast_to(tf.einsum("gn,gu->un", rows, V), [P, N])
                S = tf.linalg.inv(
                    tf.eye(M, dtype=A.dtype) + tf.einsum("mn,pn,kn->pmk", A, 1 / v, A)
                )
                mean = tf.einsum("pmk,kn,pn->mp", S, A, t / v)
                variance = tf.einsum("mn,pmk,kn->np", new, S, new)
            else:
                q = whitened_posterior(tf.eye(M, dtype=A.dtype), p.statistics(A), T, V, True)
                mean, variance = q.mean, tf.broadcast_to(q.variance(new), [4, P])
            value = tf.reduce_sum(tf.sin(mean)) + tf.reduce_sum(tf.square(variance))
        return [value, *tape.gradient(value, sources)]

    for ours, theirs in zip(gradients(False), gradients(True), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11 * np.max(abs(theirs)))


# --- Leave-one-out ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("differentiable", [False, True])
def test_leave_one_out_equals_removing_the_row(
    shape: tuple[int, int], differentiable: bool
) -> None:
    p = problem(shape)
    T, V = tf.constant(p.T), tf.constant(p.V)
    q = whitened_posterior(tf.eye(M, dtype=T.dtype), p.statistics(), T, V, differentiable)
    mean, variance = leave_one_out(
        tf.matmul(p.A, q.mean, transpose_a=True),
        q.variance(tf.constant(p.A)),
        tf.constant(p.targets()),
        V if shape[0] == 1 else tf.gather(V, p.labels),
        tf.constant(p.diagonal - np.sum(p.A**2, axis=0))[:, None],
    )
    assert variance.shape == (N, shape[1])
    for n in range(N):
        expected_mean, expected_variance = p.without(n)
        np.testing.assert_allclose(mean[n], expected_mean, atol=1e-8)
        np.testing.assert_allclose(tf.broadcast_to(variance[n], [P]), expected_variance, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_leave_one_out_stays_finite_where_one_row_determines_everything(dtype: type) -> None:
    # c = v up to rounding: 1 − h is zero, or negative.
    for nudge in (0.0, 4 * np.finfo(dtype).eps):
        one = tf.ones([1, 1], dtype)
        mean, variance = leave_one_out(one, one * (1 + nudge), one, one, one)
        assert mean.dtype == dtype
        assert np.isfinite(mean).all()
        assert np.isfinite(variance).all()
        assert np.all(variance > 0)
