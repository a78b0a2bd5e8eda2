"""ILRLikelihood and SoftmaxLikelihood: labels, shapes, the mixing matrix, refusals."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy.linalg import helmert
from scipy.special import log_softmax, softmax

from gpflow_ilr.expectations import MonteCarlo, Sobol, expected_softmax
from gpflow_ilr.likelihoods import ILRLikelihood, LinkedSoftmax, SoftmaxLikelihood

K = 4
KINDS = [ILRLikelihood, SoftmaxLikelihood]


def latents(likelihood: LinkedSoftmax, *batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    shape = (*batch, likelihood.latent_dim)
    return rng.normal(size=shape), rng.uniform(0.1, 2.0, size=shape)


def mixed(kind: type[LinkedSoftmax]) -> LinkedSoftmax:
    """A likelihood whose W is neither the identity nor square."""
    rank = kind(K).latent_dim
    return kind(K, mixing=np.random.default_rng(4).normal(size=(rank, 2)))


def all_densities(
    likelihood: LinkedSoftmax, Y: Any, *batch: int, X: Any = None
) -> list[np.ndarray]:
    F, V = latents(likelihood, *batch)
    return [
        likelihood.log_prob(X, F, Y).numpy(),
        likelihood.variational_expectations(X, F, V, Y).numpy(),
        likelihood.predict_log_density(X, F, V, Y).numpy(),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_log_prob_is_the_log_softmax_of_the_linked_latents(kind: type[LinkedSoftmax]) -> None:
    likelihood = mixed(kind)
    basis = helmert(K).T if kind is ILRLikelihood else np.eye(K)
    F, _ = latents(likelihood, 5)
    log_pi = log_softmax(F @ (basis @ likelihood.W.numpy()).T, axis=-1)
    for k in range(K):
        value = likelihood.log_prob(None, F, np.full((5, 1), k))
        np.testing.assert_allclose(value, log_pi[:, k], rtol=1e-12)
    np.testing.assert_allclose(likelihood.conditional_mean(None, F), np.exp(log_pi), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "convert",
    [
        lambda y: y.astype(np.int64),
        lambda y: y.astype(np.float64),
        lambda y: y.astype(np.float32),
        lambda y: np.eye(K)[y[..., 0]],
        lambda y: np.eye(K, dtype=np.int32)[y[..., 0]],
        lambda y: tf.constant(y, tf.float64),
    ],
)
def test_integer_float_and_one_hot_labels_mean_the_same(
    kind: type[LinkedSoftmax], convert: Any
) -> None:
    y = np.random.default_rng(5).integers(0, K, size=(6, 1)).astype(np.int32)
    likelihood = mixed(kind)
    expected = all_densities(likelihood, y, 6)
    for value, reference in zip(all_densities(likelihood, convert(y), 6), expected, strict=True):
        np.testing.assert_allclose(value, reference, rtol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_a_soft_label_is_the_average_over_its_labels(kind: type[LinkedSoftmax]) -> None:
    likelihood = mixed(kind)
    soft = np.random.default_rng(6).dirichlet(np.ones(K), size=5)
    hard = [all_densities(likelihood, np.full((5, 1), k), 5) for k in range(K)]
    for i, value in enumerate(all_densities(likelihood, soft, 5)):
        average = sum(soft[:, k] * hard[k][i] for k in range(K))
        np.testing.assert_allclose(value, average, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("Y", [[[4]], [[-1]], [[0.5]], [[np.nan]], [[1, 0, 1, 0]], [[0.2, 0.8]]])
def test_labels_that_mean_nothing_are_refused(kind: type[LinkedSoftmax], Y: list[Any]) -> None:
    likelihood = kind(K)
    F, V = latents(likelihood, 1)
    with pytest.raises(ValueError, match=r"[Ll]abel"):
        likelihood.variational_expectations(None, F, V, np.array(Y))
    with pytest.raises(ValueError, match=r"[Ll]abel"):
        likelihood.log_prob(None, F, np.array(Y))


def test_a_bad_label_in_a_graph_is_an_error() -> None:
    likelihood = ILRLikelihood(K)
    F, V = latents(likelihood, 1)
    compiled = tf.function(lambda Y: likelihood.variational_expectations(None, F, V, Y))
    assert np.isfinite(compiled(tf.constant([[3]])))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"[Ll]abel"):
        compiled(tf.constant([[4]]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [(), (7,), (2, 7), (3, 1, 2)])
@pytest.mark.parametrize("with_inputs", [False, True])
def test_any_leading_dimensions_with_and_without_inputs(
    kind: type[LinkedSoftmax], batch: tuple[int, ...], with_inputs: bool
) -> None:
    likelihood = kind(K)
    F, V = latents(likelihood, *batch)
    X = np.zeros((*batch, 3)) if with_inputs else None
    Y = np.zeros((*batch, 1), np.int32)
    for value in all_densities(likelihood, Y, *batch, X=X):
        assert value.shape == batch
    mean, var = likelihood.predict_mean_and_var(X, F, V)
    assert mean.shape == var.shape == (*batch, K)
    assert likelihood.conditional_mean(X, F).shape == (*batch, K)
    assert likelihood.conditional_variance(X, F).shape == (*batch, K)


def test_one_label_broadcasts_over_samples_of_the_latents() -> None:
    likelihood = ILRLikelihood(K)
    F, V = latents(likelihood, 5, 6)
    Y = np.arange(6)[:, None] % K
    value = likelihood.variational_expectations(None, F, V, Y)
    rows = [likelihood.variational_expectations(None, F[i], V[i], Y) for i in range(5)]
    np.testing.assert_allclose(value, np.stack(rows), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_predicted_variance_is_that_of_the_one_hot_label(kind: type[LinkedSoftmax]) -> None:
    likelihood = mixed(kind)
    F, V = latents(likelihood, 5)
    p, var = likelihood.predict_mean_and_var(None, F, V)
    np.testing.assert_allclose(var, p * (1.0 - p), atol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_a_probability_that_underflows_leaves_other_labels_alone(kind: type[LinkedSoftmax]) -> None:
    likelihood = kind(K)
    F = 2000.0 * likelihood.link.numpy()[:1]  # class 0 is certain beyond the range of floats
    value = likelihood.predict_log_density(None, F, np.full_like(F, 1e-6), np.array([[0]]))
    np.testing.assert_allclose(value, 0.0, atol=1e-12)
    other = likelihood.predict_log_density(None, F, np.full_like(F, 1e-6), np.array([[1]]))
    np.testing.assert_allclose(other, likelihood.log_prob(None, F, np.array([[1]])), rtol=1e-6)
    assert other < -1900.0


@pytest.mark.parametrize("num_classes", [2, K])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_log_densities_and_their_gradients_have_no_floor(
    num_classes: int, jit_compile: bool
) -> None:
    likelihood = ILRLikelihood(num_classes)
    F = tf.constant(2000.0 * likelihood.link.numpy()[:1])
    labels = [np.array([[1]]), np.eye(num_classes)[[1]]]

    for Y in labels:

        @tf.function(jit_compile=jit_compile)
        def both(F: tf.Tensor, Y: np.ndarray = Y) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.GradientTape() as tape:
                tape.watch(F)
                value = likelihood.predict_log_density(None, F, 0.01 * tf.ones_like(F), Y)
            return value, tape.gradient(value, F)

        value, gradient = both(F)
        # Where one class is certain, log π_1 is linear: (C_1 − C_0)f, plus half its variance.
        contrast = (likelihood.link[1] - likelihood.link[0]).numpy()
        np.testing.assert_allclose(
            value, F.numpy() @ contrast + 0.005 * contrast @ contrast, atol=0.01
        )
        np.testing.assert_allclose(gradient[0], contrast, rtol=0.05, atol=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_word_there_is_no_mixing_matrix_unless_latents_are_fewer(
    kind: type[LinkedSoftmax],
) -> None:
    assert kind(K).W is None
    assert kind(K, num_latent_gps=kind(K).latent_dim).W is None
    assert kind(K, num_latent_gps=2).W.shape == (kind(K).latent_dim, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_mixing_starts_from_the_identity(kind: type[LinkedSoftmax]) -> None:
    plain, mixing, low_rank = kind(K), kind(K, mixing=True), kind(K, num_latent_gps=2)
    np.testing.assert_array_equal(plain.link, mixing.link)
    np.testing.assert_array_equal(low_rank.link, plain.link[:, :2])
    assert (plain.trainable_variables, len(mixing.trainable_variables)) == ((), 1)
    assert low_rank.latent_dim == 2


def test_ilr_and_softmax_differ_by_one_matrix() -> None:
    ilr, plain = ILRLikelihood(K, mixing=False), SoftmaxLikelihood(K, mixing=helmert(K).T)
    np.testing.assert_allclose(ilr.link, plain.link, atol=1e-15)
    Y = np.arange(6)[:, None] % K
    for x, y in zip(all_densities(ilr, Y, 6), all_densities(plain, Y, 6), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)


def test_softmax_agrees_with_gpflow(rng: np.random.Generator) -> None:
    likelihood, reference = SoftmaxLikelihood(K, mixing=False), gpflow.likelihoods.Softmax(K)
    F, V = latents(likelihood, 8)
    X, Y = np.zeros((8, 1)), np.arange(8)[:, None] % K
    np.testing.assert_allclose(
        likelihood.log_prob(X, F, Y), reference.log_prob(X, F, Y), rtol=1e-12
    )
    reference.num_monte_carlo_points = 20_000
    value = likelihood.variational_expectations(X, F, V, Y)
    # The standard deviation of log p is below 2; 4.5 standard errors of 20,000 draws, and our 2e-2.
    np.testing.assert_allclose(
        value, reference.variational_expectations(X, F, V, Y), atol=4.5 * 2 / np.sqrt(20_000) + 0.02
    )


def test_mixing_equals_sampling_where_coregionalization_does_not(rng: np.random.Generator) -> None:
    # GPflow hands a likelihood the marginals of W f, so that correlations between the logits are lost.
    W = np.array([[2.0, 2.0], [1.5, -1.5], [-1.0, 2.0]])
    kernel = gpflow.kernels.LinearCoregionalization(
        [gpflow.kernels.RBF(), gpflow.kernels.RBF()], W=W
    )
    Z = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(np.linspace(-1.0, 1.0, 5)[:, None])
    )
    q_mu = rng.normal(size=(5, 2))
    model = gpflow.models.SVGP(
        kernel, ILRLikelihood(K, mixing=False), Z, num_latent_gps=2, q_mu=q_mu
    )
    likelihood = ILRLikelihood(K, mixing=W, nodes=Sobol(num_nodes=4096))
    X = np.array([[-3.0], [0.3], [4.0]])
    single = gpflow.models.SVGP(
        gpflow.kernels.RBF(), likelihood, Z.inducing_variable.Z.numpy(), num_latent_gps=2, q_mu=q_mu
    )
    mean, var = (x.numpy() for x in single.predict_f(X))
    draws = mean + np.sqrt(var) * rng.normal(size=(100_000, 3, 2))
    truth = softmax(draws @ (helmert(K).T @ W).T, axis=-1)
    error = truth.std(axis=0) / np.sqrt(len(truth))
    ours = single.predict_y(X)[0].numpy()
    marginal = model.predict_y(X)[0].numpy()
    np.testing.assert_array_less(np.abs(ours - truth.mean(axis=0)), 4.5 * error + 1e-3)
    assert np.abs(marginal - truth.mean(axis=0)).max() > 0.04


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_use_the_trained_mixing(kind: type[LinkedSoftmax]) -> None:
    likelihood = kind(K, mixing=True)
    F, V = latents(likelihood, 3)
    likelihood.W.assign(2.0 * np.eye(likelihood.latent_dim))
    p = expected_softmax(F, V, 2.0 * kind(K, mixing=False).link, likelihood.nodes)
    np.testing.assert_allclose(likelihood.predict_mean_and_var(None, F, V)[0], p, rtol=1e-13)


def test_two_classes_are_logistic() -> None:
    likelihood = ILRLikelihood(2)
    bernoulli = gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
    F, V = latents(likelihood, 6)
    Y = np.arange(6)[:, None] % 2
    # The log-odds of class 1 are (C₁ − C₀) f.
    odds = likelihood.link.numpy()[1, 0] - likelihood.link.numpy()[0, 0]
    np.testing.assert_allclose(
        likelihood.variational_expectations(None, F, V, Y),
        bernoulli.variational_expectations(np.zeros((6, 1)), odds * F, odds**2 * V, Y),
        atol=1e-4,
    )


@pytest.mark.parametrize(("mean", "variance"), [(10.0, 196.0), (4.0, 200.0), (1.0, 28.0)])
def test_two_classes_are_right_for_wide_latents(mean: float, variance: float) -> None:
    g = np.linspace(-9.0, 9.0, 20_001)
    weights = np.exp(-0.5 * g**2) / np.sum(np.exp(-0.5 * g**2))
    exact = weights @ softmax((mean + np.sqrt(variance) * g)[:, None] * [[1.0, -1.0]] / 2**0.5, -1)
    found, _ = ILRLikelihood(2).predict_mean_and_var(
        None, np.array([[mean]]), np.array([[variance]])
    )
    np.testing.assert_allclose(found[0], exact, atol=1e-10)


def test_float32_is_respected_at_call_time() -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        likelihood = ILRLikelihood(K)
        F, V = (x.astype(np.float32) for x in latents(likelihood, 5))
        Y = np.arange(5)[:, None] % K
        values = [
            likelihood.log_prob(None, F, Y),
            likelihood.variational_expectations(None, F, V, Y),
            likelihood.predict_log_density(None, F, V, Y),
        ]
    assert all(v.dtype == tf.float32 for v in values)
    for single, double in zip(values, all_densities(ILRLikelihood(K), Y, 5), strict=True):
        np.testing.assert_allclose(single, double, atol=2e-5)


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"num_classes": 1}, ValueError, "num_classes must be at least 2"),
        ({"num_classes": 2.5}, ValueError, "num_classes must be an integer"),
        ({"num_classes": K, "num_latent_gps": 0}, ValueError, "num_latent_gps must be an integer"),
        ({"num_classes": K, "num_latent_gps": 9}, ValueError, "num_latent_gps must be at most"),
        (
            {"num_classes": K, "num_latent_gps": 2, "mixing": False},
            ValueError,
            "without mixing, but it is 2: pass mixing=True",
        ),
        ({"num_classes": K, "mixing": np.ones(3)}, ValueError, "mixing must be True, False or a"),
        ({"num_classes": K, "mixing": np.ones((7, 2))}, ValueError, r"its shape is \[7, 2\]"),
        ({"num_classes": K, "nodes": 64}, TypeError, "nodes must be a node rule.*64"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_impossible_arguments_are_refused(
    kind: type[LinkedSoftmax], arguments: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        kind(**arguments)


def test_monte_carlo_nodes_estimate_without_bias() -> None:
    exact, random = ILRLikelihood(K, nodes=Sobol(4096)), ILRLikelihood(K, nodes=MonteCarlo(100))
    F, V = latents(exact, 4)
    Y = np.arange(4)[:, None] % K
    draws = np.stack([random.variational_expectations(None, F, V, Y) for _ in range(60)])
    error = draws.std(axis=0) / np.sqrt(60)
    value = exact.variational_expectations(None, F, V, Y)
    assert np.all(error > 0.0)
    # The coefficients of the control come from the same draws: a bias of order 1/100 of the error.
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - value), 4.5 * error + 1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sampler_that_wants_priors_runs_as_with_gpflows_softmax(
    kind: type[LinkedSoftmax],
) -> None:
    likelihood = kind(K)
    kernel = gpflow.kernels.SquaredExponential()
    X, Y = np.linspace(0, 1, 6)[:, None], (np.arange(6) % K)[:, None]
    model = gpflow.models.GPMC((X, Y), kernel, likelihood, num_latent_gps=likelihood.latent_dim)
    for parameter in kernel.trainable_parameters:
        parameter.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(2.0))
    helper = gpflow.optimizers.SamplingHelper(
        model.log_posterior_density, model.trainable_parameters
    )
    assert np.isfinite(helper.target_log_prob_fn(*helper.current_state))
