"""Claims about held-out rows: what is said of them is what the model predicts."""

import gpflow
import numpy as np
import pytest

import gpflow_ilr as gi
from gpflow_ilr.training import held_out as module
from gpflow_ilr.training.held_out import HeldOut

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3))
Y = (X[:, 0] > 0).astype(int)


def near() -> gi.ILRNNGPR:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0, 1.0])
    return gi.ILRNNGPR((X[10:], Y[10:]), kernel, num_classes=2, num_neighbours=5)


@pytest.mark.parametrize("compile_", [True, False])
def test_it_is_what_the_model_predicts_in_chunks_too(compile_: bool, monkeypatch) -> None:
    monkeypatch.setattr(module, "_CHUNK_ROWS", 4)
    model = near()
    held_out = HeldOut(model, (X[:10], Y[:10]), compile_)
    for scale in (1.0, 3.0):  # the present parameters count
        model.kernel.lengthscales.assign([1.0, scale, scale])
        p = model.predict_y(X[:10])[0]
        np.testing.assert_allclose(held_out.probabilities(), p, rtol=1e-9)
        expected = gi.metrics.negative_log_likelihood(p, Y[:10])
        assert held_out.nll() == pytest.approx(expected, rel=1e-9)


def test_looks_do_not_hide_that_neighbours_are_stale() -> None:
    model = near()
    model.training_loss_closure(compile=False)()
    model.kernel.lengthscales.assign([1.0, 9.0, 9.0])
    HeldOut(model, (X[:10], Y[:10])).nll()
    assert model.has_stale_neighbours()
    model.predict_y(X[:10])
    assert not model.has_stale_neighbours()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (X, r"validation must be rows \(X, y\), or \(X, y, weights\), but is of type ndarray"),
        ((X[:0], Y[:0]), "validation .* has none"),
        ((X, Y[:3]), "Pass as many labels as rows"),
    ],
)
def test_what_are_no_rows_is_refused(rows, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeldOut(near(), rows)
