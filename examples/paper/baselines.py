"""The paper's baselines under our protocol, as good as we can make them.

Each has the scaling and the kinds of kernel that our models have, learned for itself. GPD has its
grid of α_ε (and, where rows are few, noise learned or not), chosen by closed-form leave-one-out.
SVGPC learns W, and SVGPC, LSM and BSM with inducing inputs are trained by natural gradients and
stopped by a tenth of the training rows. LSM and BSM without are sampled after the closed-form bound
has chosen the kernel.
"""

import warnings
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
from ours import (
    ITERATIONS,
    POLISH_SECONDS,
    TO_THE_END,
    how_it_ended,
    predictor,
    sample_fit,
    standardised,
)
from problem import Fitted, Problem, inducing
from published import published

import gpflow_ilr as gi
from gpflow_ilr.calibration.criterion import MeanNLL

__all__ = ["BASELINES", "LOGIT_VARIANCE", "left_out_nll"]

LEFT_OUT = 2048
LOGIT_VARIANCE = 10.0
"""Latents of a softmax are logits, of order ten when classes are apart."""


def left_out_nll(model: Any) -> float:
    """The closed-form leave-one-out NLL of a conjugate model, which chooses α_ε.

    :param model: an exact or a collapsed one.
    """
    return MeanNLL(model.held_out(None, max_rows=LEFT_OUT), model.code.link)(model.code.scale)


def grid_of_alpha(problem: Problem) -> list[float]:
    return published()["protocol"]["values"]["alpha_epsilon"][: 1 if problem.quick else None]


def dirichlet_of_few(problem: Problem) -> Fitted:
    scaling, X = standardised(problem)
    K, fits = problem.num_classes, {}
    for alpha in grid_of_alpha(problem):
        for noise in ("fixed", "shared"):
            kernel = gi.starting_kernel(X, gi.DirichletCode(K, alpha))
            model = gi.DirichletGPR(
                (X, problem.y), kernel, num_classes=K, alpha_epsilon=alpha, noise=noise
            )
            gi.training.fit(model, max_iterations=3 if problem.quick else 200)
            fits[left_out_nll(model)] = model, {"alpha_epsilon": alpha, "noise": noise}
    model, chosen = fits[min(fits)]
    return Fitted(predictor(scaling, model), chosen)


def dirichlet_of_many(problem: Problem) -> Fitted:
    scaling, X = standardised(problem)
    sample, kind = sample_fit(problem, X)
    Z = inducing(problem, X)
    K, fits = problem.num_classes, {}
    for alpha in grid_of_alpha(problem):
        code = gi.DirichletCode(K, alpha)
        kernel = gpflow.utilities.deepcopy(sample.kernel)
        kernel.variance.assign(gi.starting_kernel(X, code).variance)
        model = gi.DirichletSGPR(
            (X, problem.y), kernel, Z, num_classes=K, alpha_epsilon=alpha, noise="per_output"
        )
        gi.training.fit(model, max_iterations=2 if problem.quick else ITERATIONS)
        fits[left_out_nll(model)] = model, {"kernel": kind, "alpha_epsilon": alpha}
    model, chosen = fits[min(fits)]
    if not problem.quick:
        gi.training.fit(model, max_iterations=TO_THE_END)
    return Fitted(predictor(scaling, model), chosen | {"iterations": ITERATIONS + TO_THE_END})


def _sampled(model_class: type) -> Callable[[Problem], Fitted]:
    def sampled(problem: Problem) -> Fitted:
        scaling, X = standardised(problem)
        model = model_class((X, problem.y), num_classes=problem.num_classes)
        gi.training.fit(model, max_iterations=2 if problem.quick else 50)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # R-hat is in the record
            drawn = model.sample(
                num_samples=20 if problem.quick else 500,
                num_burnin=5 if problem.quick else 250,
                seed=problem.seed,
            )
        chosen = {
            "variance": float(model.kernel.variance.numpy()),
            "R-hat": float(np.max(drawn.rhat)),
        }
        return Fitted(predictor(scaling, model), chosen)

    return sampled


def _natural(build: Callable[..., Any]) -> Callable[[Problem], Fitted]:
    """An uncollapsed model, by natural gradients, stopped by a tenth of the training rows."""

    def trained(problem: Problem) -> Fitted:
        scaling, X = standardised(problem)
        sample, kind = sample_fit(problem, X)
        kernel = gpflow.utilities.deepcopy(sample.kernel)
        kernel.variance.assign(LOGIT_VARIANCE)
        held_out = problem.held_out_tenth()
        rest = X[~held_out], problem.y[~held_out]
        model = build(problem, kernel, inducing(problem, rest[0]), len(rest[0]))
        done = gi.training.polish(
            model,
            rest,
            validation=(X[held_out], problem.y[held_out]),
            max_steps=3 if problem.quick else 2000,
            max_seconds=POLISH_SECONDS,
            seed=problem.seed,
        )
        return Fitted(predictor(scaling, model), {"kernel": kind} | how_it_ended(done))

    return trained


def _svgpc(problem: Problem, kernel: Any, Z: np.ndarray, num_data: int) -> gi.SoftmaxSVGP:
    K = problem.num_classes
    return gi.SoftmaxSVGP(kernel, Z, num_classes=K, mixing=True, num_data=num_data)


def _lsm(problem: Problem, kernel: Any, Z: np.ndarray, num_data: int) -> gpflow.models.SVGP:
    likelihood, K = gi.LogisticSoftmaxLikelihood(problem.num_classes), problem.num_classes
    return gpflow.models.SVGP(kernel, likelihood, Z, num_latent_gps=K, num_data=num_data)


def _bsm(problem: Problem, kernel: Any, Z: np.ndarray, num_data: int) -> gpflow.models.SVGP:
    likelihood, K = gi.BijectiveSoftmaxLikelihood(problem.num_classes), problem.num_classes
    return gpflow.models.SVGP(kernel, likelihood, Z, num_latent_gps=K - 1, num_data=num_data)


BASELINES = {
    "uci-exact": {
        "GPD": dirichlet_of_few,
        "LSM": _sampled(gi.LogisticSoftmaxGP),
        "BSM": _sampled(gi.BijectiveSoftmaxGP),
    },
    "uci-sparse": {
        "GPD": dirichlet_of_many,
        "SVGPC": _natural(_svgpc),
        "LSM": _natural(_lsm),
        "BSM": _natural(_bsm),
    },
}
"""Contestants of each experiment."""
