"""What every label code has: targets, noise variances with a learned part, and a link."""

import abc
from collections.abc import Sequence
from typing import Final, Literal, get_args

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import default_float
from gpflow.base import Module, Parameter
from gpflow.utilities import positive

from gpflow_ilr.inputs.counts import check_count, check_seed
from gpflow_ilr.inputs.labels import membership

__all__ = ["MAX_NOISE_RATIO", "NoiseOption", "LabelCode", "bounded"]

NoiseOption = Literal["fixed", "shared", "per_output", "per_class"]

# The learned noises of two classes differ by at most this factor. Left free, the bound explains a
# whole class away as noise: on MAGIC it put 0.02 on one class and 1.37 on the other, and accuracy
# fell from 0.87 to 0.70.
MAX_NOISE_RATIO: Final = 1.5


def bounded(low: float, high: float) -> tfp.bijectors.Bijector:
    """A smooth transform to (low, high).

    Values that were cut off at the bounds would lose their gradient and never come back; those of
    tanh or a sigmoid reach the bounds, by rounding, and have no inverse there.
    """
    half, middle = (tf.constant(0.5 * x, default_float()) for x in (high - low, high + low))
    return tfp.bijectors.Chain(
        [tfp.bijectors.Shift(middle), tfp.bijectors.Scale(half), tfp.bijectors.Softsign()]
    )


class LabelCode(Module, metaclass=abc.ABCMeta):
    """Targets, noise variances and link of a conjugate classifier.

    :param num_classes: K.
    :param num_outputs: P, the number of latent functions.
    :param base_noise: the fixed part of V, of a shape that broadcasts to [K, P].
    :param noise: what is learned on top of it: nothing (``"fixed"``), one number (``"shared"``),
        one number for each output (``"per_output"``) or for each class (``"per_class"``: a shared
        number times a factor that is bounded, see :data:`MAX_NOISE_RATIO`). The learned part is
        *added*, so the noise never falls below its base.
    """

    def __init__(
        self, num_classes: int, num_outputs: int, base_noise: np.ndarray, noise: NoiseOption
    ) -> None:
        super().__init__()
        if noise not in get_args(NoiseOption):
            raise ValueError(f"noise must be one of {get_args(NoiseOption)}, but is {noise!r}.")
        self.num_classes = num_classes
        self.num_outputs = num_outputs
        self.noise = noise
        self.base_noise = Parameter(base_noise, transform=positive(lower=0.0), trainable=False)
        self.extra_noise: Parameter | None = None
        self.class_factor: Parameter | None = None
        if noise != "fixed":
            # Start at a tenth of the smallest base: near the fixed model, with a gradient alive.
            shape = (1, num_outputs if noise == "per_output" else 1)
            start = np.full(shape, 0.1 * np.min(base_noise))
            self.extra_noise = Parameter(start, transform=positive(lower=0.0))
        if noise == "per_class":
            # exp(a x/(1 + |x|)), with e^2a the largest ratio.
            largest = 0.5 * float(np.log(MAX_NOISE_RATIO))
            transform = tfp.bijectors.Chain([tfp.bijectors.Exp(), bounded(-largest, largest)])
            self.class_factor = Parameter(np.ones((num_classes, 1)), transform=transform)

    @property
    @abc.abstractmethod
    def targets(self) -> tf.Tensor:
        """T, [K, P]."""

    @property
    def noise_variance(self) -> tf.Tensor:
        """V, [K or 1, P or 1]: an axis of length one says that V does not depend on it."""
        base = tf.convert_to_tensor(self.base_noise)
        if self.extra_noise is None:
            return base
        if self.class_factor is None:
            return base + self.extra_noise
        return base + self.extra_noise * self.class_factor

    @property
    def depends_on_class(self) -> bool:
        """Whether V depends on the class, so that sums over rows must be kept class by class."""
        return self.noise == "per_class" or self.base_noise.shape[0] > 1

    @property
    def depends_on_output(self) -> bool:
        """Whether V depends on the output, so that each output needs a factorisation of its own."""
        return self.noise == "per_output" or self.base_noise.shape[1] > 1

    @property
    def is_quieter_for_own_class(self) -> bool:
        """Whether V[k, p] is the same for all outputs p, but less for that of class k itself."""
        return False

    @property
    @abc.abstractmethod
    def link(self) -> tf.Tensor:
        """C, [K, P]: the class probabilities are softmax(scale · C f)."""

    @property
    @abc.abstractmethod
    def scale(self) -> tf.Tensor:
        """Factor from the code's units to the paper's: f (paper) = scale · f (code)."""

    def learn_scale(self) -> None:
        """Make the scale trainable, where the code has one: the leave-one-out objective sees it."""

    def check_classes_can_change(self) -> None:
        """Refuse other classes where each output has a noise of its own.

        :raises ValueError: if it has.
        """
        if self.noise == "per_output":
            raise ValueError(
                "noise='per_output' has a noise for each latent function, and other classes have other "
                "latent functions. Build a new model, or use noise 'fixed', 'shared' or 'per_class'."
            )

    def change_classes(self, places: Sequence[int], num_classes: int) -> None:
        """Go on with other classes, at the noise (and the scale) that there is.

        A class has the noise factor of the first that becomes it; a new one has the factor one.

        :param places: for each present class, the number that it gets, or −1 if it is gone.
        :param num_classes: K' ≥ 2, the number of classes from now on.
        :raises ValueError: if each output has a noise of its own.
        """
        self.check_classes_can_change()
        if self.class_factor is not None:
            old, factors = self.class_factor, np.ones((num_classes, 1))
            for k, place in reversed(list(enumerate(places))):
                if place >= 0:
                    factors[place] = old[k]
            self.class_factor = Parameter(
                factors, transform=old.transform, trainable=old.trainable, prior=old.prior
            )
        self.num_outputs += num_classes - self.num_classes
        self.num_classes = num_classes

    def rescale_noise(self, factor: float) -> None:
        """Multiply the noise, base and learned part alike.

        :param factor: positive factor.
        """
        self.base_noise.assign(factor * self.base_noise)
        if self.extra_noise is not None:
            self.extra_noise.assign(factor * self.extra_noise)

    def features(self, labels: tf.Tensor) -> tf.Tensor:
        """Rows e_n with targets t_n = e_n T: one-hot rows for hard labels, [N, K].

        :param labels: what :func:`gpflow_ilr.inputs.labels.as_labels` returned.
        :raises ValueError: for soft labels where the code has none.
        """
        if labels.shape.rank == 2:
            raise ValueError(
                f"Soft labels need a noise that does not depend on the class, but this "
                f"{type(self).__name__} has noise={self.noise!r}. Use an ILR model with noise "
                "'fixed', 'shared' or 'per_output', or pass hard labels."
            )
        return membership(labels, self.num_classes)

    def error_rate(self, num_samples: int = 100_000, seed: int = 0) -> float:
        """How often a single noisy pseudo-observation decodes to another class (simulated).

        For GPD this is the paper's study "Error rate of GPD"; for ILR, Proposition 1 bounds it.
        Classes are visited in turn, so the result is an average over them.

        :param num_samples: number of draws z ~ N(T[c], V[c]).
        :param seed: seed of the draws.
        :raises ValueError: if the number of draws or the seed makes no sense.
        """
        check_count("num_samples", num_samples)
        check_seed(seed)
        T = self.targets.numpy()
        V = np.broadcast_to(self.noise_variance.numpy(), T.shape)
        C = self.link.numpy()
        rng = np.random.default_rng(seed)
        classes = np.arange(num_samples) % self.num_classes
        wrong = 0
        for rows in np.array_split(classes, max(1, num_samples * self.num_classes // 2**22)):
            z = T[rows] + np.sqrt(V[rows]) * rng.standard_normal((len(rows), self.num_outputs))
            wrong += int(np.sum(np.argmax(z @ C.T, axis=1) != rows))
        return wrong / num_samples
