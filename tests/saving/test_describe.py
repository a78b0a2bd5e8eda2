"""Claims about what is written: all of it, each thing once, and no code."""

from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.kernels import (
    ArcCosine,
    Constant,
    Coregion,
    Cosine,
    Kernel,
    Linear,
    LinearCoregionalization,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    RationalQuadratic,
    SeparateIndependent,
    SharedIndependent,
    SquaredExponential,
    White,
)

from gpflow_ilr.saving import load, save
from gpflow_ilr.saving.names import RefusedError
from tests.saving.models import X, Z

tfd, tfb = tfp.distributions, tfp.bijectors
ONE, TWO = np.float64(1.0), np.float64(2.0)
Y = X[:, :1] ** 2

KERNELS: dict[str, Kernel] = {
    "ARD": SquaredExponential(lengthscales=[1.0, 2.0]),
    "columns": Matern52(active_dims=[1]) + Linear(active_dims=slice(0, 1)),
    "products": (Matern32() * Linear() + White()) * Constant(2.0),
    "periodic": Periodic(SquaredExponential(), period=1.5),
    "arccosine": ArcCosine(order=1, weight_variances=[1.0, 2.0]),
    "others": Cosine() + Polynomial(2.0) + RationalQuadratic(alpha=0.7),
}
OUTPUTS: dict[str, Kernel] = {
    "shared": SharedIndependent(Matern32(), 2),
    "separate": SeparateIndependent([Matern32(), Linear()]),
    "coregionalised": LinearCoregionalization([Matern32(), Linear()], W=[[1.0, 0.2], [-0.3, 0.8]]),
}
PRIORS: dict[str, Any] = {
    "gamma": tfd.Gamma(TWO, TWO),
    "lognormal": tfd.LogNormal(ONE, TWO),
    "normal with a parameter": tfd.Normal(gpflow.Parameter(1.0), TWO),
    "transformed": tfd.TransformedDistribution(tfd.Normal(ONE, TWO), tfb.Exp()),
    "mixture": tfd.MixtureSameFamily(
        tfd.Categorical(probs=np.array([0.5, 0.5])), tfd.Normal(np.zeros(2), np.ones(2))
    ),
}
TRANSFORMS: dict[str, Any] = {
    "interval": tfb.Sigmoid(ONE, 3 * ONE),
    "shifted": gpflow.utilities.positive(1e-6, base="exp"),
    "inverted": tfb.Invert(tfb.Log()),
    "chain": tfb.Chain([tfb.Shift(ONE), tfb.Scale(TWO), tfb.Softplus()]),
}


def there_and_back(model: Any, folder: Path) -> Any:
    save(model, folder / "model")
    loaded = load(folder / "model")
    for old, new in zip(model.predict_f(X), loaded.predict_f(X), strict=True):
        np.testing.assert_array_equal(new, old)
    for old, new in zip(model.parameters, loaded.parameters, strict=True):
        assert (new.trainable, new.name, new.shape) == (old.trainable, old.name, old.shape)
        np.testing.assert_array_equal(new.unconstrained_variable, old.unconstrained_variable)
    return loaded


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=list(KERNELS))
def test_kernels(kernel: Kernel, tmp_path: Path) -> None:
    there_and_back(gpflow.models.GPR((X, Y), kernel), tmp_path)


def test_kernels_of_other_columns(tmp_path: Path) -> None:
    columns = np.column_stack([X[:, 0], X[:, 1] > 0])
    switched = Coregion(2, 1, active_dims=[1]) * SquaredExponential(active_dims=[0]) + Constant()
    model = gpflow.models.GPR((columns, Y), switched)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_f(columns)[0], model.predict_f(columns)[0])


@pytest.mark.parametrize("kernel", OUTPUTS.values(), ids=list(OUTPUTS))
def test_kernels_of_several_outputs(kernel: Kernel, tmp_path: Path) -> None:
    points = [gpflow.inducing_variables.InducingPoints(Z + i) for i in range(2)]
    inducing = gpflow.inducing_variables.SeparateIndependentInducingVariables(points)
    likelihood = gpflow.likelihoods.Gaussian()
    model = gpflow.models.SVGP(kernel, likelihood, inducing, num_latent_gps=2)
    there_and_back(model, tmp_path)


@pytest.mark.parametrize("prior", PRIORS.values(), ids=list(PRIORS))
def test_priors(prior: Any, tmp_path: Path) -> None:
    model = gpflow.models.GPR((X, Y), Matern32())
    model.kernel.variance.prior = prior
    model.kernel.lengthscales.prior = tfd.Normal(ONE, TWO)
    model.kernel.lengthscales.prior_on = "unconstrained"
    loaded = there_and_back(model, tmp_path)
    np.testing.assert_array_equal(loaded.training_loss(), model.training_loss())


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=list(TRANSFORMS))
@pytest.mark.parametrize("raw", [0.3, -40.0, np.nan])
def test_transforms_and_their_variables_to_the_bit(
    transform: Any, raw: float, tmp_path: Path
) -> None:
    kernel = Matern32()
    kernel.variance = gpflow.Parameter(1.7, transform=transform, trainable=False)
    kernel.variance.unconstrained_variable.assign(abs(raw) if "log" in transform.name else raw)
    save(gpflow.models.GPR((X, Y), kernel), tmp_path / "model")
    loaded = load(tmp_path / "model").kernel.variance
    np.testing.assert_array_equal(
        loaded.unconstrained_variable, kernel.variance.unconstrained_variable
    )
    np.testing.assert_array_equal(loaded, kernel.variance)
    assert type(loaded.transform) is type(transform)
    assert not loaded.trainable


LIKELIHOODS = gpflow.likelihoods


@pytest.mark.parametrize(
    "likelihood",
    [
        LIKELIHOODS.Bernoulli(),
        LIKELIHOODS.Poisson(),
        LIKELIHOODS.MultiClass(3),
        LIKELIHOODS.Ordinal(np.array([0.0, 1.0])),
        LIKELIHOODS.SwitchedLikelihood([LIKELIHOODS.Gaussian(), LIKELIHOODS.StudentT()]),
        LIKELIHOODS.Gaussian(scale=gpflow.functions.Polynomial(1, input_dim=2)),
    ],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_likelihoods_of_gpflow(likelihood: Any, tmp_path: Path) -> None:
    latents = likelihood.latent_dim or 1
    there_and_back(gpflow.models.SVGP(Matern32(), likelihood, Z, num_latent_gps=latents), tmp_path)


@pytest.mark.parametrize(
    "build",
    [
        lambda: gpflow.models.VGP((X, Y), Matern32(), gpflow.likelihoods.Gaussian()),
        lambda: gpflow.models.SGPR((X, Y), Matern32(), Z),
        lambda: gpflow.models.GPMC((X, Y), Matern32(), gpflow.likelihoods.Gaussian()),
    ],
)
def test_models_of_gpflow(build: Any, tmp_path: Path) -> None:
    there_and_back(build(), tmp_path)


class Pair(NamedTuple):
    """Of no known module."""

    a: int


@pytest.fixture(name="model")
def _model() -> gpflow.models.GPR:
    return gpflow.models.GPR((X, Y), Matern32())


def test_plain_values_come_back_as_they_were(model: Any, tmp_path: Path) -> None:
    values = {
        "floats": [0.1, float("inf"), -0.0, 1e-320, 2**70],
        "nested": {"a": (1, None, True), 3: ["text", "ü\n"], (1, 2): {}},
        "numpy": [np.float32(0.1), np.int64(3), np.bool_(True), np.float64("nan")],
        "others": (tf.float32, slice(1, None, 2), gpflow.base.PriorOn.UNCONSTRAINED),
    }
    model.noted = values
    model.fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    model.empty, model.single = np.zeros([0, 3]), np.array(3, np.int8)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert repr(loaded.noted) == repr(model.noted)
    assert [type(v) for v in loaded.noted["numpy"]] == [type(v) for v in values["numpy"]]
    assert loaded.fortran.flags.f_contiguous
    np.testing.assert_array_equal(loaded.fortran, model.fortran)
    assert loaded.empty.shape == (0, 3)
    assert loaded.single.dtype == np.int8
    assert loaded.single.shape == ()


def test_what_is_shared_stays_shared(model: Any, tmp_path: Path) -> None:
    model.also_kernel, model.table = model.kernel, np.ones(3)
    model.also_table, model.own = model.table, model
    model.variable = model.kernel.variance.unconstrained_variable
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.also_kernel is loaded.kernel
    assert loaded.also_table is loaded.table
    assert loaded.own is loaded
    assert loaded.variable is loaded.kernel.variance.unconstrained_variable


def a_function(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (a_function, r"model.kernel.extra\['a'\]\[1\] cannot be saved.*carry no code.*register"),
        (lambda: None, "lambda.*carry no code"),
        (tf.function(a_function), "carry no code"),
        (X.sum, "carry no code"),
        (Pair(3), r"register\(Pair\)"),
        (object(), r"register\(object\)"),
        (Path("x"), r"register\(PosixPath\)"),
        (np.array(["a"]), r"dtype <U1. Convert it to numbers"),
        (np.array([None]), r"dtype object. Convert it to numbers"),
        (b"bytes", r"register\(bytes\)"),
    ],
)
def test_what_is_no_data_is_refused_with_its_place(
    value: Any, sentence: str, model: Any, tmp_path: Path
) -> None:
    model.kernel.extra = {"a": [1, value]}
    with pytest.raises(RefusedError, match=sentence):
        save(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())
