"""Files that versions of this package have written, which every later one must read.

``python -m tests.saving.kept`` writes those that are missing. A file that is there stays: it is what
users have on their disks.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow_probability as tfp
from gpflow.kernels import Linear, LinearCoregionalization, Matern32, SquaredExponential

import gpflow_ilr as gi
from gpflow_ilr.saving import save
from tests.saving.models import MODELS, X, Y, Z, perturbed_q

__all__ = ["FOLDER", "KEPT", "predictions"]

FOLDER = Path(__file__).parent / "kept"
ENDING = ".format-1"


def with_priors() -> Any:
    """Priors, transforms, fixed parameters, columns, weights, a mean function, soft labels."""
    parts = SquaredExponential(lengthscales=[0.5, 2.0]) * Linear(active_dims=[1])
    parts.kernels[0].variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    gpflow.set_trainable(parts.kernels[1], False)
    bounded = gpflow.utilities.positive(1e-3, base="exp")
    parts.kernels[0].lengthscales = gpflow.Parameter([0.5, 2.0], transform=bounded)
    soft = 0.7 * np.eye(3)[Y] + 0.1
    mean = gpflow.functions.Constant(np.array([0.1, -0.2]))
    data = (X, soft, np.linspace(0.5, 1.5, len(X)))
    return gi.ILRGPR(data, parts, num_classes=3, mean_function=mean)


def coregionalised() -> Any:
    kernel = LinearCoregionalization([Matern32(), Linear()], W=[[1.0, 0.2], [-0.3, 0.8]])
    points = gpflow.inducing_variables.InducingPoints(Z)
    shared = gpflow.inducing_variables.SharedIndependentInducingVariables(points)
    likelihood = gpflow.likelihoods.Gaussian()
    return perturbed_q(gpflow.models.SVGP(kernel, likelihood, shared, num_latent_gps=2))


def absorbed() -> Any:
    model = MODELS["ILRSGPR"]()
    model.absorb((X, Y), sample_size=10)
    model.calibrate()
    return model


def chosen() -> Any:
    return gi.training.fit_auto(X, Y, num_classes=3, max_seconds=1e-3)


KEPT: dict[str, Callable[[], Any]] = {
    **MODELS,
    "priors": with_priors,
    "coregionalised": coregionalised,
    "absorbed": absorbed,
    "fit_auto": chosen,
}


def predictions(model: Any) -> dict[str, Any]:
    """What a model says about some rows."""
    found = {"class": type(model).__name__, "y": model.predict_y(X[:5])[0].numpy().tolist()}
    if hasattr(model, "predict_f"):
        mean, variance = model.predict_f(X[:5])
        found |= {"mean": mean.numpy().tolist(), "variance": variance.numpy().tolist()}
    return found


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, build in KEPT.items():
        target = FOLDER / f"{name.replace(' ', '_')}{ENDING}"
        if not target.exists():
            model = build()
            print(name, save(model, target), "bytes")
            text = json.dumps(predictions(model))
            target.with_suffix(".json").write_text(f"{text}\n", encoding="utf-8")
