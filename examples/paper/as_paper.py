"""The paper's protocol: a grid of fits, judged by ½ (NLL + ECE) of a tenth of the training rows.

Every model has the squared exponential kernel with one lengthscale, both normalisations of the
inputs and both learning rates of Adam; ILR models have the grid of λ, GPD that of α_ε; models with
inducing inputs have the paper's number of them, conjugate ones a learned noise for each output,
uncollapsed ones W. One thing is cheaper here: λ is a scale, so that one fit serves the whole grid of
λ and each value of it has exactly the predictions that a fit of its own would have. How many steps
the paper took is not said.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
from problem import Fitted, Problem, inducing
from published import published

import gpflow_ilr as gi
from gpflow_ilr import metrics

__all__ = ["AS_PAPER", "NORMALISATIONS", "by_minibatches", "normalised"]

STEPS = 500
MINIBATCH_STEPS, BATCH = 1500, 512
GRID = published()["protocol"]["values"]
SPARSE = GRID["smoothing_sparse"]
EXACT = sorted({*GRID["smoothing_exact"], *SPARSE, *GRID["smoothing_chosen_elsewhere"]})
"""The exact setting's grid, and what the appendix says was chosen there beside it."""
LOGIT_VARIANCE = 10.0

Build = Callable[[Problem, np.ndarray, np.ndarray, Any], Any]
"""A model of a problem's rows, scaled, and their labels, with a value of α_ε or None."""


def normalised(name: str, X: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A map that brings the columns of training rows to [-1, 1], or to unit variance.

    :param name: ``[-1,1]`` or ``Z``.
    :param X: training rows.
    """
    if name == "Z":
        centre, scale = np.mean(X, axis=0), np.std(X, axis=0)
    else:
        low, high = np.min(X, axis=0), np.max(X, axis=0)
        centre, scale = 0.5 * (low + high), 0.5 * (high - low)
    scale = np.where(scale > 0.0, scale, 1.0)
    return lambda rows: (rows - centre) / scale


NORMALISATIONS = tuple(GRID["normalisations"])


def validation_loss(p: np.ndarray, y: np.ndarray) -> float:
    """½ (NLL + ECE)."""
    p = np.maximum(p, 1e-300)  # an underflow is a large loss, not an infinite one
    p = p / np.sum(p, axis=1, keepdims=True)
    nll, ece = metrics.negative_log_likelihood(p, y), metrics.expected_calibration_error(p, y)
    return 0.5 * (nll + ece)


def searched(
    build: Build,
    train: Callable[[Problem, Any, tuple, float], None],
    targets: Sequence[float | None] = (None,),
    smoothings: Sequence[float | None] = (None,),
) -> Callable[[Problem], Fitted]:
    """A contestant that is the best of a grid of fits, for the validation rows.

    :param build: of a model.
    :param train: trains it: the problem, the model, rows and learning rate.
    :param targets: values of α_ε, if it has them.
    :param smoothings: values of λ, if it has them.
    """

    def contestant(problem: Problem) -> Fitted:
        held_out = np.arange(len(problem.X)) < round(GRID["validation_share"] * len(problem.X))
        X, y = problem.X[~held_out], problem.y[~held_out]
        X_val, y_val = problem.X[held_out], problem.y[held_out]
        best: tuple[float, Any, Any, dict] | None = None
        tried = 0
        for name in NORMALISATIONS[:1] if problem.quick else NORMALISATIONS:
            scale = normalised(name, X)
            for target in targets[:1] if problem.quick else targets:
                for rate in GRID["learning_rates"][:1] if problem.quick else GRID["learning_rates"]:
                    model = build(problem, scale(X), y, target)
                    train(problem, model, (scale(X), y), rate)
                    for smoothing in smoothings:
                        p = _probabilities(model, smoothing, scale(X_val))
                        chosen = {"normalisation": name, "learning_rate": rate}
                        chosen |= {} if target is None else {"alpha_epsilon": target}
                        chosen |= {} if smoothing is None else {"smoothing": smoothing}
                        loss = validation_loss(p, y_val)
                        tried += 1
                        if best is None or loss < best[0]:
                            best = loss, model, scale, chosen
        _, model, scale, chosen = best
        return Fitted(
            lambda rows: _probabilities(model, chosen.get("smoothing"), scale(rows)),
            chosen | {"tried": tried},
        )

    return contestant


def _probabilities(model: Any, smoothing: float | None, X: np.ndarray) -> np.ndarray:
    if smoothing is not None:
        model.smoothing = smoothing
    return model.predict_y(X)[0].numpy()


def by_adam(problem: Problem, model: Any, rows: tuple, rate: float) -> None:
    steps = 3 if problem.quick else STEPS
    gi.training.fit(model, method="adam", learning_rate=rate, max_iterations=steps)


def by_minibatches(problem: Problem, model: Any, rows: tuple, rate: float) -> None:
    """Everything by Adam: q(u), kernel, inducing inputs and W.

    :param problem: whose seed is that of the minibatches.
    :param model: an uncollapsed one.
    :param rows: (X, y).
    :param rate: the learning rate.
    """
    gi.training.fit(
        model,
        rows,
        method="adam",
        learning_rate=rate,
        batch_size=min(BATCH, len(rows[0])),
        max_iterations=3 if problem.quick else MINIBATCH_STEPS,
        check_every=50,
        seed=problem.seed,
    )


def by_sampling(problem: Problem, model: Any, rows: tuple, rate: float) -> None:
    steps = 2 if problem.quick else 100
    gi.training.fit(model, method="adam", learning_rate=rate, max_iterations=steps)
    counts = (20, 5) if problem.quick else (400, 200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that chains disagree
        model.sample(num_samples=counts[0], num_burnin=counts[1], seed=problem.seed)


def _conjugate(exact: type, sparse: type | None = None) -> Build:
    def build(problem: Problem, X: np.ndarray, y: np.ndarray, alpha: float | None) -> Any:
        K = problem.num_classes
        options = {} if alpha is None else {"alpha_epsilon": alpha}
        kernel = gi.starting_kernel(X, K if alpha is None else gi.DirichletCode(K, alpha))
        if sparse is None:
            return exact((X, y), kernel, num_classes=K, **options)
        Z = inducing(problem, X)
        return sparse((X, y), kernel, Z, num_classes=K, noise=GRID["noise_sparse"], **options)

    return build


def _uncollapsed(make: Callable[[int, Any, np.ndarray, int], Any]) -> Build:
    def build(problem: Problem, X: np.ndarray, y: np.ndarray, _: None) -> Any:
        kernel = gi.starting_kernel(X, problem.num_classes)
        kernel.variance.assign(LOGIT_VARIANCE)
        return make(problem.num_classes, kernel, inducing(problem, X), len(X))

    return build


def _augmented(likelihood: type, fewer: int) -> Build:
    return _uncollapsed(
        lambda K, kernel, Z, N: gpflow.models.SVGP(
            kernel, likelihood(K), Z, num_latent_gps=K - fewer, num_data=N
        )
    )


def _sampled(model_class: type) -> Build:
    return lambda problem, X, y, _: model_class((X, y), num_classes=problem.num_classes)


AS_PAPER = {
    "uci-exact": {
        "E-ILR": searched(_conjugate(gi.ILRGPR), by_adam, smoothings=EXACT),
        "GPD": searched(_conjugate(gi.DirichletGPR), by_adam, GRID["alpha_epsilon"]),
        "LSM": searched(_sampled(gi.LogisticSoftmaxGP), by_sampling),
        "BSM": searched(_sampled(gi.BijectiveSoftmaxGP), by_sampling),
    },
    "uci-sparse": {
        "C-ILR": searched(_conjugate(gi.ILRGPR, gi.ILRSGPR), by_adam, smoothings=SPARSE),
        "U-ILR": searched(
            _uncollapsed(
                lambda K, kernel, Z, N: gi.ILRSVGP(
                    kernel, Z, num_classes=K, mixing=True, num_data=N
                )
            ),
            by_minibatches,
        ),
        "GPD": searched(
            _conjugate(gi.DirichletGPR, gi.DirichletSGPR), by_adam, GRID["alpha_epsilon"]
        ),
        "SVGPC": searched(
            _uncollapsed(
                lambda K, kernel, Z, N: gi.SoftmaxSVGP(
                    kernel, Z, num_classes=K, mixing=True, num_data=N
                )
            ),
            by_minibatches,
        ),
        "LSM": searched(_augmented(gi.LogisticSoftmaxLikelihood, 0), by_minibatches),
        "BSM": searched(_augmented(gi.BijectiveSoftmaxLikelihood, 1), by_minibatches),
    },
}
"""Contestants of each experiment."""
