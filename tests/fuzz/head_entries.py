"""The last layer of a network, for Keras 3 and tf_keras, with awkward features and options."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

import gpflow_ilr.keras
import gpflow_ilr.tf_keras
from tests.fuzz import awkward
from tests.fuzz.answers import Draw, Entry, finite, latents, uncertainty

__all__ = ["HEAD_ENTRIES"]

N, D, K = 6, 2, 3
DOORS = {"keras": gpflow_ilr.keras, "tf_keras": gpflow_ilr.tf_keras}
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((N, D)), np.arange(N) % K
COUNTS = st.sampled_from([3, 3, 2, 1, 99, 0, 2.5, "2", None])
KERNELS = st.sampled_from(
    ["SquaredExponential", "SquaredExponential", "Matern52", "Linear", "rbf", 3, None]
)
OUTPUTS = st.sampled_from(
    ["probabilities", "probabilities", ["probabilities", "entropy"], "mean", [], "all", 3, None]
)


def _network(door: Any) -> Any:
    """Two layers, of which the second is a softmax."""
    keras = door.GPHead._keras
    layers = [keras.layers.Dense(D, name="features"), keras.layers.Dense(K, activation="softmax")]
    return keras.Sequential([keras.layers.Input((D,)), *layers])


def _rows(draw: Draw) -> tuple[Any, ...]:
    w = draw(awkward.weights(N))
    rows = draw(awkward.rows(N, D)), draw(awkward.labels(N, K))
    return rows if w is None else (*rows, w)


def _maybe_rows(draw: Draw) -> Any:
    return _rows(draw) if draw(st.booleans()) else None


def _options(draw: Draw, strategies: dict[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
    """One or two of the options, drawn."""
    names = draw(st.lists(st.sampled_from(sorted(strategies)), max_size=2, unique=True))
    return {name: draw(strategies[name]) for name in names}


PRECISION = {
    "kernel": KERNELS,
    "nodes": awkward.nodes(),
    "gp_dtype": st.sampled_from([None, "float64", "float32", "float16", 3]),
    "jitter": st.sampled_from([None, 1e-6, 0.0, -1.0, np.nan, "a"]),
}

# GPHead


def _head(draw: Draw, door: Any, **options: Any) -> Any:
    right = {"num_classes": K, "num_inducing": 3, "num_data": N}
    # What is computed in float32 sums to one as float32 does.
    dtype = "float32" if options.get("gp_dtype") == "float32" else "float64"
    options = {**right, "dtype": dtype, **options}
    return door.GPHead(**options)


def _built(draw: Draw, door: Any, objective: str = "elbo") -> Any:
    """A head that right features have adapted."""
    head = _head(draw, door, objective=objective)
    head.adapt(X)
    return head


def _constructed(draw: Draw, door: Any) -> Any:
    options = PRECISION | {
        "num_classes": awkward.CLASSES.filter(lambda K: K != 1000),
        "num_inducing": COUNTS,
        "num_data": COUNTS,
        "num_latent_gps": st.sampled_from([None, 1, 2, 0, 2.5, 99]),
        "mixing": st.sampled_from([True, False, "yes"]),
        "objective": st.sampled_from(["elbo", "draw", "code", "vi"]),
        "frozen": st.sampled_from([None, ["kernel"], "q", ["all"], 3]),
        "seed": awkward.SEEDS_GIVEN,
    }
    head = _head(draw, door, **_options(draw, options))
    again = type(head).from_config(head.get_config())
    assert again.get_config() == head.get_config()
    return head(X)


def _called(draw: Draw, door: Any) -> Any:
    values = X * draw(st.sampled_from([1.0, 1.0, 0.0, 1e-30, 1e5, 1e30, 1e160]))
    shape = draw(st.sampled_from([values, values[:1], np.concatenate([values, values], axis=1)]))
    return _built(draw, door)(tf.constant(shape))


def _adapted(draw: Draw, door: Any) -> Any:
    head = _head(draw, door)
    head.adapt(draw(awkward.rows(N, D)))
    return head.predict_entropy(X) and None


def _trained(draw: Draw, door: Any) -> Any:
    """One epoch of Keras' own fit, on right rows of awkward size."""
    keras = door.GPHead._keras
    head = _built(draw, door, draw(st.sampled_from(["elbo", "code"])))
    model = keras.Sequential([keras.layers.Input((D,), dtype="float64"), head])
    model.compile(keras.optimizers.SGD(1e-3), loss=door.ELBOLoss(), run_eagerly=True)
    model.fit(X * draw(st.sampled_from([1.0, 1e-30, 1e5])), Y, verbose=0)
    return model(X)


def _calibrated(draw: Draw, door: Any) -> Any:
    head = _built(draw, door, draw(st.sampled_from(["elbo", "code"])))
    choice = head.calibrate(_rows(draw))
    finite([choice.scale, choice.nll_before, choice.nll_after])
    return head(X)


def _collapsed(draw: Draw, door: Any) -> Any:
    head = _built(draw, door, draw(st.sampled_from(["code", "code", "code", "elbo"])))
    head.collapse(_rows(draw), validation=_maybe_rows(draw))
    return head(X)


def _entropies(draw: Draw, door: Any) -> None:
    uncertainty(_built(draw, door).predict_entropy(draw(awkward.rows(N, D))))


def _latents(draw: Draw, door: Any) -> None:
    latents(_built(draw, door).predict_latents(draw(awkward.rows(N, D))))


def _posterior_layer(draw: Draw, door: Any) -> Any:
    layer = _built(draw, door).posterior_layer(draw(OUTPUTS))
    return _of_outputs(layer(X))


def _of_outputs(outputs: Any) -> Any:
    """Probabilities, where they are among what a layer returns."""
    if isinstance(outputs, dict):
        finite(outputs)
        return outputs.get("probabilities")
    return outputs if outputs.shape[-1:] == (K,) else finite(outputs)


def _frozen(draw: Draw, door: Any) -> Any:
    head = _built(draw, door)
    head.frozen = draw(st.sampled_from([["kernel"], "q", [], ["all"], 3, None]))
    return head(X)


def _posterior_head(draw: Draw, door: Any) -> Any:
    options = PRECISION | {
        "num_inducing": COUNTS,
        "num_latent_gps": st.sampled_from([None, 2, 1, 0, "a"]),
        "num_roots": st.sampled_from([1, 2, 0, "a"]),
        "outputs": OUTPUTS,
    }
    given = _options(draw, options)
    dtype = "float32" if given.get("gp_dtype") == "float32" else "float64"
    layer = door.PosteriorHead(**{"num_classes": K, "num_inducing": 3, "dtype": dtype} | given)
    assert type(layer).from_config(layer.get_config()).get_config() == layer.get_config()
    return _of_outputs(layer(X))


def _loss(draw: Draw, door: Any) -> None:
    p = draw(awkward.probabilities(K).filter(lambda p: isinstance(p, np.ndarray) and p.ndim == 2))
    y = draw(awkward.labels(len(p), K))
    # Of NaN, which only a network can have made, Keras' loss is NaN, as that of every other network.
    finite(door.ELBOLoss().call(y, np.clip(np.nan_to_num(p), 1e-9, 1.0)))


# ClosedFormHead


def _closed_form(door: Any, **options: Any) -> Any:
    options = {"num_classes": K, "num_inducing": 3, "max_iterations": 0} | options
    return door.ClosedFormHead(**options)


def _fitted(door: Any, **options: Any) -> Any:
    head = _closed_form(door, **options)
    head.fit((X, Y))
    return head


def _made(draw: Draw, door: Any) -> Any:
    options = PRECISION | {
        "num_classes": awkward.CLASSES.filter(lambda K: K != 1000),
        "num_inducing": COUNTS,
        "network": st.sampled_from([None, lambda X: X, lambda X: X[:, 0], "features", 3]),
        "sample_size": COUNTS,
        "max_iterations": st.sampled_from([0, 1, -1, "a"]),
        "seed": awkward.SEEDS_GIVEN,
    }
    return _fitted(door, **_options(draw, options)).predict(X)


def _fit(draw: Draw, door: Any) -> Any:
    head = _closed_form(door)
    assert str(head.fit(_rows(draw), validation=_maybe_rows(draw)))
    return head.predict(X)


def _calibrated_closed_form(draw: Draw, door: Any) -> Any:
    head = _fitted(door)
    head.calibrate(_maybe_rows(draw))
    return head.predict(X)


def _updated(draw: Draw, door: Any) -> Any:
    head, (X_new, y_new, *w) = _fitted(door), _rows(draw)
    count = draw(st.sampled_from([None, None, K, K + 1, K - 1, "4"]))
    head.update(X_new, y_new, sample_weight=w[0] if w else None, num_classes=count)
    return head.predict(X)


def _polished(draw: Draw, door: Any) -> Any:
    head = _fitted(door)
    weights = draw(st.sampled_from([1.0, 0.3, [1.0, 0.1], 0.0, 2.0, [], "a", None]))
    done = head.polish(_rows(draw), validation=_maybe_rows(draw), row_weights=weights, max_steps=1)
    finite([done.nll_before, done.nll_after])
    return head.predict(X)


def _predicted(draw: Draw, door: Any) -> Any:
    return _fitted(door).predict(draw(awkward.rows(draw(awkward.SIZES), D)))


def _entropies_of_closed_form(draw: Draw, door: Any) -> None:
    uncertainty(_fitted(door).predict_entropy(draw(awkward.rows(N, D))))


def _layer(draw: Draw, door: Any) -> Any:
    return _of_outputs(_fitted(door).layer(draw(OUTPUTS), dtype="float64")(X))


def _attached(draw: Draw, door: Any) -> Any:
    network = draw(st.sampled_from([None, None, "features", 3, "classifier"]))
    network = _network(door) if network == "classifier" else network
    return _of_outputs(_fitted(door).attach(network, draw(OUTPUTS))(X))


def _kept(draw: Draw, door: Any) -> Any:
    """A head that comes back predicts what it did, or its file, or its network, is refused."""
    fitted = draw(st.sampled_from([True, True, False]))
    head = _fitted(door) if fitted else _closed_form(door)
    network = draw(st.sampled_from([None, None, lambda X: X, lambda X: X[:, 0], "network", 3]))
    with tempfile.TemporaryDirectory() as folder:
        head.save(Path(folder) / "head")
        found = door.ClosedFormHead.load(Path(folder) / "head", network).predict(X)
    np.testing.assert_array_equal(found, head.predict(X))
    return found


# Networks


def _feature_network(draw: Draw, door: Any) -> None:
    network = draw(st.sampled_from([_network(door), None, "network", X]))
    layer = draw(st.sampled_from([-1, 1, "features", 99, "none", 0, 2.5, None]))
    finite(door.feature_network(network, layer)(X))


def _with_earlier_layers(draw: Draw, door: Any) -> None:
    network = draw(st.sampled_from([_network(door), None, "network"]))
    if network is not None and network != "network":
        network = door.feature_network(network)
    layers = draw(st.sampled_from([["features"], [0], None, "features", [99], ["none"], []]))
    joined = door.with_earlier_layers(
        network, draw(awkward.rows(N, D)), layers, draw(awkward.NUMBERS)
    )
    finite(joined(X))


OF_DOORS: dict[str, Callable[[Draw, Any], Any]] = {
    "GPHead": _constructed,
    "GPHead.call": _called,
    "GPHead.adapt": _adapted,
    "GPHead in a network": _trained,
    "GPHead.calibrate": _calibrated,
    "GPHead.collapse": _collapsed,
    "GPHead.predict_entropy": _entropies,
    "GPHead.predict_latents": _latents,
    "GPHead.posterior_layer": _posterior_layer,
    "GPHead.frozen": _frozen,
    "PosteriorHead": _posterior_head,
    "PosteriorHead.call": _posterior_head,
    "ELBOLoss.call": _loss,
    "ClosedFormHead": _made,
    "ClosedFormHead.fit": _fit,
    "ClosedFormHead.calibrate": _calibrated_closed_form,
    "ClosedFormHead.update": _updated,
    "ClosedFormHead.polish": _polished,
    "ClosedFormHead.predict": _predicted,
    "ClosedFormHead.predict_entropy": _entropies_of_closed_form,
    "ClosedFormHead.layer": _layer,
    "ClosedFormHead.attach": _attached,
    "ClosedFormHead.save": _kept,
    "ClosedFormHead.load": _kept,
    "feature_network": _feature_network,
    "with_earlier_layers": _with_earlier_layers,
}
HEAD_ENTRIES: dict[str, Entry] = {
    f"{name}.{what}": lambda draw, door=door, call=call: call(draw, door)
    for name, door in DOORS.items()
    for what, call in OF_DOORS.items()
}
