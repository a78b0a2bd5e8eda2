"""What the GPs inside heads have in common: predictions of each row by itself.

A head needs the mean and the variance of a row's latents and nothing else, which is what makes it cheap
to serve. Whoever needs covariances asks the model that the head came from.
"""

from __future__ import annotations

import abc
from typing import Any

import tensorflow as tf
from gpflow.base import MeanAndVariance, Module
from gpflow.inducing_variables import InducingPoints

from gpflow_ilr.models import probabilities

__all__ = ["HeadGP"]


class HeadGP(Module, metaclass=abc.ABCMeta):
    """A sparse GP of features that predicts as a model does, with variances alone."""

    inducing_variable: InducingPoints
    likelihood: Any

    predict_y = probabilities.predict_y
    predict_entropy = probabilities.predict_entropy

    @property
    def num_columns(self) -> int:
        """D."""
        return int(self.inducing_variable.Z.shape[-1])

    @abc.abstractmethod
    def predict_marginals(self, Xnew: Any) -> MeanAndVariance:
        """Mean [N, L] and variance [N, L] of the latents, or [N, 1] if they share it.

        :param Xnew: features [N, D].
        """

    def predict_f(
        self, Xnew: Any, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of the latents, [N, L] each.

        :param Xnew: features [N, D].
        :param full_cov: must be False.
        :param full_output_cov: must be False.
        :raises NotImplementedError: for covariances, naming who has them.
        """
        if full_cov or full_output_cov:
            name = "full_cov" if full_cov else "full_output_cov"
            raise NotImplementedError(
                f"{name} must be False, but is True: the GP inside a head has variances alone. Use "
                "predict_f of head.model, if this is a ClosedFormHead, or of the ILRSGPR that "
                "GPHead.collapse returns."
            )
        mean, variance = self.predict_marginals(Xnew)
        return mean, tf.broadcast_to(variance, tf.shape(mean))
