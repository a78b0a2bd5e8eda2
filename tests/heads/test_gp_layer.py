"""What layers with a GP share: a kernel that can be made again, a precision of their own."""

import gpflow
import numpy as np
import pytest

from gpflow_ilr.heads.gp_layer import LINEAR, check_kernel, gp_precision, make_kernel


def test_kernels_come_from_names_and_functions() -> None:
    named = make_kernel("Matern32", 2.0, 3.0)
    assert isinstance(named, gpflow.kernels.Matern32)
    assert (named.variance.numpy(), named.lengthscales.numpy()) == (2.0, 3.0)
    assert isinstance(make_kernel(gpflow.kernels.Cosine, 2.0, 3.0), gpflow.kernels.Cosine)


def test_linear_is_the_kernel_of_a_layer_with_a_bias() -> None:
    H = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_allclose(make_kernel(LINEAR, 2.0, 1.0)(H), 2.0 * (H @ H.T + 1.0))


def test_what_cannot_be_saved_or_made_is_refused() -> None:
    with pytest.raises(TypeError, match="a function that returns"):
        check_kernel(gpflow.kernels.Matern32())
    with pytest.raises(ValueError, match="no isotropic stationary kernel 'Periodic'"):
        make_kernel("Periodic", 1.0, 1.0)


def test_precision_holds_inside_and_not_outside() -> None:
    before = gpflow.default_float(), gpflow.default_jitter()
    with gp_precision("float32", 1e-3):
        assert (gpflow.default_float(), gpflow.default_jitter()) == (np.float32, 1e-3)
    assert (gpflow.default_float(), gpflow.default_jitter()) == before
