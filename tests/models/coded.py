"""Label codes whose noises are all different, and a small problem to use them on."""

from typing import Any

import gpflow
import numpy as np
from gpflow.kernels import SquaredExponential

from gpflow_ilr import (
    ILRSGPR,
    CodeSVGP,
    DirichletCode,
    DirichletSGPR,
    ILRCode,
)

K, N, M = 3, 12, 5
SMOOTHING, ALPHA_EPSILON = 0.97, 0.02
NOISES = ("fixed", "shared", "per_output", "per_class")
CODES = [(name, noise) for name in ("ILR", "Dirichlet") for noise in NOISES]
_RNG = np.random.default_rng(0)
Y = np.arange(N) % K
X = _RNG.standard_normal((N, 2)) + np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])[Y]
XNEW = _RNG.standard_normal((5, 2))
Z = X[:M] + 0.1
SOFT = _RNG.dirichlet(np.ones(K), size=N)


def spread(code: Any) -> Any:
    """The code with learned noises that are all different, so that mixing them up would show."""
    for parameter, start, stop in ((code.extra_noise, 3.0, 5.0), (code.class_factor, -2.0, 2.0)):
        if parameter is not None:
            steps = np.linspace(start, stop, parameter.shape.num_elements())
            parameter.unconstrained_variable.assign_add(np.reshape(steps, parameter.shape))
    return code


def code(name: str, noise: str = "fixed") -> Any:
    if name == "ILR":
        return spread(ILRCode(K, SMOOTHING, noise=noise))
    return spread(DirichletCode(K, ALPHA_EPSILON, noise=noise))


def jitter(value: float) -> Any:
    return gpflow.config.as_context(gpflow.config.Config(jitter=value))


def kernel(variance: float = 0.6) -> SquaredExponential:
    return SquaredExponential(variance, lengthscales=[1.3, 0.8])


def pair(name: str, noise: str, labels: Any = Y, **options: Any) -> tuple[Any, Any]:
    """A collapsed model and a CodeSVGP that share kernel, inducing inputs, mean and code."""
    options = {"kernel": kernel(), "inducing_variable": Z} | options
    collapsed_class, strength = {
        "ILR": (ILRSGPR, {"smoothing": SMOOTHING}),
        "Dirichlet": (DirichletSGPR, {"alpha_epsilon": ALPHA_EPSILON}),
    }[name]
    whiten = {"whiten": options.pop("whiten")} if "whiten" in options else {}
    collapsed = collapsed_class((X, labels), num_classes=K, noise=noise, **strength, **options)
    spread(collapsed.code)
    if "inducing_variable" in options:
        options["inducing_variable"] = collapsed.inducing_variable
    return collapsed, CodeSVGP(**options, code=collapsed.code, num_data=N, **whiten)


def natural_step(model: Any, data: Any, gamma: float = 1.0) -> None:
    closure = model.training_loss_closure(data, compile=False)
    optimiser = gpflow.optimizers.NaturalGradient(gamma=gamma)
    optimiser.minimize(closure, [(model.q_mu, model.q_sqrt)])


def assert_at_collapsed_optimum(model: Any, collapsed: Any, data: Any) -> None:
    np.testing.assert_allclose(model.elbo(data), collapsed.elbo(), rtol=1e-9)
    scale = float(collapsed.code.scale)
    mean, variance = collapsed.predict_f(XNEW)
    ours = model.predict_f(XNEW)
    np.testing.assert_allclose(ours[0], mean / scale, atol=1e-8)
    np.testing.assert_allclose(ours[1], variance / scale**2, atol=1e-8)
    np.testing.assert_allclose(model.predict_y(XNEW)[0], collapsed.predict_y(XNEW)[0], atol=1e-7)
