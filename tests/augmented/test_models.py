"""LogisticSoftmaxGP and BijectiveSoftmaxGP: sampling, predictions, hyperparameters, refusals."""

import pickle

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.utilities import deepcopy
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

from gpflow_ilr.augmented import sampled
from gpflow_ilr.augmented.models import BijectiveSoftmaxGP, LogisticSoftmaxGP
from tests.augmented.reference import squared_exponential, three_blobs

MODELS = {"LSM": LogisticSoftmaxGP, "BSM": BijectiveSoftmaxGP}
VARIANCE, LENGTHSCALE = 6.0, 1.2
SHORT_CHAINS = pytest.mark.filterwarnings("ignore:The chains disagree")
XNEW = np.random.default_rng(1).uniform(-2, 2, (9, 2))


def kernel():
    return gpflow.kernels.SquaredExponential(VARIANCE, LENGTHSCALE)


def build(name, **options):
    options = {"kernel": kernel(), "num_classes": 3} | options
    return MODELS[name](three_blobs(num_rows=30), **options)


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    """A sampled model, its name and its convergence report."""
    model = build(request.param)
    return model, request.param, model.sample(num_samples=400, num_burnin=100, seed=0)


def conditional_in_numpy(model, Xnew):
    """Means [S, n, L] and variances [n] of f* given each sample."""
    X = model.data[0].numpy()
    K = squared_exponential(X, X, VARIANCE, LENGTHSCALE) + 1e-6 * VARIANCE * np.eye(len(X))
    k = squared_exponential(X, Xnew, VARIANCE, LENGTHSCALE)
    A = np.linalg.solve(K, k).T
    samples = model.chains.samples.reshape(-1, len(X), model.num_latent_gps)
    return np.einsum("nm,sml->snl", A, samples), VARIANCE - np.sum(A * k.T, axis=1)


def class_probabilities(name, F):
    shares = expit(F)
    if name == "BSM":
        shares = np.concatenate([shares, np.full((*F.shape[:-1], 1), 0.5)], axis=-1)
    return shares / shares.sum(axis=-1, keepdims=True)


def test_report_says_that_the_chains_agree(fitted):
    model, _, report = fitted
    assert report.converged
    assert (report.num_chains, report.num_samples) == (2, 400)
    assert report.rhat.shape == report.ess.shape == (30, 3)
    assert report.latent_rhat.shape == (30, model.num_latent_gps)
    assert model.chains.samples.shape == (2, 400, 30, model.num_latent_gps)


def test_predicted_latents_are_the_mixture_over_samples(fitted):
    model, _, _ = fitted
    means, variance = conditional_in_numpy(model, XNEW)
    mean, var = model.predict_f(XNEW)
    assert_allclose(mean, means.mean(axis=0), rtol=1e-6, atol=1e-7)
    assert_allclose(var, variance[:, None] + means.var(axis=0), rtol=1e-6)


def test_full_covariances_are_those_of_the_mixture(fitted):
    model, _, _ = fitted
    means, _ = conditional_in_numpy(model, XNEW)
    d = means - means.mean(axis=0)
    between = np.einsum("snp,smq->npmq", d, d) / len(d)
    _, var = model.predict_f(XNEW)
    _, over_rows = model.predict_f(XNEW, full_cov=True)
    _, over_latents = model.predict_f(XNEW, full_output_cov=True)
    _, everything = model.predict_f(XNEW, full_cov=True, full_output_cov=True)
    L = model.num_latent_gps
    assert_allclose(np.einsum("pnn->np", over_rows), var, rtol=1e-8)
    assert_allclose(np.einsum("npp->np", over_latents), var, rtol=1e-8)
    assert_allclose(np.einsum("npmp->pnm", everything), over_rows, rtol=1e-8, atol=1e-10)
    assert_allclose(np.einsum("npnq->npq", everything), over_latents, rtol=1e-8, atol=1e-10)
    off_diagonal = ~np.eye(L, dtype=bool)
    expected = np.einsum("npnq->npq", between)[:, off_diagonal]
    assert_allclose(over_latents.numpy()[:, off_diagonal], expected, rtol=1e-5, atol=1e-6)


def test_probabilities_average_the_link_over_samples_and_conditionals(fitted, rng):
    model, name, _ = fitted
    means, variance = conditional_in_numpy(model, XNEW)
    # Many independent draws of f* for each retained sample.
    noise = rng.standard_normal((100, *means.shape))
    p_sample = class_probabilities(name, means + np.sqrt(variance)[:, None] * noise)
    error = p_sample.std(axis=(0, 1)) / np.sqrt(p_sample.shape[0] * p_sample.shape[1])
    p, var = model.predict_y(XNEW)
    # 800 samples have one node each, or two: their own error is that of so many draws at most.
    own = p_sample.std(axis=0).mean(axis=0) / np.sqrt(len(means))
    assert np.max(np.abs(p - p_sample.mean(axis=(0, 1))) / np.hypot(error, own)) < 4
    assert_allclose(np.sum(p, axis=1), 1, rtol=1e-12)
    assert_allclose(var, p * (1 - p), rtol=1e-12)


def test_predictions_are_deterministic_and_do_not_depend_on_batches(fitted, monkeypatch):
    model, _, _ = fitted
    p, _ = model.predict_y(XNEW)
    assert_array_equal(model.predict_y(XNEW)[0], p)
    parts = [model.predict_y(XNEW[i])[0] for i in (slice(0, 1), slice(1, 9))]
    assert_allclose(np.concatenate(parts), p, rtol=1e-10)
    leading = model.predict_y(XNEW.reshape(3, 3, 2))[0]
    assert_allclose(tf.reshape(leading, [9, 3]), p, rtol=1e-10)
    mean, var = model.predict_f(XNEW)
    monkeypatch.setattr(sampled, "_CHUNK_ELEMENTS", 4 * 1024 * 3)
    assert_allclose(model.predict_y(XNEW)[0], p, rtol=1e-10)
    assert_allclose(model.predict_f(XNEW)[0], mean, rtol=1e-10)
    assert_allclose(model.predict_f(XNEW)[1], var, rtol=1e-10)


def test_predictions_compile(fitted):
    model, _, _ = fitted
    compiled = tf.function(
        model.predict_y, input_signature=[tf.TensorSpec([None, 2], tf.float64)], autograph=False
    )
    assert_allclose(compiled(XNEW)[0], model.predict_y(XNEW)[0], rtol=1e-10)


def test_log_density_is_the_log_of_the_predicted_probability(fitted):
    model, _, _ = fitted
    y = np.arange(9) % 3
    expected = np.log(model.predict_y(XNEW)[0].numpy()[np.arange(9), y])
    for labels in (y, y[:, None], y.astype(float), np.eye(3)[y]):
        assert_allclose(model.predict_log_density((XNEW, labels)), expected, rtol=1e-12)


@pytest.mark.parametrize("full_cov", [True, False])
def test_drawn_latents_have_the_moments_of_the_mixture(fitted, full_cov):
    model, _, _ = fitted
    draws = model.predict_f_samples(XNEW, 4000, full_cov=full_cov).numpy()
    mean, var = model.predict_f(XNEW)
    assert_allclose(draws.mean(axis=0), mean, atol=4 * np.sqrt(np.max(var) / 4000))
    centred = draws - mean
    cov = np.einsum("snp,smp->pnm", centred, centred) / 4000
    _, expected = model.predict_f(XNEW, full_cov=True)
    if not full_cov:
        expected = tf.linalg.diag(tf.linalg.diag_part(expected))
        # Rows share the posterior sample, so that only the conditional part is independent.
        means, _ = conditional_in_numpy(model, XNEW)
        d = means - means.mean(axis=0)
        between = np.einsum("snp,smp->pnm", d, d) / len(d)
        expected = np.where(np.eye(9, dtype=bool), expected, between)
    # Fourth moments of f* are at most a few times those of a Gaussian.
    assert_allclose(cov, expected, atol=4 * 2 * np.max(var) / np.sqrt(4000))
    assert model.predict_f_samples(XNEW).shape == (9, model.num_latent_gps)


def test_uncertainty_about_the_probabilities_is_that_of_their_draws(fitted):
    model, _, _ = fitted
    draws = model.predict_probability_samples(XNEW, 4000).numpy()
    p, _ = model.predict_y(XNEW)
    # A variable in [0, 1] has a standard deviation of at most ½, its square of ¼ at most.
    assert_allclose(draws.mean(axis=0), p, atol=4 * 0.5 / np.sqrt(4000) + 0.01)
    variance = model.predict_probability_variance(XNEW)
    assert_allclose(draws.var(axis=0), variance, atol=4 * 0.25 / np.sqrt(4000))
    total, aleatoric, epistemic = model.predict_entropy(XNEW)
    assert_allclose(total, -np.sum(p * np.log(p), axis=1), rtol=1e-10)
    expected = -np.sum(draws * np.log(draws), axis=2).mean(axis=0)
    assert_allclose(aleatoric, expected, atol=4 * np.log(3) / 2 / np.sqrt(4000) + 0.01)
    assert_allclose(total - aleatoric, epistemic, atol=1e-12)


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


@SHORT_CHAINS
def test_no_free_class_of_the_bijective_softmax_is_predicted_above_two_thirds():
    model = build("BSM", kernel=gpflow.kernels.SquaredExponential(100.0, 2.0))
    model.sample(num_samples=100, num_burnin=100)
    p = model.predict_y(np.concatenate([model.data[0], XNEW]))[0].numpy()
    assert np.max(p[:, :2]) < 2 / 3
    assert np.max(p[:, 2]) > 0.75


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
    reports = [m.sample(num_samples=600, num_burnin=100) for m in (separate, shared)]
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


def test_full_covariances_of_labels_are_refused(fitted):
    with pytest.raises(NotImplementedError):
        fitted[0].predict_y(XNEW, full_cov=True)


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
