"""CodeSVGP reaches the collapsed models from minibatches, and is calibrated as they are."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.kernels import SeparateIndependent

from gpflow_ilr import (
    ILRSGPR,
)
from tests.models.coded import (
    CODES,
    NOISES,
    SMOOTHING,
    SOFT,
    XNEW,
    K,
    N,
    X,
    Y,
    Z,
    assert_at_collapsed_optimum,
    jitter,
    kernel,
    natural_step,
    pair,
    spread,
)


def separate(P: int) -> dict[str, Any]:
    sets = [InducingPoints(Z + 0.1 * p) for p in range(P)]
    return {
        "kernel": SeparateIndependent([kernel(0.5 + 0.1 * p) for p in range(P)]),
        "inducing_variable": SeparateIndependentInducingVariables(sets),
    }


@pytest.mark.parametrize(("name", "noise"), CODES)
def test_one_natural_step_reaches_the_collapsed_optimum(name, noise):
    with jitter(1e-13):  # ours is relative to the kernel's variance, GPflow's is absolute
        collapsed, model = pair(name, noise)
        natural_step(model, (X, Y))
        assert_at_collapsed_optimum(model, collapsed, (X, Y))


@pytest.mark.parametrize(
    ("labels", "options"),
    [
        (SOFT, {}),
        (Y, {"whiten": False}),
        (Y, {"mean_function": gpflow.functions.Constant([0.3, -0.2])}),
        (Y, separate(K - 1)),
    ],
    ids=["soft-labels", "unwhitened", "mean-function", "separate"],
)
def test_the_step_reaches_it_in_other_models_too(labels, options):
    with jitter(1e-13):
        collapsed, model = pair("ILR", "per_output", labels, **options)
        natural_step(model, (X, labels))
        assert_at_collapsed_optimum(model, collapsed, (X, labels))


@pytest.mark.parametrize(("name", "noise"), [("ILR", "per_class"), ("Dirichlet", "per_output")])
def test_at_the_optimum_hyperparameters_have_the_collapsed_gradient(name, noise):
    with jitter(1e-13):
        collapsed, model = pair(name, noise)
        natural_step(model, (X, Y))
        # Kernel, inducing inputs and code are shared by both models.
        parts = (collapsed.kernel, collapsed.inducing_variable, collapsed.code)
        variables = [v for part in parts for v in part.trainable_variables]
        with tf.GradientTape(persistent=True) as tape:
            losses = model.training_loss((X, Y)), collapsed.training_loss()
        ours, theirs = (tape.gradient(loss, variables) for loss in losses)
        assert len(variables) >= 4
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(
                tf.convert_to_tensor(a), tf.convert_to_tensor(b), rtol=1e-6, atol=1e-7
            )


def test_one_epoch_of_minibatches_reaches_the_collapsed_optimum():
    # Steps of length 1, 1/2, 1/3, ... average the natural parameters that each batch asks for.
    with jitter(1e-13):
        collapsed, model = pair("ILR", "per_class")
        for t, batch in enumerate(np.array_split(np.random.default_rng(3).permutation(N), 4)):
            assert abs(model.elbo((X, Y)) - collapsed.elbo()) > 1e-3
            natural_step(model, (X[batch], Y[batch]), gamma=1.0 / (t + 1))
        assert_at_collapsed_optimum(model, collapsed, (X, Y))


def test_smoothing_after_training_equals_retraining():
    with jitter(1e-13):
        _, model = pair("ILR", "shared")
        natural_step(model, (X, Y))
        model.likelihood.code.smoothing = 0.8
        retrained = ILRSGPR((X, Y), kernel(), Z, num_classes=K, smoothing=0.8, noise="shared")
        spread(retrained.code)
        assert_at_collapsed_optimum(model, retrained, (X, Y))


@pytest.mark.parametrize("noise", NOISES)
def test_calibrate_does_what_the_collapsed_model_does(noise):
    with jitter(1e-13):
        mean = gpflow.functions.Constant([0.3, -0.2])
        collapsed, model = pair("ILR", noise, mean_function=mean)
        natural_step(model, (X, Y))
        validation = (XNEW, Y[:5])
        for ours, theirs in (
            (lambda: model.calibrate(validation), lambda: collapsed.calibrate(validation)),
            (lambda: model.calibrate((X, Y), trained_on=True), collapsed.calibrate),
        ):
            collapsed.code.smoothing = SMOOTHING
            found = ours()
            assert found.smoothing == model.likelihood.code.smoothing != SMOOTHING
            assert found.nll_after < found.nll_before
            collapsed.code.smoothing = SMOOTHING
            expected = theirs()
            for field in ("smoothing", "nll_before", "nll_after", "noise_variance"):
                np.testing.assert_allclose(
                    getattr(found, field), getattr(expected, field), rtol=1e-5
                )
            assert (found.leave_one_out, found.num_rows) == (
                expected.leave_one_out,
                expected.num_rows,
            )
            again = ours()
            assert again.nll_after <= again.nll_before


def test_calibrate_refuses_what_it_cannot_do():
    _, model = pair("ILR", "fixed")
    with pytest.raises(ValueError, match=r"of 12 rows.*Train q further"):
        model.calibrate((X, Y), trained_on=True)
    with pytest.raises(ValueError, match="row 2, column 0 is nan"):
        model.calibrate((np.where(X[2, 0] == X, np.nan, X), Y))
    assert model.likelihood.code.smoothing == pytest.approx(SMOOTHING)
    _, per_class = pair("ILR", "per_class")
    with pytest.raises(ValueError, match="Soft labels"):
        per_class.calibrate((X, SOFT), trained_on=True)
    _, dirichlet = pair("Dirichlet", "fixed")
    with pytest.raises(TypeError, match=r"that of an ILRCode, .* DirichletCode"):
        dirichlet.calibrate((X, Y))
    with pytest.raises(ValueError, match="keeps no rows: calibrate needs data"):
        model.calibrate()
    with pytest.raises(ValueError, match="cannot choose its noise after training"):
        model.calibrate((X, Y), trained_on=True, noise=True)
