"""The loss of GPHead in its ELBO mode, and the guard against every other loss.

In training the head returns exp E_q[log π] and the loss takes the logarithm again; the detour lets
metrics see numbers in [0, 1]. A built-in cross-entropy runs on the same numbers without complaint, but
normalises them first and so trains something else. A layer does not know the loss of its model, but it
takes part in the gradient: the head's output carries a ticket that :class:`ELBOLossLogic` punches, and
the gradient refuses to pass an output whose ticket was never punched.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_ilr.expectations import label_log_density
from gpflow_ilr.inputs.labels import label_rows, label_tensor

__all__ = ["ELBOLossLogic", "for_elbo_loss", "for_prediction"]


LOGARITHM = "_expected_log"
"""The attribute of a training output that holds its logarithm."""


class Ticket:
    """One training output on its way to its loss."""

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self.graph = _current_graph()
        self.punched = False

    def is_ours(self) -> bool:
        """Whether the gradient is taken where the output was made.

        The gradient of a function that contains the layer alone may be traced before the loss is
        called, in a graph of its own; there nothing is known yet.
        """
        return _current_graph() is self.graph


class _Waiting(threading.local):
    """Tickets of this thread, for replicas of a strategy are traced in threads of their own."""

    def __init__(self) -> None:
        self.tickets: list[weakref.ref[Ticket]] = []


_waiting = _Waiting()


def for_elbo_loss(expected_log: tf.Tensor) -> tf.Tensor:
    """The exponential of E[log π], whose gradient only flows if an ELBO loss consumes it.

    The loss finds the logarithm itself beside the output, as Keras' cross-entropies find logits. Where
    a later layer has made another tensor of it, values are kept from underflowing to 0, and the
    gradient is that of the exact exponential, so that such a row is trained like any other.

    :param expected_log: E[log π], [N, K].
    """
    ticket = _issue(expected_log)

    @tf.custom_gradient
    def exponential(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
        y = tf.maximum(tf.exp(x), np.finfo(x.dtype.as_numpy_dtype).tiny)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            if ticket.is_ours() and not ticket.punched:
                raise TypeError(
                    "GPHead must be compiled with ELBOLoss() of gpflow_ilr.keras "
                    "(of gpflow_ilr.tf_keras for tf_keras), but another loss was applied to its "
                    "output, which would not train the evidence lower bound. Use "
                    "compile(loss=ELBOLoss()), or GPHead(objective='draw') for built-in losses."
                )
            return upstream * y

        return y, gradient

    output = exponential(expected_log)
    setattr(output, LOGARITHM, expected_log)
    return output


def for_prediction(probabilities: tf.Tensor, training: Any) -> tf.Tensor:
    """Predicted probabilities, whose gradient does not flow if they are taken for a training output.

    In Keras 3 a model whose ``call`` has no argument ``training`` does not hand the flag on to its
    layers, and ``fit`` would train −log E[π] without the KL term.

    :param probabilities: E[π], [N, K].
    :param training: the flag as the layer got it; an explicit False allows gradients of predictions.
    """
    ticket = _issue(probabilities)

    @tf.custom_gradient
    def identity(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            if ticket.is_ours() and (ticket.punched or training is None):
                raise TypeError(
                    "A gradient flows through GPHead, but it was called without training=True. If "
                    "this is training, give the model's call an argument training (or pass "
                    "training=True in a loop of your own); for the gradient of predictions call the "
                    "model with training=False and no ELBOLoss."
                )
            return upstream

        return tf.identity(x), gradient

    return identity(probabilities)


def _issue(output: tf.Tensor) -> Ticket:
    """A ticket for an output; its gradient keeps it alive, so those of finished steps disappear."""
    ticket = Ticket(output.shape[-1])
    _waiting.tickets = [t for t in _waiting.tickets if t() is not None] + [weakref.ref(ticket)]
    return ticket


class ELBOLossLogic:
    """−Σ_k y_k log p_k for each row, for the output p of a GPHead.

    In training this is −E_q[log π_y], so that with the head's KL term the total is −ELBO/N; in
    evaluation it is the NLL of the predicted probabilities. Labels are class indices [N] or [N, 1] or
    one-hot or soft rows [N, K].

    :param reduction: how Keras reduces rows; sums are refused, for the KL term is per row.
    :param options: other arguments of the Keras loss: ``name``, and ``dtype`` in Keras 3.
    :raises ValueError: for a reduction that would weigh the KL term wrongly.
    """

    def __init__(self, reduction: str = "sum_over_batch_size", **options: Any) -> None:
        if reduction in ("sum", "mean_with_sample_weight"):
            raise ValueError(
                f"reduction must be 'sum_over_batch_size', but it is {reduction!r}: GPHead adds "
                "KL/num_data, which belongs to the mean over the rows of a batch."
            )
        super().__init__(reduction=reduction, **options)  # type: ignore[call-arg]

    @tf.autograph.experimental.do_not_convert
    def call(self, y_true: Any, y_pred: tf.Tensor) -> tf.Tensor:
        """Loss of each row, [N].

        :param y_true: labels.
        :param y_pred: output of a GPHead, [N, K].
        """
        y_pred = tf.convert_to_tensor(y_pred)
        num_classes = y_pred.shape[-1]
        for reference in reversed(_waiting.tickets):  # the latest: others may be of abandoned steps
            ticket = reference()
            if ticket is not None and not ticket.punched and ticket.num_classes == num_classes:
                ticket.punched = True
                break
        labels = label_tensor(y_true)
        if not labels.shape[:1].is_compatible_with(y_pred.shape[:1]):
            raise ValueError(
                f"Every row needs one label, but y_pred has shape {y_pred.shape.as_list()} and y_true "
                f"{labels.shape.as_list()}. Pass as many labels as rows."
            )
        rows = label_rows(labels, num_classes, dtype=y_pred.dtype)
        if hasattr(y_pred, LOGARITHM):
            return -tf.reduce_sum(rows * getattr(y_pred, LOGARITHM), axis=-1)
        return -label_log_density(y_pred, rows)


def _current_graph() -> Any:
    """The graph that is being traced, or None in eager execution."""
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
