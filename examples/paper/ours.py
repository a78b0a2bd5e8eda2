"""Our protocol: one fit, λ (and often the noise) by leave-one-out, every row in the training set.

``ILR-auto`` is one call that chooses scaling, kernel and model by held-out labels within its seconds.
The others are single models with columns standardised. Where rows are few they have the paper's kernel;
where they are many, the kernel comes from an exact fit of a sample, of two kinds that compete for the
labels of other training rows. The baselines in :mod:`baselines` have the same kernels to start from.
"""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
from problem import Fitted, Problem

import gpflow_ilr as gi
from gpflow_ilr.inputs.scaling import Standardised

__all__ = ["OURS", "collapsed", "predictor", "sample_fit", "standardised"]

SECONDS_FEW, SECONDS_MANY = 240.0, 480.0
"""Of the automatic fit: five seeds of a set stay below 45 minutes, on a busy machine, too."""
FEW_ROWS = 1500
SAMPLE, JUDGED = 2000, 2000
"""Training rows that a kernel comes from, and others that judge it."""
ITERATIONS = 50
POLISH_SECONDS = 150.0
KINDS = {
    "SquaredExponential": (gpflow.kernels.SquaredExponential, False),
    "Matern52 ARD": (gpflow.kernels.Matern52, True),
}


def automatic(problem: Problem) -> Fitted:
    few = len(problem.X) <= FEW_ROWS
    model = gi.training.fit_auto(
        *problem.data,
        num_classes=problem.num_classes,
        max_seconds=1.0 if problem.quick else SECONDS_FEW if few else SECONDS_MANY,
        seed=problem.seed,
    )
    chosen = model.report.chosen
    return Fitted(
        lambda X: model.predict_y(X)[0].numpy(),
        {"model": chosen.model, "setting": chosen.setting, "mixture": chosen.remark},
    )


def standardised(problem: Problem) -> tuple[Standardised, np.ndarray]:
    """A scaling that a few wild values cannot spoil, and the training rows under it."""
    scaling = Standardised(problem.X)
    return scaling, scaling(problem.X).numpy()


def predictor(scaling: Callable, model: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Class probabilities of raw rows."""
    posterior = model.posterior() if hasattr(model, "code") else model
    return lambda X: posterior.predict_y(scaling(X))[0].numpy()


def exact_of_few(problem: Problem) -> Fitted:
    scaling, X = standardised(problem)
    K = problem.num_classes
    kernel = gi.starting_kernel(X, K)
    model = gi.ILRGPR((X, problem.y), kernel, num_classes=K, noise="shared")
    gi.training.fit(model, max_iterations=5 if problem.quick else 1000)
    model.calibrate()
    return Fitted(predictor(scaling, model), {"smoothing": model.smoothing})


def sample_fit(problem: Problem, X: np.ndarray) -> tuple[gi.ILRGPR, str]:
    """An exact model of a sample, of the kind that predicts other training rows best, and the kind.

    :param problem: the training rows.
    :param X: these rows, scaled.
    """
    K = problem.num_classes
    order = np.random.default_rng(problem.seed).permutation(len(X))
    size = min(SAMPLE, len(X) // 2)
    sample, judged = order[:size], order[size:][:JUDGED]
    fits = {}
    for kind, (family, ard) in KINDS.items():
        start = gi.starting_kernel(X[sample], K, family, ard)
        model = gi.ILRGPR((X[sample], problem.y[sample]), start, num_classes=K, noise="shared")
        gi.training.fit(model, max_iterations=2 if problem.quick else 30)
        nll = model.calibrate((X[judged], problem.y[judged])).nll_after
        fits[nll] = model, kind
    return fits[min(fits)]


def neighbours(problem: Problem) -> Fitted:
    scaling, X = standardised(problem)
    sample, kind = sample_fit(problem, X)
    model = _neighbours_of(problem, X, sample)
    model.calibrate(noise=True, neighbours=True)
    chosen = {
        "kernel": kind,
        "smoothing": model.smoothing,
        "neighbours": model.num_neighbours,
        "noise": float(model.code.noise_variance[0, 0]),
    }
    return Fitted(predictor(scaling, model), chosen)


def _neighbours_of(problem: Problem, X: np.ndarray, sample: gi.ILRGPR) -> gi.ILRNNGPR:
    return gi.ILRNNGPR(
        (X, problem.y),
        sample.kernel,
        num_classes=problem.num_classes,
        noise_variance=float(sample.code.noise_variance[0, 0]),
    )


def exact_of_all(problem: Problem) -> Fitted:
    """One N × N matrix; noise and λ are those of 64 neighbours, where leave-one-out is cheap."""
    scaling, X = standardised(problem)
    sample, kind = sample_fit(problem, X)
    found = _neighbours_of(problem, X, sample).calibrate(noise=True)
    chosen = {"noise_variance": found.noise_variance, "smoothing": found.smoothing}
    K = problem.num_classes
    model = gi.ILRGPR((X, problem.y), sample.kernel, num_classes=K, **chosen)
    return Fitted(predictor(scaling, model), {"kernel": kind} | chosen)


def collapsed(problem: Problem, X: np.ndarray, **options: Any) -> tuple[gi.ILRSGPR, str]:
    """Inducing inputs, fitted from the kernel of a sample; not calibrated yet, and its kind.

    :param problem: the training rows.
    :param X: these rows, scaled.
    :param options: of the model, instead of noise below Proposition 1's where that is enough.
    """
    sample, kind = sample_fit(problem, X)
    distinct = np.unique(X, axis=0)
    Z = gi.kmeans_plusplus(distinct, min(problem.num_inducing, len(distinct)), problem.seed)
    model = gi.ILRSGPR(
        (X, problem.y), sample.kernel, Z, num_classes=problem.num_classes, noise="shared", **options
    )
    gi.training.fit(model, max_iterations=2 if problem.quick else ITERATIONS)
    return model, kind


def closed_form(problem: Problem) -> Fitted:
    scaling, X = standardised(problem)
    model, kind = collapsed(problem, X)
    found = model.calibrate(noise=True)
    chosen = {"kernel": kind, "smoothing": model.smoothing, "noise": found.noise_variance}
    return Fitted(predictor(scaling, model), chosen)


def uncollapsed(problem: Problem) -> Fitted:
    """From the closed form on with the exact likelihood, W learned; a tenth of the rows stops it."""
    scaling, X = standardised(problem)
    held_out = problem.held_out_tenth()
    rest = Problem(
        problem.X[~held_out],
        problem.y[~held_out],
        problem.num_classes,
        problem.seed,
        problem.num_inducing,
        problem.quick,
    )
    start, kind = collapsed(rest, X[~held_out])
    validation = X[held_out], problem.y[held_out]
    start.calibrate(validation)
    model = gi.ILRSVGP.from_collapsed(start, mixing=True)
    done = gi.training.polish(
        model,
        start.data,
        validation=validation,
        max_steps=3 if problem.quick else 1000,
        max_seconds=POLISH_SECONDS,
        seed=problem.seed,
    )
    return Fitted(predictor(scaling, model), {"kernel": kind, "steps": done.best_step})


OURS = {
    "uci-exact": {"ILR-auto": automatic, "E-ILR": exact_of_few},
    "uci-sparse": {
        "ILR-auto": automatic,
        "NN-ILR": neighbours,
        "E-ILR": exact_of_all,
        "C-ILR": closed_form,
        "U-ILR": uncollapsed,
    },
}
"""Contestants of each experiment, the most important first."""
