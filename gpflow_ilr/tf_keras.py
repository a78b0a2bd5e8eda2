"""A sparse GP classifier as the last layer of a tf_keras (Keras 2) network.

The same names with the same arguments as in :mod:`gpflow_ilr.keras`, for models that are built with
``tf_keras``, the generation of Keras that GPflow itself uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from gpflow_ilr.heads.closed_form import ClosedFormLogic
from gpflow_ilr.heads.earlier_layers import join_earlier_layers
from gpflow_ilr.heads.elbo_loss import ELBOLossLogic
from gpflow_ilr.heads.gp_head import HeadLogic
from gpflow_ilr.heads.networks import before_layer
from gpflow_ilr.heads.posterior_head import PosteriorLogic
from gpflow_ilr.saving.heads import load_head, save_head

__all__ = [
    "GPHead",
    "ELBOLoss",
    "ClosedFormHead",
    "PosteriorHead",
    "feature_network",
    "with_earlier_layers",
]


class GPLayer(tf_keras.layers.Layer):
    """A layer whose variables are those of the GPflow module ``gp``."""

    _keras = tf_keras

    def build(self, input_shape: Any) -> None:
        """Make the GP, for features [N, D].

        :param input_shape: their shape.
        """
        self.gp = self._build_gp(input_shape)
        super().build(input_shape)

    def _flags_changed(self) -> None:
        """Nothing to tell: weights are asked for below."""

    @property
    def trainable_weights(self) -> list[tf.Variable]:
        """Variables that are trained."""
        if not self.trainable:
            return []
        return [v for path, v in self._gp_variables().items() if self._is_trained(path, v)]

    @property
    def non_trainable_weights(self) -> list[tf.Variable]:
        """Variables that are not trained, because the layer or their part is frozen."""
        trained = {id(v) for v in self.trainable_weights}
        return [v for v in self._gp_variables().values() if id(v) not in trained]


@tf_keras.saving.register_keras_serializable(package="gpflow_ilr")
class PosteriorHead(PosteriorLogic, GPLayer):
    """A posterior as a tf_keras layer; see :class:`~gpflow_ilr.heads.posterior_head.PosteriorLogic`."""


@tf_keras.saving.register_keras_serializable(package="gpflow_ilr")
class GPHead(HeadLogic, GPLayer):
    """A GP classifier as a tf_keras layer; see :class:`~gpflow_ilr.heads.gp_head.HeadLogic`."""

    _posterior_layer = PosteriorHead


@tf_keras.saving.register_keras_serializable(package="gpflow_ilr")
class ELBOLoss(ELBOLossLogic, tf_keras.losses.Loss):
    """The loss of GPHead as a tf_keras loss; see :class:`~gpflow_ilr.heads.elbo_loss.ELBOLossLogic`."""


class ClosedFormHead(ClosedFormLogic):
    """A head for trained networks; see :class:`~gpflow_ilr.heads.closed_form.ClosedFormLogic`."""

    _keras, _layer = tf_keras, PosteriorHead
    save, load = save_head, classmethod(load_head)


def feature_network(network: Any, layer: int | str = -1) -> Any:
    """The part of a trained network that computes the input of one of its layers.

    :param network: a Sequential or functional model.
    :param layer: the layer's number or name, which may be that of a layer in a model inside; by default
        the last one, a classifier's softmax, with its logits if it is a layer of its own.
    :raises ValueError: if the network has no such layer, or it gets no features [N, D].
    """
    return before_layer(network, layer, tf_keras)


def with_earlier_layers(
    network: Any, X: Any, layers: Sequence[int | str] | None = None, share: float = 1.0
) -> Any:
    """A network whose features have averages of earlier layers beside them, to know unknown inputs by.

    A network maps some inputs that are like nothing it was trained on among the features of those that
    were. Averages of earlier layers over the image tell them apart. A head of both finds more of them,
    at much the same probabilities for the others; see :mod:`gpflow_ilr.heads.earlier_layers`.

    :param network: a Sequential or functional model that ends with features [n, D].
    :param X: training inputs, whose features and averages set the scales.
    :param layers: names or numbers of layers, by name also of models inside; all with weights but the
        last of them if None: of a backbone of a hundred layers, name a few.
    :param share: spread of all averages together, as a share of that of the features.
    :raises TypeError: if the network is no model of tf_keras.
    :raises ValueError: if it does not end with features, ends with a softmax, has no such layers, or
        the share is no number above 0.
    """
    return join_earlier_layers(network, X, layers, share, tf_keras)
