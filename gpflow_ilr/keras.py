"""A sparse GP as the last layer of a Keras 3 network: trained with it, or put there afterwards.

::

    head = ClosedFormHead(num_classes=K, network=features)  # features: a trained network
    head.fit((X, y), validation=(X_val, y_val))
    head.attach().predict(X_test)  # probabilities [N, K]

or as a layer that is trained::

    head = GPHead(num_classes=K, num_inducing=100, num_data=len(X))
    model = keras.Sequential([features, head])
    head.adapt(features.predict(X))
    model.compile("adam", loss=ELBOLoss(), metrics=["accuracy"])
    model.fit(X, y)
    model.predict(X_test)

The logic is in :mod:`gpflow_ilr.heads`; :mod:`gpflow_ilr.tf_keras` has the same names for tf_keras.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

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


def check_keras(version: str, backend: str) -> None:
    """Refuse versions of Keras 3 in which the layer would not be trained.

    :param version: of Keras.
    :param backend: of Keras.
    :raises ImportError: with the fix.
    """
    if tuple(int(part) for part in version.split(".")[:2]) < (3, 10):
        raise ImportError(
            f"gpflow_ilr.keras needs Keras 3.10 or later, but Keras is {version}: earlier ones copy "
            "the GP's variables and train the copies. Run pip install 'keras>=3.10', or use "
            "gpflow_ilr.tf_keras with tf_keras."
        )
    if backend != "tensorflow":
        raise ImportError(
            f"gpflow_ilr.keras needs Keras' TensorFlow backend, but the backend is {backend!r}. Set "
            "the environment variable KERAS_BACKEND=tensorflow before Keras is imported."
        )


check_keras(keras.__version__, keras.backend.backend())


class GPLayer(keras.layers.Layer):
    """A layer whose variables are those of the GPflow module ``gp``."""

    _keras = keras

    def build(self, input_shape: Any) -> None:
        """Make the GP, for features [N, D].

        :param input_shape: their shape.
        """
        self.gp = self._build_gp(input_shape)
        # Keras 3 does not look into GPflow's modules, so it is given each variable under its own type.
        self._aliases = [
            keras.Variable(
                variable,
                dtype=variable.dtype.name,
                trainable=bool(variable.trainable),
                autocast=False,
                name=path.removeprefix("."),
            )
            for path, variable in self._gp_variables().items()
        ]
        self._flags_changed()

    @property
    def trainable(self) -> bool:
        """Whether the layer is trained, apart from its frozen parts."""
        return bool(super().trainable)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.layers.Layer.trainable.fset(self, bool(value))
        self._flags_changed()

    def _flags_changed(self) -> None:
        """Tell Keras, which keeps flags of its own."""
        for alias, (path, variable) in zip(
            getattr(self, "_aliases", ()), self._gp_variables().items(), strict=True
        ):
            alias.trainable = self.trainable and self._is_trained(path, variable)


@keras.saving.register_keras_serializable(package="gpflow_ilr")
class PosteriorHead(PosteriorLogic, GPLayer):
    """A posterior as a Keras 3 layer; see :class:`~gpflow_ilr.heads.posterior_head.PosteriorLogic`."""


@keras.saving.register_keras_serializable(package="gpflow_ilr")
class GPHead(HeadLogic, GPLayer):
    """A GP classifier as a Keras 3 layer; see :class:`~gpflow_ilr.heads.gp_head.HeadLogic`."""

    _posterior_layer = PosteriorHead


@keras.saving.register_keras_serializable(package="gpflow_ilr")
class ELBOLoss(ELBOLossLogic, keras.losses.Loss):
    """The loss of GPHead as a Keras 3 loss; see :class:`~gpflow_ilr.heads.elbo_loss.ELBOLossLogic`."""


class ClosedFormHead(ClosedFormLogic):
    """A head for trained networks; see :class:`~gpflow_ilr.heads.closed_form.ClosedFormLogic`."""

    _keras, _layer = keras, PosteriorHead
    save, load = save_head, classmethod(load_head)


def feature_network(network: Any, layer: int | str = -1) -> Any:
    """The part of a trained network that computes the input of one of its layers.

    :param network: a Sequential or functional model.
    :param layer: the layer's number or name, which may be that of a layer in a model inside; by default
        the last one, a classifier's softmax, with its logits if it is a layer of its own.
    :raises ValueError: if the network has no such layer, or it gets no features [N, D].
    """
    return before_layer(network, layer, keras)


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
    :raises TypeError: if the network is no model of keras.
    :raises ValueError: if it does not end with features, ends with a softmax, has no such layers, or
        the share is no number above 0.
    """
    return join_earlier_layers(network, X, layers, share, keras)
