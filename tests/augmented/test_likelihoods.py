"""The augmented likelihoods in GPflow: natural gradients, predictions, labels, precision."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.config import default_float
from gpflow.keras import tf_keras
from numpy.testing import assert_allclose
from scipy.special import expit, log_expit, ndtri, softmax
from scipy.stats import qmc

from gpflow_ilr.augmented import likelihoods as augmented_likelihoods
from gpflow_ilr.augmented.coordinate_ascent import maximised_bound
from gpflow_ilr.augmented.likelihoods import (
    BijectiveSoftmaxLikelihood,
    LogisticSoftmaxLikelihood,
)
from gpflow_ilr.expectations import GaussHermite, MonteCarlo, Sobol, default_rule
from tests.augmented.reference import (
    SETTINGS,
    coordinate_ascent,
    squared_exponential,
    three_blobs,
)

LIKELIHOODS = {"LSM": LogisticSoftmaxLikelihood, "BSM": BijectiveSoftmaxLikelihood}
VARIANCE, LENGTHSCALE = 4.0, 1.0
JITTER = 1e-6


@pytest.fixture(params=LIKELIHOODS)
def name(request):
    return request.param


@pytest.fixture
def likelihood(name):
    return LIKELIHOODS[name](num_classes=3)


def moments(likelihood, rng, num_rows=6):
    m = rng.normal(0, 2, (num_rows, likelihood.num_latent_gps))
    v = rng.gamma(1.0, 2.0, (num_rows, likelihood.num_latent_gps))
    return m, v, (np.arange(num_rows) % likelihood.num_classes)[:, None]


def svgp(likelihood, Z, num_data, whiten=True):
    kernel = gpflow.kernels.SquaredExponential(VARIANCE, LENGTHSCALE)
    return gpflow.models.SVGP(
        kernel,
        likelihood,
        Z,
        num_latent_gps=likelihood.num_latent_gps,
        num_data=num_data,
        whiten=whiten,
    )


def natural_step(model, data, gamma=1.0):
    optimizer = gpflow.optimizers.NaturalGradient(gamma)
    loss = model.training_loss_closure(data, compile=False)

    @tf.function(autograph=False)
    def step():
        optimizer.minimize(loss, [(model.q_mu, model.q_sqrt)])
        return -loss()

    return step


@pytest.mark.parametrize(
    ("bound", "whiten"), [("marginal", True), ("marginal", False), ("factorised", True)]
)
def test_natural_gradient_steps_of_length_one_are_coordinate_ascent(name, bound, whiten):
    X, y = three_blobs()
    Z = X[::3]
    data = (X, y[:, None])
    model = svgp(LIKELIHOODS[name](3, bound=bound), Z, len(X), whiten)
    step = natural_step(model, data)
    # The first step forgets where it started but for the local variables, hence from q = prior.
    if not whiten:
        K = squared_exponential(Z, Z, VARIANCE, LENGTHSCALE) + JITTER * np.eye(len(Z))
        model.q_sqrt.assign(np.stack([np.linalg.cholesky(K)] * model.num_latent_gps))
    trace = [model.elbo(data).numpy(), *(step().numpy() for _ in range(10))]
    num_latent_gps, d = SETTINGS[name]
    K_mm = squared_exponential(Z, Z, VARIANCE, LENGTHSCALE) + JITTER * np.eye(len(Z))
    K_mn = squared_exponential(Z, X, VARIANCE, LENGTHSCALE)
    expected = coordinate_ascent(
        K_mm, K_mn, np.full(len(X), VARIANCE), np.eye(3, num_latent_gps)[y], d, 10, bound
    )
    assert_allclose(trace, expected, rtol=1e-8)
    assert np.min(np.diff(trace)) > -1e-9


def test_converged_sparse_model_on_all_inputs_is_the_full_model(name):
    X, y = three_blobs(num_rows=24)
    model = svgp(LIKELIHOODS[name](3), X.copy(), len(X))
    step = natural_step(model, (X, y[:, None]))
    for _ in range(60):
        elbo = step()
    K = squared_exponential(X, X, VARIANCE, LENGTHSCALE) + JITTER * np.eye(len(X))
    mu = np.zeros((len(X), model.num_latent_gps))
    full = maximised_bound(model.likelihood.link, K[None], mu, np.eye(3)[y])
    # GPflow has the jitter in K_mm only, so the two models differ by a variance of 1e-6.
    assert_allclose(elbo, full, atol=1e-3)


def test_minibatches_reach_the_full_batch_optimum():
    """With step lengths (1 + t)^−0.51, as the authors have them."""
    X, y = three_blobs()
    full = (X, y[:, None])
    model = svgp(BijectiveSoftmaxLikelihood(3), X[::3], len(X))
    optimum = svgp(BijectiveSoftmaxLikelihood(3), X[::3], len(X))
    step = natural_step(optimum, full)
    for _ in range(60):
        best = step()
    rate = tf.Variable(1.0, dtype=default_float())
    optimizer = gpflow.optimizers.NaturalGradient(rate)
    batches = iter(tf.data.Dataset.from_tensor_slices(full).repeat().shuffle(45, seed=0).batch(15))
    loss = model.training_loss_closure(batches, compile=False)

    @tf.function(autograph=False)
    def stochastic_step():
        optimizer.minimize(loss, [(model.q_mu, model.q_sqrt)])

    for t in range(1, 151):
        rate.assign((1.0 + t) ** -0.51)
        stochastic_step()
    assert best - 1.0 < model.elbo(full) <= best


def test_kernel_and_inducing_inputs_learn_between_natural_steps():
    X, y = three_blobs()
    data = (X, y[:, None])
    model = svgp(LogisticSoftmaxLikelihood(3), X[::5], len(X))
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    natural = natural_step(model, data)
    adam = tf_keras.optimizers.Adam(0.05)
    loss = model.training_loss_closure(data, compile=False)

    @tf.function(autograph=False)
    def step():
        elbo = natural()
        adam.minimize(loss, model.trainable_variables)
        return elbo

    for _ in range(20):
        natural()
    before, Z = natural().numpy(), model.inducing_variable.Z.numpy()
    for _ in range(40):
        after = step().numpy()
    assert after > before + 1.0
    assert np.max(np.abs(model.inducing_variable.Z - Z)) > 0.01


def test_zero_variance_leaves_the_likelihood_itself(likelihood, rng):
    m, _, y = moments(likelihood, rng)
    log_prob = likelihood.log_prob(None, m, y)
    assert_allclose(likelihood.variational_expectations(None, m, 0 * m, y), log_prob, rtol=1e-12)
    assert_allclose(likelihood.predict_log_density(None, m, 0 * m, y), log_prob, rtol=1e-10)
    mean, variance = likelihood.predict_mean_and_var(None, m, 0 * m)
    assert_allclose(mean, likelihood.conditional_mean(None, m), rtol=1e-10)
    assert_allclose(variance, likelihood.conditional_variance(None, m), rtol=1e-8)


def test_predictions_integrate_over_the_latents(name, likelihood, rng):
    m, v, y = moments(likelihood, rng)
    F = m + np.sqrt(v) * rng.standard_normal((100_000, *m.shape))
    shares = expit(F)
    if name == "BSM":
        shares = np.concatenate([shares, np.full((*F.shape[:-1], 1), 0.5)], axis=-1)
    p = shares / shares.sum(axis=-1, keepdims=True)
    error = p.std(axis=0) / np.sqrt(len(F))
    exact = LIKELIHOODS[name](3, nodes=GaussHermite(15)).predict_mean_and_var(None, m, v)[0]
    mean, variance = likelihood.predict_mean_and_var(None, m, v)
    assert np.max(np.abs(exact - p.mean(axis=0)) / error) < 4.5
    # The default nodes are 256 Sobol points.
    assert_allclose(mean, exact, atol=0.01)
    assert_allclose(variance, mean * (1 - mean), rtol=1e-12)
    assert_allclose(np.sum(mean, axis=-1), 1, rtol=1e-12)
    density = likelihood.predict_log_density(None, m, v, y)
    assert_allclose(np.exp(density), np.take_along_axis(mean.numpy(), y, 1)[:, 0], rtol=1e-12)
    # The link of the mean, which ignores v, is not what is predicted.
    assert np.max(np.abs(mean - likelihood.conditional_mean(None, m))) > 0.04


@pytest.mark.parametrize("sd", [3.0, 10.0, 30.0, 300.0, 1e5])
@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_default_nodes_keep_the_bound_that_is_stated(name, num_classes, sd, rng):
    likelihood = LIKELIHOODS[name](num_classes)
    L = likelihood.num_latent_gps
    m = sd * rng.uniform(0.0, 1.5, (40, 1)) * rng.standard_normal((40, L))
    v = sd**2 * rng.uniform(0.0, 1.0, (40, L))
    if L == 1:  # the trapezium rule, a point every thousandth of a standard deviation
        g = np.arange(-8.0, 8.0, 0.001)[:, None, None]
    else:
        g = ndtri(qmc.Sobol(L, seed=99).random_base2(14) + 2.0**-31)[:, None, :]
    scores = log_expit(m + np.sqrt(v) * g)
    if name == "BSM":
        fixed = np.full((*scores.shape[:-1], 1), np.log(0.5))
        scores = np.concatenate([scores, fixed], axis=-1)
    weights = np.exp(-0.5 * g[:, 0, 0] ** 2) if L == 1 else np.ones(len(g))
    exact = np.average(softmax(scores, axis=-1), axis=0, weights=weights)
    found = likelihood.predict_mean_and_var(None, m, v)[0]
    assert np.max(np.abs(found - exact)) < 0.03


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_probability_that_underflows_has_its_own_logarithm(likelihood, dtype):
    m = np.tile(np.array([-2000.0, 1.0, 1.0], dtype)[: likelihood.latent_dim], (3, 1))
    v, y = np.ones_like(m), np.arange(3)[:, None]
    p = likelihood.predict_mean_and_var(None, m, v)[0].numpy()
    assert np.all(p[:, 0] == 0)
    density = likelihood.predict_log_density(None, m, v, y)
    log_prob = likelihood.log_prob(None, m, y)
    # E[σ(f)/…] is E[e^f/…] down there: e^½ times its value at the mean, but for the other latents.
    assert_allclose(density[0], log_prob[0] + 0.5, atol=0.1)
    assert_allclose(density[1:], np.log(p[0, 1:]), rtol=1e-6)
    assert_allclose(log_prob[0], -2000, rtol=1e-3)
    assert_allclose(np.exp(log_prob), likelihood.conditional_mean(None, m)[0], rtol=1e-6)


def test_predictions_do_not_depend_on_batches_or_chunks(likelihood, rng, monkeypatch):
    m, v, _ = moments(likelihood, rng, num_rows=50)
    whole = likelihood.predict_mean_and_var(None, m, v)[0]
    parts = [likelihood.predict_mean_and_var(None, m[i], v[i])[0] for i in np.split(np.r_[:50], 5)]
    assert_allclose(np.concatenate(parts), whole, rtol=1e-13)
    monkeypatch.setattr(augmented_likelihoods, "_CHUNK_ELEMENTS", 64 * 3 * 7)
    assert_allclose(likelihood.predict_mean_and_var(None, m, v)[0], whole, rtol=1e-13)
    leading = likelihood.predict_mean_and_var(None, m.reshape(5, 10, -1), v.reshape(5, 10, -1))[0]
    assert_allclose(leading, tf.reshape(whole, [5, 10, 3]), rtol=1e-13)


def test_fresh_draws_are_fresh_and_right(name, rng):
    likelihood = LIKELIHOODS[name](3, nodes=MonteCarlo(20_000))
    m, v, _ = moments(likelihood, rng)
    first, second = (likelihood.predict_mean_and_var(None, m, v)[0] for _ in range(2))
    assert np.any(first != second)
    exact = LIKELIHOODS[name](3, nodes=Sobol(2**14)).predict_mean_and_var(None, m, v)[0]
    # Probabilities have a standard deviation below ½, and 18 of them are compared.
    assert_allclose(first, exact, atol=4 * 0.5 / np.sqrt(20_000))


def test_all_forms_of_a_label_mean_the_same(likelihood, rng):
    m, v, y = moments(likelihood, rng)
    forms = [y, y.astype(float), np.eye(3)[y[:, 0]], np.eye(3, dtype=int)[y[:, 0]]]
    for method in (
        lambda Y: likelihood.variational_expectations(None, m, v, Y),
        lambda Y: likelihood.predict_log_density(None, m, v, Y),
        lambda Y: likelihood.log_prob(None, m, Y),
    ):
        values = [method(Y).numpy() for Y in forms]
        for value in values[1:]:
            np.testing.assert_array_equal(value, values[0])


def test_soft_labels_average_over_classes(likelihood, rng):
    m, v, _ = moments(likelihood, rng)
    soft = rng.dirichlet(np.ones(3), len(m))
    of_class = [
        likelihood.variational_expectations(None, m, v, np.full((len(m), 1), k)) for k in range(3)
    ]
    expected = np.sum(soft * np.stack(of_class, axis=-1), axis=-1)
    assert_allclose(likelihood.variational_expectations(None, m, v, soft), expected, rtol=1e-12)


def test_labels_outside_the_classes_are_refused(likelihood, rng):
    m, v, y = moments(likelihood, rng)
    with pytest.raises(ValueError, match="3"):
        likelihood.variational_expectations(None, m, v, y + 1)


@pytest.mark.parametrize("bound", ["marginal", "factorised"])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_graph_and_xla_equal_eager(name, bound, jit_compile, rng):
    likelihood = LIKELIHOODS[name](3, bound=bound)
    m, v, y = (tf.constant(x) for x in moments(likelihood, rng))

    def values(m, v, y):
        p, _ = likelihood.predict_mean_and_var(None, m, v)
        return likelihood.variational_expectations(None, m, v, y), p

    compiled = tf.function(values, jit_compile=jit_compile, autograph=False)
    for graph, eager in zip(compiled(m, v, y), values(m, v, y), strict=True):
        assert_allclose(graph, eager, rtol=1e-9)


@pytest.mark.parametrize("bound", ["marginal", "factorised"])
def test_float32_stays_float32_and_close(name, bound, rng):
    likelihood = LIKELIHOODS[name](3, bound=bound)
    m, v, y = moments(likelihood, rng)
    double = likelihood.variational_expectations(None, m, v, y)
    single = likelihood.variational_expectations(None, m.astype("f"), v.astype("f"), y)
    assert single.dtype == tf.float32
    assert_allclose(single, double, rtol=1e-5)
    p = likelihood.predict_mean_and_var(None, m.astype("f"), v.astype("f"))[0]
    assert p.dtype == tf.float32


def test_no_free_class_of_the_bijective_softmax_is_predicted_above_two_thirds():
    likelihood = BijectiveSoftmaxLikelihood(num_classes=3)
    p, _ = likelihood.predict_mean_and_var(None, np.array([[500.0, -500.0]]), np.full((1, 2), 4.0))
    assert_allclose(p, [[2 / 3, 0, 1 / 3]], atol=1e-12)


def test_binary_models_have_two_latents_and_one():
    assert LogisticSoftmaxLikelihood(2).latent_dim == 2
    assert BijectiveSoftmaxLikelihood(2).latent_dim == 1
    assert BijectiveSoftmaxLikelihood(2).nodes == default_rule(1)


def test_bad_arguments_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match="bound must be 'marginal' or 'factorised'"):
        LogisticSoftmaxLikelihood(3, bound="tight")
    with pytest.raises(TypeError, match="nodes must be a node rule"):
        LogisticSoftmaxLikelihood(3, nodes=64)
    with pytest.raises(ValueError, match="num_classes must be at least 2"):
        BijectiveSoftmaxLikelihood(1)


def test_infinite_latents_of_other_classes_leave_a_label_alone(likelihood):
    F = np.array([[-np.inf, 1.0, 2.0][: likelihood.latent_dim]])
    labels = np.array([[1]])
    finite = likelihood.log_prob(None, np.where(np.isinf(F), -800.0, F), labels)
    assert_allclose(likelihood.log_prob(None, F, labels), finite, rtol=1e-14)
    rows = np.array([[0.0, 0.25, 0.75]])
    finite = likelihood.log_prob(None, np.where(np.isinf(F), -800.0, F), rows)
    assert_allclose(likelihood.log_prob(None, F, rows), finite, rtol=1e-14)
