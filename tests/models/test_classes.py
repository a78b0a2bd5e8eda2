"""Classes that come later, go, or are joined: equal to a model built so, at no cost of old rows."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest

from gpflow_ilr import ILRSVGP
from gpflow_ilr.collapsed.kept import NUM_PROBES
from tests.models.oracles import XNEW, K, X, Y, Z, blobs, build, kernel
from tests.models.test_streaming import CountingKernel

MORE_X, MORE_Y = blobs(24, K + 1, seed=5)
NEW_X, NEW_Y = MORE_X[:8], np.array([3, 0, 3, 1, 3, 2, 3, 3])
SOFT = np.random.default_rng(3).dirichlet(np.ones(K), size=len(X))
MODELS = [
    (name, noise)
    for name in ("ILRGPR", "ILRSGPR", "ILRNNGPR", "DirichletGPR", "DirichletSGPR", "DirichletNNGPR")
    for noise in ("fixed", "shared", "per_class")
]
CONSTANT = gpflow.functions.Constant([0.4])


def options(name: str) -> dict[str, Any]:
    return {"num_neighbours": 1000} if "NN" in name else {}


def rebuilt(model: Any, name: str, data: Any, **more: Any) -> Any:
    """A model of other rows, built with the classes and the hyperparameters that a model has."""
    code = model.code
    if name.startswith("ILR"):
        more["smoothing"] = code.smoothing
    built = build(
        name, code.noise, data, **{**options(name), **more, "num_classes": code.num_classes}
    )
    for ours, theirs in (
        (built.code.extra_noise, code.extra_noise),
        (built.code.class_factor, code.class_factor),
    ):
        if ours is not None:
            ours.assign(theirs)
    built.code.base_noise.assign(code.base_noise)
    return built


def assert_same(model: Any, other: Any) -> None:
    for ours, theirs in zip(model.predict_f(XNEW), other.predict_f(XNEW), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)
    np.testing.assert_allclose(model.predict_y(XNEW)[0], other.predict_y(XNEW)[0], atol=1e-8)
    np.testing.assert_allclose(model.predict_loo()[0], other.predict_loo()[0], atol=1e-7)
    np.testing.assert_allclose(
        model.maximum_log_likelihood_objective(),
        other.maximum_log_likelihood_objective(),
        rtol=1e-8,
    )


@pytest.mark.parametrize("mean", [None, CONSTANT])
@pytest.mark.parametrize(("name", "noise"), MODELS)
def test_a_class_that_appears_later(name: str, noise: str, mean: Any) -> None:
    model = build(name, noise, mean_function=mean, **options(name))
    model.predict_f(XNEW)  # sums are kept from here on
    noise_before, scale = model.code.noise_variance.numpy()[0, 0], float(model.code.scale)
    model.update(NEW_X, NEW_Y, num_classes=K + 1)
    assert model.code.num_classes == model.likelihood.num_classes == K + 1
    data = np.r_[X, NEW_X], np.r_[Y, NEW_Y]
    assert_same(model, rebuilt(model, name, data, mean_function=mean))
    assert float(model.code.scale) == pytest.approx(scale)
    assert model.code.noise_variance.numpy()[0, 0] == pytest.approx(noise_before)
    assert model.predict_y(XNEW)[0].shape == (len(XNEW), K + 1)


def test_a_new_class_costs_its_own_rows_alone() -> None:
    k, many = CountingKernel(), blobs(50 * NUM_PROBES)
    model = build("ILRSGPR", k=k, data=many)
    model.predict_f(XNEW)
    k.rows = 0
    model.update(NEW_X, NEW_Y, num_classes=K + 1)
    model.predict_f(XNEW)
    assert 0 < k.rows < 20 * NUM_PROBES  # which tell that the kernel is the same


def test_several_classes_may_come_at_once_without_rows() -> None:
    model = build("ILRSGPR")
    model.predict_f(XNEW)
    model.update(NEW_X[:1], [1], num_classes=K + 4)
    data = np.r_[X, NEW_X[:1]], np.r_[Y, 1]
    assert_same(model, rebuilt(model, "ILRSGPR", data))


@pytest.mark.parametrize("name", ["ILRGPR", "ILRSGPR", "ILRNNGPR"])
def test_soft_labels_get_another_column(name: str) -> None:
    model = build(name, data=(X, SOFT), **options(name))
    model.predict_f(XNEW)
    new = np.random.default_rng(4).dirichlet(np.ones(K + 1), size=len(NEW_X))
    model.update(NEW_X, new, num_classes=K + 1)
    data = np.r_[X, NEW_X], np.r_[np.c_[SOFT, np.zeros(len(X))], new]
    assert_same(model, rebuilt(model, name, data))


@pytest.mark.parametrize(("name", "noise"), MODELS)
def test_classes_are_removed_and_merged(name: str, noise: str) -> None:
    model = build(name, noise, data=(MORE_X, MORE_Y), num_classes=K + 1, **options(name))
    model.predict_f(XNEW)
    factors = model.code.noise_variance.numpy()
    assert model.merge_classes([3, 1]) == [0, 1, 2, 1]
    merged = np.where(MORE_Y == 3, 1, MORE_Y)
    assert_same(model, rebuilt(model, name, (MORE_X, merged)))
    if noise == "per_class" and name.startswith("ILR"):  # a class has the noise of the first
        np.testing.assert_allclose(model.code.noise_variance, factors[:3])
    factors = model.code.class_factor
    assert model.remove_class(0) == [None, 0, 1]
    if noise == "per_class":
        np.testing.assert_allclose(model.code.class_factor, factors[1:])
    kept = merged > 0
    assert_same(model, rebuilt(model, name, (MORE_X[kept], merged[kept] - 1)))


def test_merged_soft_labels_add_up() -> None:
    soft = np.random.default_rng(4).dirichlet(np.ones(K + 1), size=len(MORE_X))
    model = build("ILRSGPR", data=(MORE_X, soft), num_classes=K + 1)
    model.predict_f(XNEW)
    model.merge_classes([0, 2])
    joined = np.stack([soft[:, 0] + soft[:, 2], soft[:, 1], soft[:, 3]], axis=1)
    assert_same(model, rebuilt(model, "ILRSGPR", (MORE_X, joined)))


def test_absorbed_rows_take_part_without_being_there() -> None:
    model = build("ILRSGPR")
    model.absorb((X, Y), sample_size=4)
    model.update(NEW_X, NEW_Y, num_classes=K + 1)
    data = np.r_[X, NEW_X], np.r_[Y, NEW_Y]
    whole = rebuilt(model, "ILRSGPR", data)
    np.testing.assert_allclose(model.predict_f(XNEW)[0], whole.predict_f(XNEW)[0], atol=1e-8)
    model.merge_classes([0, 3])
    whole.merge_classes([0, 3])
    np.testing.assert_allclose(model.predict_f(XNEW)[0], whole.predict_f(XNEW)[0], atol=1e-8)
    with pytest.raises(ValueError, match="remove_class needs the rows of the class"):
        model.remove_class(1)


def test_a_shared_kernel_serves_other_latents_too() -> None:
    shared = gpflow.kernels.SharedIndependent(kernel(), output_dim=K - 1)
    model = build("ILRSGPR", k=shared)
    model.update(NEW_X, NEW_Y, num_classes=K + 1)
    assert_same(model, rebuilt(model, "ILRSGPR", (np.r_[X, NEW_X], np.r_[Y, NEW_Y])))


def test_posteriors_of_other_classes_say_so_and_calibration_goes_on() -> None:
    model = build("ILRSGPR")
    posterior = model.posterior()
    model.update(NEW_X, NEW_Y, num_classes=K + 1)
    for predict in (posterior.predict_y, posterior.predict_f):
        with pytest.raises(ValueError, match=r"posterior is of 3 classes.*model\.posterior\(\)"):
            predict(XNEW)
    assert model.posterior().predict_y(XNEW)[0].shape[1] == K + 1
    assert model.calibrate().nll_after <= model.calibrate().nll_before + 1e-9


def separate() -> Any:
    return build("ILRSGPR", k=gpflow.kernels.SeparateIndependent([kernel(), kernel()]))


@pytest.mark.parametrize(
    ("model", "change", "sentence"),
    [
        (
            lambda: build("ILRSGPR", "per_output"),
            lambda m: m.update(NEW_X, NEW_Y, num_classes=K + 1),
            "noise='per_output' has a noise for each latent function",
        ),
        (
            lambda: build("ILRGPR", mean_function=gpflow.functions.Constant([0.1, 0.2])),
            lambda m: m.update(NEW_X, NEW_Y, num_classes=K + 1),
            "mean_function returns 2 columns",
        ),
        (separate, lambda m: m.merge_classes([0, 1]), "has 2 kernels or sets"),
        (separate, lambda m: m.remove_class(0), "Build a new model"),
        (lambda: build("ILRSGPR", "per_output"), lambda m: m.remove_class(0), "per_output"),
        (
            lambda: build("ILRGPR"),
            lambda m: m.update(NEW_X, NEW_Y % 2, num_classes=2),
            "num_classes must be at least 3.*but is 2.*merge_classes",
        ),
        (lambda: build("ILRGPR"), lambda m: m.update(NEW_X, NEW_Y), "Labels must be integers 0..2"),
        (
            lambda: build("ILRGPR"),
            lambda m: m.remove_class(3),
            "label must be a class 0..2, but is 3",
        ),
        (lambda: build("ILRGPR"), lambda m: m.merge_classes([1]), "two classes or more, but is"),
        (lambda: build("ILRGPR"), lambda m: m.merge_classes([0, 1, 2]), "Two classes must remain"),
        (lambda: build("ILRGPR", data=(X, SOFT)), lambda m: m.remove_class(1), "needs hard labels"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(model, change, sentence) -> None:
    built = model()
    before = built.predict_f(XNEW)[0]
    with pytest.raises(ValueError, match=sentence):
        change(built)
    np.testing.assert_array_equal(built.predict_f(XNEW)[0], before)


def test_uncollapsed_models_refuse_with_a_sentence() -> None:
    model = ILRSVGP(kernel(), Z, num_classes=K)
    with pytest.raises(TypeError, match=r"ILRSVGP cannot be updated.*training\.fit.*ILRSGPR"):
        model.update(NEW_X, NEW_Y, num_classes=K + 1)
