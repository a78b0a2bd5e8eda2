"""A training that is killed goes on from the best parameters that it had."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest

import gpflow_ilr as gi
from gpflow_ilr.inputs.archives import read_arrays, write_arrays
from gpflow_ilr.training import checkpoint, fit
from tests.training.killed_fit import METHODS, X, Y, model_and_options
from tests.whole.faults import full_disk, make_room

ROOT = Path(__file__).parents[2]


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def exact(X: np.ndarray = X) -> gi.ILRGPR:
    return gi.ILRGPR((X, Y), gi.starting_kernel(X, 3), num_classes=3)


def values(model: Any) -> list[np.ndarray]:
    return [v.numpy() for v in model.trainable_variables]


def assert_same(one: list[np.ndarray], other: list[np.ndarray]) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def kill_after_five_steps(method: str, path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.training.killed_fit", method, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        for line in process.stdout:
            if line == "5\n":
                process.kill()
    assert process.returncode == -9


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_killed_training_goes_on_and_ends_as_well_as_an_uninterrupted_one(
    method: str, path: Path
) -> None:
    kill_after_five_steps(method, path)
    kept = float(read_arrays(path)["criterion"])
    model, options = model_and_options(method)
    rows = [options["data"]] if "data" in options else []
    assert kept < float(model.training_loss(*rows))
    steps = {} if method == "l-bfgs" else {"max_iterations": 30}
    result = fit(model, checkpoint=path, **options, **steps)
    assert result.resumed
    assert str(result).endswith("It began from its checkpoint.")
    assert result.losses[0] <= kept + 1e-9  # its first look
    uninterrupted, options = model_and_options(method)
    expected = fit(uninterrupted, **options, **steps)
    assert result.fun <= expected.fun + 1e-6 * abs(expected.fun)
    np.testing.assert_allclose(model.training_loss(*rows), result.fun, rtol=1e-10)


def test_a_start_from_a_finished_training_ends_where_it_was(path: Path) -> None:
    model = exact()
    first = fit(model, checkpoint=path)
    assert not first.resumed
    again = exact()
    second = fit(again, checkpoint=path, max_iterations=1)
    assert second.resumed
    assert second.fun <= first.fun
    np.testing.assert_allclose(read_arrays(path)["criterion"], second.fun, rtol=1e-12)


def test_what_is_kept_is_the_best_state_not_the_last(path: Path) -> None:
    model = gi.ILRSVGP(gi.starting_kernel(X, 3), X[:5], num_classes=3, num_data=len(X))
    # Steps so long that training only gets worse after its first looks.
    result = fit(
        model, (X, Y), method="adam", learning_rate=3.0, max_iterations=12, check_every=1,
        checkpoint=path, checkpoint_every=0.0,
    )  # fmt: skip
    assert result.best_step < 12
    other = gi.ILRSVGP(gi.starting_kernel(X, 3), X[:5], num_classes=3, num_data=len(X))
    watched = checkpoint.Checkpoint(path, 0.0, other, other.trainable_variables)
    assert watched.restore()
    assert_same(values(other), values(model))
    np.testing.assert_allclose(other.training_loss((X, Y)), result.fun, rtol=1e-12)


def test_neighbours_are_those_of_the_parameters_that_were_kept(path: Path) -> None:
    def neighbours() -> gi.ILRNNGPR:
        kernel = gpflow.kernels.SquaredExponential(lengthscales=[0.1, 10.0])
        return gi.ILRNNGPR((X, Y), kernel, num_classes=3, num_neighbours=5)

    trained, fresh = neighbours(), neighbours()
    fit(trained, checkpoint=path)
    fresh.kernel.lengthscales.assign(trained.kernel.lengthscales)
    fresh.kernel.variance.assign(trained.kernel.variance)
    again = fit(neighbours(), checkpoint=path, max_iterations=1)
    # L-BFGS never steps upwards from where it starts.
    assert again.losses[0] <= float(fresh.training_loss()) + 1e-9


def test_files_are_written_at_most_so_often_and_at_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    monkeypatch.setattr(checkpoint, "write_arrays", lambda *given: written.append(given))
    options = {"max_iterations": 8, "checkpoint": path}
    fit(exact(), checkpoint_every=1e6, **options)
    assert len(written) == 1
    fit(exact(), checkpoint_every=0.0, **options)
    assert len(written) > 5


def damaged(content: bytes, model: Any) -> Iterator[bytes]:
    yield from (content[: int(share * len(content))] for share in (0.0, 0.3, 0.9, 0.999))
    yield b"something else"
    changed = bytearray(content)
    changed[content.index(model.kernel.variance.unconstrained_variable.numpy().tobytes())] ^= 0xFF
    yield bytes(changed)


def test_files_that_are_cut_short_or_foreign_are_refused_and_change_nothing(path: Path) -> None:
    trained, model = exact(), exact()
    fit(trained, checkpoint=path, max_iterations=3)
    before = values(model)
    for content in damaged(path.read_bytes(), trained):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"checkpoint=.*was not written by fit.*begin anew"):
            fit(model, checkpoint=path)
        assert path.read_bytes() == content
    np.save(path.with_suffix(".npy"), np.ones(3))
    with pytest.raises(ValueError, match=r"checkpoint=.*was not written by fit.*begin anew"):
        fit(model, checkpoint=path.with_suffix(".npy"))
    np.savez(path.with_suffix(".npz"), X=np.ones(3))
    with pytest.raises(ValueError, match=r"was not written by fit \(its format is another\)"):
        fit(model, checkpoint=path.with_suffix(".npz"))
    with pytest.raises(ValueError, match=r"checkpoint=.*was not written by fit.*begin anew"):
        fit(model, checkpoint=path.parent)
    assert_same(values(model), before)


def test_a_file_whose_values_are_not_finite_is_refused(path: Path) -> None:
    fit(exact(), checkpoint=path, max_iterations=3)
    arrays = read_arrays(path)
    write_arrays(path, arrays | {"ILRGPR.kernel.variance": np.array(np.nan)})
    with pytest.raises(ValueError, match=r"checkpoint=.*not finite"):
        fit(exact(), checkpoint=path)


def test_a_file_of_another_model_is_refused_with_both_named(path: Path) -> None:
    fit(exact(), checkpoint=path, max_iterations=3)
    kernel = gi.starting_kernel(X, 3)
    wide = gpflow.kernels.SquaredExponential(lengthscales=np.ones(2))
    for model, variables in (
        (gi.DirichletGPR((X, Y), kernel, num_classes=3), None),
        (gi.ILRGPR((X, Y), wide, num_classes=3), None),
        (gi.ILRGPR((X, Y), kernel + kernel, num_classes=3), None),
        (exact(), exact().kernel.lengthscales.trainable_variables),
    ):
        with pytest.raises(ValueError, match=r"checkpoint=.*of another model: ILRGPR.kernel.*now"):
            fit(model, checkpoint=path, variables=variables)


def test_a_folder_that_is_not_there_is_known_before_training(tmp_path: Path) -> None:
    steps: list[int] = []
    with pytest.raises(FileNotFoundError, match=r"checkpoint is .*Make it first"):
        fit(
            exact(),
            checkpoint=tmp_path / "no" / "file",
            callback=lambda step, _: steps.append(step),
        )
    assert not steps


def test_a_full_disk_leaves_the_former_file_from_which_training_goes_on_once_there_is_room(
    tmp_path: Path,
) -> None:
    def large() -> gi.ILRSVGP:
        return gi.ILRSVGP(gi.starting_kernel(X, 3), X, num_classes=3, num_data=len(X))

    model = large()
    before = float(model.training_loss((X, Y)))
    options = {"method": "adam", "check_every": 1, "checkpoint_every": 0.0}
    try:
        with full_disk(tmp_path / "disk", 24) as disk:  # room for one file, not for two
            path = disk / "checkpoint"
            fit(large(), (X, Y), checkpoint=path, max_iterations=1, **options)
            former = path.read_bytes()
            with pytest.raises(OSError, match="No space left"):
                fit(model, (X, Y), checkpoint=path, **options)
            assert path.read_bytes() == former
            assert list(disk.iterdir()) == [path]
            kept = float(read_arrays(path)["criterion"])
            make_room(disk)
            result = fit(large(), (X, Y), checkpoint=path, max_iterations=9, **options)
            assert result.resumed
            assert result.losses[0] <= kept + 1e-9
            assert result.fun == float(read_arrays(path)["criterion"]) < kept
            assert list(disk.iterdir()) == [path]
    except PermissionError as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")
    assert float(model.training_loss((X, Y))) < before  # the best parameters it had
