"""Where GPD breaks down: predictions from a noisy pseudo-observation z* instead of the latent f*.

A single draw decides the class, as in the paper's Table 1. The noise of z* is that of the row's own
class, and, for comparison, that of a random row's. The paper says that α_ε was 0.01; 0.1 is measured,
too, because what is printed is nearer to that.
"""

from typing import Any

import numpy as np
from published import published
from results import Results
from runner import Options, complete
from toys import TEST, TRAINING, exact_gpd, exact_ilr, mixture

import gpflow_ilr as gi
from gpflow_ilr.codes import ILRCode

__all__ = ["BREAKDOWN_KEY", "ERROR_RATE_KEY", "breakdown", "error_rates"]

BREAKDOWN_KEY = ("protocol", "model", "setting", "seed", "quick")
ERROR_RATE_KEY = ("classes", "alpha_epsilon", "quick")
ALPHAS = (0.01, 0.1)


def errors_of_draws(model: Any, X: np.ndarray, y: np.ndarray, seed: int) -> dict[str, float]:
    """Shares of rows for which one draw of z*, or of f*, has another class than the row.

    :param model: a conjugate one.
    :param X: [n, 2].
    :param y: [n].
    :param seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    mean, variance = (moment.numpy() for moment in model.predict_f(X))
    code = model.code
    V = np.broadcast_to(code.noise_variance.numpy(), [code.num_classes, mean.shape[1]])
    noise = float(code.scale) ** 2 * V[y]
    shuffled = float(code.scale) ** 2 * V[rng.permutation(y)]
    found = {}
    for name, v in (
        ("z*", variance + noise),
        ("f*", variance),
        ("z*, shuffled noise", variance + shuffled),
    ):
        draw = mean + np.sqrt(v) * rng.standard_normal(mean.shape)
        found[name] = float(np.mean(np.argmax(draw @ code.link.numpy().T, axis=1) != y))
    return found


def breakdown(options: Options) -> bool:
    """Table 1; whether it worked.

    :param options: what the command line says.
    """
    settings = published()["gpd-breakdown"]["settings"]
    sizes = (60, 200) if options.quick else (TRAINING, TEST)

    def measure(run: dict[str, Any]) -> dict[str, Any]:
        train, test = (
            mixture(size, settings["s"], 1000 * part + run["seed"])
            for part, size in enumerate(sizes)
        )
        if run["model"] == "GPD":
            model = exact_gpd(train, 3, run["setting"], options)
        else:
            model = exact_ilr(train, 3, options, smoothing=run["setting"])
        return errors_of_draws(model, *test, run["seed"])

    contestants = [*(("GPD", alpha) for alpha in ALPHAS), ("E-ILR", settings["smoothing"])]
    runs = [
        {
            "protocol": options.protocol,
            "model": model,
            "setting": setting,
            "seed": seed,
            "quick": options.quick,
        }
        for model, setting in contestants
        for seed in options.seed_range()
    ]
    return complete(Results(options.out / "gpd-breakdown.jsonl", BREAKDOWN_KEY), runs, measure)


def error_rates(options: Options) -> bool:
    """How often a pseudo-observation of GPD is of another class, without any GP.

    :param options: what the command line says.
    """
    classes = published()["scaling-k"]["settings"]["classes"]
    samples = 2000 if options.quick else published()["gpd-error-rate"]["settings"]["samples"]

    def measure(run: dict[str, Any]) -> dict[str, Any]:
        K = run["classes"]
        return {
            "error": gi.DirichletCode(K, run["alpha_epsilon"]).error_rate(samples),
            "error_ILR": ILRCode(K).error_rate(samples),
        }

    runs = [
        {"classes": K, "alpha_epsilon": alpha, "quick": options.quick}
        for alpha in published()["protocol"]["values"]["alpha_epsilon"]
        for K in (classes[:3] if options.quick else classes)
    ]
    return complete(Results(options.out / "gpd-error-rate.jsonl", ERROR_RATE_KEY), runs, measure)
