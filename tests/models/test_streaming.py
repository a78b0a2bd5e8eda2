"""Rows that come and go: equal to a model built on the changed data, at the cost of those rows."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.posteriors import PrecomputeCacheType

from gpflow_ilr.collapsed.kept import NUM_PROBES
from tests.models.oracles import COLLAPSED, XNEW, K, X, Y, blobs, build, kernel, one_hot

SOFT = np.random.default_rng(3).dirichlet(np.ones(K), size=len(X))
SOFT[2] = [0.0, 1.0, 0.0]


class CountingKernel(gpflow.kernels.SquaredExponential):
    """Counts the rows that it is asked about, beside inducing inputs."""

    rows = 0

    def K(self, X: Any, X2: Any = None) -> tf.Tensor:
        if X2 is not None:
            self.rows += int(X2.shape[-2])
        return super().K(X, X2)

    def K_diag(self, X: Any) -> tf.Tensor:
        self.rows += int(X.shape[-2])
        return super().K_diag(X)


def assert_same_posterior(model: Any, other: Any) -> None:
    for ours, theirs in zip(
        model.predict_f(XNEW, full_cov=True), other.predict_f(XNEW, full_cov=True), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)
    np.testing.assert_allclose(model.elbo(), other.elbo(), rtol=1e-9)


@pytest.mark.parametrize(("name", "noise"), COLLAPSED)
def test_update_and_forget_equal_a_model_built_on_the_changed_data(name, noise):
    model = build(name, noise, data=(X[:12], Y[:12]))
    model.predict_f(XNEW)  # statistics are kept from here on
    model.update(X[12:], Y[12:])
    whole = build(name, noise)
    assert_same_posterior(model, whole)
    np.testing.assert_allclose(model.predict_loo()[0], whole.predict_loo()[0], atol=1e-8)
    model.forget(X[3:9], Y[3:9])
    rest = np.r_[0:3, 9 : len(X)]
    assert model.num_data == len(rest)
    assert_same_posterior(model, build(name, noise, data=(X[rest], Y[rest])))


@pytest.mark.parametrize("noise", ["fixed", "per_output"])
def test_soft_rows_come_and_go(noise):
    constant = gpflow.functions.Constant([0.4])
    model = build("ILRSGPR", noise, data=(X[:12], SOFT[:12]), mean_function=constant)
    model.predict_f(XNEW)
    model.update(X[12:], SOFT[12:])
    whole = build("ILRSGPR", noise, data=(X, SOFT), mean_function=constant)
    assert_same_posterior(model, whole)
    model.smoothing = whole.smoothing = 0.9  # soft targets depend on λ, so kept sums are outdated
    assert_same_posterior(model, whole)
    model.forget(X[:3], SOFT[:3])
    part = build("ILRSGPR", noise, data=(X[3:], SOFT[3:]), mean_function=constant, smoothing=0.9)
    assert_same_posterior(model, part)


def test_a_certain_row_may_join_soft_ones_in_either_form():
    model = build("ILRSGPR", data=(X[:12], SOFT[:12]))
    model.update(X[12:], Y[12:])
    rows = np.concatenate([SOFT[:12], one_hot(Y[12:])])
    assert_same_posterior(model, build("ILRSGPR", data=(X, rows)))
    with pytest.raises(ValueError, match="Soft labels cannot join hard ones"):
        build("ILRSGPR", data=(X[:12], Y[:12])).update(X[12:], SOFT[12:])


def test_labels_may_come_in_another_form_than_the_first_ones():
    expected = build("ILRSGPR").elbo()
    for first, then in (
        (Y[:12, None], one_hot(Y)[12:]),
        (one_hot(Y)[:12], Y[12:]),
        (Y[:12].astype(float), Y[12:]),
        (Y[:12], list(map(int, Y[12:]))),
    ):
        model = build("ILRSGPR", data=(X[:12], first))
        model.update(X[12:], then)
        np.testing.assert_allclose(model.elbo(), expected, rtol=1e-12)
        np.testing.assert_array_equal(model.data[1], Y[:, None])


def rows_visited(name: str, num_rows: int) -> int:
    """How many rows the kernel sees while three are added, two removed and predictions made."""
    data = blobs(num_rows + 3)
    counting = CountingKernel(variance=0.6, lengthscales=[1.3, 0.8])
    model = build(name, data=(data[0][3:], data[1][3:]), k=counting)
    model.predict_f(XNEW)
    counting.rows = 0
    model.update(data[0][:3], data[1][:3])
    model.forget(data[0][5:7], data[1][5:7])
    model.posterior()
    model.compute_qu()
    model.predict_f(XNEW)
    visited = counting.rows
    rest = np.delete(np.arange(num_rows + 3), [5, 6])
    assert_same_posterior(model, build(name, data=(data[0][rest], data[1][rest])))
    return visited


@pytest.mark.parametrize("name", ["ILRSGPR", "DirichletSGPR"])
def test_update_and_forget_visit_the_changed_rows_and_some_probes_only(name):
    visited = rows_visited(name, 500)
    assert visited == rows_visited(name, 1000)  # whatever the number of rows
    changed = 2 * (3 + 2 + len(XNEW))  # once in K_uf and once in the diagonal
    checks = 7  # before and after a change, and in every later call
    assert visited <= changed + checks * 2 * NUM_PROBES


def test_many_small_changes_do_not_add_up_to_an_error():
    model = build("DirichletSGPR", "per_class", data=(X[:6], Y[:6]))
    model.predict_f(XNEW)
    for n in range(6, 14):
        model.update(X[n : n + 1], Y[n : n + 1])
        model.forget(X[n - 6 : n - 5], Y[n - 6 : n - 5])
    last = slice(8, 14)
    assert_same_posterior(model, build("DirichletSGPR", "per_class", data=(X[last], Y[last])))


def test_all_rows_of_a_class_may_go():
    rest = Y != 1
    for name, noise in (("ILRSGPR", "per_class"), ("DirichletSGPR", "fixed")):
        model = build(name, noise)
        model.predict_f(XNEW)
        model.forget(X[~rest], Y[~rest])
        assert_same_posterior(model, build(name, noise, data=(X[rest], Y[rest])))


def test_a_repeated_row_is_forgotten_as_often_as_it_is_listed():
    data = np.concatenate([X, X[:4], X[:4]]), np.concatenate([Y, Y[:4], Y[:4]])
    model = build("ILRSGPR", data=data)
    model.predict_f(XNEW)
    model.forget(X[[1, 1, 3]], Y[[1, 1, 3]])
    assert_same_posterior(
        model, build("ILRSGPR", data=tuple(np.delete(d, [1, 19, 3], 0) for d in data))
    )
    with pytest.raises(ValueError, match="Row 1 "):
        model.forget(X[[1, 1]], Y[[1, 1]])


def test_rows_are_found_in_the_dtype_and_form_in_which_they_were_given():
    model = build("ILRSGPR", data=(X.astype(np.float32), Y))
    model.forget(X[:2].astype(np.float32), one_hot(Y[:2]))
    zeros = np.array([[0.0, -0.0], [0.0, 1.0]])
    model.update(zeros, [0, 1])
    model.forget(-zeros[:1], [0])  # 0 == −0
    assert model.num_data == len(X) - 1


@pytest.mark.parametrize(
    ("rows", "labels", "row"),
    [
        (X[[0, 1, 2]] + [[0, 0], [0, 0], [0, 1e-9]], Y[[0, 1, 2]], 2),
        (X[[5, 6]], Y[[5, 6]] + [0, 0] != 99, None),
        (X[[5, 6]], (Y[[5, 6]] + [0, 1]) % K, 1),
    ],
)
def test_rows_that_are_not_there_are_refused_by_number_and_change_nothing(rows, labels, row):
    model = build("ILRSGPR")
    before = model.predict_f(XNEW)[0]
    pattern = "bool" if row is None else f"Row {row} .*not in the training data"
    with pytest.raises((ValueError, TypeError), match=pattern):
        model.forget(rows, labels)
    assert model.num_data == len(X)
    np.testing.assert_array_equal(model.predict_f(XNEW)[0], before)


@pytest.mark.parametrize(
    ("rows", "labels", "pattern"),
    [
        (X[:2, :1], Y[:2], "column"),
        (X[:2], Y[:3], r"2.*3|3.*2"),
        (X[:2], [0, K], str(K)),
        (X[:2] * np.nan, Y[:2], "finite"),
        (X[0], Y[:1], r"shape \[N, D\]"),
    ],
)
@pytest.mark.parametrize("method", ["update", "forget"])
def test_rows_that_make_no_sense_are_refused_and_change_nothing(method, rows, labels, pattern):
    model = build("ILRSGPR")
    before = model.predict_f(XNEW)[0]
    with pytest.raises(ValueError, match=pattern):
        getattr(model, method)(rows, labels)
    np.testing.assert_array_equal(model.predict_f(XNEW)[0], before)


def test_a_model_cannot_forget_everything():
    model = build("ILRSGPR")
    with pytest.raises(ValueError, match="at least one"):
        model.forget(X, Y)
    assert model.num_data == len(X)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        *(("ILRSGPR", part) for part in ("lengthscales", "Z", "mean", "kernel", "jitter", "noise")),
        ("DirichletSGPR", "lengthscales"),
    ],
)
def test_kept_statistics_are_not_used_after_a_change(name, part):
    noise = "shared"
    constant = gpflow.functions.Constant([0.0])
    model = build(name, noise, mean_function=constant)
    model.predict_f(XNEW)
    options: dict[str, Any] = {"mean_function": constant}
    jitter = gpflow.default_jitter()
    if part == "lengthscales":
        model.kernel.lengthscales.assign([0.5, 2.0])
    elif part == "Z":
        model.inducing_variable.Z.assign_add(np.full(model.inducing_variable.Z.shape, 0.3))
    elif part == "mean":
        constant.c.assign([0.7])
    elif part == "kernel":  # of another kind, with the same values of the same parameters
        model.kernel = gpflow.kernels.Matern12(variance=0.6, lengthscales=[1.3, 0.8])
    elif part == "jitter":
        jitter = 1e-2
    else:
        model.code.extra_noise.assign_add(np.full(model.code.extra_noise.shape, 0.3))
    options |= {"k": model.kernel, "inducing_variable": model.inducing_variable.Z.numpy()}
    with gpflow.config.as_context(gpflow.config.Config(jitter=jitter)):
        fresh = build(name, noise, **options)
        gpflow.utilities.multiple_assign(fresh.code, gpflow.utilities.parameter_dict(model.code))
        assert_same_posterior(model, fresh)
        model.forget(X[:2], Y[:2])
        fresh.forget(X[:2], Y[:2])
        assert_same_posterior(model, fresh)


def test_training_after_an_update_sees_the_new_rows():
    model = build("ILRSGPR", data=(X[:12], Y[:12]))
    model.predict_f(XNEW)
    model.update(X[12:], Y[12:])
    whole = build("ILRSGPR")
    for m in (model, whole):
        gpflow.optimizers.Scipy().minimize(
            m.training_loss, m.kernel.trainable_variables, options={"maxiter": 2}, compile=False
        )
    np.testing.assert_allclose(model.kernel.lengthscales, whole.kernel.lengthscales, rtol=1e-6)
    assert_same_posterior(model, build("ILRSGPR", k=model.kernel))


def test_an_earlier_posterior_keeps_the_old_rows_until_it_is_updated():
    model = build("ILRSGPR", data=(X[:12], Y[:12]))
    for cache in ("tensor", "variable"):
        posterior = model.posterior(cache)
        before = posterior.predict_f(XNEW)[0]
        model.update(X[12:], Y[12:])
        np.testing.assert_array_equal(posterior.predict_f(XNEW)[0], before)
        posterior.update_cache()
        np.testing.assert_allclose(
            posterior.predict_f(XNEW)[0], build("ILRSGPR").predict_f(XNEW)[0], atol=1e-8
        )
        model.forget(X[12:], Y[12:])


def compiled_probabilities(model: Any) -> Any:
    return tf.function(lambda X: model.predict_y(X)[0], autograph=False)


def compiled_loss(model: Any) -> Any:
    closure = model.training_loss_closure()
    return lambda _: closure()


@pytest.mark.parametrize("compiled", [compiled_probabilities, compiled_loss])
@pytest.mark.parametrize("name", ["ILRGPR", "ILRSGPR"])
def test_what_was_compiled_keeps_the_old_rows_until_it_is_compiled_again(name, compiled):
    model = build(name, data=(X[:12], Y[:12]))
    old = compiled(model)
    first = old(XNEW)
    model.update(X[12:], Y[12:])
    np.testing.assert_array_equal(old(XNEW), first)
    whole = compiled(model)
    np.testing.assert_allclose(whole(XNEW), compiled(build(name))(XNEW), rtol=1e-8)
    model.forget(X[12:], Y[12:])
    assert np.max(np.abs(whole(XNEW) - first)) > 1e-3  # the forgotten rows are still in it
    np.testing.assert_allclose(compiled(model)(XNEW), first, rtol=1e-8)


def test_what_was_compiled_of_a_posterior_in_variables_follows_its_update():
    model = build("ILRSGPR", data=(X[:12], Y[:12]))
    posterior = model.posterior("variable")
    compiled = compiled_probabilities(posterior)
    compiled(XNEW)
    for change, rows in ((model.update, slice(12, None)), (model.forget, slice(3, 9))):
        change(X[rows], Y[rows])
        posterior.update_cache()
        np.testing.assert_allclose(compiled(XNEW), model.predict_y(XNEW)[0], rtol=1e-12)


def test_a_posterior_whose_variables_cannot_follow_says_so_and_stays_as_it_was():
    model = build("ILRGPR", data=(X[:12], Y[:12]))
    posterior = model.posterior("variable")
    before = posterior.predict_f(XNEW)[0]
    model.update(X[12:], Y[12:])
    with pytest.raises(ValueError, match=r"as long as the rows.*Take another, model.posterior\(\)"):
        posterior.update_cache()
    np.testing.assert_array_equal(posterior.predict_f(XNEW)[0], before)
    posterior.update_cache(PrecomputeCacheType.TENSOR)
    posterior.update_cache(PrecomputeCacheType.VARIABLE)  # new ones
    np.testing.assert_allclose(posterior.predict_f(XNEW)[0], model.predict_f(XNEW)[0], rtol=1e-9)


def test_deep_copies_stream_independently():
    model = build("ILRSGPR", data=(X[:12], Y[:12]), k=kernel())
    before = model.predict_f(XNEW)[0]
    copy = gpflow.utilities.deepcopy(model)
    copy.update(X[12:], Y[12:])
    np.testing.assert_array_equal(model.predict_f(XNEW)[0], before)
    assert_same_posterior(copy, build("ILRSGPR"))
