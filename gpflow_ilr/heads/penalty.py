"""A guard for loops of one's own: the KL term of a head must be trained, too.

Keras' ``fit`` adds ``model.losses`` to the loss. A loop that forgets them trains the head without its
KL term, and q becomes far too certain without a word. Each training call leaves a note here; when the
layer is called again, and q was trained by a gradient in which the KL term had no part, it refuses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["Note", "refuse_forgotten"]


class Note:
    """What became of the output and of the KL term of one training call.

    :param q: a variable of q(u), as it is at the call.
    """

    def __init__(self, q: tf.Variable) -> None:
        self.q = q
        self.before = _value(q)
        self.output_trained = False
        self.penalty_trained = False

    def of_output(self, output: tf.Tensor) -> tf.Tensor:
        """The output itself, whose gradient is noted.

        :param output: any tensor.
        """
        return self._noted(output, "output_trained")

    def of_penalty(self, penalty: tf.Tensor) -> tf.Tensor:
        """The KL term itself, whose gradient is noted.

        :param penalty: any tensor.
        """
        return self._noted(penalty, "penalty_trained")

    def _noted(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        @tf.custom_gradient
        def identity(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
            def gradient(upstream: tf.Tensor) -> tf.Tensor:
                setattr(self, name, True)
                return upstream

            return tf.identity(x), gradient

        return identity(tensor)

    @property
    def forgotten(self) -> bool:
        """Whether q was trained by the rows, and not by the KL term."""
        if not self.output_trained or self.penalty_trained or self.before is None:
            return False
        now = _value(self.q)
        return now is not None and not np.array_equal(now, self.before)


def refuse_forgotten(note: Note | None) -> None:
    """Refuse to go on after a training step without the KL term.

    :param note: of the last training call, or None.
    :raises RuntimeError: with the fix.
    """
    if note is not None and note.forgotten:
        raise RuntimeError(
            "The KL term of this GPHead was left out of the training: the loss of a loop of your own "
            "must be loss_fn(y, model(X, training=True)) + sum(model.losses). Keras' fit does so."
        )


def _value(variable: tf.Variable) -> np.ndarray | None:
    """The value, also while a function is traced; None where it is spread over devices."""
    if tf.distribute.has_strategy():
        return None
    with tf.init_scope():
        return np.asarray(variable)
