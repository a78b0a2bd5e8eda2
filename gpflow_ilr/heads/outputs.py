"""What a head says of a row: class probabilities, and on request where their uncertainty comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from gpflow_ilr.expectations import expected_entropy, expected_softmax
from gpflow_ilr.expectations.logarithms import entropy

__all__ = ["OUTPUTS", "check_outputs", "predicted"]

OUTPUTS = ("probabilities", "entropy", "aleatoric", "epistemic", "mean", "variance")
"""E[π] [N, K]; its entropy, E[H(π)] and their difference in nats, [N]; mean and variance of latents,
[N, L]."""

Outputs = str | tuple[str, ...]


def check_outputs(outputs: Any) -> Outputs:
    """Names of outputs: one, whose tensor is returned, or several, which make a dictionary.

    :param outputs: a name of :data:`OUTPUTS`, or several.
    :raises ValueError: if there is none, or another name among them.
    """
    several = isinstance(outputs, Sequence) and not isinstance(outputs, str)
    names: Sequence[Any] = outputs if several else (outputs,)
    unknown = [name for name in names if name not in OUTPUTS]
    if unknown or not names:
        raise ValueError(
            f"outputs may be one or several of {OUTPUTS}, but it is {outputs!r}. Leave it out for the "
            "probabilities alone."
        )
    return outputs if isinstance(outputs, str) else tuple(names)


def predicted(
    mean: tf.Tensor, variance: tf.Tensor, likelihood: Any, outputs: Outputs, dtype: tf.DType
) -> tf.Tensor | dict[str, tf.Tensor]:
    """The outputs of some rows.

    :param mean: of the latents, [N, L].
    :param variance: of the latents, [N, L], or [N, 1] if they share it.
    :param likelihood: with a link and nodes.
    :param outputs: what is wanted, as :func:`check_outputs` returned it.
    :param dtype: of the outputs.
    """
    link, nodes = likelihood.link, likelihood.nodes
    wanted = {outputs} if isinstance(outputs, str) else set(outputs)
    found = {"mean": mean, "variance": tf.broadcast_to(variance, tf.shape(mean))}
    if wanted & {"probabilities", "entropy", "epistemic"}:
        found["probabilities"] = expected_softmax(mean, variance, link, nodes)
        found["entropy"] = entropy(found["probabilities"])
    if wanted & {"aleatoric", "epistemic"}:
        found["aleatoric"] = expected_entropy(mean, variance, link, nodes)
    if "epistemic" in wanted:
        found["epistemic"] = tf.maximum(found["entropy"] - found["aleatoric"], 0.0)
    return structure(outputs, lambda name: tf.cast(found[name], dtype))


def structure(outputs: Outputs, value: Callable[[str], Any]) -> Any:
    """The value of the one output, or a dictionary of the values of several.

    :param outputs: as :func:`check_outputs` returned them.
    :param value: the value of a name.
    """
    if isinstance(outputs, str):
        return value(outputs)
    return {name: value(name) for name in outputs}
