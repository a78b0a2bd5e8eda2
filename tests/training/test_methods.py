"""Claims about the choice of a method, and sentences for what cannot be."""

import gpflow
import numpy as np
import pytest

import gpflow_ilr as gi
from gpflow_ilr.training.methods import check_lengths, check_limits, chosen_method

Z = np.random.default_rng(0).normal(size=(4, 2))


def svgp(**options) -> gi.ILRSVGP:
    kernel = gpflow.kernels.SquaredExponential()
    return gi.ILRSVGP(kernel, Z, num_classes=3, num_data=10, **options)


def test_minibatches_get_natural_gradients_where_there_is_a_full_q() -> None:
    exact = gi.ILRGPR((Z, [0, 1, 2, 0]), gpflow.kernels.SquaredExponential(), num_classes=3)
    assert chosen_method("auto", svgp(), has_minibatches=False) == "l-bfgs"
    assert chosen_method("auto", svgp(), has_minibatches=True) == "natural"
    assert chosen_method("auto", svgp(q_diag=True), has_minibatches=True) == "adam"
    assert chosen_method("auto", exact, has_minibatches=True) == "adam"
    assert chosen_method("adam", exact, has_minibatches=False) == "adam"
    with pytest.raises(ValueError, match=r"in ILRGPR there is no q_mu\. Else use method='adam'"):
        chosen_method("natural", exact, has_minibatches=False)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("sgd", {}, "method must be one of auto, l-bfgs, adam, natural, but is 'sgd'"),
        ("l-bfgs", {}, "without batch_size, or method='adam'"),
        ("natural", {"q_diag": True}, "build it with q_diag=False"),
    ],
)
def test_methods_that_do_not_suit_are_refused(method: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chosen_method(method, svgp(**options), has_minibatches=True)


@pytest.mark.parametrize("place", range(4))
def test_limits_are_positive(place: int) -> None:
    limits = [10, 10, 10, None]
    check_limits(*limits)
    limits[place] = 0
    name = ("max_iterations", "check_every", "patience", "max_seconds")[place]
    with pytest.raises(ValueError, match=f"{name} must be .*, but is 0"):
        check_limits(*limits)


def test_lengths_are_in_their_range() -> None:
    check_lengths(1.0, 1e-3)
    with pytest.raises(ValueError, match=r"natural_step must be in \(0, 1\], but is 2.0"):
        check_lengths(2.0, 0.1)
    with pytest.raises(ValueError, match=r"learning_rate must be positive, but is -0\.1"):
        check_lengths(0.5, -0.1)
