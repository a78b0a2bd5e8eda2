"""Both generations of Keras behind one face, and the small models that tests of the head share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import gpflow
import keras
import numpy as np
import tf_keras

import gpflow_ilr.keras
import gpflow_ilr.tf_keras
from gpflow_ilr import ILRLikelihood

K, D, N, M = 3, 2, 24, 6
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, 4))
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
IMAGES = RNG.normal(size=(N, 4, 4, 1)).astype("float32") + Y[:, None, None, None]


class DeepKernel(gpflow.kernels.SquaredExponential):
    """A kernel that holds a network, in a list as users do."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.parts = [network]


@dataclass(frozen=True)
class Stack:
    """A Keras package with the head and the loss made for it."""

    keras: Any
    door: Any

    @property
    def GPHead(self) -> Any:
        return self.door.GPHead

    @property
    def ELBOLoss(self) -> Any:
        return self.door.ELBOLoss

    def closed_form(self, **options: Any) -> Any:
        """A head that keeps the kernel as it starts, for speed."""
        options = {"num_classes": K, "num_inducing": M, "max_iterations": 0, **options}
        return self.door.ClosedFormHead(**options)

    def classifier(self, dtype: str = "float32") -> Any:
        """A small network of images with a softmax layer."""
        layers = self.keras.layers
        self.keras.utils.set_random_seed(0)
        return self.keras.Sequential(
            [
                layers.Input((4, 4, 1), dtype=dtype),
                layers.Conv2D(5, 3, activation="relu", name="convolution", dtype=dtype),
                layers.Flatten(name="flat", dtype=dtype),
                layers.Dense(D, name="features", dtype=dtype),
                layers.Dense(K, activation="softmax", name="softmax", dtype=dtype),
            ]
        )

    def head(self, **options: Any) -> Any:
        return self.GPHead(**{"num_classes": K, "num_inducing": M, "num_data": N, **options})

    def backbone(self, dtype: str = "float32") -> Any:
        layers = self.keras.layers
        return self.keras.Sequential(
            [
                layers.Input((4,), dtype=dtype.replace("mixed_", "")),
                layers.Dense(D, activation="tanh", dtype=dtype),
            ]
        )

    def model(self, head: Any = None, dtype: str = "float32") -> Any:
        """A network with a head that stands away from its start, where gradients say something."""
        self.keras.utils.set_random_seed(0)
        head = self.head(dtype=dtype) if head is None else head
        model = self.keras.Sequential([self.backbone(dtype), head])
        model.build((None, 4))
        head.adapt(np.asarray(model.layers[0](X)))
        mean = np.random.default_rng(2).normal(size=head.gp.q_mu.shape)
        if head.objective == "code":
            head.gp.q.assign(np.concatenate([mean, head.gp.q_sqrt], axis=1))
        else:
            head.gp.q_mu.assign(mean)
        return model

    def compiled(self, model: Any, loss: Any = None, rate: float = 0.02, **options: Any) -> Any:
        optimizer = self.keras.optimizers.Adam(rate)
        model.compile(optimizer, loss=self.ELBOLoss() if loss is None else loss, **options)
        return model


STACKS = {
    "keras": Stack(keras, gpflow_ilr.keras),
    "tf_keras": Stack(tf_keras, gpflow_ilr.tf_keras),
}


def loss_by_hand(head: Any, features: Any) -> float:
    """−ELBO per row of GPflow's own SVGP with the parameters of a head."""
    gp = head.gp
    model = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(),
        ILRLikelihood(K, mixing=True),
        gp.inducing_variable.Z.numpy(),
        num_latent_gps=K - 1,
        num_data=N,
    )
    model.kernel.variance.assign(gp.kernel.variance)
    model.kernel.lengthscales.assign(gp.kernel.lengthscales)
    model.q_mu.assign(gp.q_mu)
    model.q_sqrt.assign(gp.q_sqrt)
    model.likelihood.W.assign(gp.likelihood.W)
    # GPflow's jitter is absolute, that of the head is a share of its variance.
    jitter = head.jitter * gp.kernel.variance.numpy()
    with gpflow.config.as_context(replace(gpflow.config.config(), jitter=jitter)):
        return -model.elbo((features, Y[:, None])).numpy() / N
