"""Training survives awkward data: whatever the kernel and the noise, the best parameters are finite.

Every stationary kernel of GPflow, with one lengthscale and with one for each column, and every noise
option, by L-BFGS on ten sets that have stopped it, or could. Data are not scaled first, as they should
be: that is what makes them awkward.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import AnisotropicStationary, IsotropicStationary, Kernel

from gpflow_ilr.codes import NoiseOption
from gpflow_ilr.models import ILRGPR
from gpflow_ilr.training import fit
from gpflow_ilr.training.lbfgs import LBFGS
from gpflow_ilr.training.watch import Watch
from tests.whole.test_guard import descendants

N, K, NUM_COLUMNS = 18, 3, 48
Y = np.arange(N) % K
ABSTRACT = {AnisotropicStationary, IsotropicStationary}
KERNELS = sorted(
    {
        cls
        for cls in descendants(gpflow.kernels.Stationary)
        if cls.__module__.startswith("gpflow.") and cls not in ABSTRACT
    },
    key=lambda cls: cls.__name__,
)
NOISES: tuple[NoiseOption, ...] = ("fixed", "shared", "per_output", "per_class")


def _base(num_columns: int = 3) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, num_columns)) + 1.5 * rng.standard_normal((K, num_columns))[Y]


def _glitches() -> np.ndarray:
    X = _base()
    X[[2, 7], [0, 1]] = 7e5, -7e5
    return X


def _correlated() -> np.ndarray:
    rng = np.random.default_rng(1)
    copies = np.repeat(_base(4), 12, axis=1) + 0.3 * rng.standard_normal((N, 48))
    return np.clip(np.round(2 * copies), 0, 2)


def _heavy_tails() -> np.ndarray:
    return _base() + np.random.default_rng(2).standard_t(0.5, (N, 3)) ** 3


AWKWARD: dict[str, Callable[[], np.ndarray]] = {
    "glitches of 7e5": _glitches,
    "constant columns": lambda: _base() * [1.0, 0.0, 0.0] + [0.0, 3.0, 1e8],
    "all columns constant": lambda: np.ones((N, 3)),
    "duplicated rows": lambda: np.repeat(_base()[: N // 6], 6, axis=0),
    "heavy tails": _heavy_tails,
    "48 correlated columns": _correlated,
    "units of 1e-12": lambda: 1e-12 * _base(),
    "units of 1e12 and of 1": lambda: _base() * [1e12, 1.0, 1.0],
    "zeros and ones": lambda: (_base(6) > 0).astype(float),
    "far from the origin": lambda: _base() + 1e9,
}


def padded(X: np.ndarray) -> np.ndarray:
    """With columns of zeros, which say nothing, so that one trace serves all sets."""
    return np.pad(X, [(0, 0), (0, NUM_COLUMNS - X.shape[1])])


def check_end(model: ILRGPR, before: float, after: float) -> None:
    """The model has finite parameters that are no worse than the start, and predicts with them."""
    assert np.isfinite([before, after]).all()
    assert after <= before + 1e-9 * abs(before)
    assert all(np.isfinite(variable.numpy()).all() for variable in model.trainable_variables)
    p = model.predict_y(model.data[0])[0].numpy()
    assert np.isfinite(p).all()
    np.testing.assert_allclose(np.sum(p, axis=1), 1.0, rtol=0, atol=1e-12)


def test_no_stationary_kernel_is_forgotten() -> None:
    assert len(KERNELS) >= 7


@pytest.mark.parametrize("kind", KERNELS)
def test_fit_ends_with_the_best_parameters_on_glitches(kind: type[Kernel]) -> None:
    model = ILRGPR((_glitches(), Y), kind(), num_classes=K, noise="shared")
    before = float(model.training_loss())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that it stopped early, and why
        result = fit(model, max_iterations=10)
    check_end(model, before, float(model.training_loss()))
    assert float(model.training_loss()) == pytest.approx(result.fun, rel=1e-6)
    assert result.fun == np.min(result.losses, initial=before)


CASES = [
    pytest.param(kind, ard, noise, id=f"{kind.__name__}-{'ARD' if ard else 'isotropic'}-{noise}")
    for kind in KERNELS
    for ard in (False, True)
    for noise in NOISES
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "ard", "noise"), CASES)
def test_every_kernel_and_noise_survives_every_awkward_set(
    kind: type[Kernel], ard: bool, noise: NoiseOption
) -> None:
    X = tf.Variable(padded(_base()))
    kernel = kind(lengthscales=np.ones(NUM_COLUMNS)) if ard else kind()
    model = ILRGPR((X, Y), kernel, num_classes=K, noise=noise)
    labels, start = model.labels, [v.numpy() for v in model.trainable_variables]
    # What training.fit does, with one trace for all sets. The same graph judges start and end: at
    # lengthscales of 1 and glitches of 7e5 a cosine has no more than its rounding.
    loss = tf.function(lambda: -model.log_evidence_of(tf.identity(X), labels), autograph=False)
    lbfgs = LBFGS(loss, model.trainable_variables)
    for rows in AWKWARD.values():
        X.assign(padded(rows()))
        for variable, value in zip(model.trainable_variables, start, strict=True):
            variable.assign(value)
        model.data = (X.numpy(), Y)
        before = float(loss())
        watch = Watch(model.trainable_variables, len, check_every=None, max_steps=15)
        watch.run(lambda watch=watch: lbfgs.train(watch, 15))
        assert np.isfinite(watch.best.value)
        assert watch.best.value <= min(watch.losses, default=np.inf)
        check_end(model, before, float(loss()))
