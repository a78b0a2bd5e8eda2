"""What a latent Gaussian says about the class probabilities.

GPflow's models predict the latent functions; :class:`ClassProbabilities` carries such a prediction
through the link π = softmax(C f), and is mixed into models and posteriors alike. Everything here is
deterministic (fixed nodes) except the samples, and does not depend on how the test set is batched.
"""

from typing import NamedTuple

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, MeanAndVariance
from gpflow.conditionals.util import sample_mvn
from gpflow.kernels import Kernel

from gpflow_ilr.expectations import Sobol, expected_entropy, expected_softmax, softmax_variance
from gpflow_ilr.inputs.rows import as_inputs
from gpflow_ilr.likelihoods import LinkedSoftmax
from gpflow_ilr.linalg.jitter import safe_jitter
from gpflow_ilr.linalg.row_chunks import map_rows

__all__ = ["ClassProbabilities", "Entropies"]

_INTERVAL_NODES = 512
_BLOCK_ELEMENTS = 2**22


class Entropies(NamedTuple):
    """The uncertainty about a label in nats, split by its source; total = aleatoric + epistemic."""

    total: tf.Tensor
    """Entropy of the predicted label, H(E[π])."""
    aleatoric: tf.Tensor
    """Expected entropy E[H(π)]: what would remain if π were known."""
    epistemic: tf.Tensor
    """Mutual information between the label and π: what more data would remove."""


class ClassProbabilities:
    """Predictions on the simplex, for a class that predicts latents and has a likelihood."""

    likelihood: LinkedSoftmax
    kernel: Kernel

    def _predict_marginals(self, Xnew: tf.Tensor) -> MeanAndVariance:
        """Mean [..., N, L] and variance [..., N, L] of the latents, or [..., N, 1] if they share it."""
        return self.predict_f(Xnew)  # type: ignore[attr-defined]

    def predict_y(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Class probabilities E[π], and the variance of the one-hot label, p(1 − p).

        The variance of π itself is :meth:`predict_probability_variance`.

        :param Xnew: [..., N, D].
        :param full_cov: must be False, as in every GPflow model.
        :param full_output_cov: must be False, as in every GPflow model.
        """
        if full_cov or full_output_cov:
            raise NotImplementedError(
                "predict_y has no full covariances: labels are not Gaussian. "
                "Use predict_f(full_cov=True) or predict_probability_samples."
            )
        mean, var = self._predict_marginals(as_inputs(Xnew))
        p = expected_softmax(mean, var, self.likelihood.link, self.likelihood.nodes)
        return p, p - tf.square(p)

    def predict_probability_variance(self, Xnew: InputData) -> tf.Tensor:
        """Var[π], [..., N, K]: how uncertain the model is about the class probabilities.

        :param Xnew: [..., N, D].
        """
        mean, var = self._predict_marginals(as_inputs(Xnew))
        return softmax_variance(mean, var, self.likelihood.link, self.likelihood.nodes)

    def predict_entropy(self, Xnew: InputData) -> Entropies:
        """Total, aleatoric and epistemic entropy of the label in nats, each [..., N].

        :param Xnew: [..., N, D].
        """
        mean, var = self._predict_marginals(as_inputs(Xnew))
        link, nodes = self.likelihood.link, self.likelihood.nodes
        p = expected_softmax(mean, var, link, nodes)
        total = -tf.reduce_sum(tf.math.xlogy(p, p), axis=-1)
        aleatoric = expected_entropy(mean, var, link, nodes)
        return Entropies(total, aleatoric, tf.maximum(total - aleatoric, 0.0))

    def _prior_variance(self, Xnew: tf.Tensor) -> tf.Tensor:
        """Largest prior variance of the latents at the inputs, []."""
        return tf.reduce_max(self.kernel(Xnew, full_cov=False))

    @check_shapes(
        "Xnew: [batch..., N, D]",
        "return: [batch..., N, P] if (num_samples is None)",
        "return: [batch..., S, N, P] if (num_samples is not None)",
    )
    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """Draws of the latents, as GPflow's models make them.

        :param Xnew: [..., N, D].
        :param num_samples: number of draws; None for one without a dimension for draws.
        :param full_cov: draw whole functions (correlated over rows) instead of independent rows.
        :param full_output_cov: draw correlated latents; not together with ``full_cov``.
        """
        if full_cov and full_output_cov:
            raise NotImplementedError(
                "predict_f_samples takes full_cov or full_output_cov, not both."
            )
        Xnew = as_inputs(Xnew)
        mean, cov = self.predict_f(Xnew, full_cov, full_output_cov)  # type: ignore[attr-defined]
        with safe_jitter(lambda: self._prior_variance(Xnew)):
            if not full_cov:
                return sample_mvn(mean, cov, full_output_cov, num_samples)
            draws = sample_mvn(tf.linalg.matrix_transpose(mean), cov, full_cov, num_samples)
        return tf.linalg.matrix_transpose(draws)

    def predict_probability_samples(
        self, Xnew: InputData, num_samples: int = 1, full_cov: bool = False
    ) -> tf.Tensor:
        """Draws of π at Xnew, [num_samples, N, K].

        :param Xnew: [N, D].
        :param num_samples: number of draws.
        :param full_cov: draw whole functions (correlated over rows) instead of independent rows.
        """
        f = self.predict_f_samples(Xnew, num_samples, full_cov)
        return tf.nn.softmax(tf.linalg.matvec(self.likelihood.link, f))

    def predict_credible_interval(
        self, Xnew: InputData, level: float = 0.95
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Central interval that holds each class probability with probability ``level``.

        The bounds, each [..., N, K], are quantiles over 512 fixed Sobol nodes.

        :param Xnew: [..., N, D].
        :param level: in (0, 1).
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie strictly between 0 and 1, but is {level!r}.")
        mean, var = self._predict_marginals(as_inputs(Xnew))
        link = self.likelihood.link
        nodes, _ = Sobol(_INTERVAL_NODES)(mean.shape[-1], mean.dtype)
        # Quantiles at the nodes' plotting positions (s + ½)/S, interpolated.
        positions = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]

        def quantiles(mean: tf.Tensor, var: tf.Tensor) -> list[tf.Tensor]:
            f = mean + tf.sqrt(var) * nodes[:, None, :]
            pi = tf.sort(tf.nn.softmax(tf.linalg.matvec(link, f)), axis=0)
            bounds = []
            for position in positions:
                index = min(max(position * _INTERVAL_NODES - 0.5, 0.0), _INTERVAL_NODES - 1.0)
                low = min(int(index), _INTERVAL_NODES - 2)
                weight = index - low
                bounds.append((1.0 - weight) * pi[low] + weight * pi[low + 1])
            return bounds

        block = max(1, _BLOCK_ELEMENTS // (_INTERVAL_NODES * self.likelihood.num_classes))
        rows = [tf.reshape(x, [-1, x.shape[-1]]) for x in (mean, var)]
        shape = tf.concat([tf.shape(mean)[:-1], [self.likelihood.num_classes]], axis=0)
        lower, upper = (tf.reshape(x, shape) for x in map_rows(quantiles, rows, block))
        return lower, upper
