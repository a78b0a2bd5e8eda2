"""The code of Dirichlet-based GP classification (GPD; Milios et al., 2018)."""

import numpy as np
import tensorflow as tf
from gpflow import default_float

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
