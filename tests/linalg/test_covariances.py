"""Claims about kernel matrices: they are GPflow's, whichever way they are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import covariances, kernels
from gpflow.base import TensorLike
from gpflow.inducing_variables import InducingPoints, Multiscale
from gpflow.kernels import IsotropicStationary, Kernel, SquaredExponential

from gpflow_ilr.linalg.covariances import _is_plain, covariance, inducing_covariance
from tests.linalg.kernel_matrices import ISOTROPIC, D, M, Matrix, N, inputs

OPTIONS = {
    "isotropic": {"variance": 1.7, "lengthscales": 0.6},
    "ard": {"variance": 0.3, "lengthscales": [0.6, 0.9, 2.5]},
    "some-dims": {"variance": 2.0, "lengthscales": [0.8, 0.5], "active_dims": [2, 0]},
    "slice": {"variance": 2.0, "lengthscales": 0.5, "active_dims": slice(1, 3)},
}


def gpflows(kernel: Kernel, X: tf.Tensor, Y: tf.Tensor | None = None) -> tf.Tensor:
    return kernel(X, Y)


def value_and_gradients(
    matrix: Matrix, kernel: Kernel, X: tf.Tensor, Y: tf.Tensor | None
) -> list[tf.Tensor]:
    """The matrix, and gradients of a weighted sum with respect to parameters and inputs."""
    sources = [*kernel.trainable_variables, X, *([] if Y is None else [Y])]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        K = matrix(kernel, X, Y)
        weights = np.random.default_rng(1).normal(size=K.shape)
        if Y is None:  # where the distance is 0, its root has no gradient
            weights -= np.diag(np.diag(weights))
        total = tf.reduce_sum(weights * K)
    return [K, *tape.gradient(total, sources)]


def off_diagonal(K: tf.Tensor) -> np.ndarray:
    return K.numpy()[~np.eye(len(K), dtype=bool)]


def test_every_isotropic_kernel_of_gpflow_is_tested() -> None:
    def subclasses(cls: type) -> Iterator[type]:
        for sub in cls.__subclasses__():
            yield sub
            yield from subclasses(sub)

    of_gpflow = {c for c in subclasses(IsotropicStationary) if c.__module__.startswith("gpflow.")}
    assert of_gpflow == set(ISOTROPIC)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("kind", ISOTROPIC)
def test_covariance_and_its_gradients_are_gpflows(
    kind: type, options: dict, rng: np.random.Generator
) -> None:
    kernel, X, Y = kind(**options), inputs(rng, N), inputs(rng, M)
    assert _is_plain(kernel)
    for other in (Y, None):
        ours = value_and_gradients(covariance, kernel, X, other)
        theirs = value_and_gradients(gpflows, kernel, X, other)
        assert len(ours) == len(theirs) == 1 + len(kernel.trainable_variables) + 1 + (other is Y)
        assert ours[0].shape == theirs[0].shape
        # Where two inputs coincide, rounding leaves a squared distance of about 1e-15, of either sign.
        root = kind in (kernels.Exponential, kernels.Matern12)
        atol = 1e-7 if other is None and root else 1e-12
        np.testing.assert_allclose(ours[0], theirs[0], rtol=0, atol=atol)
        if other is None:
            np.testing.assert_allclose(
                off_diagonal(ours[0]), off_diagonal(theirs[0]), rtol=0, atol=1e-13
            )
        for a, b in zip(ours[1:], theirs[1:], strict=True):
            assert a.shape == b.shape
            # Sums of terms of about one, which may cancel.
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * max(1.0, np.max(np.abs(b))))


def negative_lengthscale(kernel: kernels.Cosine) -> kernels.Cosine:
    kernel.lengthscales.assign(kernel.lengthscales * [1.0, -1.0, 1.0])
    return kernel


COMPOSED: dict[str, Callable[[], Kernel]] = {
    "sum": lambda: SquaredExponential(1.3, active_dims=[0]) + kernels.Linear(0.7, active_dims=[1]),
    "product": lambda: SquaredExponential(lengthscales=0.8) * kernels.Matern52(1.3),
    "nested": lambda: (
        kernels.Matern32(lengthscales=[0.8, 1.2], active_dims=[2, 0])
        * (kernels.Cosine(1.7, lengthscales=0.9, active_dims=slice(0, 2)) + kernels.Constant(0.3))
        + kernels.White(0.2)
    ),
    "cosine": lambda: kernels.Cosine(1.7, lengthscales=0.9),
    "cosine-ard": lambda: negative_lengthscale(kernels.Cosine(0.3, lengthscales=[0.6, 0.9, 2.5])),
    "cosine-some-dims": lambda: kernels.Cosine(lengthscales=[0.8, 0.5], active_dims=[2, 0]),
}


@pytest.mark.parametrize("build", COMPOSED.values(), ids=COMPOSED.keys())
def test_sums_products_and_cosines_and_their_gradients_are_gpflows(
    build: Callable[[], Kernel], rng: np.random.Generator
) -> None:
    kernel, X, Y = build(), inputs(rng, N), inputs(rng, M)
    for other in (Y, None):
        ours = value_and_gradients(covariance, kernel, X, other)
        theirs = value_and_gradients(gpflows, kernel, X, other)
        for a, b in zip(ours, theirs, strict=True):
            if b is None or a is None:  # White does not depend on X
                assert a is None or not np.any(a)
                assert b is None or not np.any(b)
                continue
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * max(1.0, np.max(np.abs(b))))


@pytest.mark.parametrize("build", COMPOSED.values(), ids=COMPOSED.keys())
def test_batched_sums_products_and_cosines_are_gpflows(
    build: Callable[[], Kernel], rng: np.random.Generator
) -> None:
    kernel, X, Y = build(), inputs(rng, 2, N), inputs(rng, M)
    np.testing.assert_array_equal(covariance(kernel, X, Y), kernel(X, Y))


@pytest.mark.parametrize("kind", ISOTROPIC)
def test_float32_is_right_to_its_own_precision(kind: type, rng: np.random.Generator) -> None:
    X, Y = inputs(rng, N), inputs(rng, M)
    exact = value_and_gradients(gpflows, kind(**OPTIONS["ard"]), X, Y)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        kernel = kind(**OPTIONS["ard"])
        single = [tf.cast(x, tf.float32) for x in (X, Y)]
        ours = value_and_gradients(covariance, kernel, *single)
    for a, truth in zip(ours, exact, strict=True):
        assert a.dtype == tf.float32
        error = np.max(np.abs(a.numpy() - truth.numpy())) / np.max(np.abs(truth))
        assert error < 30 * np.finfo(np.float32).eps


@pytest.mark.parametrize("variance", [1e-10, 1e10])
def test_extreme_variances_keep_their_relative_precision(
    variance: float, rng: np.random.Generator
) -> None:
    kernel = SquaredExponential(variance, 0.6)
    X, Y = inputs(rng, N), inputs(rng, M)
    np.testing.assert_allclose(covariance(kernel, X, Y), kernel(X, Y), rtol=1e-13)


@pytest.mark.parametrize("kind", ISOTROPIC)
def test_coinciding_inputs_have_the_variance_and_finite_gradients(
    kind: type, rng: np.random.Generator
) -> None:
    kernel, X = kind(**OPTIONS["ard"]), 100 * inputs(rng, N)
    with tf.GradientTape() as tape:
        tape.watch(X)
        K = covariance(kernel, X)
        total = tf.reduce_sum(K)
    gradients = tape.gradient(total, [X, *kernel.trainable_variables])
    # ‖x/ℓ‖² ≤ 5e4 leaves distances of √(5e4 ε).
    np.testing.assert_allclose(tf.linalg.diag_part(K), np.full(N, 0.3), atol=1e-5)
    assert all(np.all(np.isfinite(g)) for g in gradients)


@pytest.mark.parametrize("kind", ISOTROPIC)
def test_the_number_of_rows_may_be_known_only_when_run(
    kind: type, rng: np.random.Generator
) -> None:
    kernel, spec = kind(**OPTIONS["ard"]), tf.TensorSpec([None, D], tf.float64)
    compiled = tf.function(
        lambda X, Y: covariance(kernel, X, Y), input_signature=[spec, spec], autograph=False
    )
    for rows in (0, 1, N):
        X, Y = inputs(rng, rows), inputs(rng, M)
        np.testing.assert_allclose(compiled(X, Y), kernel(X, Y), rtol=0, atol=1e-12)


def test_inputs_of_unknown_rank_are_gpflows(rng: np.random.Generator) -> None:
    kernel, spec = SquaredExponential(), tf.TensorSpec(None, tf.float64)
    compiled = tf.function(
        lambda X, Y: covariance(kernel, X, Y), input_signature=[spec, spec], autograph=False
    )
    for X in (inputs(rng, N), inputs(rng, 2, N)):
        Y = inputs(rng, M)
        np.testing.assert_allclose(compiled(X, Y), kernel(X, Y), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ISOTROPIC)
@pytest.mark.parametrize(("left", "right"), [((2, N), (M,)), ((N,), (2, M)), ((2, N), (4, M))])
def test_two_batches_of_inputs_are_gpflows(
    kind: type, left: tuple[int, ...], right: tuple[int, ...], rng: np.random.Generator
) -> None:
    kernel, X, Y = kind(**OPTIONS["ard"]), inputs(rng, *left), inputs(rng, *right)
    np.testing.assert_array_equal(covariance(kernel, X, Y), kernel(X, Y))


@pytest.mark.parametrize("far", [1.0, 1e-9], ids=["near", "far column"])
@pytest.mark.parametrize("kind", [*ISOTROPIC, kernels.Cosine])
def test_a_batch_of_inputs_and_its_gradients_are_those_of_its_parts(
    kind: type, far: float, rng: np.random.Generator
) -> None:
    X = inputs(rng, 2, 3, N)
    kernel = kind(variance=0.3, lengthscales=np.r_[far, np.linspace(0.7, 1.3, X.shape[-1] - 1)])
    apart = 1.0 - np.eye(N)  # the root of a distance that is rounding alone is large
    G = apart * rng.standard_normal([2, 3, N, N])
    variables = kernel.trainable_variables
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(X)
        batch = covariance(kernel, X)
        parts = tf.stack([[covariance(kernel, part) for part in row] for row in tf.unstack(X)])
        losses = [tf.reduce_sum(G * K) for K in (batch, parts)]
    np.testing.assert_allclose(apart * batch, apart * parts, rtol=0, atol=1e-14)
    np.testing.assert_allclose(tf.linalg.diag_part(batch), 0.3, rtol=1e-7)
    ours, theirs = (tape.gradient(loss, [X, *variables]) for loss in losses)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


"""Lengthscales of two columns among others of ordinary size; the first pair ended a training."""


class OwnK(SquaredExponential):
    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        return 2.0 * super().K(X, X2)


class OwnKr2(SquaredExponential):
    def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
        return self.variance / (1.0 + r2)


class OwnKr(kernels.Matern32):
    def K_r(self, r: tf.Tensor) -> tf.Tensor:
        return self.variance / (1.0 + r)


class OwnCall(SquaredExponential):
    def __call__(self, X: tf.Tensor, X2: tf.Tensor | None = None, **options: bool) -> tf.Tensor:
        return super().__call__(X, X2, **options) + 1.0


class OwnScale(SquaredExponential):
    def scale(self, X: tf.Tensor) -> tf.Tensor:
        return X if X is None else tf.sin(X) / self.lengthscales


class OwnSlice(SquaredExponential):
    def slice(
        self, X: tf.Tensor, X2: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        return X[..., :1], None if X2 is None else X2[..., :1]


class OwnDistance(SquaredExponential):
    def scaled_squared_euclid_dist(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        return tf.abs(super().scaled_squared_euclid_dist(X, X2)) ** 0.7


class OwnCosine(kernels.Cosine):
    def K_d(self, d: tf.Tensor) -> tf.Tensor:
        return 1.0 + super().K_d(d)


class OwnSum(kernels.Sum):
    def __call__(self, X: tf.Tensor, X2: tf.Tensor | None = None, **options: bool) -> tf.Tensor:
        return super().__call__(X, X2, **options) + 1.0


OTHERS: dict[str, Callable[[], Kernel]] = {
    "own-K": OwnK,
    "own-call": OwnCall,
    "own-scale": OwnScale,
    "own-slice": OwnSlice,
    "own-distance": OwnDistance,
    "own-cosine": OwnCosine,
    "own-sum": lambda: OwnSum([SquaredExponential(), kernels.Matern32()]),
    "linear": lambda: kernels.Linear([0.5, 1.0, 2.0]),
    "polynomial": lambda: kernels.Polynomial(degree=2.0),
    "periodic": lambda: kernels.Periodic(SquaredExponential(lengthscales=0.8), period=0.7),
    "white": lambda: kernels.White(0.4),
    "constant": kernels.Constant,
    "arc-cosine": kernels.ArcCosine,
    "change-points": lambda: kernels.ChangePoints(
        [SquaredExponential(active_dims=[0]), kernels.Matern32(active_dims=[0])], [0.1]
    ),
}


@pytest.mark.parametrize("kernel", OTHERS.values(), ids=OTHERS.keys())
def test_any_other_kernel_is_exactly_gpflows(
    kernel: Callable[[], Kernel], rng: np.random.Generator
) -> None:
    k = kernel()
    dims = slice(0, 1) if isinstance(k, kernels.ChangePoints) else slice(None)
    X, Y = inputs(rng, N)[:, dims], inputs(rng, M)[:, dims]
    np.testing.assert_array_equal(covariance(k, X, Y), k(X, Y))
    np.testing.assert_array_equal(covariance(k, X), k(X))


@pytest.mark.parametrize(("own", "base"), [(OwnKr2, SquaredExponential), (OwnKr, kernels.Matern32)])
def test_a_kernels_own_function_of_the_distance_is_honoured(
    own: type, base: type, rng: np.random.Generator
) -> None:
    kernel, X, Y = own(**OPTIONS["ard"]), inputs(rng, N), inputs(rng, M)
    assert np.max(np.abs(kernel(X, Y) - base(**OPTIONS["ard"])(X, Y))) > 0.01
    ours = value_and_gradients(covariance, kernel, X, Y)
    for a, b in zip(ours, value_and_gradients(gpflows, kernel, X, Y), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * np.max(np.abs(b)))


@pytest.mark.parametrize(
    "kernel",
    [
        *(lambda kind=kind: kind(**OPTIONS["ard"]) for kind in ISOTROPIC),
        COMPOSED["sum"],
        COMPOSED["cosine"],
        OwnK,
        OwnKr2,
    ],
    ids=[*(kind.__name__ for kind in ISOTROPIC), "sum", "cosine", "own-K", "own-K_r2"],
)
@pytest.mark.parametrize("rows", [(N,), (2, N)])
def test_inducing_points_and_their_gradients_are_gpflows(
    kernel: Callable[[], Kernel], rows: tuple[int, ...], rng: np.random.Generator
) -> None:
    k, Z, X = kernel(), InducingPoints(inputs(rng, M)), inputs(rng, *rows)

    def results(matrix: Callable[..., tf.Tensor]) -> list[tf.Tensor]:
        sources = [*Z.trainable_variables, *k.trainable_variables, X]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            K = matrix(Z, k, X)
            total = tf.reduce_sum(np.random.default_rng(1).normal(size=K.shape) * K)
        return [K, *tape.gradient(total, sources)]

    for a, b in zip(results(inducing_covariance), results(covariances.Kuf), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * np.max(np.abs(b)))


class HalfPoints(InducingPoints):
    """Inducing variables u = f(Z)/2, which only the function registered below knows."""


@covariances.Kuf.register(HalfPoints, SquaredExponential, TensorLike)
def _half_kuf(inducing: HalfPoints, kernel: SquaredExponential, X: tf.Tensor) -> tf.Tensor:
    return 0.5 * kernel(inducing.Z, X)


class Doubled(kernels.Matern32):
    """A kernel whose inducing covariance only the function registered below knows."""


@covariances.Kuf.register(InducingPoints, Doubled, TensorLike)
def _doubled_kuf(inducing: InducingPoints, kernel: Doubled, X: tf.Tensor) -> tf.Tensor:
    return 2.0 * kernel(inducing.Z, X)


def test_a_registered_covariance_of_ones_own_kernel_is_honoured(rng: np.random.Generator) -> None:
    Z, X = inputs(rng, M), inputs(rng, N)
    ours = inducing_covariance(InducingPoints(Z), Doubled(), X)
    np.testing.assert_allclose(ours, 2.0 * kernels.Matern32()(Z, X), rtol=1e-12)


def test_other_inducing_variables_have_gpflows_covariance(rng: np.random.Generator) -> None:
    kernel, Z, X = SquaredExponential(lengthscales=[0.6, 0.9, 2.5]), inputs(rng, M), inputs(rng, N)
    points = covariances.Kuf(InducingPoints(Z), kernel, X)
    half, wide = HalfPoints(Z), Multiscale(Z, np.full((M, D), 0.4))
    np.testing.assert_allclose(inducing_covariance(half, kernel, X), points / 2, rtol=1e-12)
    ours = inducing_covariance(wide, kernel, X)
    np.testing.assert_array_equal(ours, covariances.Kuf(wide, kernel, X))
    assert np.max(np.abs(ours - points)) > 0.01


def test_arrays_are_as_good_as_tensors(rng: np.random.Generator) -> None:
    kernel, Z, X = SquaredExponential(), inputs(rng, M), inputs(rng, N)
    expected = kernel(Z, X)
    arrays = np.asarray(Z), np.asarray(X)
    np.testing.assert_allclose(covariance(kernel, *arrays), expected, rtol=1e-12)
    points = InducingPoints(arrays[0])
    np.testing.assert_allclose(inducing_covariance(points, kernel, arrays[1]), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", [SquaredExponential, kernels.Matern32])
def test_covariance_of_inducing_points_is_gpflows(kind: type, rng: np.random.Generator) -> None:
    kernel, inducing = kind(2.0, 0.7), InducingPoints(inputs(rng, M))
    ours = inducing_covariance(inducing, kernel)
    np.testing.assert_allclose(ours, covariances.Kuu(inducing, kernel), rtol=1e-12)


def test_a_registered_covariance_of_inducing_variables_is_honoured(
    rng: np.random.Generator,
) -> None:
    inducing = Multiscale(inputs(rng, M).numpy(), np.full((M, D), 0.3))
    kernel = SquaredExponential(2.0, 0.7)
    ours = inducing_covariance(inducing, kernel)
    np.testing.assert_array_equal(ours, covariances.Kuu(inducing, kernel))
