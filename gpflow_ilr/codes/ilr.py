"""The paper's ILR code, in unit form.

Targets are ``H e_k`` and the noise is σ²/L². The paper's targets and noise are both proportional to the
sharpness ``L = log(1 + Kλ/(1−λ))``, so L is a scale of the latent that enters predictions only, and the
smoothing λ may be changed after training.
"""

from typing import Final

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter
from gpflow.utilities import positive
from scipy.special import ndtri

from gpflow_ilr.codes.base import LabelCode, NoiseOption, bounded
from gpflow_ilr.inputs.counts import number_or_nan
from gpflow_ilr.simplex import check_num_classes, helmert

__all__ = ["MAX_SMOOTHING", "ILRCode", "overlap_noise_variance", "sharpness_of", "smoothing_of"]

# A λ that is learned stays below this. On separable data the leave-one-out NLL falls for
# ever as λ approaches one, and predictions at such a λ cannot be trusted.
MAX_SMOOTHING: Final = 1.0 - 1e-9


def sharpness_of(smoothing: float, num_classes: int) -> float:
    """L = log(1 + Kλ/(1−λ)), the log-odds between the true and any other class in the target.

    :param smoothing: λ in (0, 1). ``1 − λ`` is exact in floating point, so nothing cancels.
    :param num_classes: K.
    :raises ValueError: if λ is not strictly between 0 and 1.
    """
    if not 0.0 < number_or_nan(smoothing) < 1.0:
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
    known = 0.0 < number_or_nan(tolerance) < 1.0
    z = -float(ndtri(tolerance / (num_classes - 1))) if known else 0.0
    if not 0.0 < z < np.inf:
        raise ValueError(
            f"tolerance (ε) must lie in (0, {0.5 if num_classes == 2 else 1}) for "
            f"num_classes={num_classes}, but is {tolerance!r}. The paper uses 1e-6."
        )
    return 0.5 / z**2


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
        if not 0.0 < number_or_nan(base) < np.inf:
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
        transform = bounded(0.0, sharpness_of(MAX_SMOOTHING, self.num_classes))
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

        :param labels: what :func:`gpflow_ilr.inputs.labels.as_labels` returned, hard or soft.
        :raises ValueError: for soft labels with per-class noise, where a row has no class.
        """
        if labels.shape.rank != 2 or self.depends_on_class:
            return super().features(labels)
        L = self.scale
        return tf.math.log1p(labels * tf.math.expm1(L)) / L
