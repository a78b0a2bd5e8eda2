"""Parts of a Keras network: what goes into a layer, what layers return, and how the network ends.

A network may have whole models among its layers, a backbone from elsewhere for example. Such a model's
``output`` belongs to its own inputs, not to the network's, so the graph is walked again: every layer is
called as it was, and models inside are opened where something of theirs is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

__all__ = [
    "before_layer",
    "check_one_output",
    "find_layer",
    "model_inputs",
    "refuse_softmax",
    "single_layers",
    "with_layer_outputs",
]

Caller = Callable[..., Any]
"""Calls a layer, its first argument, with the others."""


def model_inputs(network: Any) -> Any:
    """The one input of a model, or the list of them: an exported model asks for what it was given.

    :param network: a Sequential or functional Keras model.
    """
    return network.inputs[0] if len(network.inputs) == 1 else network.inputs


def before_layer(network: Any, layer: int | str, keras: Any) -> Any:
    """The part of a network that computes the input of one of its layers.

    :param network: a Sequential or functional Keras model.
    :param layer: the layer's number or name, which may be that of a layer of a model inside; −1 for the
        last one, together with a softmax that stands behind it.
    :param keras: the network's Keras.
    :raises TypeError: if it is no Keras model.
    :raises ValueError: if the network has no such layer, or it is not known what goes into it.
    """
    if not hasattr(network, "layers"):
        raise TypeError(
            f"network must be a model of {keras.__name__}, but is {network!r}. Pass one that is "
            "trained."
        )
    if layer == -1:
        check_one_output(network)
    try:
        path = _last(network, keras) if layer == -1 else find_layer(network, layer)
        features = _input_of(network, path, keras)
    except (AttributeError, IndexError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"network has no layer={layer!r} whose input is known ({error}). Pass the name or the "
            "number of a layer of a Sequential or functional model that has been built; of other "
            "models, pass a function that computes features."
        ) from error
    own = any(features is given for given in network.inputs or ())
    if own or not network.inputs or len(features.shape) != 2:
        raise ValueError(
            f"The input of layer {path[-1].name!r} has shape {tuple(features.shape)} and is no row of "
            "features that the network computes. Name a layer behind a Flatten or a pooling layer."
        )
    return keras.Model(model_inputs(network), features)


def with_layer_outputs(network: Any, layers: Sequence[Any], keras: Any) -> Any:
    """A network that returns what some of its layers do, in their order, and then its own outputs.

    :param network: a Sequential or functional Keras model.
    :param layers: layers of it, or of models inside.
    :param keras: the network's Keras.
    """
    found: dict[int, Any] = {}  # of a layer that is called several times, what the first call gave

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        inside = [x for x in layers if any(x is part for part in _parts(layer))]
        if inside:
            *parts, output = with_layer_outputs(layer, inside, keras)(*args, **kwargs)
            for x, part in zip(inside, parts, strict=True):
                found.setdefault(_place(x, layers), part)
        else:
            output = layer(*args, **kwargs)
        if any(layer is x for x in layers):
            found.setdefault(_place(layer, layers), output)
        return output

    outputs = _called_anew(network, call, keras)
    ordered = [found[place] for place in range(len(layers))]
    return keras.Model(model_inputs(network), [*ordered, *outputs], name=network.name)


def find_layer(network: Any, layer: int | str) -> list[Any]:
    """A layer, after the models inside the network that lead to it.

    :param network: a Keras model.
    :param layer: a number, or a name.
    :raises ValueError: if there is none of that name.
    """
    if not isinstance(layer, str):
        return [network.layers[layer]]
    for part in network.layers:
        if part.name == layer:
            return [part]
    for part in filter(_is_model, network.layers):
        if any(x.name == layer for x in _parts(part)):
            return [part, *find_layer(part, layer)]
    raise ValueError(f"its layers are {[part.name for part in network.layers]}")


def single_layers(network: Any) -> Iterator[Any]:
    """The layers of a network, those of a model inside in place of the model.

    :param network: a Keras model.
    """
    for layer in network.layers:
        if _is_model(layer):
            yield from single_layers(layer)
        else:
            yield layer


def check_one_output(network: Any) -> None:
    """Refuse models of which it is not clear what the features are.

    :param network: a Keras model or layer.
    :raises ValueError: if it is known to have several outputs.
    """
    count = len(getattr(network, "outputs", None) or [None])
    if count != 1:
        raise ValueError(
            f"network must have one output, but has {count}. Pass the part that computes the features: "
            "keras.Model(network.inputs, features), or feature_network(network, layer=name), which "
            "ends before the layer of that name."
        )


def refuse_softmax(network: Any, keras: Any) -> None:
    """Probabilities are no features: what is before them has far more to say.

    :param network: a Keras model or layer.
    :param keras: the network's Keras.
    :raises ValueError: if the last layer of the network is a softmax, be it that of a model inside.
    """
    last = network
    while getattr(last, "layers", None):
        last = last.layers[-1]
    if _is_softmax(last, keras):
        raise ValueError(
            f"network must end with features, but its last layer {last.name!r} is a softmax. Pass "
            "feature_network(network), the part before its last layer."
        )


def _is_softmax(layer: Any, keras: Any) -> bool:
    activation = getattr(layer, "activation", None)
    by_function = getattr(activation, "__name__", "") in ("softmax", "softmax_v2")  # TensorFlow's
    return by_function or isinstance(layer, keras.layers.Softmax)


def _is_model(layer: Any) -> bool:
    """Whether it has a graph of layers; subclassed models are closed boxes."""
    return bool(getattr(layer, "layers", None)) and bool(getattr(layer, "inputs", None))


def _parts(layer: Any) -> Iterator[Any]:
    """All layers inside a model, at every depth."""
    for part in layer.layers if _is_model(layer) else ():
        yield part
        yield from _parts(part)


def _place(layer: Any, layers: Sequence[Any]) -> int:
    return next(i for i, x in enumerate(layers) if x is layer)


def _last(network: Any, keras: Any) -> list[Any]:
    """The way to the last layer, or to the Dense layer before it if that is a softmax alone."""
    *others, last = network.layers
    if others and _is_softmax(last, keras) and not last.weights:
        logits = others[-1]
        last = logits if _is_model(logits) or isinstance(logits, keras.layers.Dense) else last
    return [last, *_last(last, keras)] if _is_model(last) else [last]


def _input_of(network: Any, path: Sequence[Any], keras: Any) -> Any:
    """What goes into the layer at the end of a path."""
    first, *inside = path
    if not _is_model(first):
        return first.input
    given: list[Any] = []

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if layer is first:
            given.append(args[0])
        return layer(*args, **kwargs)

    _called_anew(network, call, keras)
    if not inside:
        return given[0]
    features = _input_of(first, inside, keras)
    if any(features is x for x in first.inputs):
        return given[0]
    return keras.Model(model_inputs(first), features)(given[0])


def _called_anew(network: Any, call: Caller, keras: Any) -> list[Any]:
    """The outputs of a network whose layers are called again, one after the other, on its inputs.

    :param network: a Sequential or functional Keras model.
    :param call: calls each layer, with what it was called with.
    :param keras: the network's Keras.
    """
    if not hasattr(network.outputs[0], "node"):  # Keras 3
        graph = keras.Model(
            network.inputs, network.outputs
        )  # which is neither compiled nor Sequential
        again = keras.models.clone_model(graph, network.inputs, lambda layer: layer, call)
        return list(again.outputs)
    known = {id(tensor): tensor for tensor in network.inputs}

    def now(thing: Any) -> Any:
        return known.get(id(thing), thing)

    nodes = [tensor.node for tensor in network.outputs]
    while nodes:
        node = nodes[-1]
        missing = [] if _has(known, node) else [x for x in node.parent_nodes if not _has(known, x)]
        if missing:
            nodes += missing
            continue
        nodes.pop()
        if not _has(known, node):
            args, kwargs = tf.nest.map_structure(now, (node.call_args, node.call_kwargs))
            outputs = tf.nest.flatten(call(node.layer, *args, **kwargs))
            known.update(zip(map(id, tf.nest.flatten(node.outputs)), outputs, strict=True))
    return [known[id(tensor)] for tensor in network.outputs]


def _has(known: dict[int, Any], node: Any) -> bool:
    return all(id(tensor) in known for tensor in tf.nest.flatten(node.outputs))
