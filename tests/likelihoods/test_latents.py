"""Latents of every form that users have, and what is said of those that make no sense."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.augmented import BijectiveSoftmaxLikelihood, LogisticSoftmaxLikelihood
from gpflow_ilr.likelihoods import ILRLikelihood, SoftmaxLikelihood

LIKELIHOODS = [
    ILRLikelihood,
    SoftmaxLikelihood,
    LogisticSoftmaxLikelihood,
    BijectiveSoftmaxLikelihood,
]
LABELS = [[0], [2]]


def latents(likelihood: Any) -> tuple[np.ndarray, np.ndarray]:
    mean = np.linspace(-1.0, 1.0, 2 * likelihood.latent_dim).reshape(2, -1)
    return mean, 0.5 + mean**2


@pytest.mark.parametrize("cls", LIKELIHOODS)
def test_lists_are_read_in_the_default_float(cls: Any) -> None:
    likelihood = cls(3)
    mean, variance = latents(likelihood)
    lists = (mean.tolist(), variance.tolist())
    for method in ("predict_log_density", "variational_expectations"):
        call = getattr(likelihood, method)
        of_lists = call(None, *lists, LABELS)
        np.testing.assert_array_equal(of_lists, call(None, mean, variance, np.array(LABELS)))
        assert of_lists.dtype == gpflow.default_float()
    np.testing.assert_array_equal(
        likelihood.predict_mean_and_var(None, *lists)[0],
        likelihood.predict_mean_and_var(None, mean, variance)[0],
    )


@pytest.mark.parametrize("cls", LIKELIHOODS)
def test_what_is_no_number_is_refused(cls: Any) -> None:
    likelihood = cls(3)
    mean, variance = latents(likelihood)
    with pytest.raises(ValueError, match="Fmu must be finite, but an entry is nan"):
        likelihood.predict_mean_and_var(None, np.nan * mean, variance)
    with pytest.raises(ValueError, match="Fvar must be finite and not negative, but an entry is -"):
        likelihood.predict_mean_and_var(None, mean, -variance)
    with pytest.raises(ValueError, match="Fmu must be real numbers"):
        likelihood.predict_mean_and_var(None, [["a"]], variance)


@pytest.mark.parametrize("cls", [ILRLikelihood, SoftmaxLikelihood])
def test_latents_of_another_float_than_the_likelihoods_get_a_sentence(cls: Any) -> None:
    likelihood = cls(3, mixing=True)  # whose W is of float64
    mean, variance = (tf.constant(x, tf.float32) for x in latents(likelihood))
    with pytest.raises(ValueError, match=r"Fmu is of float32, but .* is of float64.*set_default"):
        likelihood.predict_mean_and_var(None, mean, variance)
