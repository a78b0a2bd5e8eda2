"""LogisticSoftmaxGP and BijectiveSoftmaxGP: sampling, hyperparameters, refusals."""

import pickle

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.utilities import deepcopy
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_ilr.augmented.models import BijectiveSoftmaxGP, LogisticSoftmaxGP
from tests.augmented.reference import three_blobs
from tests.augmented.small_models import LENGTHSCALE, MODELS, VARIANCE, XNEW, build, kernel

SHORT_CHAINS = pytest.mark.filterwarnings("ignore:The chains disagree")


def test_report_says_that_the_chains_agree(fitted):
    model, _, report = fitted
    assert report.converged
    assert (report.num_chains, report.num_samples) == (2, 400)
    assert report.rhat.shape == report.ess.shape == (30, 3)
    assert report.latent_rhat.shape == (30, model.num_latent_gps)
    assert model.chains.samples.shape == (2, 400, 30, model.num_latent_gps)


@SHORT_CHAINS
def test_sampling_more_continues_the_chains_and_updates_predictions(fitted):
    model, name, _ = fitted
    part = build(name)
    part.sample(num_samples=10, num_burnin=100, seed=0)
    before = part.predict_y(XNEW)[0]
    part.sample_more(390)
    assert_array_equal(part.chains.samples, model.chains.samples)
    assert_array_equal(part.predict_y(XNEW)[0], model.predict_y(XNEW)[0])
    assert np.any(before != part.predict_y(XNEW)[0])


def test_sampling_anew_with_another_seed_updates_predictions(fitted):
    model = deepcopy(fitted[0])
    first = model.predict_y(XNEW)[0]
    report = model.sample(num_samples=400, num_burnin=100, seed=5)
    difference = np.abs(model.predict_y(XNEW)[0] - first)
    # Both means have errors of about the worst of the training rows.
    assert 0 < np.max(difference) < 4 * np.sqrt(2) * np.max(report.standard_error)


def test_chains_survive_a_pickle_and_a_copy(fitted):
    model, name, _ = fitted
    restored = build(name)
    restored.chains = pickle.loads(pickle.dumps(model.chains))
    assert_array_equal(restored.predict_y(XNEW)[0], model.predict_y(XNEW)[0])
    assert_array_equal(deepcopy(model).predict_y(XNEW)[0], model.predict_y(XNEW)[0])


def test_training_raises_the_bound_and_needs_no_more_than_scipy():
    model = build("LSM", kernel=gpflow.kernels.SquaredExponential(1.0, 0.3))
    before = model.elbo()
    gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
    assert model.elbo() > before + 1.0
    assert_allclose(model.training_loss(), -model.elbo(), rtol=1e-12)
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    # The optimum is found to L-BFGS' tolerance on the objective, 2e-9 of it.
    assert max(map(np.abs, tape.gradient(loss, model.trainable_variables))) < 0.05


def test_separate_kernels_and_a_mean_function_are_used():
    kernels = [gpflow.kernels.SquaredExponential(VARIANCE, LENGTHSCALE) for _ in range(3)]
    mean = gpflow.functions.Constant(0.5 * np.ones(3))
    separate = build("LSM", kernel=gpflow.kernels.SeparateIndependent(kernels), mean_function=mean)
    shared = build(
        "LSM",
        kernel=gpflow.kernels.SharedIndependent(kernel(), output_dim=3),
        mean_function=gpflow.functions.Constant(0.5),
    )
    assert_allclose(separate.elbo(), shared.elbo(), rtol=1e-8)
    reports = [m.sample(num_samples=300, num_burnin=100) for m in (separate, shared)]
    p, q = (m.predict_y(XNEW)[0] for m in (separate, shared))
    # Two chains each, of which the worst standard error is that of a training row.
    error = np.hypot(*(np.max(r.standard_error) for r in reports))
    assert_allclose(p, q, atol=4 * error)
    far = separate.predict_f(np.array([[50.0, 50.0]]))
    assert_allclose(far[0], 0.5, rtol=1e-6)
    assert_allclose(far[1], VARIANCE, rtol=1e-6)


def test_binary_problems_have_two_latents_or_one():
    X, y = three_blobs(num_rows=20)
    for cls, num_latent_gps in ((LogisticSoftmaxGP, 2), (BijectiveSoftmaxGP, 1)):
        model = cls((X, y == 0), kernel(), num_classes=2)
        model.sample(num_samples=300, num_burnin=50)
        assert model.predict_f(XNEW)[0].shape == (9, num_latent_gps)
        assert model.predict_y(XNEW)[0].shape == (9, 2)


def test_float32_predicts_as_float64_does(fitted):
    model, name, _ = fitted
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        single = build(name)
        single.sample(num_samples=400, num_burnin=100, seed=0)
        p = single.predict_y(XNEW.astype("f"))[0]
    assert p.dtype == tf.float32
    assert_allclose(p, model.predict_y(XNEW)[0], atol=0.05)


def test_the_default_kernel_starts_from_the_median_distance():
    model = build("LSM", kernel=None)
    X = model.data[0].numpy()
    distances = np.sqrt(np.sum((X[:, None] - X) ** 2, axis=-1))[np.triu_indices(len(X), 1)]
    assert_allclose(model.kernel.lengthscales, np.median(distances), rtol=1e-10)
    assert_allclose(model.kernel.variance, 10.0, rtol=1e-10)


def test_disagreeing_chains_are_reported_with_a_remedy():
    model = build("LSM")
    with pytest.warns(UserWarning, match=r"The chains disagree.*sample_more\(\d+\)"):
        model.sample(num_samples=10, num_burnin=0)


def test_predicting_before_sampling_says_what_to_do():
    for call in ("predict_f", "predict_y"):
        with pytest.raises(RuntimeError, match=r"call model.sample\(\) first"):
            getattr(build("BSM"), call)(XNEW)
    with pytest.raises(RuntimeError, match=r"call model.sample\(\) first"):
        build("BSM").sample_more(5)


@pytest.mark.parametrize("change", ["X", "labels", "rows"])
def test_samples_of_other_data_are_refused(change, fitted):
    model = deepcopy(fitted[0])
    before = model.predict_y(XNEW)[0]
    X, Y = (x.numpy() for x in model.data)
    model.data = {
        "X": (1.1 * X, Y),
        "labels": (X, (Y + 1) % 3),
        "rows": (X[:-1], Y[:-1]),
    }[change]
    for call in (lambda: model.predict_y(XNEW), lambda: model.sample_more(5)):
        with pytest.raises(RuntimeError, match=r"call model.sample\(\) again"):
            call()
    model.data = (X, Y)
    assert_array_equal(model.predict_y(XNEW)[0], before)


def test_data_may_be_set_in_every_form_and_are_checked(fitted):
    model = deepcopy(fitted[0])
    X, Y = (x.numpy() for x in model.data)
    before = model.predict_y(XNEW)[0]
    model.data = (X.tolist(), Y[:, 0])
    assert_array_equal(model.predict_y(XNEW)[0], before)
    with pytest.raises(ValueError, match="Labels must be integers"):
        model.data = (X, Y + 1)
    with pytest.raises(ValueError, match="soft labels"):
        model.data = (X, np.full((len(X), 3), 1 / 3))


def test_inputs_that_are_moved_together_take_the_samples_with_them(fitted):
    model = deepcopy(fitted[0])
    before = model.predict_y(XNEW)[0]
    X, Y = (x.numpy() for x in model.data)
    model.data = (X + 0.5, Y)  # of a stationary kernel the posterior is the same
    assert_allclose(model.predict_y(XNEW + 0.5)[0], before, rtol=1e-6)


def test_chains_of_other_labels_or_classes_are_refused(fitted):
    model, name, _ = fitted
    X, Y = (x.numpy() for x in model.data)
    others = [
        MODELS[name]((X, (Y + 1) % 3), kernel(), num_classes=3),
        build(name, class_scaling=[1.0, 2.0, 3.0]),
        MODELS["BSM" if name == "LSM" else "LSM"]((X, Y), kernel(), num_classes=3),
    ]
    for other in others:
        other.chains = model.chains
        with pytest.raises(RuntimeError, match=r"other labels, classes or class_scaling"):
            other.predict_y(XNEW)


@pytest.mark.parametrize("chains", ["abc", [1, 2], np.zeros((1, 10, 20, 3))], ids=str)
def test_chains_that_are_none_are_refused(chains):
    model = build("LSM")
    model.chains = chains
    with pytest.raises(TypeError, match="chains must be those of an equal model"):
        model.predict_y(XNEW)


@pytest.mark.parametrize("change", ["value", "object"])
def test_samples_of_another_kernel_are_refused(change, fitted):
    model = deepcopy(fitted[0])
    model.predict_y(XNEW)
    if change == "value":
        model.kernel.variance.assign(1.01 * VARIANCE)
    else:
        model.kernel = gpflow.kernels.Matern52(VARIANCE, LENGTHSCALE)
    with pytest.raises(RuntimeError, match=r"call model.sample\(\) again"):
        model.predict_y(XNEW)


def test_bad_input_is_refused_with_a_sentence():
    X, y = three_blobs(num_rows=30)
    with pytest.raises(ValueError, match="soft labels"):
        LogisticSoftmaxGP((X, np.full((30, 3), 1 / 3)), kernel(), num_classes=3)
    with pytest.raises(ValueError, match=r"X must have shape \[N, D\]"):
        LogisticSoftmaxGP((X[:, 0], y), kernel(), num_classes=3)
    with pytest.raises(ValueError, match="pair"):
        LogisticSoftmaxGP(X, kernel(), num_classes=3)
    for of_two in (
        gpflow.kernels.SeparateIndependent([kernel(), kernel()]),
        gpflow.kernels.SharedIndependent(kernel(), output_dim=2),
    ):
        with pytest.raises(ValueError, match="is for 2 latent functions, but the model has 3"):
            build("LSM", kernel=of_two)
    with pytest.raises(TypeError, match="LinearCoregionalization mixes the latent functions"):
        build("LSM", kernel=gpflow.kernels.LinearCoregionalization([kernel()], W=np.ones((3, 1))))
    with pytest.raises(TypeError, match="kernel must be a GPflow kernel"):
        build("LSM", kernel="rbf")
    for name in ("num_samples", "num_chains", "thinning", "num_burnin"):
        with pytest.raises(ValueError, match=f"{name} must be an integer"):
            build("LSM").sample(**{name: -1})


@SHORT_CHAINS
@pytest.mark.parametrize("options", [{}, {"class_scaling": [1e200, 1.0, 1e-200]}], ids=str)
@pytest.mark.parametrize("variance", [2e5, 1e8, 1e20, 1e100])
@pytest.mark.parametrize("name", MODELS)
def test_kernels_of_huge_variance_are_sampled(name, variance, options):
    kernel_of_variance = gpflow.kernels.SquaredExponential(variance, LENGTHSCALE)
    model = build(name, kernel=kernel_of_variance, **options)
    model.sample(num_samples=20, num_burnin=5, num_chains=1)
    p = model.predict_y(XNEW)[0].numpy()
    assert np.all(np.isfinite(p))
    assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
