"""The code of Dirichlet-based GP classification (GPD; Milios et al., 2018)."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow import default_float
from gpflow.base import Parameter

from gpflow_ilr.codes.base import LabelCode, NoiseOption
from gpflow_ilr.inputs.counts import number_or_nan
from gpflow_ilr.simplex import check_num_classes

__all__ = ["DirichletCode"]


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
        if not 0.0 < number_or_nan(alpha_epsilon) < np.inf:
            raise ValueError(
                f"alpha_epsilon (α_ε) must be positive and finite, but is {alpha_epsilon!r}. "
                "The paper's values are 0.1 to 0.0001."
            )
        self.alpha_epsilon = float(alpha_epsilon)
        self._targets, V = self._moments(K)
        super().__init__(K, K, V, noise)

    def _moments(self, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
        """T and V, [K, K] each."""
        alpha = np.eye(num_classes) + self.alpha_epsilon
        V = np.log1p(1.0 / alpha)
        return np.log(alpha) - 0.5 * V, V

    def change_classes(self, places: Sequence[int], num_classes: int) -> None:
        """Go on with other classes: the moments are the same for all, but there are more of them.

        :param places: for each present class, the number that it gets.
        :param num_classes: K' ≥ 2, the number of classes from now on.
        :raises ValueError: if each output has a noise of its own.
        """
        super().change_classes(places, num_classes)
        old = self.base_noise
        self._targets, V = self._moments(num_classes)
        self.base_noise = Parameter(V, transform=old.transform, trainable=old.trainable)

    @property
    def targets(self) -> tf.Tensor:
        """T[c, p] = log α − V/2, [K, K]."""
        return tf.convert_to_tensor(self._targets, default_float())

    @property
    def is_quieter_for_own_class(self) -> bool:
        """Whether V[k, p] is the same for all outputs p, but less for that of class k itself."""
        # gpflow.utilities.freeze makes a constant of the noise, which has no such flag.
        return self.noise != "per_output" and not getattr(self.base_noise, "trainable", False)

    @property
    def link(self) -> tf.Tensor:
        """C = I, [K, K]."""
        return tf.eye(self.num_classes, dtype=default_float())

    @property
    def scale(self) -> tf.Tensor:
        """One: the code is in the paper's units already."""
        return tf.ones([], default_float())
