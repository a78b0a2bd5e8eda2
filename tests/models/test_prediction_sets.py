"""``predict_set`` is what leaving rows out, one after the other, would say."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Matern32, SeparateIndependent
from scipy.stats import betabinom

from gpflow_ilr import ILRGPR, ILRSVGP, CodeSVGP
from gpflow_ilr.calibration.prediction_sets import KnownScores, class_scores, sets_by_rank
from gpflow_ilr.expectations import Sobol, expected_softmax
from gpflow_ilr.models import prediction_sets
from tests.models.oracles import EXACT, XNEW, K, X, Y, Z, blobs, build, kernel

SCORES = ("adaptive", "plain")
X_VAL, Y_VAL = blobs(40, seed=5)


def without(n: int, name: str, noise: str, **options: Any) -> Any:
    """The model of all rows but one, hyperparameters kept."""
    rest = np.delete(np.arange(len(X)), n)
    return build(name, noise, data=(X[rest], Y[rest]), **options)


def linear_mean() -> gpflow.mean_functions.MeanFunction:
    return gpflow.mean_functions.Linear(A=np.array([[0.3], [-0.2]]), b=np.array([0.1]))


@pytest.mark.parametrize(("name", "noise"), EXACT)
def test_the_model_without_each_row_is_the_refitted_one(name, noise):
    options = {"mean_function": linear_mean()}
    model = build(name, noise, **options)
    L = float(model.code.scale)
    rows = np.array([0, 3, 4, 17])
    mean, variance = model.leave_one_out_at(tf.constant(rows))(tf.constant(XNEW))
    assert mean.shape == (len(XNEW), len(rows), model.num_latent_gps)
    for i, n in enumerate(rows):
        m, v = without(n, name, noise, **options).predict_f(XNEW)
        np.testing.assert_allclose(L * mean[:, i], m, atol=1e-8)
        np.testing.assert_allclose(np.broadcast_to(L**2 * variance[:, i], v.shape), v, atol=1e-8)


def test_the_model_without_each_row_has_a_kernel_for_each_output():
    k = SeparateIndependent([kernel(), Matern32(variance=0.4)])
    model = build("ILRGPR", "shared", k=k)
    mean, variance = model.leave_one_out_at(tf.constant([7]))(tf.constant(XNEW))
    m, v = without(7, "ILRGPR", "shared", k=k).predict_f(XNEW)
    L = float(model.code.scale)
    np.testing.assert_allclose(L * mean[:, 0], m, atol=1e-8)
    np.testing.assert_allclose(L**2 * variance[:, 0], v, atol=1e-8)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("class_conditional", [False, True])
def test_jackknife_plus_is_romano_sesia_and_candes_with_refitted_models(score, class_conditional):
    level = 0.7
    smaller, counts = np.zeros((len(XNEW), K)), np.zeros(K)
    for n in range(len(X)):
        model = without(n, "ILRGPR", "shared")
        own = class_scores(model.predict_y(X[[n]])[0].numpy(), score)[0, Y[n]]
        new = class_scores(model.predict_y(XNEW)[0].numpy(), score)
        concerned = np.arange(K) == Y[n] if class_conditional else np.full(K, True)
        counts += concerned
        smaller += (own < new) & concerned
    expected = smaller < level * (counts + 1)
    assert 0 < np.count_nonzero(expected) < expected.size
    sets = build("ILRGPR", "shared").predict_set(
        XNEW, level, "jackknife+", score=score, class_conditional=class_conditional
    )
    np.testing.assert_array_equal(sets, expected)


def test_jackknife_plus_does_not_depend_on_chunks(monkeypatch):
    model = build("ILRGPR")
    for seed in (None, 4):
        at_once = model.predict_set(XNEW, 0.6, "jackknife+", seed=seed)
        with monkeypatch.context() as patch:
            patch.setattr(prediction_sets, "_CHUNK_ELEMENTS", 2 * len(X) * K)
            np.testing.assert_array_equal(
                model.predict_set(XNEW, 0.6, "jackknife+", seed=seed), at_once
            )


@pytest.mark.parametrize("name", ["ILRGPR", "DirichletGPR", "ILRSGPR", "ILRNNGPR"])
@pytest.mark.parametrize("score", SCORES)
def test_jackknife_has_the_scores_of_predict_loo(name, score):
    model = build(name, "shared")
    p = expected_softmax(*model.predict_loo(), model.likelihood.link, model.likelihood.nodes)
    known = KnownScores.of(class_scores(p.numpy(), score), Y)
    expected = sets_by_rank(class_scores(model.predict_y(X_VAL)[0].numpy(), score), known, 0.6)
    assert 0 < np.count_nonzero(expected) < expected.size
    np.testing.assert_array_equal(model.predict_set(X_VAL, 0.6, score=score), expected)
    np.testing.assert_array_equal(model.predict_set(X_VAL, 0.6, "jackknife", score=score), expected)


@pytest.mark.parametrize("method", ["jackknife", "jackknife+"])
def test_only_criterion_rows_are_left_out(method):
    model = build("ILRGPR")
    model.criterion_rows = np.arange(4)
    assert np.all(model.predict_set(XNEW, 0.9, method))  # 4 rows are too few for nine in ten
    assert not np.all(model.predict_set(XNEW, 0.7, method))


@pytest.mark.parametrize("score", SCORES)
def test_split_has_the_scores_of_predict_y(score):
    svgp = ILRSVGP(kernel(), Z, num_classes=K, q_mu=np.arange(12.0).reshape(6, 2) / 4.0)
    for model in (build("ILRGPR"), build("ILRGPR").posterior(), svgp):
        p = model.predict_y(X_VAL)[0].numpy()
        known = KnownScores.of(class_scores(p, score), Y_VAL)
        expected = sets_by_rank(class_scores(model.predict_y(XNEW)[0].numpy(), score), known, 0.7)
        ours = model.predict_set(XNEW, 0.7, data=(X_VAL, np.eye(K)[Y_VAL]), score=score)
        np.testing.assert_array_equal(ours, expected)


def test_split_covers_exchangeable_rows_as_often_as_promised():
    """A model that knows little, fixed before the rows are drawn: the promise holds for any."""
    model = build("ILRGPR", nodes=Sobol(64)).posterior()
    level, num_known, num_new, draws = 0.8, 30, 20, 100
    Xs, ys = blobs(draws * (num_known + num_new), seed=0)
    order = np.random.default_rng(6).permutation(len(Xs)).reshape(draws, -1)
    covered = 0
    for rows in order:
        cal, new = rows[:num_known], rows[num_known:]
        sets = model.predict_set(Xs[new], level, data=(Xs[cal], ys[cal]), score="plain").numpy()
        covered += np.count_nonzero(sets[np.arange(num_new), ys[new]])
    rank = int(np.ceil(level * (num_known + 1)))
    one = betabinom(num_new, rank, num_known + 1 - rank)
    assert abs(covered - draws * one.mean()) < 2.6 * np.sqrt(draws * one.var())


@pytest.mark.parametrize("method", ["jackknife", "jackknife+"])
def test_left_out_rows_cover_new_ones_about_as_often(method):
    """Small training sets of one source, with a kernel that none of them has chosen."""
    level, num_rows, num_new, draws = 0.8, 40, 25, 40
    Xs, ys = blobs(draws * (num_rows + num_new), seed=0)
    order = np.random.default_rng(7).permutation(len(Xs)).reshape(draws, -1)
    covered = []
    for rows in order:
        train, new = rows[:num_rows], rows[num_rows:]
        model = ILRGPR(
            (Xs[train], ys[train]), kernel(), num_classes=K, smoothing=0.9, nodes=Sobol(64)
        )
        sets = model.predict_set(Xs[new], level, method, score="plain").numpy()
        covered.append(np.mean(sets[np.arange(num_new), ys[new]]))
    error = np.std(covered, ddof=1) / np.sqrt(draws)
    assert abs(np.mean(covered) - level) < 1.0 / (num_rows + 1) + 2.6 * error


def test_the_most_probable_class_is_in_every_adaptive_set_and_draws_may_leave_it_out():
    model = build("ILRGPR")
    best = np.argmax(model.predict_y(X_VAL)[0], axis=1)
    sets = model.predict_set(X_VAL, 0.1).numpy()
    assert np.all(sets[np.arange(len(X_VAL)), best])
    drawn = model.predict_set(X_VAL, 0.1, seed=0).numpy()
    assert np.any(drawn.sum(axis=1) == 0)
    np.testing.assert_array_equal(drawn, model.predict_set(X_VAL, 0.1, seed=0))
    assert np.any(drawn != model.predict_set(X_VAL, 0.1, seed=1).numpy())


@pytest.mark.parametrize("method", ["jackknife", "jackknife+", "split"])
@pytest.mark.parametrize("seed", [None, 0])
def test_sets_have_the_shape_of_the_rows(method, seed):
    model = build("ILRGPR")
    options = {"method": method, "data": (X_VAL, Y_VAL) if method == "split" else None}
    stacked = model.predict_set(np.stack([XNEW, XNEW + 1.0]), 0.7, seed=seed, **options)
    assert stacked.shape == (2, len(XNEW), K)
    assert stacked.dtype == tf.bool
    flat = model.predict_set(np.concatenate([XNEW, XNEW + 1.0]), 0.7, seed=seed, **options)
    np.testing.assert_array_equal(np.reshape(stacked, flat.shape), flat)
    assert model.predict_set(XNEW[:0], 0.7, seed=seed, **options).shape == (0, K)


def test_a_posterior_leaves_rows_out_once(monkeypatch):
    model = build("ILRGPR")
    expected = {m: model.predict_set(XNEW, 0.6, m) for m in ("jackknife", "jackknife+")}
    calls = []
    leave_one_out = type(model).leave_one_out
    monkeypatch.setattr(
        type(model), "leave_one_out", lambda *args: calls.append(1) or leave_one_out(*args)
    )
    posterior = model.posterior()
    for _ in range(3):
        np.testing.assert_array_equal(posterior.predict_set(XNEW, 0.6), expected["jackknife"])
    assert len(calls) == 1
    np.testing.assert_array_equal(
        posterior.predict_set(XNEW, 0.6, "jackknife+"), expected["jackknife+"]
    )
    model.data = (X_VAL, Y_VAL)
    posterior.update_cache()
    np.testing.assert_array_equal(posterior.predict_set(XNEW, 0.6), model.predict_set(XNEW, 0.6))
    fresh = model.posterior("nocache")
    np.testing.assert_array_equal(fresh.predict_set(XNEW, 0.6), model.predict_set(XNEW, 0.6))


def test_sets_follow_a_change_of_the_smoothing():
    model = build("ILRGPR")
    posterior = model.posterior()
    before = posterior.predict_set(X_VAL, 0.6, score="plain").numpy()
    model.smoothing = 0.3
    after = posterior.predict_set(X_VAL, 0.6, score="plain").numpy()
    np.testing.assert_array_equal(after, model.predict_set(X_VAL, 0.6, score="plain"))
    assert np.any(before != after)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 1.0}, r"level must lie .* but is 1\.0"),
        ({"method": "cv+"}, r"method must be 'jackknife', 'jackknife\+' or 'split', but is 'cv\+'"),
        ({"score": "aps"}, r"score must be 'adaptive' or 'plain', but is 'aps'"),
        ({"method": "split"}, r"method='split' needs data.*Pass them as data=\(X, y\)"),
        (
            {"method": "jackknife", "data": (X_VAL, Y_VAL)},
            r"method='jackknife' .* takes no data.*Leave data out, or use method='split'",
        ),
        ({"data": (X_VAL, np.full((len(X_VAL), K), 1 / K))}, r"y of data has soft rows\. Pass"),
        ({"data": (X_VAL, Y_VAL + 1)}, r"3"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build("ILRGPR").predict_set(XNEW, **options)


def test_what_a_model_cannot_do_is_refused_with_what_it_can():
    with pytest.raises(ValueError, match=r"'jackknife\+' needs .* ILRSGPR has not.* Use method="):
        build("ILRSGPR").predict_set(XNEW, method="jackknife+")
    for model in (
        ILRSVGP(kernel(), Z, num_classes=K),
        CodeSVGP(kernel(), Z, code=build("ILRGPR").code),
    ):
        with pytest.raises(ValueError, match=r"SVGP has none to leave out\. Pass .* data=\(X, y\)"):
            model.predict_set(XNEW)
    with pytest.raises(RuntimeError, match=r"outside of tf\.function"):
        tf.function(build("ILRGPR").posterior().predict_set, autograph=False)(tf.constant(XNEW))


@pytest.mark.parametrize("method", ["jackknife", "jackknife+"])
def test_rows_that_do_not_fit_are_refused_as_everywhere(method):
    with pytest.raises(ValueError, match="has 3 columns, but the training data have 2"):
        build("ILRGPR").predict_set(np.ones((4, 3)), method=method)
    with pytest.raises(ValueError, match="has 3 columns, but the training data have 2"):
        build("ILRGPR").predict_set(XNEW, data=(np.ones((4, 3)), Y[:4]))


def test_soft_training_labels_have_no_jackknife_but_a_split():
    soft = np.random.default_rng(3).dirichlet(np.ones(K), size=len(X))
    model = build("ILRGPR", data=(X, soft))
    with pytest.raises(ValueError, match=r"the model was trained on soft rows\. Pass rows"):
        model.predict_set(XNEW)
    assert model.predict_set(XNEW, data=(X_VAL, Y_VAL)).shape == (len(XNEW), K)
