"""Every benchmark by its name: who takes part, at which shapes, and whom ratios are to.

A new one is an entry here. Functions stand in the modules that are named before the colon. Studies are
scripts of their own, with options of their own: what they compare is quality, over splits.
"""

import ast
from pathlib import Path
from typing import Any

from contest import Benchmark, Contestant, of

__all__ = ["BENCHMARKS", "STUDIES", "script", "summary"]

LETTER = {"N": 15_000, "D": 16, "K": 26, "M": 200}
SMALL = {"N": 600, "D": 4, "K": 5, "M": 20}
MINIBATCH, SMALL_MINIBATCH = LETTER | {"batch": 1024}, SMALL | {"batch": 64}
EXACT, SMALL_EXACT = {"N": 2000, "D": 10, "K": 10}, {"N": 200, "D": 3, "K": 4}
HEAD = {"batch": 256, "D": 64, "K": 10, "M": 50}


def step(model: str, **options: Any) -> Contestant:
    return of("steps:step", model=model, **options)


def growing(base: dict[str, int], axis: str, *values: int) -> list[dict[str, int]]:
    return [base | {axis: value} for value in values]


PRODUCT = {"product [M, N]·[N, M]": of("floors:product")}
SGPR = {"GPflow SGPR, shared noise": step("SGPR")}
PER_OUTPUT = {"ILRSGPR, per-output noise": step("ILRSGPR", noise="per_output")}
ARD = "the fit, a lengthscale for each column"
SOFTMAX = "GPflow SVGP, Softmax, 100 samples"
SVGP = {
    "ILRSVGP": step("ILRSVGP"),
    "ILRSVGP, W learned": step("ILRSVGP", mixing=True),
    "GPflow SVGP, ILRLikelihood": step("ILRLikelihood"),
    SOFTMAX: step("Softmax"),
    "GPflow SVGP, MultiClass": step("MultiClass"),
    "GPyTorch SVGP, SoftmaxLikelihood": of("torch_models:svgp"),
}
HEADS = {
    "softmax layer": of("last_layers:fit"),
    **{
        f"GPHead, {objective}": of("last_layers:fit", objective=objective, against="softmax layer")
        for objective in ("code", "draw", "elbo")
    },
}
EXACT_STEPS = {
    "GPflow GPR": step("GPR"),
    "ILRGPR": step("ILRGPR"),
    "DirichletGPR": step("DirichletGPR"),
}
SEARCHES = {
    "gpflow_ilr": "ours",
    "SciPy cKDTree": "kd_tree",
    "scikit-learn kd_tree": "sklearn kd_tree",
    "scikit-learn ball_tree": "sklearn ball_tree",
    "scikit-learn brute": "sklearn brute",
    "faiss Flat": "faiss Flat",
    "faiss IVF": "faiss IVF",
    "faiss HNSW": "faiss HNSW",
    "hnswlib": "hnswlib",
    "pynndescent": "pynndescent",
    "TensorFlow, brute force": "brute force",
}

BENCHMARKS = {
    "collapsed-step": Benchmark(
        "Value and gradient of the collapsed bound, at the shape of the Letter data.",
        {
            **PRODUCT,
            "a copy of [M, N]": of("floors:bandwidth"),
            **PER_OUTPUT,
            "ILRSGPR, shared noise": step("ILRSGPR", noise="shared"),
            **SGPR,
            "GPyTorch SGPR, per-output noise": of("torch_models:sgpr", rounds=3),
        },
        "product [M, N]·[N, M]",
        [LETTER],
        [SMALL],
        rounds=40,
    ),
    "dirichlet-step": Benchmark(
        "The same with Dirichlet's code: noise that depends on row and class.",
        {
            **PRODUCT,
            **PER_OUTPUT,
            "DirichletSGPR": step("DirichletSGPR"),
            "DirichletSGPR, per-output noise": step("DirichletSGPR", noise="per_output"),
        },
        "product [M, N]·[N, M]",
        [LETTER],
        [SMALL],
        rounds=20,
    ),
    "per-class-step": Benchmark(
        "The same with noise for each class.",
        {
            **PRODUCT,
            **PER_OUTPUT,
            "ILRSGPR, per-class noise": step("ILRSGPR", noise="per_class"),
            **SGPR,
        },
        "product [M, N]·[N, M]",
        [LETTER],
        [SMALL],
        rounds=20,
    ),
    "exact-step": Benchmark(
        "Value and gradient of the exact evidence.",
        {
            **EXACT_STEPS,
            "LAPACK potrf": of("floors:lapack"),
            "GPyTorch, exact Dirichlet": of("torch_models:exact_dirichlet", rounds=3),
            "scikit-learn GaussianProcessClassifier": of("sklearn_gp:gaussian_process", rounds=3),
        },
        "GPflow GPR",
        [EXACT],
        [SMALL_EXACT],
    ),
    "exact-posterior": Benchmark(
        "The exact model after training, and the memory that it takes.",
        {
            "LAPACK potrf + trtri": of("floors:lapack", invert=True),
            "leave-one-out, then posterior": of("exact_posterior:leave_one_out"),
            "the same, float32": of("exact_posterior:leave_one_out", dtype="float32"),
            "GPflow GPR, posterior": of("exact_posterior:gpflow_posterior"),
            "predict_y of 1,000 rows": of("exact_posterior:predict"),
            "calibrate()": of("exact_posterior:calibrate"),
            "calibrate(noise=True)": of("exact_posterior:calibrate", noise=True),
        },
        "LAPACK potrf + trtri",
        growing(EXACT, "N", 5000, 10_000, 20_000),
        growing(SMALL_EXACT, "N", 600),
        rounds=1,
        alone=True,
    ),
    "neighbours": Benchmark(
        "Nearest neighbours of 1,000 rows: which library, how soon built, how many found.",
        {name: of("nearest:search", by=by) for name, by in SEARCHES.items()},
        "gpflow_ilr",
        [{"N": N, "D": D, "m": 65, "queries": 1000} for N in (10_000, 1_000_000) for D in (8, 48)],
        [{"N": 2000, "D": 8, "m": 16, "queries": 50}],
        rounds=1,
    ),
    "svgp-step": Benchmark(
        "ELBO and gradient of a minibatch.", SVGP, SOFTMAX, [MINIBATCH], [SMALL_MINIBATCH]
    ),
    "head-step": Benchmark(
        "Training steps of a network by its last layer.",
        HEADS,
        "softmax layer",
        [HEAD | {"steps": 200}],
        [HEAD | {"steps": 3}],
    ),
    "expectation-accuracy": Benchmark(
        "E[log p(y | f)], on which the ELBO rests: its error, for the same logits.",
        {
            name: of("expectations:expectation", by=by)
            for name, by in {
                "ILRLikelihood": "ILRLikelihood",
                "GPflow Softmax, 100 samples": "Softmax",
                "GPyTorch SoftmaxLikelihood": "GPyTorch",
            }.items()
        },
        "GPflow Softmax, 100 samples",
        [{"K": 26, "rows": 400, "variance": v, "nodes": 2**14} for v in (0.1, 1.0, 9.0)],
        [{"K": 5, "rows": 40, "variance": 1.0, "nodes": 2**10}],
    ),
    "calibrate-cost": Benchmark(
        "calibrate(), as a share of the fit that it follows.",
        {
            "the fit": of("whole_fits:calibrate", fit=True),
            "calibrate()": of("whole_fits:calibrate", fit=False),
            ARD: of("whole_fits:calibrate", fit=True, ard=True),
            "calibrate() after that": of("whole_fits:calibrate", fit=False, ard=True, against=ARD),
        },
        "the fit",
        [EXACT, LETTER],
        [SMALL],
        rounds=3,
    ),
    "predict": Benchmark(
        "Class probabilities of 100,000 rows, and their error against 100,000 samples.",
        {
            "posterior().predict_y": of("expectations:predict"),
            "256 samples of the same posterior": of("expectations:sampled"),
            "GPyTorch, 256 samples": of("torch_models:predict"),
        },
        "posterior().predict_y",
        [LETTER | {"rows": 100_000, "truth": 100_000}],
        [SMALL | {"rows": 1000, "truth": 2000}],
        rounds=3,
    ),
    "rows-scaling": Benchmark(
        "Time and memory as rows grow: value and gradient, a stream, nearest neighbours.",
        {
            "ILRSGPR, a step": step("ILRSGPR"),
            "GPflow SGPR, a step": of("steps:step", model="SGPR", up_to=100_000),
            "ILRSGPR.absorb, one pass": of("whole_fits:absorb"),
            **{
                f"ILRNNGPR, {name}": of("nearest:model", action=action, up_to=1_000_000)
                for name, action in {
                    "its index": "index",
                    "calibrate()": "calibrate",
                    "1,000 rows": "rows",
                    "one row": "row",
                }.items()
            },
        },
        "ILRSGPR, a step",
        growing({"D": 16, "K": 10, "M": 200}, "N", *(10**i for i in (4, 5, 6, 7))),
        growing({"D": 4, "K": 3, "M": 20}, "N", 1000, 4000),
        rounds=3,
        over="N",
    ),
    "classes-scaling": Benchmark(
        "A step as classes grow.",
        {
            "ILRSGPR": step("ILRSGPR"),
            **PER_OUTPUT,
            "GPflow SGPR": step("SGPR"),
            "ILRSVGP, 256 rows": step("ILRSVGP", batch=256, against="Softmax SVGP, 256 rows"),
            "Softmax SVGP, 256 rows": step("Softmax", batch=256),
            "ILRNNGPR, 1,000 rows": of("nearest:model", action="rows"),
        },
        "GPflow SGPR",
        growing({"N": 5000, "D": 16, "M": 100}, "K", 2, 10, 32, 100, 320, 1000),
        growing({"N": 400, "D": 4, "M": 20}, "K", 2, 8),
        rounds=3,
        over="K",
    ),
    "inducing-scaling": Benchmark(
        "A step, and a stream, as inducing inputs grow.",
        {
            **PRODUCT,
            "ILRSGPR, a step": step("ILRSGPR"),
            "GPflow SGPR, a step": step("SGPR"),
            "ILRSGPR.absorb, one pass": of("whole_fits:absorb", batch=5000),
        },
        "product [M, N]·[N, M]",
        growing({"N": 15_000, "D": 16, "K": 10}, "M", 50, 200, 1000, 5000),
        growing({"N": 600, "D": 4, "K": 3}, "M", 20, 40),
        rounds=2,
        over="M",
    ),
    "time-to-quality": Benchmark(
        "Seconds from raw rows to a calibrated classifier within 1 % of its best NLL; a split a turn.",
        {
            name: of("whole_fits:to_quality", by=name, warmed=False)
            for name in ("fit_auto", "LightGBM", "CatBoost", "HistGradientBoosting")
        },
        "LightGBM",
        [{"data": data, "budgets": 4} for data in ("magic", "letter")],
        [{"data": "wine", "budgets": 1}],
        rounds=3,
    ),
    "import-time": Benchmark(
        "An import, in a new interpreter.",
        {
            package: of("whole_fits:import_of", package=package)
            for package in ("gpflow_ilr", "gpflow", "tensorflow", "gpytorch", "sklearn")
        },
        "gpflow",
        [{}],
        [{}],
        rounds=3,
    ),
    "first-step": Benchmark(
        "The first step, its trace included, and the nodes of its graph.",
        {
            "GPflow SGPR": of("steps:first", model="SGPR"),
            "ILRSGPR": of("steps:first", model="ILRSGPR"),
            "DirichletSGPR": of("steps:first", model="DirichletSGPR"),
            "GPflow GPR": of("steps:first", model="GPR"),
            "ILRGPR": of("steps:first", model="ILRGPR", against="GPflow GPR"),
            "DirichletGPR": of("steps:first", model="DirichletGPR", against="GPflow GPR"),
            SOFTMAX: of("steps:first", model="Softmax"),
            "ILRSVGP": of("steps:first", model="ILRSVGP", against=SOFTMAX),
            **HEADS,
        },
        "GPflow SGPR",
        [MINIBATCH | {"exact": 2000}],
        [SMALL_MINIBATCH | {"exact": 200}],
        rounds=3,
        fresh=True,
    ),
}

STUDIES = ("auto", "all_rows", "estimator", "heads", "mixing", "warm_start", "prediction_sets")


def script(study: str) -> Path:
    return Path(__file__).with_name(f"{study}.py")


def summary(study: str) -> str:
    """The first line of a script, which is not imported for it."""
    text = ast.get_docstring(ast.parse(script(study).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
