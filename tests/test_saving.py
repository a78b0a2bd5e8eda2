"""Claims about saving, loading, exporting and resuming."""

import pickle
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.models import GPModel
from gpflow.models.training_mixins import ExternalDataTrainingLossMixin

import gpflow_ilr as gi
from gpflow_ilr.saving import export_saved_model, load, save

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = RNG.integers(0, 3, 30)
Z = X[:6]


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern32() + gpflow.kernels.Linear(active_dims=[0])


def short_chains(model: GPModel) -> GPModel:
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # of chains so short
        model.sample(num_samples=6, num_burnin=2)
    return model


def svgp(likelihood: Any) -> GPModel:
    return perturbed_q(
        gpflow.models.SVGP(kernel(), likelihood, Z, num_latent_gps=likelihood.latent_dim)
    )


def perturbed_q(model: GPModel) -> GPModel:
    model.q_mu.assign(np.random.default_rng(1).normal(size=model.q_mu.shape))
    return model


MODELS: dict[str, Callable[[], GPModel]] = {
    "ILRGPR": lambda: gi.ILRGPR((X, Y), kernel(), num_classes=3, noise="shared"),
    "DirichletGPR": lambda: gi.DirichletGPR((X, Y), kernel(), num_classes=3),
    "ILRSGPR": lambda: gi.ILRSGPR((X, Y), kernel(), Z, num_classes=3, noise="per_class"),
    "DirichletSGPR": lambda: gi.DirichletSGPR((X, Y), kernel(), Z, num_classes=3),
    "ILRNNGPR": lambda: gi.ILRNNGPR((X, Y), kernel(), num_classes=3, num_neighbours=9),
    "ILRSVGP": lambda: perturbed_q(gi.ILRSVGP(kernel(), Z, num_classes=3)),
    "SoftmaxSVGP": lambda: perturbed_q(gi.SoftmaxSVGP(kernel(), Z, num_classes=3)),
    "CodeSVGP": lambda: perturbed_q(gi.CodeSVGP(kernel(), Z, gi.ILRCode(3))),
    "LogisticSoftmaxGP": lambda: short_chains(
        gi.LogisticSoftmaxGP((X, Y), kernel(), num_classes=3)
    ),
    "BijectiveSoftmaxGP": lambda: short_chains(
        gi.BijectiveSoftmaxGP((X, Y), kernel(), num_classes=3)
    ),
    "SVGP LSM": lambda: svgp(gi.LogisticSoftmaxLikelihood(3)),
    "SVGP BSM": lambda: svgp(gi.BijectiveSoftmaxLikelihood(3)),
}


@pytest.fixture(name="model", params=MODELS)
def _model(request: pytest.FixtureRequest) -> GPModel:
    return MODELS[request.param]()


def test_loaded_model_predicts_and_trains_as_the_saved_one(model: GPModel, tmp_path: Path) -> None:
    size = save(model, tmp_path / "model")
    assert size == (tmp_path / "model").stat().st_size
    loaded = load(tmp_path / "model")
    assert type(loaded) is type(model)
    np.testing.assert_array_equal(loaded.predict_y(X)[0], model.predict_y(X)[0])
    external = isinstance(model, ExternalDataTrainingLossMixin)
    data = [(X, tf.constant(Y[:, None]))] if external else []
    np.testing.assert_array_equal(loaded.training_loss(*data), model.training_loss(*data))
    assert not {v.ref() for v in loaded.variables} & {v.ref() for v in model.variables}


def test_statistics_of_a_collapsed_model_are_saved_with_it(tmp_path: Path) -> None:
    model = MODELS["ILRSGPR"]()
    model.posterior()
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    loaded.update(X[:3] + 0.1, Y[:3])  # would visit all rows if the statistics were gone
    assert loaded.known_statistics() is not None
    model.update(X[:3] + 0.1, Y[:3])
    np.testing.assert_allclose(loaded.predict_y(X)[0], model.predict_y(X)[0], rtol=1e-12)


def test_sampled_model_goes_on_sampling_after_loading_as_if_it_had_not_stopped(
    tmp_path: Path,
) -> None:
    model = MODELS["BijectiveSoftmaxGP"]()
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        model.sample_more(3)
        loaded.sample_more(3)
    np.testing.assert_array_equal(loaded.chains.samples, model.chains.samples)


@pytest.mark.parametrize("keep", [0, 10, 40, 500, -1])
def test_truncated_file_is_refused(keep: int, tmp_path: Path) -> None:
    save(MODELS["ILRSGPR"](), tmp_path / "model")
    content = (tmp_path / "model").read_bytes()
    (tmp_path / "model").write_bytes(content[:keep])
    with pytest.raises(ValueError, match=r"is damaged|is not a model saved by"):
        load(tmp_path / "model")


def test_foreign_and_altered_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(pickle.dumps({"not": "ours"}))
    with pytest.raises(ValueError, match=r"model' is not a model saved by gpflow_ilr"):
        load(path)
    save(MODELS["ILRGPR"](), path)
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="is damaged"):
        load(path)


def test_model_saved_under_another_float_is_refused_with_the_remedy(tmp_path: Path) -> None:
    save(MODELS["ILRGPR"](), tmp_path / "model")
    with gpflow.config.as_context():
        gpflow.config.set_default_float(np.float32)
        with pytest.raises(ValueError, match=r"set_default_float\(tf.float64\)"):
            load(tmp_path / "model")


def test_failed_save_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "model"
    model = MODELS["ILRGPR"]()
    save(model, path)
    before = path.read_bytes()
    broken = MODELS["ILRGPR"]()
    broken.unpicklable = lambda: None
    with pytest.raises((pickle.PicklingError, AttributeError)):
        save(broken, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_export_replaces_an_older_export(tmp_path: Path) -> None:
    path = tmp_path / "exported"
    export_saved_model(MODELS["ILRGPR"](), path)
    size = export_saved_model(MODELS["ILRSVGP"](), path)
    assert size == sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    assert list(tmp_path.iterdir()) == [path]
    expected = MODELS["ILRSVGP"]().predict_y(X)[0]
    exported = tf.saved_model.load(str(path))
    np.testing.assert_allclose(exported.predict_proba(X)["probabilities"], expected, rtol=1e-12)


WITHOUT_GPFLOW = """
    import sys

    class Blocked:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("gpflow", "gpflow_ilr", "tensorflow_probability"):
                raise ImportError(name)

    sys.meta_path.insert(0, Blocked())
    import numpy as np
    import tensorflow as tf

    for folder in sys.argv[1:]:
        stored = np.load(folder + ".npz")
        signatures = tf.saved_model.load(folder).signatures
        X = tf.constant(stored["X"])
        p = signatures["predict_proba"](X=X)["probabilities"]
        f = signatures["predict_f"](X=X)
        np.testing.assert_allclose(p, stored["p"], rtol=1e-12)
        np.testing.assert_allclose(f["mean"], stored["mean"], rtol=1e-12)
        np.testing.assert_allclose(f["variance"], stored["variance"], rtol=1e-12)
    print("equal", len(sys.argv) - 1)
"""


def test_model_without_samples_is_not_exported(tmp_path: Path) -> None:
    model = gi.LogisticSoftmaxGP((X, Y), kernel(), num_classes=3)
    with pytest.raises(RuntimeError, match=r"call model.sample\(\) first"):
        export_saved_model(model, tmp_path / "exported")
    assert not list(tmp_path.iterdir())


def test_float32_export_keeps_the_accuracy_of_the_model(tmp_path: Path) -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        # Where inducing inputs are duplicated, what GPflow's posterior keeps cancels to nothing.
        inducing = np.concatenate([X, X])
        wide = gpflow.kernels.SquaredExponential(40.0, lengthscales=10.0)
        model = perturbed_q(gi.ILRSVGP(wide, inducing, num_classes=3))
        model.q_sqrt.assign(0.01 * model.q_sqrt)
        export_saved_model(model, tmp_path / "exported")
        exported = tf.saved_model.load(str(tmp_path / "exported"))
        mean, variance = model.predict_f(X)
        f = exported.predict_f(tf.constant(X, tf.float32))
    np.testing.assert_allclose(f["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(f["variance"], variance, rtol=1e-5)


@pytest.mark.slow
def test_exported_models_predict_the_same_without_gpflow(tmp_path: Path) -> None:
    X_new = RNG.normal(size=(7, 2))
    for name, build in MODELS.items():
        model = build()
        export_saved_model(model, tmp_path / name)
        mean, variance = model.predict_f(X_new)
        np.savez(
            tmp_path / f"{name}.npz",
            X=X_new,
            p=model.predict_y(X_new)[0],
            mean=mean,
            variance=variance,
        )
    script = textwrap.dedent(WITHOUT_GPFLOW)
    folders = [str(tmp_path / name) for name in MODELS]
    command = [sys.executable, "-W", "ignore", "-c", script, *folders]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["equal", str(len(MODELS))]


def test_training_resumes_from_a_checkpoint_with_the_same_losses(tmp_path: Path) -> None:
    def start() -> tuple[tf.train.Checkpoint, Callable[[], float]]:
        model = gi.ILRSVGP(gpflow.kernels.Matern32(), Z, num_classes=3, num_data=len(X))
        data = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().shuffle(30, seed=3).batch(8)
        iterator = iter(data)
        optimizer = gpflow.keras.tf_keras.optimizers.Adam(0.05)
        optimizer.build(model.trainable_variables)
        loss = model.training_loss_closure(iterator, compile=False)

        def step() -> float:
            with tf.GradientTape() as tape:
                value = loss()
            gradients = tape.gradient(value, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return float(value)

        return tf.train.Checkpoint(model=model, optimizer=optimizer, data=iterator), step

    checkpoint, step = start()
    for _ in range(3):
        step()
    path = checkpoint.write(str(tmp_path / "checkpoint"))
    expected = [step() for _ in range(3)]
    again, resumed = start()
    again.read(path).assert_consumed()
    assert [resumed() for _ in range(3)] == expected


def test_a_file_with_classes_that_are_not_here_is_refused_with_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Moved(gpflow.kernels.SquaredExponential):
        """A class that is there when the model is saved, and not when it is loaded."""

    Moved.__qualname__ = "Moved"
    monkeypatch.setitem(globals(), "Moved", Moved)
    model = gi.ILRGPR((X, Y), Moved(), num_classes=3)
    save(model, tmp_path / "model")
    load(tmp_path / "model")
    monkeypatch.delitem(globals(), "Moved")
    with pytest.raises(ValueError, match=r"saved by gpflow_ilr .* not here \(.*Moved"):
        load(tmp_path / "model")
