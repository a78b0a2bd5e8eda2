"""Claims about kills and full disks: nothing that was saved is lost, and the next start goes on."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr.saving import export_saved_model, load, save
from tests.saving.models import MODELS, X, Y, Z, kernel
from tests.whole.faults import full_disk, make_room
from tests.whole.killed_exports import versions
from tests.whole.paper import lines_of

ROOT = Path(__file__).parents[2]
LARGE = np.random.default_rng(0).normal(size=(4000, 2))


@pytest.fixture(name="disk")
def _disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kilobytes."""
    try:
        with full_disk(tmp_path / "disk", 64) as disk:
            yield disk
    except PermissionError as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")


def large_model() -> gi.ILRSGPR:
    return gi.ILRSGPR((LARGE, np.arange(4000) % 3), kernel(), Z, num_classes=3)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="kills by limits and audit hooks of Linux")
def test_a_kill_at_any_step_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.whole.faults", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.stdout.split("\n")[-2:] == ["nothing is lost", ""], result.stderr


EXPORTS = [sys.executable, "-W", "ignore", "-m", "tests.whole.killed_exports"]


def assert_a_whole_version_is_left(served: Path) -> None:
    assert {path.suffix for path in served.parent.iterdir()} <= {"", ".unfinished"}
    expected = [model.predict_y(X)[0].numpy() for model in versions()]
    predict = tf.saved_model.load(str(served)).signatures["predict_proba"]
    found = predict(X=tf.constant(X))["probabilities"].numpy()
    differences = [np.max(np.abs(found - one)) for one in expected]
    assert min(differences) < 1e-12 < max(differences), differences


@pytest.mark.slow
def test_an_export_that_is_killed_at_any_moment_leaves_a_whole_version(tmp_path: Path) -> None:
    served, moments = tmp_path / "served", np.random.default_rng(0).uniform(0.0, 1.0, size=3)
    for moment in moments:
        command = [*EXPORTS, str(served)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            start = time.monotonic()
            process.stdout.readline()
            # In the third export, which takes about as long as the second did on this machine.
            time.sleep(moment * (time.monotonic() - start))
            process.kill()
        assert process.returncode == -signal.SIGKILL
        assert_a_whole_version_is_left(served)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="folders are exchanged in one step")
def test_an_export_that_is_killed_before_any_of_its_steps_leaves_a_whole_version(
    tmp_path: Path,
) -> None:
    killed = 0
    while True:
        command = [*EXPORTS, str(tmp_path / "served"), str(killed)]
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
        assert_a_whole_version_is_left(tmp_path / "served")
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        killed += 1
    assert killed >= 2  # before and after the one that counts


def test_a_full_disk_leaves_the_old_model_and_no_litter(disk: Path) -> None:
    model = MODELS["ILRGPR"]()
    save(model, disk / "model")
    with pytest.raises(OSError, match="No space left"):
        save(large_model(), disk / "model")
    assert list(disk.iterdir()) == [disk / "model"]
    np.testing.assert_array_equal(load(disk / "model").predict_y(X)[0], model.predict_y(X)[0])
    save(model, disk / "model")


def test_a_full_disk_leaves_the_old_export_and_no_litter(tmp_path: Path, disk: Path) -> None:
    (disk / "filling").write_bytes(bytes(2**14))
    old = disk / "served"
    old.mkdir()
    (old / "saved_model.pb").write_bytes(b"old")
    with pytest.raises((OSError, tf.errors.OpError)):
        export_saved_model(MODELS["ILRGPR"](), old)
    assert (old / "saved_model.pb").read_bytes() == b"old"
    assert sorted(disk.iterdir()) == [disk / "filling", old]


def test_a_pass_that_a_full_disk_ends_is_continued_from_its_last_checkpoint(disk: Path) -> None:
    path, options = disk / "checkpoint", {"batch_size": 500, "sample_size": 4000}
    rows = (LARGE, np.arange(4000) % 3)

    def fresh() -> gi.ILRSGPR:
        return gi.ILRSGPR((X, Y), kernel(), Z, num_classes=3)

    with pytest.raises(OSError, match="No space left"):  # the sample grows
        fresh().absorb(rows, checkpoint=path, checkpoint_every=0.0, **options)
    assert list(disk.iterdir()) == [path]
    make_room(disk)
    continued, uninterrupted, told = fresh(), fresh(), []
    progress = {"progress": lambda count, _: told.append(count)}
    assert continued.absorb(rows, checkpoint=path, **options, **progress) == 4000
    assert told[-1] < 4000
    uninterrupted.absorb(rows, **options)
    np.testing.assert_array_equal(continued.predict_y(X)[0], uninterrupted.predict_y(X)[0])


Import = Callable[[str], ModuleType]


@pytest.fixture(name="example")
def _example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    """A module of a folder of examples, which is on the path as it is when that folder is run."""
    before = set(sys.modules)

    def load_module(name: str) -> ModuleType:
        folder, _, module = name.partition("/")
        monkeypatch.syspath_prepend(str(ROOT / "examples" / folder))
        return __import__(module)

    yield load_module
    for name in set(sys.modules) - before:
        if str(ROOT / "examples") in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


def test_a_full_disk_loses_no_run_of_an_experiment(example: Import, disk: Path) -> None:
    results, path = example("paper/results"), disk / "runs.jsonl"
    kept = results.Results(path, ("seed",))
    kept.add({"seed": 0})
    with pytest.raises(OSError, match="No space left"):
        kept.add({"seed": 1, "outcome": list(range(10**5))})
    again = results.Results(path, ("seed",))
    assert again.lines == [{"seed": 0}]
    again.add({"seed": 1})
    assert results.Results(path, ("seed",)).lines == [{"seed": 0}, {"seed": 1}]


@pytest.mark.slow
def test_an_experiment_that_a_full_disk_ends_goes_on_once_there_is_room(disk: Path) -> None:
    path = disk / "gpd-error-rate.jsonl"
    command = [sys.executable, "-W", "ignore", "examples/paper", "gpd-error-rate", "--out", disk]
    run = {"cwd": ROOT, "capture_output": True, "text": True, "check": False}
    (disk / "filling").write_bytes(bytes(60 * 2**10))  # which leaves room for some lines
    ended = subprocess.run(command, **run)
    assert ended.returncode == 2, ended.stderr
    whole = path.read_bytes()
    kept = whole[: whole.rindex(b"\n") + 1]
    count = len(kept.splitlines())
    sentence = f"No space left on device. Its {count} lines are kept: make room"
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr
    make_room(disk)
    continued = subprocess.run(command, **run)
    assert continued.returncode == 0, continued.stderr
    assert path.read_bytes().startswith(kept)
    keys = [(line["classes"], line["alpha_epsilon"]) for line in lines_of(path)]
    assert 0 < count < len(keys) == len(set(keys))
    assert f"{len(keys) - count} of {len(keys)} runs to do" in continued.stdout


@pytest.mark.slow
def test_a_worker_that_is_killed_fails_its_run_and_no_other(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.whole.killed_worker", tmp_path / "runs.jsonl"]
    for seeds in ([0, 1, 3, 4, 5], [0, 1, 3, 4, 5, 2]):  # killed at the first start alone
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        lines = lines_of(tmp_path / "runs.jsonl")
        assert [line["seed"] for line in lines] == seeds, done.stderr
        failed = [line for line in done.stdout.splitlines() if "failed" in line]
        assert failed == ["seed 2 failed: see above; the others go on."][: done.returncode]
        assert ("BrokenProcessPool" in done.stderr) == bool(failed) == (len(seeds) == 5)
    assert done.returncode == 0
    assert len({line["process"] for line in lines}) >= 3  # two runs each, as it is said


def test_a_full_disk_loses_no_benchmark(example: Import, disk: Path) -> None:
    keeping, path = example("benchmarks/keeping"), disk / "benchmarks.json"
    assert keeping.read_results(path) == {}
    keeping.write_results(path, {"a": 1})
    with pytest.raises(OSError, match="No space left"):
        keeping.write_results(path, {"a": 1, "b": list(range(10**5))})
    assert list(disk.iterdir()) == [path]
    assert keeping.read_results(path) == {"a": 1}
    keeping.write_results(path, {"a": 1, "b": 2})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": 1, "b": 2}


@pytest.mark.parametrize("content", ["", '{"a": 1', "[]", "\x00"])
def test_a_file_of_benchmarks_that_is_none_is_named(
    content: str, example: Import, tmp_path: Path
) -> None:
    path = tmp_path / "benchmarks.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SystemExit, match=r"benchmarks.json .*name another file"):
        example("benchmarks/keeping").read_results(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04" + bytes(200), b"text"])
def test_a_data_set_that_was_cut_short_is_named(
    content: bytes, example: Import, tmp_path: Path
) -> None:
    data = example("paper/data")
    (tmp_path / "letter.npz").write_bytes(content)
    with pytest.raises(data.DataMissingError, match=r"letter.npz is cut short"):
        data.load("letter", tmp_path, tmp_path)
