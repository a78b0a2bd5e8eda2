"""Our protocol: one fit, λ (and often the noise) by leave-one-out, every row in the training set.

``ILR-auto`` is one call that chooses scaling, kernel and model by held-out labels within its seconds.
The others are single models with columns standardised. Where rows are few they have the paper's kernel;
where they are many, the kernel comes from an exact fit of a sample, of two kinds that compete for the
labels of other training rows. The baselines in :mod:`baselines` have the same kernels to start from.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
from problem import Fitted, LeftOutError, Problem, inducing

import gpflow_ilr as gi
from gpflow_ilr.codes import ILRCode
from gpflow_ilr.inputs.scaling import Standardised

__all__ = [
    "ITERATIONS",
    "OURS",
    "POLISH_SECONDS",
    "TO_THE_END",
    "collapsed",
    "how_it_ended",
    "predictor",
    "sample_fit",
    "standardised",
]

SECONDS_FEW, SECONDS_MANY = 240.0, 480.0
"""Of the automatic fit: five seeds of a set stay below 45 minutes, on a busy machine, too."""
FEW_ROWS = 1500
SAMPLE, LARGE_SAMPLE, JUDGED = 1000, 2000, 2000
"""Rows that a kernel comes from (the second number if it is not trained on), and that judge it."""
ITERATIONS, TO_THE_END = 40, 100
"""Of L-BFGS: so many compare collapsed models, and the one that is chosen has so many more."""
POLISH_SECONDS = 600.0
"""Held-out rows stop a polish long before, except with many classes."""
NOISE_SHARES = (1.0, 0.1, 0.01, 0.001)
"""Of Proposition 1's noise, the largest that the paper allows: decades, tried as long as they help."""
MOST_BYTES = 4e9
"""Of one N × N matrix, as for ``fit_auto`` by default."""
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


def sample_fit(problem: Problem, X: np.ndarray, size: int = SAMPLE) -> tuple[gi.ILRGPR, str]:
    """An exact model of a sample, of the kind that predicts other training rows best, and the kind.

    The kinds are compared by the smaller sample.

    :param problem: the training rows.
    :param X: these rows, scaled.
    :param size: of the sample.
    """
    order = np.random.default_rng(problem.seed).permutation(len(X))
    small, large = (order[: min(count, len(X) // 2)] for count in (SAMPLE, size))
    judged = order[len(large) :][:JUDGED]

    def fitted(kind: str, sample: np.ndarray) -> gi.ILRGPR:
        family, ard = KINDS[kind]
        K, rows = problem.num_classes, (X[sample], problem.y[sample])
        start = gi.starting_kernel(rows[0], K, family, ard)
        model = gi.ILRGPR(rows, start, num_classes=K, noise="shared")
        gi.training.fit(model, max_iterations=2 if problem.quick else 30)
        return model

    models = {kind: fitted(kind, small) for kind in KINDS}
    nll = {
        kind: model.calibrate((X[judged], problem.y[judged])).nll_after
        for kind, model in models.items()
    }
    kind = min(nll, key=lambda kind: nll[kind])
    return (models[kind] if len(large) == len(small) else fitted(kind, large)), kind


def neighbours(problem: Problem) -> Fitted:
    scaling, X = standardised(problem)
    sample, kind = sample_fit(problem, X, LARGE_SAMPLE)
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
    size = 8 * len(problem.X) ** 2
    if size > MOST_BYTES:
        raise LeftOutError(
            f"its matrix of {len(problem.X)} rows has {size / 1e9:.0f} GB, more than the "
            f"{MOST_BYTES / 1e9:.0f} that one may have. NN-ILR is the model for so many rows."
        )
    scaling, X = standardised(problem)
    sample, kind = sample_fit(problem, X, LARGE_SAMPLE)
    found = _neighbours_of(problem, X, sample).calibrate(noise=True)
    chosen = {"noise_variance": found.noise_variance, "smoothing": found.smoothing}
    K = problem.num_classes
    model = gi.ILRGPR((X, problem.y), sample.kernel, num_classes=K, **chosen)
    return Fitted(predictor(scaling, model), {"kernel": kind} | chosen)


def collapsed(problem: Problem, X: np.ndarray) -> tuple[gi.ILRSGPR, dict[str, Any]]:
    """Inducing inputs, fitted from the kernel of a sample and calibrated, and what was chosen.

    Noise learned and shares of Proposition 1's compete for the leave-one-out NLL of training rows: a
    smaller share is tried as long as the one before was better than all. The best trains on.

    :param problem: the training rows.
    :param X: these rows, scaled.
    """
    sample, kind = sample_fit(problem, X)
    Z, K = inducing(problem, X), problem.num_classes
    largest = float(ILRCode(K).base_noise[0, 0])

    def fitted(**noise: Any) -> tuple[float, gi.ILRSGPR]:
        kernel = gpflow.utilities.deepcopy(sample.kernel)
        model = gi.ILRSGPR((X, problem.y), kernel, Z, num_classes=K, **noise)
        return _trained(model, 2 if problem.quick else ITERATIONS), model

    fits = {"learned": fitted(noise="shared")}
    for share in () if problem.quick else NOISE_SHARES:
        name = f"{share:g} of Proposition 1's"
        fits[name] = fitted(noise="fixed", noise_variance=share * largest)
        if min(fits, key=lambda key: fits[key][0]) != name:
            break
    name = min(fits, key=lambda key: fits[key][0])
    _, model = fits[name]
    if not problem.quick:
        _trained(model, TO_THE_END)
    chosen = {"kernel": kind, "noise": name, "smoothing": model.smoothing}
    chosen["noise_variance"] = float(model.code.noise_variance[0, 0])
    return model, chosen | {"iterations": ITERATIONS + TO_THE_END}


def _trained(model: gi.ILRSGPR, iterations: int) -> float:
    """The leave-one-out NLL after some steps of L-BFGS, with noise and λ chosen by it."""
    gi.training.fit(model, max_iterations=iterations)
    return model.calibrate(noise=True).nll_after


def closed_form(problem: Problem) -> Fitted:
    scaling, X = standardised(problem)
    model, chosen = collapsed(problem, X)
    return Fitted(predictor(scaling, model), chosen)


def how_it_ended(done: gi.training.Polish) -> dict[str, Any]:
    """What a polish leaves for the record.

    :param done: of :func:`gpflow_ilr.training.polish`.
    """
    return {"steps": done.best_step, "steps_taken": done.num_steps, "ended": done.reason}


def uncollapsed(problem: Problem) -> Fitted:
    """From the closed form on with the exact likelihood, W learned; a tenth of the rows stops it."""
    scaling, X = standardised(problem)
    held_out = problem.held_out_tenth()
    rest = dataclasses.replace(problem, X=problem.X[~held_out], y=problem.y[~held_out])
    start, chosen = collapsed(rest, X[~held_out])
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
    return Fitted(predictor(scaling, model), chosen | how_it_ended(done))


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
