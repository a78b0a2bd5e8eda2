"""What every model computes on one small problem: moving code about must not change it.

``python -m tests.whole.frozen_numbers`` writes the file that ``test_frozen_numbers.py`` compares
with. The numbers are no truth (the other tests know that): they are those of the package before its
modules moved into rooms. A change that is meant to alter some of them writes the file anew and says
so in its commit. The problem is well conditioned, so that processors differ by rounding alone.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_ilr as gi

FILE = Path(__file__).with_suffix(".npz")
K, N, M = 4, 24, 7
NOISES = ("fixed", "shared", "per_output", "per_class")
_RNG = np.random.default_rng(7)
Y = np.arange(N) % K
X = 1.5 * _RNG.standard_normal((K, 2))[Y] + _RNG.standard_normal((N, 2))
XNEW = 1.5 * _RNG.standard_normal((6, 2))
Z = 1.5 * _RNG.standard_normal((M, 2))
SOFT = _RNG.dirichlet(np.ones(K), N)


def kernel(name: str = "SquaredExponential") -> gpflow.kernels.Kernel:
    return getattr(gpflow.kernels, name)(variance=0.4, lengthscales=[0.9, 0.6])


def conjugate() -> Iterator[tuple[str, Any]]:
    """Every conjugate model, with every noise, and with what else they take."""
    for noise in NOISES:
        options = {"num_classes": K, "noise": noise}
        yield f"ILRGPR {noise}", gi.ILRGPR((X, Y), kernel(), **options)
        yield f"DirichletGPR {noise}", gi.DirichletGPR((X, Y), kernel("Matern32"), **options)
        yield f"ILRSGPR {noise}", gi.ILRSGPR((X, Y), kernel("Matern52"), Z, **options)
        yield f"DirichletSGPR {noise}", gi.DirichletSGPR((X, Y), kernel(), Z, **options)
    mean = gpflow.mean_functions.Linear(0.1 * np.ones((2, 1)), [0.2])
    separate = gpflow.kernels.SeparateIndependent([kernel() for _ in range(K - 1)])
    sets = gpflow.inducing_variables.SeparateIndependentInducingVariables(
        [gpflow.inducing_variables.InducingPoints(Z + 0.1 * p) for p in range(K - 1)]
    )
    yield (
        "ILRGPR mean, kernels",
        gi.ILRGPR((X, Y), separate, num_classes=K, mean_function=mean),
    )
    yield (
        "ILRSGPR mean, sets, chunks",
        gi.ILRSGPR((X, Y), kernel(), sets, num_classes=K, mean_function=mean, chunk_size=5),
    )
    yield "ILRGPR soft", gi.ILRGPR((X, SOFT), kernel(), num_classes=K)
    yield "ILRSGPR soft", gi.ILRSGPR((X, SOFT), kernel(), Z, num_classes=K, noise="shared")
    yield "ILRGPR loo", gi.ILRGPR((X, Y), kernel(), num_classes=K, objective="loo")
    yield "ILRSGPR loo", gi.ILRSGPR((X, Y), kernel(), Z, num_classes=K, objective="loo")


def with_q(model: Any) -> Any:
    rng = np.random.default_rng(8)
    model.q_mu.assign(rng.standard_normal(model.q_mu.shape))
    model.q_sqrt.assign(np.tril(0.2 * rng.standard_normal(model.q_sqrt.shape)) + 0.5 * np.eye(M))
    if getattr(model.likelihood, "W", None) is not None:
        model.likelihood.W.assign_add(0.3 * rng.standard_normal(model.likelihood.W.shape))
    return model


def variational() -> Iterator[tuple[str, Any]]:
    for mixing in (True, False):
        options = {"num_classes": K, "num_data": 2 * N, "mixing": mixing}
        yield f"ILRSVGP {mixing}", with_q(gi.ILRSVGP(kernel(), Z, **options))
        yield f"SoftmaxSVGP {mixing}", with_q(gi.SoftmaxSVGP(kernel(), Z, whiten=False, **options))
    for code in (gi.ILRCode(K, noise="per_output"), gi.DirichletCode(K)):
        name = f"CodeSVGP {type(code).__name__}"
        yield name, with_q(gi.CodeSVGP(kernel(), Z, code, num_data=2 * N))
    for likelihood in (gi.LogisticSoftmaxLikelihood(K), gi.BijectiveSoftmaxLikelihood(K)):
        P = likelihood.latent_dim
        model = gpflow.models.SVGP(kernel(), likelihood, Z, num_latent_gps=P, num_data=2 * N)
        yield f"SVGP {type(likelihood).__name__}", with_q(model)


def loss_and_gradients(model: Any, *data: Any) -> list[Any]:
    with tf.GradientTape() as tape:
        loss = model.training_loss(*data)
    gradients = tape.gradient(loss, model.trainable_variables)
    # By shape and sum, for the order of variables is not what is frozen.
    sums = sorted((tuple(g.shape), *np.sort(np.ravel(tf.convert_to_tensor(g)))) for g in gradients)
    return [loss, np.concatenate([np.array(values[1:]) for values in sums])]


def predictions(model: Any) -> Iterator[tuple[str, Any]]:
    yield "predict_f", tf.stack(model.predict_f(XNEW))
    yield "predict_y", model.predict_y(XNEW)[0]
    if hasattr(model, "predict_log_density"):
        yield "predict_log_density", model.predict_log_density((XNEW, (np.arange(6) % K)[:, None]))
    if hasattr(model, "predict_entropy"):
        yield "predict_entropy", tf.stack(model.predict_entropy(XNEW))
        yield "predict_probability_variance", model.predict_probability_variance(XNEW)
    if hasattr(model, "predict_credible_interval"):
        yield "predict_credible_interval", tf.stack(model.predict_credible_interval(XNEW, 0.8))


def facts() -> Iterator[tuple[str, Any]]:
    for name, model in conjugate():
        loss, gradients = loss_and_gradients(model)
        yield from (
            (f"{name}: {what}", x)
            for what, x in zip(("loss", "gradient"), (loss, gradients), strict=True)
        )
        yield from ((f"{name}: {what}", x) for what, x in predictions(model))
        yield from ((f"{name}: posterior {what}", x) for what, x in predictions(model.posterior()))
        yield f"{name}: full_cov", model.predict_f(XNEW, full_cov=True)[1]
        yield f"{name}: noisy", model.predict_y(XNEW, observation_noise=True)[0]
        yield f"{name}: predict_loo", tf.stack(model.predict_loo())
        yield f"{name}: loo_log_density", model.loo_log_density()
        if hasattr(model, "compute_qu"):
            yield f"{name}: q", np.concatenate([np.ravel(x) for x in model.compute_qu()])
        if name.startswith("ILR"):
            noise = name in ("ILRGPR fixed", "ILRSGPR shared")
            found = model.calibrate(noise=noise)
            yield (
                f"{name}: calibrate",
                [found.smoothing, found.nll_before, found.nll_after, found.noise_variance],
            )
            yield f"{name}: calibrated", model.predict_y(XNEW)[0]
            found = model.calibrate((XNEW, np.arange(6) % K))
            yield f"{name}: validated", [found.smoothing, found.nll_before, found.nll_after]
    for name, model in variational():
        data = (X, Y[:, None])
        loss, gradients = loss_and_gradients(model, data)
        yield f"{name}: loss", loss
        yield f"{name}: gradient", gradients
        yield from ((f"{name}: {what}", x) for what, x in predictions(model))
    model = gi.ILRSGPR((X, Y), kernel(), Z, num_classes=K)
    model.predict_y(XNEW)
    model.update(XNEW, np.arange(6) % K)
    model.forget(X[:3], Y[:3])
    yield "updated", model.predict_y(XNEW)[0]
    yield "from_collapsed", gi.ILRSVGP.from_collapsed(model, mixing=False).predict_y(XNEW)[0]
    for cls in (gi.LogisticSoftmaxGP, gi.BijectiveSoftmaxGP):
        model = cls((X, Y), kernel(), num_classes=K)
        yield f"{cls.__name__}: loss", loss_and_gradients(model)[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # such short chains disagree
            model.sample(num_samples=16, num_burnin=4, num_chains=2)
        yield f"{cls.__name__}: samples", model.chains.samples[:, -2:]
        yield from ((f"{cls.__name__}: {what}", x) for what, x in predictions(model))


def numbers() -> dict[str, np.ndarray]:
    """Every number by its name."""
    return {name: np.asarray(value, np.float64) for name, value in facts()}


def write(found: dict[str, np.ndarray]) -> None:
    """One archive of few arrays: a small file."""
    shapes = [" ".join(map(str, value.shape)) for value in found.values()]
    values = np.concatenate([np.ravel(value) for value in found.values()])
    np.savez_compressed(FILE, names=list(found), shapes=shapes, values=values)


def read() -> dict[str, np.ndarray]:
    """What :func:`write` wrote."""
    with np.load(FILE) as archive:
        shapes = [tuple(map(int, shape.split())) for shape in archive["shapes"]]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        parts = np.split(archive["values"], ends[:-1])
        names = [str(name) for name in archive["names"]]
    return {n: part.reshape(s) for n, s, part in zip(names, shapes, parts, strict=True)}


if __name__ == "__main__":
    write(numbers())
