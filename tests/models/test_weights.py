"""A row of weight w is w rows, for every model; a row of weight zero is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr import ILRSVGP, CodeSVGP, ILRCode, LogisticSoftmaxGP, SoftmaxSVGP
from gpflow_ilr.calibration.criterion import Marginals, MeanNLL, label_nll
from gpflow_ilr.saving import load, save
from gpflow_ilr.training import fit
from tests.models.oracles import COLLAPSED, EXACT, XNEW, K, X, Y, Z, build, kernel

WEIGHTS = np.array([1, 2, 3, 1, 1, 4, 2, 1, 1, 3, 1, 2, 1, 1, 1, 2, 5, 1])
REPEATED = np.repeat(np.arange(len(X)), WEIGHTS)
SOFT = np.random.default_rng(3).dirichlet(np.ones(K), size=len(X))
ALL = 1000  # neighbours: more than there are rows
CONJUGATE = [*EXACT, *COLLAPSED]
MEAN = gpflow.functions.Constant([0.4])


def pair(name: str, noise: str = "fixed", labels: Any = Y, **options: Any) -> tuple[Any, Any]:
    """A model of weighted rows, and one of repeated rows."""
    weighted = build(name, noise, data=(X, labels, WEIGHTS), **options)
    return weighted, build(name, noise, data=(X[REPEATED], labels[REPEATED]), **options)


def assert_same_predictions(model: Any, other: Any, atol: float = 1e-9) -> None:
    for ours, theirs in zip(model.predict_f(XNEW), other.predict_f(XNEW), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=atol)


def value_and_gradient(objective: Callable[[], tf.Tensor], model: Any) -> list[np.ndarray]:
    with tf.GradientTape() as tape:
        value = objective()
    gradients = tape.gradient(value, model.trainable_variables)
    return [value.numpy(), *(g.numpy() for g in gradients)]


def assert_same_objective(model: Any, ours: Any, other: Any, theirs: Any) -> None:
    found, expected = value_and_gradient(ours, model), value_and_gradient(theirs, other)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * max(1.0, np.max(np.abs(b))))


@pytest.mark.parametrize("mean", [None, MEAN])
@pytest.mark.parametrize(("name", "noise"), CONJUGATE)
def test_integer_weights_are_repeated_rows(name: str, noise: str, mean: Any) -> None:
    model, repeated = pair(name, noise, mean_function=mean)
    assert_same_predictions(model, repeated)
    assert_same_predictions(model.posterior(), repeated)
    assert_same_objective(
        model,
        model.maximum_log_likelihood_objective,
        repeated,
        repeated.maximum_log_likelihood_objective,
    )


@pytest.mark.parametrize("name", ["ILRGPR", "ILRSGPR"])
def test_soft_rows_have_weights_too(name: str) -> None:
    model, repeated = pair(name, "per_output", SOFT)
    assert_same_predictions(model, repeated)
    assert_same_objective(model, model.log_evidence, repeated, repeated.log_evidence)


@pytest.mark.parametrize("name", ["ILRNNGPR", "DirichletNNGPR"])
@pytest.mark.parametrize("noise", ["fixed", "per_class"])
def test_neighbours_have_weights(name: str, noise: str) -> None:
    model, repeated = pair(name, noise, num_neighbours=ALL)
    assert_same_predictions(model, repeated)
    assert_same_predictions(model.posterior(), repeated)
    exact = build(name.replace("NNGPR", "GPR"), noise, data=(X, Y, WEIGHTS))
    for ours, theirs in zip(model.predict_loo(), exact.predict_loo(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    np.testing.assert_allclose(model.loo_log_density(), exact.loo_log_density(), rtol=1e-9)
    loss = model.training_loss_closure(compile=False)
    np.testing.assert_allclose(loss(), -exact.loo_log_density(), rtol=1e-9)
    batch = model.training_loss_closure((X, Y, WEIGHTS), compile=True)
    np.testing.assert_allclose(batch(), loss(), rtol=1e-9)


@pytest.mark.parametrize(("name", "noise"), CONJUGATE)
def test_leave_one_out_leaves_out_a_whole_weighted_row(name: str, noise: str) -> None:
    model = build(name, noise, data=(X, Y, WEIGHTS))
    mean, variance = model.predict_loo()
    for n in (2, 5, 16):
        rest = REPEATED[n != REPEATED]
        expected = build(name, noise, data=(X[rest], Y[rest])).predict_f(X[n : n + 1])
        np.testing.assert_allclose(mean[n], expected[0][0], atol=1e-9)
        np.testing.assert_allclose(variance[n], expected[1][0], atol=1e-9)


@pytest.mark.parametrize("name", ["ILRGPR", "ILRSGPR", "ILRNNGPR"])
def test_leave_one_out_density_counts_each_row_by_its_weight(name: str) -> None:
    options = {"num_neighbours": ALL} if name == "ILRNNGPR" else {"objective": "loo"}
    model = build(name, data=(X, Y, WEIGHTS), **options)
    held_out = Marginals(*model.leave_one_out(), model.labels)
    nll = label_nll(held_out, model.code.link, model.code.scale)
    np.testing.assert_allclose(model.loo_log_density(), -np.sum(WEIGHTS * nll), rtol=1e-9)


@pytest.mark.parametrize("mean", [None, MEAN])
@pytest.mark.parametrize("name", ["ILRGPR", "ILRSGPR", "ILRNNGPR"])
def test_calibration_counts_each_row_by_its_weight(name: str, mean: Any) -> None:
    model = build(name, data=(X, Y, WEIGHTS), mean_function=mean)
    held_out = model.held_out(None, max_rows=None)
    nll = label_nll(held_out, model.code.link, model.code.scale)
    criterion = MeanNLL(held_out, model.code.link)
    expected = np.average(nll, weights=WEIGHTS)
    np.testing.assert_allclose(criterion(model.code.scale), expected, rtol=1e-9)
    np.testing.assert_allclose(model.calibrate(max_rows=None).nll_before, expected, rtol=1e-9)
    rows = model.spread_rows(None)
    noise = float(model.code.noise_variance[0, 0])
    (at_present,) = model.loo_at_noise(rows)([noise])
    for ours, theirs in zip(model.leave_one_out(), at_present[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    (at_twice,) = model.loo_at_noise(rows)([2.0 * noise])
    model.code.rescale_noise(2.0)
    for ours, theirs in zip(model.leave_one_out(), at_twice[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_validation_rows_have_weights() -> None:
    model = build("ILRGPR")
    repeated = model.calibrate((X[REPEATED], Y[REPEATED])).nll_after
    model.smoothing = 0.97
    assert model.calibrate((X, Y, WEIGHTS)).nll_after == pytest.approx(repeated, rel=1e-9)


@pytest.mark.parametrize("name", ["ILRGPR", "ILRSGPR", "ILRNNGPR"])
def test_zero_weight_is_absence(name: str) -> None:
    some = np.arange(len(X)) % 3 != 0
    model = build(name, data=(X, Y, some.astype(int)))
    assert_same_predictions(model, build(name, data=(X[some], Y[some])))
    assert model.num_data == np.sum(some)
    assert model.predict_loo()[0].shape[0] == np.sum(some)


def uncollapsed(name: str) -> Any:
    options = {"num_classes": K} if name != "CodeSVGP" else {"code": ILRCode(K, noise="per_class")}
    model = {"ILRSVGP": ILRSVGP, "SoftmaxSVGP": SoftmaxSVGP, "CodeSVGP": CodeSVGP}[name](
        kernel=kernel(), inducing_variable=Z, **options
    )
    model.q_mu.assign(np.random.default_rng(0).standard_normal(model.q_mu.shape))
    return model


@pytest.mark.parametrize("name", ["ILRSVGP", "SoftmaxSVGP", "CodeSVGP"])
def test_variational_expectations_are_weighted(name: str) -> None:
    model, repeated = uncollapsed(name), uncollapsed(name)
    assert_same_objective(
        model,
        lambda: model.elbo((X, Y, WEIGHTS)),
        repeated,
        lambda: repeated.elbo((X[REPEATED], Y[REPEATED])),
    )
    compiled = uncollapsed(name).training_loss_closure((X, Y, WEIGHTS))
    np.testing.assert_allclose(compiled(), -model.elbo((X, Y, WEIGHTS)), rtol=1e-9)


def test_minibatches_estimate_the_weighted_bound() -> None:
    model = uncollapsed("ILRSVGP")
    whole = model.elbo((X, Y, WEIGHTS))
    model.num_data = len(X)
    data = tf.data.Dataset.from_tensor_slices((X, Y[:, None], WEIGHTS)).batch(6)
    closure = model.training_loss_closure(iter(data))
    np.testing.assert_allclose(np.mean([closure() for _ in range(3)]), -whole, rtol=1e-9)


def test_fit_trains_on_weighted_rows_and_judges_by_them() -> None:
    model = uncollapsed("ILRSVGP")
    result = fit(model, (X, Y, WEIGHTS), validation=(X, Y, WEIGHTS), max_iterations=5)
    log_density = model.predict_log_density((X, Y))
    expected = -np.average(log_density, weights=WEIGHTS)
    assert result.fun == pytest.approx(expected, rel=1e-9)
    other = uncollapsed("ILRSVGP")
    fit(other, (X[REPEATED], Y[REPEATED]), max_iterations=5, method="l-bfgs")
    again = uncollapsed("ILRSVGP")
    fit(again, (X, Y, WEIGHTS), max_iterations=5, method="l-bfgs")
    assert_same_predictions(again, other, atol=1e-6)


@pytest.mark.parametrize(("name", "noise"), [("ILRSGPR", "fixed"), ("ILRSGPR", "per_class")])
def test_weighted_rows_come_and_go(name: str, noise: str) -> None:
    model = build(name, noise, data=(X[:9], Y[:9], WEIGHTS[:9]))
    model.predict_f(XNEW)  # sums are kept from here on
    model.update(X[9:], Y[9:], sample_weight=WEIGHTS[9:])
    whole = build(name, noise, data=(X, Y, WEIGHTS))
    assert_same_predictions(model, whole)
    np.testing.assert_allclose(model.elbo(), whole.elbo(), rtol=1e-9)
    with pytest.raises(ValueError, match="Row 0 of the rows to forget is not in the training data"):
        model.forget(X[5:7], Y[5:7])
    model.forget(X[5:7], Y[5:7], sample_weight=WEIGHTS[5:7])
    rest = np.delete(np.arange(len(X)), [5, 6])
    assert_same_predictions(model, build(name, noise, data=(X[rest], Y[rest], WEIGHTS[rest])))
    model.update(X[5:7], Y[5:7])  # which count once
    np.testing.assert_array_equal(model.data[2][-2:], [1, 1])


@pytest.mark.parametrize("noise", ["fixed", "per_class"])
def test_streams_have_weights(noise: str, tmp_path: Any) -> None:
    whole = build("ILRSGPR", noise, data=(X, Y, WEIGHTS))
    np.savez(tmp_path / "a.npz", X=X[:7], y=Y[:7], sample_weight=WEIGHTS[:7])
    np.savez(tmp_path / "b.npz", X=X[7:], y=Y[7:], sample_weight=WEIGHTS[7:])
    streams = [
        (X, Y, WEIGHTS),
        tf.data.Dataset.from_tensor_slices((X, Y, WEIGHTS)).batch(4),
        sorted(tmp_path.glob("*.npz")),
        (np.r_[X, X], np.r_[Y, Y], np.r_[WEIGHTS, 0 * WEIGHTS]),
    ]
    for stream in streams:
        model = build("ILRSGPR", noise)
        assert model.absorb(stream, batch_size=5) == len(X)
        assert_same_predictions(model, whole)
        np.testing.assert_array_equal(np.sort(model.data[2]), np.sort(WEIGHTS))
        np.testing.assert_allclose(model.elbo(), whole.elbo(), rtol=1e-9)
    model = build("ILRSGPR", noise, data=(X[:4], Y[:4], WEIGHTS[:4]))
    model.absorb((X[4:], Y[4:], WEIGHTS[4:]), batch_size=5, include_own_rows=True)
    assert_same_predictions(model, whole)
    with pytest.raises(ValueError, match="at least one row that counts"):
        build("ILRSGPR", noise).absorb((X, Y, 0 * WEIGHTS))


def test_saved_models_keep_their_weights(tmp_path: Any) -> None:
    model = build("ILRSGPR", data=(X, Y, WEIGHTS))
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert_same_predictions(loaded, model)
    np.testing.assert_array_equal(loaded.data[2], WEIGHTS)


def test_sampled_models_have_no_weights() -> None:
    with pytest.raises(ValueError, match="data has weights, which this model does not have"):
        LogisticSoftmaxGP((X, Y, WEIGHTS), num_classes=K)


@pytest.mark.parametrize("name", ["ILRGPR", "ILRSGPR", "ILRNNGPR"])
@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        (-WEIGHTS, "not negative, but row 0 has -1"),
        (WEIGHTS * np.nan, "but row 0 has nan"),
        (0 * WEIGHTS, "must not be zero for all rows"),
    ],
)
def test_weights_that_make_no_sense_get_a_sentence(name, weights, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        build(name, data=(X, Y, weights))
    with pytest.raises(ValueError, match=sentence):
        build(name).update(X, Y, sample_weight=weights)
