"""The collapsed classifiers equal GPflow's SGPR where it can express them, else dense algebra."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Matern32, SeparateIndependent

from gpflow_ilr.calibration.criterion import Marginals, label_nll
from tests.models.oracles import (
    COLLAPSED,
    XNEW,
    K,
    X,
    Y,
    Z,
    build,
    gradients,
    reference,
    reference_loo,
)

SOFT = np.random.default_rng(3).dirichlet(np.ones(K), size=len(X))
SOME = [("ILRSGPR", "per_output"), ("ILRSGPR", "per_class"), ("DirichletSGPR", "shared")]
LINEAR = np.array([[0.1, 0.2], [-0.3, 0.4]])


@pytest.mark.parametrize(("name", "noise"), COLLAPSED)
def test_bound_gradient_predictions_and_leave_one_out_are_those_of_dense_algebra(name, noise):
    mean_function = gpflow.functions.Linear(LINEAR, [0.5, -0.1]) if name == "ILRSGPR" else None
    model = build(name, noise, mean_function=mean_function)
    expected = reference(model)
    np.testing.assert_allclose(model.elbo(), expected.evidence, rtol=1e-10)
    mean, covariance = model.predict_f(XNEW, full_cov=True)
    np.testing.assert_allclose(mean, expected.mean, atol=1e-9)
    np.testing.assert_allclose(covariance, expected.covariance, atol=1e-9)
    np.testing.assert_allclose(
        tf.transpose(model.predict_f(XNEW)[1]), tf.linalg.diag_part(covariance), atol=1e-9
    )
    variables = model.trainable_variables
    for ours, theirs in zip(
        gradients(model.elbo, variables),
        gradients(lambda: reference(model).evidence, variables),
        strict=True,
    ):
        assert np.any(theirs != 0)
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-8)
    for ours, theirs in zip(model.predict_loo(), reference_loo(model), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


@pytest.mark.parametrize("noise", ["fixed", "shared", "per_output"])
def test_leave_one_out_with_soft_labels_is_that_of_dense_algebra(noise):
    model = build("ILRSGPR", noise, data=(X, SOFT))
    for ours, theirs in zip(model.predict_loo(), reference_loo(model, (X, SOFT)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def separate_sets(P: int, sizes: Any = (4, 6, 5)) -> SeparateIndependentInducingVariables:
    rng = np.random.default_rng(7)
    sets = [InducingPoints(rng.standard_normal((sizes[p], 2))) for p in range(P)]
    return SeparateIndependentInducingVariables(sets)


@pytest.mark.parametrize(
    ("name", "noise", "own_kernels"),
    [
        ("ILRSGPR", "per_class", False),
        ("ILRSGPR", "per_output", True),
        ("DirichletSGPR", "shared", False),
        ("DirichletSGPR", "per_output", True),
    ],
)
def test_each_output_may_have_inducing_inputs_and_a_kernel_of_its_own(name, noise, own_kernels):
    P = K - 1 if name == "ILRSGPR" else K
    kernels = [Matern32(variance=0.3 + p, lengthscales=1.0 + p) for p in range(P)]
    k = SeparateIndependent(kernels) if own_kernels else None
    model = build(name, noise, k=k, inducing_variable=separate_sets(P))
    expected = reference(model)
    np.testing.assert_allclose(model.elbo(), expected.evidence, rtol=1e-10)
    mean, covariance = model.predict_f(XNEW, full_cov=True)
    np.testing.assert_allclose(mean, expected.mean, atol=1e-9)
    np.testing.assert_allclose(covariance, expected.covariance, atol=1e-9)
    if own_kernels:
        for ours, theirs in zip(model.predict_loo(), reference_loo(model), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-8)
    else:
        variables = model.inducing_variable.trainable_variables
        assert len(variables) == P
        for ours, theirs in zip(
            gradients(model.elbo, variables),
            gradients(lambda: reference(model).evidence, variables),
            strict=True,
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-8)


def test_shared_inducing_inputs_may_be_wrapped_and_kernels_separate():
    kernels = [Matern32(variance=0.3 + p, lengthscales=1.0 + p) for p in range(K - 1)]
    shared = SharedIndependentInducingVariables(InducingPoints(Z))
    wrapped = build("ILRSGPR", k=SeparateIndependent(kernels), inducing_variable=shared)
    plain = build("ILRSGPR", k=SeparateIndependent(kernels))
    np.testing.assert_allclose(wrapped.elbo(), reference(plain).evidence, rtol=1e-10)
    np.testing.assert_allclose(plain.elbo(), reference(plain).evidence, rtol=1e-10)


@pytest.mark.parametrize("own_kernels", [False, True])
@pytest.mark.parametrize("weights", [None, 0.3 + np.arange(len(X)) % 3])
def test_rows_weighted_by_the_precision_of_their_class_have_the_bound_of_sums_by_class(
    weights, own_kernels
):
    data = (X, Y) if weights is None else (X, Y, weights)
    kernels = [Matern32(variance=0.3 + p, lengthscales=1.0 + p) for p in range(K - 1)]
    options = {"k": SeparateIndependent(kernels)} if own_kernels else {}
    mean_function = gpflow.functions.Linear(LINEAR, [0.5, -0.1])
    model = build("ILRSGPR", "per_class", data=data, mean_function=mean_function, **options)
    model.code.class_factor.assign([[0.5], [2.0], [1.5]])
    by_class = lambda: model.bound(model.statistics(model.rows))  # noqa: E731
    np.testing.assert_allclose(model.elbo(), by_class(), rtol=1e-12)
    variables = model.trainable_variables
    for a, b in zip(gradients(model.elbo, variables), gradients(by_class, variables), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("name", "noise"), [*SOME[:2], ("DirichletSGPR", "fixed")])
def test_chunks_change_neither_values_nor_gradients(name, noise):
    constant = gpflow.functions.Constant([0.2])
    whole = build(name, noise, chunk_size=len(X), mean_function=constant)
    variables = whole.trainable_variables
    functions = whole.elbo, whole.loo_log_density
    values, slopes = zip(*((f(), gradients(f, variables)) for f in functions), strict=True)
    loo = whole.predict_loo()[0]
    for chunk_size in (1, 10**9, None):
        whole.chunk_size = chunk_size
        np.testing.assert_allclose(whole.elbo(), values[0], rtol=1e-12)
    whole.chunk_size = 7
    np.testing.assert_allclose(whole.predict_loo()[0], loo, atol=1e-10)
    for function, value, slope in zip(functions, values, slopes, strict=True):
        np.testing.assert_allclose(function(), value, rtol=1e-12)
        for a, b in zip(gradients(function, variables), slope, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("name", "noise"), SOME)
def test_more_inducing_inputs_than_rows_and_duplicates_of_both_survive(name, noise):
    data = np.concatenate([X, X[:5], X[:5]]), np.concatenate([Y, Y[:5], (Y[:5] + 1) % K])
    many = np.concatenate([data[0], X, X[:3]])  # more than rows; every one at least twice
    model = build(name, noise, data=data, inducing_variable=many)
    exact = build(name.replace("SGPR", "GPR"), noise, data=data)
    # All rows are inducing inputs, so the bound is tight up to the relative jitter of 1e-6.
    np.testing.assert_allclose(model.elbo(), exact.log_marginal_likelihood(), rtol=1e-3)
    np.testing.assert_allclose(model.predict_y(XNEW)[0], exact.predict_y(XNEW)[0], atol=1e-3)
    np.testing.assert_allclose(model.predict_loo()[0], exact.predict_loo()[0], atol=5e-2)
    for gradient in gradients(model.training_loss, model.trainable_variables):
        assert np.all(np.isfinite(gradient))


def test_leave_one_out_density_has_its_gradient_where_eigenvalues_coincide():
    # Those of a triangle's covariance do, and those of G, whose eigenvectors then have no gradient.
    triangle = np.array([[1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]])
    model = build(
        "ILRSGPR",
        data=(triangle, [0, 1, 2]),
        k=gpflow.kernels.SquaredExponential(),
        inducing_variable=1.5 * triangle,
    )
    Z, step = model.inducing_variable.Z, 1e-4 * np.arange(6.0).reshape(3, 2)
    (slope,) = gradients(model.loo_log_density, [Z.unconstrained_variable])
    values = []
    for shifted in (Z + step, Z - step):
        Z.assign(shifted)
        values.append(model.loo_log_density())
    np.testing.assert_allclose(np.sum(slope * step), (values[0] - values[1]) / 2, rtol=1e-6)


def test_leave_one_out_density_is_that_of_all_outputs_with_kernels_of_their_own():
    kernels = [Matern32(variance=0.3 + p, lengthscales=1.0 + p) for p in range(K - 1)]
    options = {"k": SeparateIndependent(kernels), "inducing_variable": separate_sets(K - 1)}
    model = build("ILRSGPR", "per_output", **options)
    held_out = Marginals(*model.leave_one_out(), model.labels)
    nll = label_nll(held_out, model.code.link, model.code.scale)
    np.testing.assert_allclose(model.loo_log_density(), -np.sum(nll), rtol=1e-12)


def test_jitter_is_relative_to_the_kernels_variance():
    small = build(
        "ILRSGPR", k=gpflow.kernels.SquaredExponential(variance=1e-8), noise_variance=1e-9
    )
    large = build("ILRSGPR", k=gpflow.kernels.SquaredExponential(variance=1e4), noise_variance=1e3)
    # f and its noise in other units: what the bound explains does not depend on the units, but the
    # targets do not scale along, so compare the variances.
    np.testing.assert_allclose(
        small.predict_f(XNEW)[1] / 1e-8, large.predict_f(XNEW)[1] / 1e4, rtol=1e-7
    )


@pytest.mark.parametrize(("name", "noise"), SOME)
def test_two_classes_and_a_class_without_rows(name, noise):
    for num_classes, labels in ((2, Y % 2), (4, Y)):
        model = build(name, noise, data=(X, labels), num_classes=num_classes)
        expected = reference(model, (X, labels))
        np.testing.assert_allclose(model.elbo(), expected.evidence, rtol=1e-10)
        np.testing.assert_allclose(model.predict_f(XNEW)[0], expected.mean, atol=1e-9)


@pytest.mark.parametrize(("name", "compiled"), [("ILRSGPR", True), ("DirichletSGPR", False)])
def test_a_failed_factorisation_says_what_to_do(name, compiled):
    model = build(name)
    model.kernel.lengthscales.unconstrained_variable.assign([np.nan, 1.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Remedies: standardise"):
        model.training_loss_closure(compile=compiled)()
    with pytest.raises(tf.errors.InvalidArgumentError, match="Remedies: standardise"):
        model.predict_y(XNEW)


@pytest.mark.parametrize("trainable", ["inducing_variable", "code", "mean_function"])
def test_parts_of_the_model_may_be_trained_alone(trainable):
    model = build("ILRSGPR", "shared", mean_function=gpflow.functions.Constant([0.2]))
    every = dict(zip(map(id, model.trainable_variables), gradients_of(model), strict=True))
    gpflow.set_trainable(model, False)
    part = getattr(model, trainable)
    gpflow.set_trainable(part.extra_noise if trainable == "code" else part, True)
    assert len(model.trainable_variables) == 1
    np.testing.assert_allclose(
        gradients_of(model)[0], every[id(model.trainable_variables[0])], rtol=1e-9
    )


def gradients_of(model: Any) -> Any:
    return gradients(model.training_loss, model.trainable_variables)


@pytest.mark.parametrize(("name", "noise"), SOME)
@pytest.mark.parametrize("many", [False, True], ids=["M < N", "M > N"])
def test_gradient_of_predictions_with_respect_to_hyperparameters(name, noise, many):
    # M > N leaves eigenvalues of G that coincide at zero, and may not leave the gradient with them.
    inducing = np.concatenate([X, XNEW]) if many else Z
    model = build(name, noise, inducing_variable=inducing)
    variables = model.trainable_variables

    def summary(f: Any, variance: Any) -> tf.Tensor:
        return tf.reduce_sum(tf.sin(f)) + tf.reduce_sum(tf.sqrt(variance))

    def expected() -> tf.Tensor:
        result = reference(model)
        return summary(result.mean, tf.linalg.diag_part(result.covariance))

    def ours() -> tf.Tensor:
        return summary(*model.predict_f(XNEW))

    theirs = gradients(expected, variables)
    for _ in range(1 if many else 2):  # the second time the statistics are kept
        for a, b in zip(gradients(ours, variables), theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * max(1.0, np.abs(b).max()))


def test_gradient_of_predictions_with_respect_to_new_inputs():
    model = build("ILRSGPR", "per_output")
    Xnew = tf.Variable(XNEW)
    (ours,) = gradients(lambda: tf.reduce_sum(model.predict_y(Xnew)[0][:, 0]), [Xnew])
    for i, j in ((0, 0), (3, 1)):
        step = np.zeros(XNEW.shape)
        step[i, j] = 1e-6
        change = [float(model.predict_y(XNEW + s * step)[0][i, 0]) for s in (1, -1)]
        np.testing.assert_allclose(ours[i, j], (change[0] - change[1]) / 2e-6, rtol=1e-6, atol=1e-8)


def test_kernels_of_many_kinds_equal_dense_algebra():
    k = gpflow.kernels
    kinds = [
        k.Linear(0.5) + k.Matern12(active_dims=[1]),
        k.SquaredExponential(active_dims=[0]) * k.Polynomial(2, active_dims=[1]),
        k.Periodic(k.SquaredExponential(active_dims=[0]), period=2.0) + k.White(0.1),
        k.ArcCosine(order=1) + k.Constant(0.3),
    ]
    for chosen in kinds:
        model = build("ILRSGPR", "shared", k=chosen)
        expected = reference(model)
        np.testing.assert_allclose(model.elbo(), expected.evidence, rtol=1e-8)
        np.testing.assert_allclose(model.predict_f(XNEW)[0], expected.mean, atol=1e-7)


def test_predictions_follow_whatever_is_changed_about_the_kernel():
    def changes(k: gpflow.kernels.Sum) -> list[Any]:
        return [
            lambda: setattr(k.kernels[0], "degree", 1.0),
            lambda: setattr(k.kernels[1], "active_dims", [1]),
            lambda: k.kernels[1].lengthscales.assign(0.3),
            lambda: k.kernels.__setitem__(0, Matern32()),
        ]

    def sum_kernel() -> gpflow.kernels.Sum:
        polynomial = gpflow.kernels.Polynomial(degree=2.0, variance=0.5)
        return polynomial + gpflow.kernels.SquaredExponential(active_dims=[0])

    model = build("ILRSGPR", k=sum_kernel())
    for i in range(4):
        before = model.predict_y(XNEW)[0].numpy()
        changes(model.kernel)[i]()
        fresh = build("ILRSGPR", k=sum_kernel())
        for change in changes(fresh.kernel)[: i + 1]:
            change()
        ours = model.predict_y(XNEW)[0]
        np.testing.assert_allclose(ours, fresh.predict_y(XNEW)[0], atol=1e-10)
        assert np.max(np.abs(ours - before)) > 1e-4


def test_rows_that_are_inducing_inputs_do_not_enter_the_criterion():
    model = build("ILRSGPR", inducing_variable=np.concatenate([X[[3, 8]], Z]))
    others = np.delete(np.arange(len(X)), [3, 8])
    np.testing.assert_array_equal(model.representative_rows(), others)
    mean, _, labels, _ = model.held_out(None, max_rows=None)
    np.testing.assert_allclose(mean, tf.gather(model.leave_one_out()[0], others))
    np.testing.assert_array_equal(labels, Y[others])
    assert model.calibrate(noise=True, max_rows=5).num_rows == 5
    assert model.calibrate().num_rows == len(others)
    # Where most rows are inducing inputs there is nothing else to go by.
    np.testing.assert_array_equal(
        build("ILRSGPR", inducing_variable=X[:9]).representative_rows(), np.arange(len(X))
    )
