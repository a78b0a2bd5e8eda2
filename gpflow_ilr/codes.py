"""Label codes: how a class label becomes Gaussian pseudo-observations, and how latents become classes.

A conjugate classifier is GP regression on a *code*. A row of class c is replaced by the targets
``T[c, p]`` with noise variances ``V[c, p]``, one for each output p, and the *link* maps the latent
functions back to class probabilities, ``π = softmax(scale · C f)``. These two tables and one matrix
are all that distinguishes the paper's ILR model from Dirichlet-based classification (GPD); the
models in :mod:`gpflow_ilr.models` are written once, for any code.

The ILR code is kept in *unit* form: targets ``H e_k`` and noise σ²/L². The paper's targets and noise
are both proportional to the sharpness ``L = log(1 + Kλ/(1−λ))``, so L is a scale of the latent that
enters predictions only, and the smoothing λ may be changed after training.
"""

import abc
from typing import Final, Literal, get_args

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import default_float
from gpflow.base import Module, Parameter
from gpflow.utilities import positive
from scipy.special import ndtri

from gpflow_ilr.labels import check_num_classes, membership
from gpflow_ilr.simplex import helmert

__all__ = [
    "NoiseOption",
    "LabelCode",
    "ILRCode",
    "DirichletCode",
    "sharpness_of",
    "smoothing_of",
    "overlap_noise_variance",
]

NoiseOption = Literal["fixed", "shared", "per_output", "per_class"]

# The learned noises of two classes differ by at most this factor. Left free, the bound explains a
# whole class away as noise: on MAGIC it put 0.02 on one class and 1.37 on the other, and accuracy
# fell from 0.87 to 0.70.
MAX_NOISE_RATIO: Final = 1.5

# A λ that is learned stays below this. On separable data the leave-one-out NLL falls for
# ever as λ approaches one, and predictions at such a λ cannot be trusted.
MAX_SMOOTHING: Final = 1.0 - 1e-9


def sharpness_of(smoothing: float, num_classes: int) -> float:
    """L = log(1 + Kλ/(1−λ)), the log-odds between the true and any other class in the target.

    :param smoothing: λ in (0, 1). ``1 − λ`` is exact in floating point, so nothing cancels.
    :param num_classes: K.
    :raises ValueError: if λ is not strictly between 0 and 1.
    """
    if not 0.0 < smoothing < 1.0:
        raise ValueError(
            f"smoothing (λ) must lie strictly between 0 and 1, but is {smoothing!r}. "
            "The paper's values are 0.9 to 0.999999; 0.99 is a good start."
        )
    return float(np.log1p(num_classes * smoothing / (1.0 - smoothing)))


def smoothing_of(sharpness: float, num_classes: int) -> float:
    """λ = (e^L − 1)/(e^L − 1 + K), the inverse of :func:`sharpness_of`.

    :param sharpness: L > 0.
    :param num_classes: K.
    """
    return float(1.0 / (1.0 + num_classes / np.expm1(sharpness)))


def overlap_noise_variance(num_classes: int, tolerance: float) -> float:
    """Largest noise variance, in units of L², at which classes overlap with probability ≤ ε.

    Proposition 1: σ/L = 1/(√2 z) with z = Φ⁻¹(1 − ε/D); taken from the lower tail, z = −Φ⁻¹(ε/D),
    because 1 − ε/D loses the digits of a small ε.

    :param num_classes: K = D + 1.
    :param tolerance: ε, strictly between 0 and 1 (and below ½ for K = 2, where z would vanish).
    :raises ValueError: if no positive z exists.
    """
    z = -float(ndtri(tolerance / (num_classes - 1))) if 0.0 < tolerance < 1.0 else 0.0
    if not 0.0 < z < np.inf:
        raise ValueError(
            f"tolerance (ε) must lie in (0, {0.5 if num_classes == 2 else 1}) for "
            f"num_classes={num_classes}, but is {tolerance!r}. The paper uses 1e-6."
        )
    return 0.5 / z**2


def _between(low: float, high: float) -> tfp.bijectors.Bijector:
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
            transform = tfp.bijectors.Chain([tfp.bijectors.Exp(), _between(-largest, largest)])
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
    @abc.abstractmethod
    def link(self) -> tf.Tensor:
        """C, [K, P]: the class probabilities are softmax(scale · C f)."""

    @property
    @abc.abstractmethod
    def scale(self) -> tf.Tensor:
        """Factor from the code's units to the paper's: f (paper) = scale · f (code)."""

    def learn_scale(self) -> None:
        """Make the scale trainable, where the code has one: the leave-one-out objective sees it."""

    def rescale_noise(self, factor: float) -> None:
        """Multiply the noise, base and learned part alike.

        :param factor: positive factor.
        """
        self.base_noise.assign(factor * self.base_noise)
        if self.extra_noise is not None:
            self.extra_noise.assign(factor * self.extra_noise)

    def features(self, labels: tf.Tensor) -> tf.Tensor:
        """Rows e_n with targets t_n = e_n T: one-hot rows for hard labels, [N, K].

        :param labels: what :func:`gpflow_ilr.labels.as_labels` returned.
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
        """
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


class ILRCode(LabelCode):
    """The paper's code: T = (H e_k)ᵀ, V = σ²/L², link softmax(L Hᵀ f), P = K − 1 outputs.

    :param num_classes: K.
    :param smoothing: λ in (0, 1); may be set at any time through :attr:`smoothing`.
    :param tolerance: ε of Proposition 1, which fixes the base noise at σ²/L² = 1/(2z²).
    :param noise: see :class:`LabelCode`.
    :param noise_variance: an explicit base noise σ²/L² instead of Proposition 1's. Any value below
        Proposition 1's keeps the overlap below ``tolerance``; larger ones are allowed.
    """

    def __init__(
        self,
        num_classes: int,
        smoothing: float = 0.99,
        tolerance: float = 1e-6,
        noise: NoiseOption = "fixed",
        noise_variance: float | None = None,
    ) -> None:
        K = check_num_classes(num_classes)
        base = overlap_noise_variance(K, tolerance) if noise_variance is None else noise_variance
        if not 0.0 < base < np.inf:
            raise ValueError(
                f"noise_variance (σ²/L²) must be positive and finite, but is {base!r}. "
                f"Proposition 1 gives {overlap_noise_variance(K, tolerance):.3g} here."
            )
        super().__init__(K, K - 1, np.full((1, 1), base), noise)
        # Exp, not softplus: L spans twelve orders of magnitude and must round-trip exactly enough.
        self.sharpness = Parameter(
            sharpness_of(smoothing, K), transform=positive(lower=0.0, base="exp"), trainable=False
        )
        self.scale_is_learned = False

    @property
    def smoothing(self) -> float:
        """λ. Setting it rescales predictions; for hard labels it equals retraining at that λ."""
        return smoothing_of(float(self.scale), self.num_classes)

    @smoothing.setter
    def smoothing(self, value: float) -> None:
        L = sharpness_of(value, self.num_classes)
        if self.scale_is_learned:
            self._check_learnable(value)
        self.sharpness.assign(L)

    @property
    def targets(self) -> tf.Tensor:
        """T[k] = H e_k, the K vertices of a regular simplex with edge √2, [K, K − 1]."""
        return tf.transpose(helmert(self.num_classes))

    @property
    def link(self) -> tf.Tensor:
        """C = Hᵀ, [K, K − 1]."""
        return tf.transpose(helmert(self.num_classes))

    @property
    def scale(self) -> tf.Tensor:
        """L, the sharpness."""
        return tf.convert_to_tensor(self.sharpness)

    def learn_scale(self) -> None:
        """Make the sharpness trainable, below that of :data:`MAX_SMOOTHING`.

        The evidence must not train it: it would grow as L shrinks.

        :raises ValueError: if λ is not below the bound already.
        """
        self._check_learnable(self.smoothing)
        transform = _between(0.0, sharpness_of(MAX_SMOOTHING, self.num_classes))
        self.sharpness = Parameter(self.sharpness, transform=transform, trainable=True)
        self.scale_is_learned = True

    def _check_learnable(self, smoothing: float) -> None:
        if smoothing >= MAX_SMOOTHING:
            raise ValueError(
                f"smoothing (λ) must be below {MAX_SMOOTHING!r} where it is learned "
                f"(objective='loo'), but is {smoothing!r}. 0.99 is a good start."
            )

    def features(self, labels: tf.Tensor) -> tf.Tensor:
        """e_n = log(1 + p (e^L − 1))/L, so that L e_n Hᵀ = φ(λp + (1 − λ)/K); one-hot if p is.

        :param labels: what :func:`gpflow_ilr.labels.as_labels` returned, hard or soft.
        :raises ValueError: for soft labels with per-class noise, where a row has no class.
        """
        if labels.shape.rank != 2 or self.depends_on_class:
            return super().features(labels)
        L = self.scale
        return tf.math.log1p(labels * tf.math.expm1(L)) / L


class DirichletCode(LabelCode):
    """GPD (Milios et al., 2018): log-normal moments of Gamma(α) with α = 1[c = p] + α_ε.

    V = log(1 + 1/α) and T = log α − V/2 (the paper's equation "lognorm"), link softmax(f), P = K.

    :param num_classes: K.
    :param alpha_epsilon: α_ε > 0.
    :param noise: see :class:`LabelCode`; the sparse runs of the paper use ``"per_output"``.
    """

    def __init__(
        self, num_classes: int, alpha_epsilon: float = 0.01, noise: NoiseOption = "fixed"
    ) -> None:
        K = check_num_classes(num_classes)
        if not 0.0 < alpha_epsilon < np.inf:
            raise ValueError(
                f"alpha_epsilon (α_ε) must be positive and finite, but is {alpha_epsilon!r}. "
                "The paper's values are 0.1 to 0.0001."
            )
        self.alpha_epsilon = float(alpha_epsilon)
        alpha = np.eye(K) + alpha_epsilon
        V = np.log1p(1.0 / alpha)
        super().__init__(K, K, V, noise)
        self._targets = np.log(alpha) - 0.5 * V

    @property
    def targets(self) -> tf.Tensor:
        """T[c, p] = log α − V/2, [K, K]."""
        return tf.convert_to_tensor(self._targets, default_float())

    @property
    def link(self) -> tf.Tensor:
        """C = I, [K, K]."""
        return tf.eye(self.num_classes, dtype=default_float())

    @property
    def scale(self) -> tf.Tensor:
        """One: the code is in the paper's units already."""
        return tf.ones([], default_float())
