"""What a latent Gaussian says about the class probabilities.

GPflow's models predict latent functions; the functions here carry such a prediction through the link
π = softmax(C f). They are given whatever predicts latents (:class:`PredictsLatents`: a model, or a
posterior), and each is one of its methods by one line, ``predict_entropy = predict_entropy``.
Everything is deterministic (fixed nodes) except the samples, and does not depend on how the test set
is batched.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, MeanAndVariance
from gpflow.conditionals.util import sample_mvn

from gpflow_ilr.expectations import (
    Sobol,
    expected_entropy,
    expected_softmax,
    label_variance,
    softmax_variance,
)
from gpflow_ilr.expectations.logarithms import entropy
from gpflow_ilr.inputs.counts import check_count, number_or_nan
from gpflow_ilr.inputs.rows import as_inputs
from gpflow_ilr.linalg.inverse_factors import finite_or_error
from gpflow_ilr.linalg.jitter import safe_jitter
from gpflow_ilr.linalg.row_chunks import map_rows

__all__ = [
    "Entropies",
    "PredictsLatents",
    "predict_credible_interval",
    "predict_entropy",
    "predict_f_samples",
    "predict_probability_samples",
    "predict_probability_variance",
    "predict_y",
    "predict_y_of_code",
]

_INTERVAL_NODES = 512
_CHUNK_ELEMENTS = 2**22


class Entropies(NamedTuple):
    """The uncertainty about a label in nats, split by its source; total = aleatoric + epistemic."""

    total: tf.Tensor
    """Entropy of the predicted label, H(E[π])."""
    aleatoric: tf.Tensor
    """Expected entropy E[H(π)]: what would remain if π were known."""
    epistemic: tf.Tensor
    """Mutual information between the label and π: what more data would remove."""


class PredictsLatents(Protocol):
    """What the functions of this module need: latents, and the likelihood that links them."""

    @property
    def likelihood(self) -> Any:
        """A likelihood with ``link``, ``nodes`` and ``num_classes``."""
        ...

    @property
    def num_columns(self) -> int | None:
        """D, where it is known."""
        ...

    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and (co)variance of the latents, as GPflow's models predict them."""
        ...

    def predict_marginals(self, Xnew: InputData) -> MeanAndVariance:
        """Mean [..., N, L] and variance [..., N, L] of the latents, or [..., N, 1] if they share it."""
        ...

    def prior_variance(self, Xnew: tf.Tensor) -> tf.Tensor:
        """Largest prior variance of the latents at the inputs, []."""
        ...


def predict_y(
    self: PredictsLatents, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
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
    mean, var = self.predict_marginals(Xnew)
    p = expected_softmax(mean, var, self.likelihood.link, self.likelihood.nodes)
    return p, label_variance(p)


def predict_y_of_code(
    self: PredictsLatents,
    Xnew: InputData,
    full_cov: bool = False,
    full_output_cov: bool = False,
    observation_noise: bool = False,
) -> MeanAndVariance:
    """Class probabilities and the variance of the one-hot label, [..., N, K] each.

    A conjugate classifier can predict a label in two ways (the paper's "When does GPD break down?"):
    from the latent f* at the new input, or from a pseudo-observation z* of it.

    :param Xnew: [..., N, D].
    :param full_cov: must be False, as in every GPflow model.
    :param full_output_cov: must be False, as in every GPflow model.
    :param observation_noise: predict from the noisy pseudo-observation z* instead of the latent
        f*. Noise that depends on the class is averaged over the predicted classes.
    """
    p, variance = predict_y(self, Xnew, full_cov, full_output_cov)
    if not observation_noise:
        return p, variance
    mean, var = self.predict_marginals(Xnew)
    code = self.likelihood.code
    noise = tf.matmul(p, code.noise_variance) if code.depends_on_class else code.noise_variance
    noisy = var + tf.square(code.scale) * noise
    p = expected_softmax(mean, noisy, self.likelihood.link, self.likelihood.nodes)
    return p, label_variance(p)


def predict_probability_variance(self: PredictsLatents, Xnew: InputData) -> tf.Tensor:
    """Var[π], [..., N, K]: how uncertain the model is about the class probabilities.

    :param Xnew: [..., N, D].
    """
    mean, var = self.predict_marginals(Xnew)
    return softmax_variance(mean, var, self.likelihood.link, self.likelihood.nodes)


def predict_entropy(self: PredictsLatents, Xnew: InputData) -> Entropies:
    """Total, aleatoric and epistemic entropy of the label in nats, each [..., N].

    :param Xnew: [..., N, D].
    """
    mean, var = self.predict_marginals(Xnew)
    link, nodes = self.likelihood.link, self.likelihood.nodes
    total = entropy(expected_softmax(mean, var, link, nodes))
    aleatoric = expected_entropy(mean, var, link, nodes)
    return Entropies(total, aleatoric, tf.maximum(total - aleatoric, 0.0))


@check_shapes(
    "return: [batch..., N, P] if (num_samples is None)",
    "return: [batch..., S, N, P] if (num_samples is not None)",
)
def predict_f_samples(
    self: PredictsLatents,
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
        raise NotImplementedError("predict_f_samples takes full_cov or full_output_cov, not both.")
    if num_samples is not None:
        check_count("num_samples", num_samples)
    X = as_inputs(Xnew, self.num_columns)
    mean, cov = self.predict_f(X, full_cov, full_output_cov)
    if not (full_cov or full_output_cov):
        return sample_mvn(mean, cov, False, num_samples)

    def variance() -> tf.Tensor:  # of a q(u) that is not trained it may be far above the prior's
        return tf.maximum(self.prior_variance(X), tf.reduce_max(tf.linalg.diag_part(cov)))

    with safe_jitter(variance):
        if full_output_cov:
            draws = sample_mvn(mean, cov, True, num_samples)
        else:
            draws = tf.linalg.matrix_transpose(
                sample_mvn(tf.linalg.matrix_transpose(mean), cov, True, num_samples)
            )
    return finite_or_error(draws, "the covariance")


def predict_probability_samples(
    self: Any, Xnew: InputData, num_samples: int = 1, full_cov: bool = False
) -> tf.Tensor:
    """Draws of π at Xnew, [num_samples, N, K].

    :param Xnew: [N, D].
    :param num_samples: number of draws.
    :param full_cov: draw whole functions (correlated over rows) instead of independent rows.
    """
    f = self.predict_f_samples(Xnew, num_samples, full_cov)
    return tf.nn.softmax(tf.linalg.matvec(self.likelihood.link, f))


def predict_credible_interval(
    self: PredictsLatents, Xnew: InputData, level: float = 0.95
) -> tuple[tf.Tensor, tf.Tensor]:
    """Central interval that holds each class probability with probability ``level``.

    The bounds, each [..., N, K], are quantiles over 512 fixed Sobol nodes.

    :param Xnew: [..., N, D].
    :param level: in (0, 1).
    """
    if not 0.0 < number_or_nan(level) < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, but is {level!r}. Try 0.95.")
    mean, var = self.predict_marginals(Xnew)
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

    chunk = max(1, _CHUNK_ELEMENTS // (_INTERVAL_NODES * self.likelihood.num_classes))
    rows = [tf.reshape(x, [-1, x.shape[-1]]) for x in (mean, var)]
    shape = tf.concat([tf.shape(mean)[:-1], [self.likelihood.num_classes]], axis=0)
    lower, upper = (tf.reshape(x, shape) for x in map_rows(quantiles, rows, chunk))
    return lower, upper
