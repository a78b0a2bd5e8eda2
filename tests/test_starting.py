import gpflow
import numpy as np
import pytest

from gpflow_ilr.codes import DirichletCode
from gpflow_ilr.starting import greedy_variance, kmeans_plusplus, starting_kernel


@pytest.fixture(name="X")
def _X(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(120, 3)) * [1.0, 10.0, 0.1]


def test_kernel_starts_at_the_median_distance_and_the_targets_amplitude(X: np.ndarray) -> None:
    kernel = starting_kernel(X, 4)
    distances = np.linalg.norm(X[:, None] - X[None], axis=-1)[np.triu_indices(len(X), 1)]
    np.testing.assert_allclose(kernel.lengthscales.numpy(), np.median(distances))
    np.testing.assert_allclose(kernel.variance.numpy(), 1 / 4)


def test_ard_start_follows_the_columns_spread(X: np.ndarray) -> None:
    lengthscales = starting_kernel(X, 4, gpflow.kernels.Matern32, ard=True).lengthscales.numpy()
    np.testing.assert_allclose(lengthscales / lengthscales[0], X.std(0) / X[:, 0].std())


def test_dirichlet_start_has_the_amplitude_of_its_targets(X: np.ndarray) -> None:
    code = DirichletCode(3, 0.01)
    expected = np.mean(code.targets.numpy() ** 2)
    np.testing.assert_allclose(starting_kernel(X, code).variance.numpy(), expected)


def test_constant_columns_and_identical_rows_have_a_start() -> None:
    kernel = starting_kernel(np.ones((5, 2)), 3, ard=True)
    assert np.all(np.isfinite(kernel.lengthscales.numpy()))


def test_the_number_of_classes_may_be_numpys(X: np.ndarray) -> None:
    kernel = starting_kernel(X, np.int64(4))
    np.testing.assert_allclose(kernel.variance.numpy(), 1 / 4)


def test_missing_values_and_no_inducing_inputs_are_refused(X: np.ndarray) -> None:
    kernel = starting_kernel(X, 3)
    for count in (0, -2, 2.5):
        message = f"num_inducing must be an integer of at least 1, but is {count}"
        with pytest.raises(ValueError, match=message):
            kmeans_plusplus(X, count)
        with pytest.raises(ValueError, match=message):
            greedy_variance(X, count, kernel)
    X[3, 1] = np.nan
    for start in (lambda: starting_kernel(X, 3), lambda: kmeans_plusplus(X, 5)):
        with pytest.raises(ValueError, match="X must be finite"):
            start()


def test_kmeans_plusplus_chooses_distinct_rows_and_covers_far_clusters() -> None:
    rng = np.random.default_rng(0)
    centres = 100.0 * np.arange(5)[:, None]
    X = (centres[:, None, :] + rng.normal(size=(5, 40, 1))).reshape(-1, 1)
    Z = kmeans_plusplus(X, 5, seed=3)
    assert len(np.unique(np.round(Z / 100.0))) == 5
    assert all(np.any(np.all(z == X, axis=1)) for z in Z)
    np.testing.assert_array_equal(Z, kmeans_plusplus(X, 5, seed=3))


def test_kmeans_plusplus_refuses_more_points_than_distinct_rows() -> None:
    with pytest.raises(ValueError, match=r"num_inducing is 3, but X has only 2 distinct rows"):
        kmeans_plusplus(np.array([[0.0], [1.0], [0.0]]), 3)


def test_greedy_variance_takes_the_largest_conditional_variance_each_time(X: np.ndarray) -> None:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 10.0, 0.1])
    Z = greedy_variance(X, 6, kernel)
    for m in range(1, 6):
        K_uu, K_uf = kernel(Z[:m]).numpy(), kernel(Z[:m], X).numpy()
        conditional = 1.0 - np.einsum("mn,mn->n", K_uf, np.linalg.solve(K_uu, K_uf))
        np.testing.assert_allclose(X[np.argmax(conditional)], Z[m])


def test_greedy_variance_stops_where_nothing_is_left_to_explain() -> None:
    X = np.repeat(np.array([[0.0], [1.0]]), 4, axis=0)
    Z = greedy_variance(X, 5, gpflow.kernels.SquaredExponential())
    assert sorted(Z[:, 0]) == [0.0, 1.0]


@pytest.mark.parametrize("bad", [np.zeros((0, 2)), np.zeros(4)])
def test_inputs_that_are_not_rows_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"X must have shape \[N, D\]"):
        kmeans_plusplus(bad, 1)


def test_rows_whose_distances_overflow_are_refused(X: np.ndarray) -> None:
    for start in (
        lambda X: starting_kernel(X, 3),
        lambda X: starting_kernel(X, 3, ard=True),
        lambda X: kmeans_plusplus(X, 3),
    ):
        with pytest.raises(ValueError, match=r"^X must be within .*Rescale such columns"):
            start(1e160 * X)
