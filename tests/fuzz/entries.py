"""What is called with awkward inputs: every public constructor, method and function, by name.

An entry draws its arguments and returns class probabilities where it has some, else anything that
must be finite.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

import gpflow_ilr as gi
from gpflow_ilr import calibration, metrics, simplex
from gpflow_ilr.inputs.scaling import SCALINGS
from tests.fuzz import awkward
from tests.fuzz.auto_entries import AUTO_ENTRIES, FITTED_ENTRIES

__all__ = ["ENTRIES", "SLOW_ENTRIES"]

Draw = Callable[[st.SearchStrategy[Any]], Any]
KEEP_ROWS = [gi.ILRGPR, gi.DirichletGPR, gi.ILRNNGPR, gi.DirichletNNGPR]
SPARSE = [gi.ILRSGPR, gi.DirichletSGPR]
VARIATIONAL = [gi.ILRSVGP, gi.SoftmaxSVGP]
SAMPLED = [gi.LogisticSoftmaxGP, gi.BijectiveSoftmaxGP]
FAST = [gi.ILRGPR, gi.ILRSGPR, gi.ILRNNGPR, *VARIATIONAL]
"""Whose cost hardly grows with the number of classes."""
LIKELIHOODS = [
    gi.ILRLikelihood,
    gi.SoftmaxLikelihood,
    gi.LogisticSoftmaxLikelihood,
    gi.BijectiveSoftmaxLikelihood,
]


class Built:
    """A model that could be built, with the sizes that its inputs are about."""

    def __init__(self, draw: Draw, cls: Any) -> None:
        self.draw, self.K = draw, draw(awkward.CLASSES)
        noise = draw(st.sampled_from(["fixed", "fixed", "per_output", "per_class"]))
        if self.K == 1000 and (cls not in FAST or noise == "per_output"):
            self.K = 20  # a factor for each output, or a sweep for each class
        self.N, self.D = draw(awkward.SIZES), draw(st.sampled_from([1, 2, 2, 3]))
        kernel = draw(awkward.kernels(self.D))
        if cls in VARIATIONAL:
            Z = draw(awkward.inducing(self.D))
            self.model = cls(
                kernel, Z, num_classes=self.K, num_data=self.N, whiten=draw(st.booleans())
            )
            return
        w = draw(awkward.weights(self.N))
        data = (*self.rows(), w) if w is not None else self.rows()
        if cls in SAMPLED:
            self.model = cls(data, kernel, num_classes=self.K)
            self.model.sample(num_samples=2, num_burnin=1, num_chains=2)
            return
        options: dict[str, Any] = {"noise": noise}
        if cls in (gi.ILRNNGPR, gi.DirichletNNGPR):
            options["num_neighbours"] = draw(st.sampled_from([1, 2, 4, 64]))
        Z = [draw(awkward.inducing(self.D))] if cls in SPARSE else []
        self.model = cls(data, kernel, *Z, num_classes=self.K, **options)

    def rows(self) -> tuple[Any, Any]:
        """Rows and labels like those of the model, or not."""
        X = self.draw(awkward.rows(self.N, self.D))
        return X, self.draw(awkward.labels(self.N, self.K))

    def new(self) -> Any:
        """New rows, whose columns may be others."""
        D = self.draw(st.sampled_from([self.D, self.D, self.D, self.D, self.D + 1]))
        return self.draw(awkward.rows(self.draw(awkward.SIZES), D))


def _updated(built: Built) -> Any:
    built.model.update(*built.rows())
    return built.model.predict_y(built.new())[0]


def _forgotten(built: Built) -> Any:
    X, y = built.rows()
    built.model.update(X, y)
    built.model.forget(X, y)
    return built.model.predict_y(built.new())[0]


def _set(built: Built) -> Any:
    built.model.data = built.rows()
    return built.model.predict_y(built.new())[0]


def _set_and_sampled(built: Built) -> Any:
    built.model.data = built.rows()
    built.model.sample(num_samples=2, num_burnin=1, num_chains=2)
    return built.model.predict_y(built.new())[0]


def _calibrated(built: Built) -> Any:
    held_out = built.draw(st.sampled_from([True, False]))
    built.model.calibrate(built.rows() if held_out else None)
    return built.model.predict_y(built.new())[0]


def _absorbed(built: Built) -> Any:
    built.model.absorb(built.rows(), batch_size=built.draw(awkward.counts()))
    return built.model.predict_y(built.new())[0]


def _finite(values: Any) -> None:
    for value in tf.nest.flatten(values):
        assert np.all(np.isfinite(np.asarray(value, float)))


def _entropy(built: Built) -> None:
    _finite(tuple(built.model.predict_entropy(built.new())))


def _density(built: Built) -> None:
    _finite(built.model.predict_log_density((built.new(), built.rows()[1])))


def _samples(built: Built) -> Any:
    return built.model.predict_probability_samples(built.new(), built.draw(awkward.counts()))


def _interval(built: Built) -> None:
    level = built.draw(st.sampled_from([0.9, 0.5, 1.0, 0.0, -1, 2, "a", np.nan, None]))
    _finite(built.model.predict_credible_interval(built.new(), level))


def _set_of_classes(built: Built) -> None:
    built.model.predict_set(built.new(), 0.8, data=built.rows(), method="split")


OF_LATENTS: dict[str, Callable[[Built], Any]] = {
    "predict_y": lambda built: built.model.predict_y(built.new())[0],
    "predict_f": lambda built: _finite(built.model.predict_f(built.new())),
    "predict_entropy": _entropy,
    "predict_log_density": _density,
    "predict_probability_samples": _samples,
    "predict_probability_variance": lambda built: _finite(
        built.model.predict_probability_variance(built.new())
    ),
}
PREDICTIONS = OF_LATENTS | {
    "predict_credible_interval": _interval,
    "predict_set": _set_of_classes,
}
CONJUGATE: dict[str, Callable[[Built], Any]] = PREDICTIONS | {
    "posterior": lambda built: built.model.posterior().predict_y(built.new())[0],
    "training_loss": lambda built: _finite(built.model.training_loss()),
    "predict_loo": lambda built: _finite(built.model.predict_loo()),
    "update": _updated,
    "forget": _forgotten,
    "data": _set,
}


def _methods(classes: list[Any], methods: dict[str, Any]) -> dict[str, Callable[[Draw], Any]]:
    return {
        f"{cls.__name__}.{name}": lambda draw, cls=cls, method=method: method(Built(draw, cls))
        for cls in classes
        for name, method in methods.items()
    }


def _code_svgp(draw: Draw) -> Any:
    K, D = draw(awkward.CLASSES), draw(st.sampled_from([1, 2]))
    code = draw(st.sampled_from([gi.ILRCode, gi.DirichletCode]))(K)
    model = gi.CodeSVGP(draw(awkward.kernels(D)), draw(awkward.inducing(D)), code, num_data=6)
    _finite(model.training_loss((draw(awkward.rows(6, D)), draw(awkward.labels(6, K)))))
    return model.predict_y(draw(awkward.rows(3, D)))[0]


def _of_likelihood(draw: Draw) -> Any:
    K = draw(awkward.CLASSES)
    likelihood = draw(st.sampled_from(LIKELIHOODS))(K)
    mean, variance = draw(awkward.latents(likelihood.latent_dim))
    y = draw(awkward.labels(len(mean), K))
    method = draw(st.sampled_from(["predict_log_density", "variational_expectations", ""]))
    if method:
        return _finite(getattr(likelihood, method)(None, mean, variance, y))
    return likelihood.predict_mean_and_var(None, mean, variance)[0]


def _probabilities(draw: Draw, K: int) -> Any:
    p = np.random.default_rng(draw(awkward.SEEDS)).dirichlet(np.ones(K), draw(awkward.SIZES))
    forms: list[Callable[[np.ndarray], Any]] = [
        *[lambda p: p] * 4,
        lambda p: p.astype(np.float32),
        lambda p: p.tolist(),
        lambda p: tf.constant(p),
        lambda p: np.eye(K)[np.argmax(p, axis=1)],
        lambda p: 1e30 * p,
        lambda p: p - 0.5,
        lambda p: np.log(p),
        lambda p: p[:0],
        lambda p: p[0],
        lambda p: np.nan * p,
        lambda p: None,
    ]
    return draw(st.sampled_from(forms))(p)


def _metric(draw: Draw) -> None:
    K = draw(st.sampled_from([2, 3, 1000]))
    p = _probabilities(draw, K)
    y = draw(awkward.labels(len(p) if hasattr(p, "__len__") else 3, K))
    name = draw(st.sampled_from([n for n in metrics.__all__ if n[0].islower()]))
    function = getattr(metrics, name)
    binned = "calibration" in name or "reliability" in name
    result = function(p, y, **({"num_bins": draw(awkward.counts())} if binned else {}))
    if not isinstance(result, tuple):
        _finite(result)


def _geometry(draw: Draw) -> None:
    x = _probabilities(draw, 3)
    name = draw(
        st.sampled_from(["aitchison_norm", "aitchison_distance", "aitchison_inner_product"])
    )
    both = [x] if name == "aitchison_norm" else [x, _probabilities(draw, 3)]
    _finite(getattr(simplex, name)(*both))


def _starting(draw: Draw) -> None:
    N, D = draw(awkward.SIZES), draw(st.sampled_from([1, 2]))
    X = draw(awkward.rows(N, D))
    kernel = gi.starting_kernel(X, draw(awkward.CLASSES))
    assert isinstance(kernel, gpflow.kernels.Kernel)
    _finite([p.numpy() for p in kernel.parameters])
    _finite(gi.kmeans_plusplus(X, draw(awkward.counts())))
    _finite(gi.greedy_variance(X, draw(awkward.counts()), draw(awkward.kernels(D))))


def _scaling(draw: Draw) -> None:
    N, D = draw(awkward.SIZES), draw(st.sampled_from([1, 2]))
    scaling = draw(st.sampled_from(list(SCALINGS.values())))(draw(awkward.rows(N, D)))
    _finite(scaling(draw(awkward.rows(N, D))))


def _class_weights(draw: Draw) -> Any:
    K = draw(st.sampled_from([2, 3]))
    y = draw(awkward.labels(6, K))
    of_class = calibration.balanced_class_weights(y, K)
    return calibration.undo_class_weights(_probabilities(draw, K), of_class)


NUMBERS = st.sampled_from([0.5, 0.99, 1e-6, 1e-30, 1e30, 0.0, 1.0, -1.0, np.nan, np.inf, "a", None])


def _codes(draw: Draw) -> None:
    K = draw(awkward.CLASSES)
    if draw(st.booleans()):
        code: Any = gi.ILRCode(K, draw(NUMBERS), draw(NUMBERS))
    else:
        code = gi.DirichletCode(K, draw(NUMBERS))
    _finite([code.targets, code.noise_variance, code.scale, code.link])


def _quietly(entry: Callable[[Draw], Any]) -> Callable[[Draw], Any]:
    def call(draw: Draw) -> Any:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # of short chains, of lost digits
            return entry(draw)

    return call


ILR_MODELS = {"calibrate": _calibrated}
ENTRIES: dict[str, Callable[[Draw], Any]] = {
    name: _quietly(entry)
    for name, entry in {
        **_methods(KEEP_ROWS + SPARSE, CONJUGATE),
        **_methods([gi.ILRGPR, gi.ILRSGPR, gi.ILRNNGPR], ILR_MODELS),
        **_methods(SPARSE, {"absorb": _absorbed}),
        **_methods(SAMPLED, OF_LATENTS | {"data": _set_and_sampled}),
        **_methods(
            VARIATIONAL,
            PREDICTIONS
            | {
                "training_loss": lambda built: _finite(built.model.training_loss(built.rows())),
                "posterior": lambda built: _finite(built.model.posterior().predict_f(built.new())),
            },
        ),
        "CodeSVGP": _code_svgp,
        "likelihoods": _of_likelihood,
        "metrics": _metric,
        "simplex": _geometry,
        "starting": _starting,
        "scaling": _scaling,
        "class_weights": _class_weights,
        "codes": _codes,
        **FITTED_ENTRIES,
    }.items()
}
SLOW_ENTRIES = {name: _quietly(entry) for name, entry in AUTO_ENTRIES.items()}
