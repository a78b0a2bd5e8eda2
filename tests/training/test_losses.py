"""Claims about training losses: of whichever rows, they are the model's own."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr.models.batches import as_batch
from gpflow_ilr.training.losses import minibatch_loss, training_loss

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
DATASET = tf.data.Dataset.from_tensor_slices((X, Y))


def svgp(num_data: int | None = 30) -> gi.ILRSVGP:
    kernel = gpflow.kernels.SquaredExponential()
    q_mu = RNG.normal(size=(4, 2))  # at zero all rows would have one loss
    return gi.ILRSVGP(kernel, X[:4], num_classes=3, num_data=num_data, q_mu=q_mu)


def exact() -> gi.ILRGPR:
    return gi.ILRGPR((X, Y), gpflow.kernels.SquaredExponential(), num_classes=3)


def near() -> gi.ILRNNGPR:
    kernel = gpflow.kernels.SquaredExponential()
    return gi.ILRNNGPR((X, Y), kernel, num_classes=3, num_neighbours=5)


@pytest.mark.parametrize(
    ("build", "data"), [(svgp, (X, Y)), (exact, None), (near, None), (near, (X[:9], Y[:9]))]
)
def test_without_minibatches_it_is_the_models_loss(build, data) -> None:
    model = build()
    loss = training_loss(model, data, None, 0, compile=False)
    given = () if data is None else (data,)
    expected = model.training_loss_closure(*given, compile=False)()
    assert not loss.has_minibatches
    assert loss.fits_in_graph == (build is not near)
    np.testing.assert_allclose(loss.closure(), expected, rtol=1e-12)


@pytest.mark.parametrize("build", [svgp, near])
def test_batches_of_a_dataset_come_one_after_another_and_again(build) -> None:
    model = build()
    loss = training_loss(model, DATASET.batch(15), None, 0, compile=False)
    halves = [
        model.training_loss_closure((X[rows], Y[rows]), compile=False)()
        for rows in (slice(0, 15), slice(15, 30))
    ]
    assert loss.has_minibatches
    found = [loss.closure() for _ in range(4)]
    np.testing.assert_allclose(found, halves + halves, rtol=1e-9)


@pytest.mark.parametrize(("build", "data"), [(svgp, (X, Y)), (near, None), (near, (X, Y))])
def test_draws_follow_the_seed_and_are_unbiased(build, data) -> None:
    model = build()
    first, again, other = (
        [float(loss()) for _ in range(3)]
        for loss in (training_loss(model, data, 10, s, compile=False).closure for s in (1, 1, 2))
    )
    assert first == again
    assert len({*first, *other}) == 6
    whole = float(training_loss(model, data, None, 0, compile=False).closure())
    loss = training_loss(model, data, 10, 0, compile=False).closure
    drawn = [float(loss()) for _ in range(60)]
    assert abs(np.mean(drawn) - whole) < 4.0 * np.std(drawn) / np.sqrt(60)


def test_a_batch_of_all_rows_is_no_minibatch() -> None:
    model = svgp()
    loss = training_loss(model, (X, Y), 99, 0, compile=False)
    assert not loss.has_minibatches
    expected = minibatch_loss(model, as_batch((X, Y)), 30, 0)()
    np.testing.assert_array_equal(loss.closure(), expected)


@pytest.mark.parametrize(
    ("build", "data", "batch_size", "message"),
    [
        (svgp, None, None, r"ILRSVGP keeps no rows: pass data=\(X, y\)"),
        (svgp, None, 8, "from which batch_size=8 rows are drawn"),
        (svgp, (X, Y), 0, "batch_size must be an integer of at least 1, but is 0"),
        (svgp, iter(DATASET), None, "Of an iterator, pass the dataset"),
        (svgp, DATASET, None, r"its X has shape \(2,\). Batch it"),
        (svgp, DATASET.batch(8), 8, "batch_size=8 is for arrays"),
        (svgp, DATASET.take(0).batch(8), None, "without a batch"),
        (svgp, DATASET.batch(8).map(lambda X, y: X), None, r"pairs \(X, y\)"),
        (lambda: svgp(None), (X, Y), 8, "num_data is missing"),
        (lambda: svgp(None), DATASET.batch(8), None, "num_data is missing"),
        (exact, (X, Y), None, "ILRGPR has its rows already: leave out data"),
        (exact, DATASET.batch(8), None, "ILRGPR has its rows already: leave out data"),
        (exact, None, 8, "batch_size=8 cannot be: ILRGPR trains on all its rows"),
    ],
)
def test_what_does_not_fit_together_is_refused(build, data, batch_size, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        training_loss(build(), data, batch_size, 0, compile=False)
