"""The methods of every model, called on a :class:`~tests.fuzz.built.Built` one.

A method of many classes is written once; the name of an entry is ``Class.method``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import gpflow_ilr as gi
from tests.fuzz import awkward
from tests.fuzz.answers import Entry, finite, interval, latents, predicted, spread, uncertainty
from tests.fuzz.built import KEEP_ROWS, NEIGHBOURS, SAMPLED, SPARSE, VARIATIONAL, Built

__all__ = ["MODEL_ENTRIES"]

Method = Callable[[Built], Any]
CONJUGATE = [*KEEP_ROWS, *SPARSE]
EXACT = [gi.ILRGPR, gi.DirichletGPR]
ILR = [gi.ILRGPR, gi.ILRSGPR, gi.ILRNNGPR]
CACHES = st.sampled_from(["tensor", "tensor", "variable", "nocache", None, "cache", 3])
ROW_NUMBERS = st.sampled_from([None, None, [0], np.array([0, 0]), [99], [-1], [0.5], "all", []])
SHORT = {"num_samples": 2, "num_burnin": 1, "num_chains": 2}


# Predictions


def _set_of_classes(built: Built) -> None:
    """Of any method; what it must be is a question of rows with labels."""
    draw, data = built.draw, built.rows()
    method = draw(st.sampled_from(["split", "jackknife", "jackknife+", None, "fold"]))
    of_rows = method == "split" or draw(st.booleans())
    sets = built.model.predict_set(
        built.new(),
        draw(awkward.LEVELS),
        method,
        data if of_rows else None,
        score=draw(st.sampled_from(["adaptive", "adaptive", "plain", "aps"])),
        class_conditional=draw(st.booleans()),
        seed=draw(awkward.SEEDS_GIVEN),
    )
    assert sets.dtype == bool
    assert sets.shape[-1] == built.K


def _full(built: Built) -> dict[str, bool]:
    return {name: built.draw(st.booleans()) for name in ("full_cov", "full_output_cov")}


def _latents(built: Built) -> None:
    options = _full(built) if built.draw(st.booleans()) else {}
    latents(built.model.predict_f(built.new(), **options), any(options.values()))


def _functions(built: Built) -> None:
    options = _full(built) if built.draw(st.booleans()) else {}
    finite(built.model.predict_f_samples(built.new(), built.draw(awkward.counts()), **options))


def _draws(built: Built) -> Any:
    count, full = built.draw(awkward.counts()), built.draw(st.booleans())
    return built.model.predict_probability_samples(built.new(), count, full)


def _density(built: Built) -> None:
    finite(built.model.predict_log_density((built.new(), built.rows()[1])))


OF_LATENTS: dict[str, Method] = {
    "predict_y": Built.probabilities,
    "predict_f": _latents,
    "predict_f_samples": _functions,
    "predict_entropy": lambda built: uncertainty(built.model.predict_entropy(built.new())),
    "predict_log_density": _density,
    "predict_probability_samples": _draws,
    "predict_probability_variance": lambda built: spread(
        built.model.predict_probability_variance(built.new())
    ),
}
PREDICTIONS = OF_LATENTS | {
    "predict_credible_interval": lambda built: interval(
        built.model.predict_credible_interval(built.new(), built.draw(awkward.LEVELS))
    ),
    "predict_marginals": lambda built: latents(built.model.predict_marginals(built.new())),
    "predict_set": _set_of_classes,
}


def _posterior(built: Built) -> Any:
    posterior = built.model.posterior(built.draw(CACHES))
    which = built.draw(st.sampled_from(["predict_y", "predict_f", "predict_entropy"]))
    if which == "predict_f" and posterior.cache is None:
        which = "fused_predict_f"  # GPflow's posteriors ask for it, in a sentence of GPflow's
    answer = getattr(posterior, which)(built.new())
    return predicted(answer) if which == "predict_y" else finite(tuple(answer))


def _latents_of_posterior(built: Built) -> None:
    latents(built.model.posterior(built.draw(CACHES)).predict_f(built.new()))


def _noisy(built: Built) -> Any:
    return predicted(built.model.predict_y(built.new(), observation_noise=True))


def _observed(built: Built) -> Any:
    """Half of the entries of models that predict observations, too."""
    return (_noisy if built.draw(st.booleans()) else Built.probabilities)(built)


# Rows and classes that come and go


def _updated(built: Built) -> Any:
    options: dict[str, Any] = {"sample_weight": built.draw(awkward.weights(built.N))}
    K = built.K if type(built.K) is int else 3
    options["num_classes"] = built.draw(st.sampled_from([None, None, K, K + 1, K - 1, "4", 2.5]))
    built.model.update(*built.rows(), **options)
    return built.probabilities()


def _forgotten(built: Built) -> Any:
    X, y = built.rows()
    built.model.update(X, y)
    built.model.forget(X, y)
    return built.probabilities()


def _merged(built: Built) -> Any:
    labels = [[0, 1], [1, 0], [0, 0], [0], [0, 99], [0, 1.5], "ab", None, 3, np.array([0, 1])]
    built.model.merge_classes(built.draw(st.sampled_from(labels)))
    return built.probabilities()


def _without_class(built: Built) -> Any:
    built.model.remove_class(built.draw(st.sampled_from([0, 1, 2, -1, 99, 0.5, "a", None, True])))
    return built.probabilities()


def _other_data(built: Built) -> Any:
    built.model.data = built.rows()
    return built.probabilities()


def _other_data_and_sampled(built: Built) -> Any:
    built.model.data = built.rows()
    built.model.sample(**SHORT)
    return built.probabilities()


def _absorbed(built: Built) -> Any:
    options = {"batch_size": built.draw(awkward.counts())}
    options |= {"sample_size": built.draw(st.sampled_from([4096, 4096, 1, 0, "a", None]))}
    options |= {"include_own_rows": built.draw(st.booleans())}
    built.model.absorb(built.rows(), **options)
    return built.probabilities()


# Leave-one-out, calibration, objectives


def _criterion_rows(built: Built) -> None:
    built.model.criterion_rows = built.draw(ROW_NUMBERS)
    finite(built.model.spread_rows(built.draw(awkward.counts())))


def _calibrated(built: Built) -> Any:
    data = built.rows() if built.draw(st.booleans()) else None
    options = {"noise": built.draw(st.booleans()), "max_rows": built.draw(awkward.counts())}
    options |= {"neighbours": built.draw(st.sampled_from([False, False, True]))}
    found = built.model.calibrate(data, **options)
    finite([found.smoothing, found.nll_before, found.nll_after, found.noise_variance])
    assert str(found)
    return built.probabilities()


def _calibrated_on(built: Built) -> Any:
    built.model.calibrate(built.rows(), trained_on=built.draw(st.booleans()))
    return built.probabilities()


def _smoothed(built: Built) -> Any:
    built.model.smoothing = built.draw(awkward.NUMBERS)
    return built.probabilities()


def _other_neighbours(built: Built) -> Any:
    built.model.num_neighbours = built.draw(awkward.counts())
    assert built.model.has_stale_neighbours() in (False, True)
    return built.probabilities()


def _loss_of_batches(built: Built) -> None:
    options: dict[str, Any] = {"compile": False}
    if built.draw(st.booleans()):
        options["data"] = built.rows()
    else:
        options["batch_size"] = built.draw(awkward.counts())
    finite(built.model.training_loss_closure(**options)())


def _loss_of_rows(built: Built) -> None:
    w = built.draw(awkward.weights(built.N))
    data = built.rows() if w is None else (*built.rows(), w)
    finite(built.model.training_loss_closure(data, compile=False)())


def _bound_of_rows(built: Built) -> None:
    w = built.draw(awkward.weights(built.N))
    finite(built.model.elbo(built.rows() if w is None else (*built.rows(), w)))


def _refused(built: Built) -> None:
    """An update of a model that cannot be updated."""
    built.model.update(*built.rows())
    raise AssertionError("It was not refused.")


def _more_samples(built: Built) -> Any:
    counts = {name: built.draw(st.sampled_from([2, 2, 1, 0, 2.5, "a"])) for name in SHORT}
    built.model.sample(**counts, seed=built.draw(awkward.SEEDS_GIVEN))
    built.model.sample_more(built.draw(st.sampled_from([2, 2, 1, 0, 2.5, "a"])))
    return built.probabilities()


def _sampled_posterior(built: Built) -> None:
    X = np.random.default_rng(0).standard_normal((4, built.D))
    latents(built.model.posterior().predict_f(X))


def _from_collapsed(built: Built) -> Any:
    options = {"mixing": built.draw(st.sampled_from([None, True, False, "yes"]))}
    options |= {"num_data": built.draw(awkward.counts()), "nodes": built.draw(awkward.nodes())}
    model = gi.ILRSVGP.from_collapsed(built.model, **options)
    return predicted(model.predict_y(built.new()))


def number(name: str, *arguments: str) -> Method:
    """A method that returns finite numbers of the model alone."""
    return lambda built: finite(getattr(built.model, name)(*arguments))


OF_CONJUGATE: dict[str, Method] = PREDICTIONS | {
    "predict_y": _observed,
    "posterior": _posterior,
    "training_loss": number("training_loss"),
    "maximum_log_likelihood_objective": number("maximum_log_likelihood_objective"),
    "loo_log_density": number("loo_log_density"),
    "predict_loo": lambda built: latents(built.model.predict_loo()),
    "leave_one_out": lambda built: latents(built.model.leave_one_out()),
    "criterion_rows": _criterion_rows,
    "spread_rows": _criterion_rows,
    "update": _updated,
    "forget": _forgotten,
    "merge_classes": _merged,
    "remove_class": _without_class,
    "data": _other_data,
}
OF_VARIATIONAL: dict[str, Method] = PREDICTIONS | {
    "posterior": _latents_of_posterior,
    "elbo": _bound_of_rows,
    "maximum_log_likelihood_objective": _bound_of_rows,
    "training_loss": lambda built: finite(built.model.training_loss(built.rows())),
    "training_loss_closure": _loss_of_rows,
    "prior_kl": lambda built: spread(built.model.prior_kl()),
    "update": _refused,
}
OF_SAMPLED: dict[str, Method] = OF_LATENTS | {
    "posterior": _sampled_posterior,
    "sample": _more_samples,
    "sample_more": _more_samples,
    "elbo": number("elbo"),
    "maximum_log_likelihood_objective": number("maximum_log_likelihood_objective"),
    "training_loss": number("training_loss"),
    "data": _other_data_and_sampled,
}


def methods(classes: list[Any], methods: dict[str, Method]) -> dict[str, Entry]:
    """Entries of some methods of some classes."""
    return {
        f"{cls.__name__}.{name}": lambda draw, cls=cls, method=method: method(Built(draw, cls))
        for cls in classes
        for name, method in methods.items()
    }


def _constructed(cls: Any) -> Entry:
    return lambda draw: Built(draw, cls, with_options=True).probabilities()


MODEL_ENTRIES: dict[str, Entry] = {
    **{cls.__name__: _constructed(cls) for cls in [*CONJUGATE, *VARIATIONAL, *SAMPLED]},
    **methods(CONJUGATE, OF_CONJUGATE),
    **methods(CONJUGATE, {"log_evidence": number("log_evidence")}),
    **methods(EXACT, {"log_marginal_likelihood": number("log_marginal_likelihood")}),
    **methods(ILR, {"calibrate": _calibrated, "smoothing": _smoothed}),
    **methods(NEIGHBOURS, {"num_neighbours": _other_neighbours}),
    **methods(NEIGHBOURS, {"has_stale_neighbours": _other_neighbours}),
    **methods(NEIGHBOURS, {"training_loss_closure": _loss_of_batches}),
    **methods(SPARSE, {"absorb": _absorbed, "elbo": number("elbo")}),
    **methods(SPARSE, {"compute_qu": lambda built: finite(built.model.compute_qu())}),
    **methods(SAMPLED, OF_SAMPLED),
    **methods(VARIATIONAL, OF_VARIATIONAL),
    **methods([gi.CodeSVGP], {"calibrate": _calibrated_on, "smoothing": _smoothed}),
    "ILRSVGP.from_collapsed": lambda draw: _from_collapsed(Built(draw, gi.ILRSGPR)),
}
