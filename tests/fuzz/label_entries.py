"""What stands between labels and latents: geometry, codes, node rules and likelihoods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

import gpflow_ilr as gi
from gpflow_ilr import codes, simplex
from gpflow_ilr.inputs.labels import as_labels
from gpflow_ilr.likelihoods import CodeSoftmax
from tests.fuzz import awkward
from tests.fuzz.answers import Draw, Entry, finite, predicted, spread

__all__ = ["LABEL_ENTRIES"]

FACTORS = st.sampled_from([1.0, 1.0, 1.0, 30.0, 700.0, 1e5, 1e30])


# Geometry


def _geometry(name: str) -> Entry:
    def call(draw: Draw) -> None:
        x = draw(awkward.probabilities(3))
        both = [x] if name == "aitchison_norm" else [x, draw(awkward.probabilities(3))]
        answer = getattr(simplex, name)(*both)
        (finite if "product" in name else spread)(answer)

    return call


def _helmert(draw: Draw) -> None:
    H = simplex.helmert(draw(awkward.CLASSES))
    finite(H)
    np.testing.assert_allclose(tf.matmul(H, H, transpose_b=True), np.eye(len(H)), atol=1e-12)


def _num_classes(draw: Draw) -> None:
    assert simplex.check_num_classes(draw(awkward.CLASSES)) >= 2


def _coordinates(draw: Draw, K: int) -> Any:
    """About [N, K − 1]."""
    z = np.random.default_rng(draw(awkward.SEEDS)).standard_normal((draw(awkward.SIZES), K - 1))
    forms: list[Callable[[np.ndarray], Any]] = [
        *[lambda z: z] * 4,
        lambda z: z.astype(np.float32),
        lambda z: z.tolist(),
        lambda z: tf.constant(z),
        lambda z: z.astype(int),
        lambda z: z[:0],
        lambda z: np.concatenate([z, z], axis=1),
        lambda z: z[0],
    ]
    return draw(st.sampled_from(forms))(draw(FACTORS) * z)


def _bijector(method: str) -> Entry:
    def call(draw: Draw) -> Any:
        K = draw(awkward.CLASSES)
        ilr = gi.ILR(K)
        if method == "forward":
            return ilr.forward(_coordinates(draw, K))
        if method == "log_forward":
            return finite(ilr.log_forward(_coordinates(draw, K)))
        p = np.random.default_rng(draw(awkward.SEEDS)).dirichlet(np.ones(K), 3)
        return finite(ilr.inverse(tf.constant(np.maximum(p, 1e-300))))

    return call


# Codes


def _code(draw: Draw, cls: Any, awkwardly: bool = False) -> Any:
    K = draw(awkward.CLASSES)
    noise = draw(st.sampled_from(["fixed", "fixed", "shared", "per_output", "per_class", "none"]))
    options: dict[str, Any] = {"noise": noise}
    if awkwardly and cls is gi.ILRCode:
        options |= {"smoothing": draw(awkward.NUMBERS), "tolerance": draw(awkward.NUMBERS)}
    elif awkwardly:
        options["alpha_epsilon"] = draw(awkward.NUMBERS)
    return cls(K, **options)


def _tables(code: Any) -> None:
    finite([code.targets, code.link])
    spread([code.noise_variance, code.scale])


def _constructed(cls: Any) -> Entry:
    return lambda draw: _tables(_code(draw, cls, awkwardly=True))


def _error_rate(draw: Draw, code: Any) -> None:
    count = draw(st.sampled_from([100, 1, 0, 2.5, "a", None]))
    assert 0.0 <= code.error_rate(count, draw(awkward.SEEDS_GIVEN)) <= 1.0


def _features(draw: Draw, code: Any) -> None:
    labels = as_labels(draw(awkward.labels(6, code.num_classes)), code.num_classes)
    finite(code.features(labels))


def _rescaled(draw: Draw, code: Any) -> None:
    code.rescale_noise(draw(st.sampled_from([1.0, 0.5, 1e-3, 1e3])))
    _tables(code)


def _smoothed(draw: Draw, code: Any) -> None:
    code.smoothing = draw(awkward.NUMBERS)
    _tables(code)
    assert 0.0 < code.smoothing <= 1.0


def _learned(draw: Draw, code: Any) -> None:
    code.learn_scale()
    _tables(code)


OF_CODES: dict[str, Callable[[Draw, Any], None]] = {
    "error_rate": _error_rate,
    "features": _features,
    "rescale_noise": _rescaled,
    "learn_scale": _learned,
}


def _of_code(cls: Any, method: Callable[[Draw, Any], None]) -> Entry:
    return lambda draw: method(draw, _code(draw, cls))


def _sharpness(draw: Draw) -> None:
    K = draw(awkward.CLASSES)
    spread(codes.sharpness_of(draw(awkward.NUMBERS), simplex.check_num_classes(K)))


def _smoothing(draw: Draw) -> None:
    K = simplex.check_num_classes(draw(awkward.CLASSES))
    L = draw(st.sampled_from([1.0, 5.0, 30.0, 700.0, 800.0, 1e-30]))
    assert 0.0 <= codes.smoothing_of(L, K) <= 1.0


def _overlap(draw: Draw) -> None:
    K = simplex.check_num_classes(draw(awkward.CLASSES))
    spread(codes.overlap_noise_variance(K, draw(awkward.NUMBERS)))


# Node rules


def _rule(cls: Any) -> Entry:
    def call(draw: Draw) -> None:
        count = draw(st.sampled_from([32, 2, 64, 1, 371, 0, 2.5, "a", None, True]))
        options = {} if cls is gi.GaussHermite else {"seed": draw(awkward.SEEDS_GIVEN)}
        rule = cls(count, **options)
        nodes, weights = rule(draw(st.sampled_from([1, 2, 3, 999])), tf.float64)
        finite(nodes)
        np.testing.assert_allclose(np.sum(weights), 1.0, rtol=1e-12)

    return call


# Likelihoods

SIMPLE = [gi.ILRLikelihood, gi.SoftmaxLikelihood]
OF_CODE = [CodeSoftmax, gi.CodeGaussian]
AUGMENTED = [gi.LogisticSoftmaxLikelihood, gi.BijectiveSoftmaxLikelihood]


def _likelihood(draw: Draw, cls: Any, with_options: bool = False) -> Any:
    K, options = draw(awkward.CLASSES), {}
    if with_options:
        options["nodes"] = draw(awkward.nodes())
        if cls in SIMPLE:
            options["num_latent_gps"] = draw(st.sampled_from([None, None, 1, 2, 0, 2.5, 2000]))
            options["mixing"] = draw(st.sampled_from([None, True, False, np.ones((2, 1)), "yes"]))
        if cls in AUGMENTED:
            options["bound"] = draw(st.sampled_from(["marginal", "factorised", "tight", None]))
    if cls not in OF_CODE:
        return cls(K, **options)
    code = _code(draw, draw(st.sampled_from([gi.ILRCode, gi.DirichletCode])))
    return cls(code if draw(st.sampled_from([True, True, True, False])) else K, **options)


def _of_latents(draw: Draw, likelihood: Any) -> Any:
    return predicted(
        likelihood.predict_mean_and_var(None, *draw(awkward.latents(likelihood.latent_dim)))
    )


def _of_f(method: str) -> Callable[[Draw, Any], Any]:
    def call(draw: Draw, likelihood: Any) -> Any:
        F, _ = draw(awkward.latents(likelihood.latent_dim))
        if method == "conditional_mean":
            return likelihood.conditional_mean(None, F)
        if method == "conditional_variance":
            return spread(likelihood.conditional_variance(None, F))
        y = draw(awkward.labels(len(F), likelihood.num_classes))
        return finite(likelihood.log_prob(None, F, y))

    return call


def _of_labels(method: str) -> Callable[[Draw, Any], Any]:
    def call(draw: Draw, likelihood: Any) -> Any:
        mean, variance = draw(awkward.latents(likelihood.latent_dim))
        y = draw(awkward.labels(len(mean), likelihood.num_classes))
        return finite(getattr(likelihood, method)(None, mean, variance, y))

    return call


def _expected(draw: Draw, likelihood: Any) -> Any:
    return likelihood.expected_probabilities(*draw(awkward.latents(likelihood.latent_dim)))


OF_LIKELIHOODS: dict[str, Callable[[Draw, Any], Any]] = {
    "predict_mean_and_var": _of_latents,
    **{name: _of_f(name) for name in ("conditional_mean", "conditional_variance", "log_prob")},
    **{name: _of_labels(name) for name in ("predict_log_density", "variational_expectations")},
}


def _name(cls: Any) -> str:
    return "likelihoods.CodeSoftmax" if cls is CodeSoftmax else cls.__name__


def _of_likelihood(cls: Any, method: Callable[[Draw, Any], Any]) -> Entry:
    return lambda draw: method(draw, _likelihood(draw, cls))


def _built_likelihood(cls: Any) -> Entry:
    return lambda draw: _of_latents(draw, _likelihood(draw, cls, with_options=True))


LABEL_ENTRIES: dict[str, Entry] = {
    **{
        f"simplex.{name}": _geometry(name)
        for name in ("aitchison_norm", "aitchison_distance", "aitchison_inner_product")
    },
    "simplex.helmert": _helmert,
    "simplex.check_num_classes": _num_classes,
    **{f"ILR.{name}": _bijector(name) for name in ("forward", "log_forward", "inverse")},
    **{cls.__name__: _constructed(cls) for cls in (gi.ILRCode, gi.DirichletCode)},
    **{
        f"{cls.__name__}.{name}": _of_code(cls, method)
        for cls in (gi.ILRCode, gi.DirichletCode)
        for name, method in OF_CODES.items()
    },
    "ILRCode.smoothing": _of_code(gi.ILRCode, _smoothed),
    "codes.sharpness_of": _sharpness,
    "codes.smoothing_of": _smoothing,
    "codes.overlap_noise_variance": _overlap,
    **{cls.__name__: _rule(cls) for cls in (gi.GaussHermite, gi.Sobol, gi.MonteCarlo)},
    **{_name(cls): _built_likelihood(cls) for cls in [*SIMPLE, *OF_CODE, *AUGMENTED]},
    **{
        f"{_name(cls)}.{name}": _of_likelihood(cls, method)
        for cls in [*SIMPLE, *OF_CODE, *AUGMENTED]
        for name, method in OF_LIKELIHOODS.items()
    },
    **{
        f"{cls.__name__}.expected_probabilities": _of_likelihood(cls, _expected)
        for cls in AUGMENTED
    },
}
