"""Claims about SavedModels: what they predict, where they load, and what they replace."""

import subprocess
import sys
import textwrap
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr.saving import export_saved_model
from tests.saving.models import MODELS, X, Y, kernel, perturbed_q

RNG = np.random.default_rng(1)


def test_export_replaces_an_older_export(tmp_path: Path) -> None:
    path = tmp_path / "exported"
    export_saved_model(MODELS["ILRGPR"](), path)
    size = export_saved_model(MODELS["ILRSVGP"](), path)
    assert size == sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    assert list(tmp_path.iterdir()) == [path]
    expected = MODELS["ILRSVGP"]().predict_y(X)[0]
    exported = tf.saved_model.load(str(path))
    np.testing.assert_allclose(exported.predict_proba(X)["probabilities"], expected, rtol=1e-12)


def test_an_export_begins_with_what_a_kill_had_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "exported"
    export_saved_model(MODELS["ILRSVGP"](), path)
    path.rename(tmp_path / "exported.0123cdef.old")
    with pytest.raises(ValueError, match="num_inputs"):  # and then fails
        export_saved_model(MODELS["ILRSVGP"](), path, num_inputs=0)
    assert list(tmp_path.iterdir()) == [path]
    exported = tf.saved_model.load(str(path))
    expected = MODELS["ILRSVGP"]().predict_y(X)[0]
    np.testing.assert_allclose(exported.predict_proba(X)["probabilities"], expected, rtol=1e-12)


@pytest.mark.parametrize("content", ["notes.txt", "saved_model.pb and notes.txt", "variables"])
def test_folder_of_something_else_is_not_replaced(content: str, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    for name in content.split(" and "):
        (folder / name).write_text("a year of work", encoding="utf-8")
    with pytest.raises(FileExistsError, match=r"something else than a SavedModel .*Name a folder"):
        export_saved_model(MODELS["ILRSVGP"](), folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(content.split(" and "))
    with pytest.raises(FileExistsError, match="something else than a SavedModel"):
        export_saved_model(MODELS["ILRSVGP"](), next(folder.iterdir()))


def test_export_goes_through_a_symbolic_link_and_into_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "store")
    export_saved_model(MODELS["ILRSVGP"](), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "store" / "saved_model.pb").exists()
    assert len(list(tmp_path.iterdir())) == 2


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
