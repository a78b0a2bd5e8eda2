"""What a head says of a row equals what the models say of it."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr import ILRSGPR, starting_kernel
from gpflow_ilr.heads.outputs import OUTPUTS, check_outputs, predicted
from tests.heads.stacks import K, X, Y


def test_outputs_are_those_of_the_model() -> None:
    model = ILRSGPR((X, Y), starting_kernel(X, K), X[:5], num_classes=K)
    mean, variance = model.predict_marginals(X)
    found = predicted(mean, variance, model.likelihood, OUTPUTS, tf.float64)
    entropies = model.predict_entropy(X)
    expected = [model.predict_y(X)[0], *entropies, *model.predict_f(X)]
    for name, value in zip(OUTPUTS, expected, strict=True):
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        found["entropy"], found["aleatoric"] + found["epistemic"], rtol=1e-12
    )


def test_one_output_is_a_tensor_and_several_are_a_dictionary() -> None:
    model = ILRSGPR((X, Y), starting_kernel(X, K), X[:5], num_classes=K)
    latents = (*model.predict_marginals(X), model.likelihood)
    alone = predicted(*latents, "aleatoric", tf.float32)
    assert alone.dtype == tf.float32
    assert set(predicted(*latents, ("aleatoric",), tf.float32)) == {"aleatoric"}


def test_unknown_outputs_are_refused() -> None:
    for wrong in ("variances", ("mean", "logits"), ()):
        with pytest.raises(ValueError, match="outputs may be one or several"):
            check_outputs(wrong)
    assert check_outputs(["mean"]) == ("mean",)
