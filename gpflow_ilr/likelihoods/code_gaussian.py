"""The label code as a GPflow likelihood, so that an SVGP trains on minibatches of pseudo-targets.

Exact and collapsed models see all rows at once. With :class:`CodeGaussian` GPflow's ``SVGP`` fits the
same Gaussian pseudo-targets from minibatches, with closed-form expectations; at its optimum it is the
collapsed model. The latent functions are in the code's units (f/L for ILR), so the smoothing λ may
change after training here too, if the labels were hard: soft ones are coded with λ.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import TensorType

from gpflow_ilr.codes import LabelCode
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.likelihoods.base import SoftmaxOfLatents
from gpflow_ilr.likelihoods.code_softmax import check_code

__all__ = ["CodeGaussian"]


class CodeGaussian(SoftmaxOfLatents):
    """Gaussian pseudo-observations T[y, p] ~ N(f_p, V[y, p]) of a label y.

    ``log_prob`` and ``variational_expectations`` are densities of the pseudo-targets (in the paper's
    units, so that an ELBO equals the collapsed model's); ``conditional_mean``, ``predict_mean_and_var``
    and ``predict_log_density`` speak of the label, as for every classification likelihood.

    :param code: the label code.
    :param nodes: node rule of the predictive probabilities.
    :raises TypeError: if ``code`` is not a label code or ``nodes`` not a node rule.
    """

    def __init__(self, code: LabelCode, nodes: NodeRule | None = None) -> None:
        code = check_code(code)
        super().__init__(code.num_classes, code.num_outputs, nodes)
        self.code = code

    @property
    def link(self) -> tf.Tensor:
        """The matrix scale · C that maps latents in the code's units to logits, [K, P]."""
        return self.code.scale * self.code.link

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._variational_expectations(X, F, tf.zeros_like(F), Y)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """E[log N(t | f, V)] = −½ Σ_p ( log 2πV + ((t − m)² + v)/V ), less P log scale."""
        rows = self._rows(Y, Fmu)
        V, T = self.code.noise_variance, self.code.targets
        if self.code.depends_on_class:
            # Linear in the rows, so a soft row is the average over labels drawn from it.
            precision = tf.broadcast_to(1.0 / V, tf.shape(T))
            squares = (
                (tf.square(Fmu) + Fvar) * tf.tensordot(rows, precision, 1)
                - 2.0 * Fmu * tf.tensordot(rows, T * precision, 1)
                + tf.tensordot(rows, T**2 * precision - tf.math.log(precision), 1)
            )
        else:
            flat = tf.reshape(rows, [-1, self.num_classes])  # codes read rows [N, K]
            targets = tf.matmul(self.code.features(flat), T)
            targets = tf.reshape(targets, tf.concat([tf.shape(rows)[:-1], tf.shape(T)[1:]], 0))
            squares = (tf.square(targets - Fmu) + Fvar) / V + tf.math.log(V)
        constant = np.log(2.0 * np.pi) + 2.0 * tf.math.log(self.code.scale)
        return -0.5 * tf.reduce_sum(squares + constant, axis=-1)
