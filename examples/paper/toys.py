"""The synthetic experiments: three overlapping classes, and K classes around a circle.

The mixture is that of Galy-Fajou et al.: one Gaussian for each of three classes, with standard
deviation s. The paper gives neither its centres nor the numbers of rows; here the centres are the
corners of an equilateral triangle on the unit circle, with 300 training and 500 test rows (half a
unit from the origin was tried first: classes then overlapped so much at s² = 0.5 that the model saw
nothing, unlike the paper's picture). Nor does it say how long kernels were trained, which matters at
Proposition 1's noise: under ``--protocol paper`` it is by 200 steps of Adam, under ours by L-BFGS to
the end. The circle of many classes has K means at equal distances and a standard deviation of half
of that distance.
"""

import time
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
from as_paper import by_minibatches
from baselines import LOGIT_VARIANCE, left_out_nll
from models import wanted
from problem import Problem
from published import published
from results import Results
from runner import Options, complete
from scores import scores

import gpflow_ilr as gi

__all__ = ["KEY", "TOYS", "circle", "mixture", "run"]

KEY = ("protocol", "at", "model", "setting", "seed", "quick")
TRAINING, TEST = 300, 500
RADIUS = 1.0
ITERATIONS, ADAM_STEPS = 60, 200
SMOOTHINGS = (0.9, 0.95, 0.99, 0.999, 0.9999)
GPD_SECONDS, SVGP_SECONDS = 120.0, 60.0
"""Of one fit with many classes; GPD has a factorisation for each class."""

Rows = tuple[np.ndarray, np.ndarray]


def mixture(num_rows: int, s: float, seed: int) -> Rows:
    """Rows [N, 2] and classes [N] of the three classes.

    :param num_rows: N.
    :param s: standard deviation of each class.
    :param seed: of the draws.
    """
    return _around_circle(num_rows, 3, RADIUS, s, seed)


def circle(num_rows: int, num_classes: int, seed: int) -> Rows:
    """Rows [N, 2] and classes [N] of K classes around the unit circle.

    :param num_rows: N.
    :param num_classes: K.
    :param seed: of the draws.
    """
    return _around_circle(num_rows, num_classes, 1.0, spread_on_circle(num_classes), seed)


def spread_on_circle(num_classes: int) -> float:
    """Half of the distance between neighbouring means, so that neighbours overlap for every K."""
    return float(np.sin(np.pi / num_classes))


def _around_circle(num_rows: int, K: int, radius: float, s: float, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(num_rows) % K)
    return radius * _means(K)[y] + s * rng.standard_normal([num_rows, 2]), y


def _means(K: int) -> np.ndarray:
    angles = 2.0 * np.pi * np.arange(K) / K
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def best_possible(X: np.ndarray, K: int, radius: float, s: float) -> np.ndarray:
    """The true class probabilities, [N, K]."""
    squares = np.sum(np.square(X[:, None] - radius * _means(K)), axis=2)
    logits = -0.5 * (squares - np.min(squares, axis=1, keepdims=True)) / s**2
    return np.exp(logits) / np.sum(np.exp(logits), axis=1, keepdims=True)


def exact_ilr(rows: Rows, K: int, options: Options, **of_model: Any) -> gi.ILRGPR:
    """Exact-ILR with the kernel of the largest evidence.

    :param rows: training rows.
    :param K: number of classes.
    :param options: of the command line: the protocol says how the kernel is trained.
    :param of_model: options of the model.
    """
    model = gi.ILRGPR(rows, gi.starting_kernel(rows[0], K), num_classes=K, **of_model)
    _train(model, options)
    return model


def exact_gpd(rows: Rows, K: int, alpha: float, options: Options) -> gi.DirichletGPR:
    """GPD with the kernel of the largest evidence.

    :param rows: training rows.
    :param K: number of classes.
    :param alpha: α_ε.
    :param options: of the command line, as for :func:`exact_ilr`.
    """
    kernel = gi.starting_kernel(rows[0], gi.DirichletCode(K, alpha))
    model = gi.DirichletGPR(rows, kernel, num_classes=K, alpha_epsilon=alpha)
    _train(model, options)
    return model


def _train(model: Any, options: Options) -> None:
    by_adam = options.protocol == "paper"
    steps = 3 if options.quick else ADAM_STEPS if by_adam else ITERATIONS
    gi.training.fit(
        model,
        method="adam" if by_adam else "l-bfgs",
        max_iterations=steps,
        max_seconds=GPD_SECONDS,
    )


def _judged(model: Any, test: Rows) -> dict[str, float]:
    return scores(model.predict_y(test[0])[0].numpy(), test[1])


Measured = dict[str, dict[str, float]]
"""Scores by setting."""


def effect_of_smoothing(train: Rows, test: Rows, options: Options) -> Measured:
    """One fit for all λ, at Proposition 1's noise; then λ by leave-one-out, and noise learned, too."""
    model, found = exact_ilr(train, 3, options), {}
    for smoothing in SMOOTHINGS:
        model.smoothing = smoothing
        found[f"λ = {smoothing}"] = _judged(model, test)
    model.calibrate()
    found["λ by leave-one-out"] = _judged(model, test)
    noisy = exact_ilr(train, 3, options, noise="shared")
    noisy.calibrate()
    found["λ by leave-one-out, noise learned"] = _judged(noisy, test)
    return found


def effect_of_alpha(train: Rows, test: Rows, options: Options) -> Measured:
    grid = published()["protocol"]["values"]["alpha_epsilon"]
    return {
        f"α_ε = {alpha:g}": _judged(exact_gpd(train, 3, alpha, options), test)
        for alpha in (grid[:1] if options.quick else grid)
    }


def effect_of_sigma(train: Rows, test: Rows, options: Options) -> Measured:
    settings, found = published()["toy-sigma"]["settings"], {}
    for tolerance in settings["tolerance"][:1] if options.quick else settings["tolerance"]:
        of_model = {"smoothing": settings["smoothing"], "tolerance": tolerance}
        found[f"ε = {tolerance:g}"] = _judged(exact_ilr(train, 3, options, **of_model), test)
    return found


TOYS: dict[str, Callable[[Rows, Rows, Options], Measured]] = {
    "toy-lambda": effect_of_smoothing,
    "toy-alpha": effect_of_alpha,
    "toy-sigma": effect_of_sigma,
}
"""What is measured at each s."""


def run(experiment: str, options: Options) -> bool:
    """Run one of :data:`TOYS`, or ``scaling-k``; whether all of it worked.

    :param experiment: its name.
    :param options: what the command line says.
    """
    if experiment == "scaling-k":
        return scaling(options)
    sizes = (60, 60) if options.quick else (TRAINING, TEST)

    def measure(run: dict[str, Any]) -> dict[str, Any]:
        start = time.perf_counter()
        train, test = (
            mixture(size, run["at"], 1000 * part + run["seed"]) for part, size in enumerate(sizes)
        )
        found = TOYS[experiment](train, test, options)
        found["best possible"] = scores(best_possible(test[0], 3, RADIUS, run["at"]), test[1])
        return {"scores": found, "seconds": round(time.perf_counter() - start, 2)}

    overlaps = published()["toy-lambda"]["settings"]["s"]
    runs = [
        {"protocol": options.protocol, "at": s, "seed": seed, "quick": options.quick}
        for s in (overlaps[::6] if options.quick else overlaps)
        for seed in options.seed_range()
    ]
    return complete(Results(options.out / f"{experiment}.jsonl", KEY), runs, measure)


def _smallest(candidates: dict[float, Any]) -> Any:
    return candidates[min(candidates)]


def _training_nll(model: Any, train: Rows) -> float:
    p = model.predict_y(train[0])[0]
    return gi.metrics.negative_log_likelihood(np.maximum(p, 1e-300), train[1])


def scaling_ilr(train: Rows, K: int, options: Options) -> Any:
    if options.protocol == "ours":
        # Targets have variance 1/K. With Proposition 1's noise alone, which is more from K = 64 on and
        # too little for so much overlap below 16, the evidence is largest where all is noise.
        model = exact_ilr(train, K, options, noise="shared", noise_variance=0.1 / K)
        model.calibrate(noise=True)
        return model
    model = exact_ilr(train, K, options)
    nll = {}
    for smoothing in published()["scaling-k"]["settings"]["smoothing"]:
        model.smoothing = smoothing
        nll[_training_nll(model, train)] = smoothing
    model.smoothing = _smallest(nll)
    return model


def scaling_gpd(train: Rows, K: int, options: Options) -> Any:
    grid = published()["scaling-k"]["settings"]["alpha_epsilon"]
    models = [exact_gpd(train, K, alpha, options) for alpha in grid[: 1 if options.quick else 4]]
    if options.protocol == "ours":
        return _smallest({left_out_nll(model): model for model in models})
    return _smallest({_training_nll(model, train): model for model in models})


def _scaling_svgp(model_class: type) -> Callable[[Rows, int, Options], Any]:
    def built(train: Rows, K: int, options: Options) -> Any:
        X, _ = train
        kernel = gi.starting_kernel(X, K)
        kernel.variance.assign(LOGIT_VARIANCE)
        M = 10 if options.quick else published()["scaling-k"]["settings"]["inducing"]
        W = options.protocol == "paper"
        Z = gi.kmeans_plusplus(X, M)
        return model_class(kernel, Z, num_classes=K, num_data=len(X), mixing=W)

    def as_paper(train: Rows, K: int, options: Options) -> Any:
        rates = published()["protocol"]["values"]["learning_rates"]
        nll, problem = {}, Problem(*train, K, seed=0, quick=options.quick)
        for rate in rates[: 1 if options.quick else None]:
            model = built(train, K, options)
            by_minibatches(problem, model, train, rate)
            nll[_training_nll(model, train)] = model
        return _smallest(nll)

    def fitted(train: Rows, K: int, options: Options) -> Any:
        if options.protocol == "paper":
            return as_paper(train, K, options)
        model = built(train, K, options)
        gpflow.set_trainable(model.inducing_variable, False)  # in two dimensions they are enough
        gi.training.fit(
            model,
            train,
            method="natural",
            max_iterations=3 if options.quick else 200,
            max_seconds=SVGP_SECONDS,
            natural_step=0.2,
            learning_rate=0.05,
        )
        return model

    return fitted


SCALING = {
    "E-ILR": scaling_ilr,
    "GPD": scaling_gpd,
    "U-ILR": _scaling_svgp(gi.ILRSVGP),
    "SVGPC": _scaling_svgp(gi.SoftmaxSVGP),
}


def scaling(options: Options) -> bool:
    settings = published()["scaling-k"]["settings"]
    size = 100 if options.quick else settings["training"]
    models = wanted("scaling-k", list(SCALING), options.models)

    def measure(run: dict[str, Any]) -> dict[str, Any]:
        K, seed = run["at"], run["seed"]
        train, test = circle(size, K, seed), circle(size, K, 1000 + seed)
        start = time.perf_counter()
        found = _judged(SCALING[run["model"]](train, K, options), test)
        seconds = round(time.perf_counter() - start, 2)
        best = scores(best_possible(test[0], K, 1.0, spread_on_circle(K)), test[1])
        return {"scores": {run["model"]: found, "best possible": best}, "seconds": seconds}

    runs = [
        {
            "protocol": options.protocol,
            "at": K,
            "model": model,
            "seed": seed,
            "quick": options.quick,
        }
        for seed in options.seed_range()
        for K in ((4,) if options.quick else settings["classes"])
        for model in models
    ]
    return complete(Results(options.out / "scaling-k.jsonl", KEY), runs, measure)
