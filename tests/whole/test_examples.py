"""Claims about ``examples/``: each script runs, without a warning, and prints what it says it does."""

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

matplotlib.use("Agg")

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py"))
LONGER_THAN_A_SCREEN = {"deep_kernel", "distributed", "gpu_check", "paper_models"}
# One has tests of its own, in tests/distributed; the other is about a GPU.
NOT_RUN_HERE = {"distributed", "gpu_check"}
LOG_LINE = re.compile(r"^([IWE]\d{4} |WARNING|\d{4}-\d\d-\d\d )|absl|oneDNN|\.cc:", re.MULTILINE)

Run = Callable[[str], str]


@pytest.fixture(name="run")
def _run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture) -> Run:
    """A script, reduced, in this process, which has TensorFlow loaded already; what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(name: str) -> str:
        script = str(EXAMPLES / f"{name}.py")
        with mock.patch.object(sys, "argv", [script, "--quick"]):
            runpy.run_path(script, run_name="__main__")
        plt.close("all")
        return capfd.readouterr().out

    return run


def numbers(line_begins: str, output: str) -> np.ndarray:
    """The numbers of each line that begins so, [lines, numbers]."""
    lines = re.findall(rf"^ *{line_begins}(.*)$", output, re.MULTILINE)
    assert lines, f"No line begins with {line_begins!r}:\n{output}"
    return np.array([[float(x) for x in re.findall(r"\d+\.\d+", line)] for line in lines])


def test_every_example_is_in_the_index_and_is_run() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\)", index, re.MULTILINE)) == SCRIPTS
    this = Path(__file__).read_text(encoding="utf-8")
    for name in set(SCRIPTS) - NOT_RUN_HERE:
        assert f'run("{name}")' in this or f'"{name}.py"' in this, name


@pytest.mark.parametrize("name", sorted(set(SCRIPTS) - LONGER_THAN_A_SCREEN))
def test_an_example_fits_on_a_screen(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 65


@pytest.mark.slow
def test_quickstart_draws_its_picture_and_no_log_line_disturbs_its_table(tmp_path: Path) -> None:
    # In a process of its own, since the lines come while TensorFlow is imported.
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, str(EXAMPLES / "quickstart.py"), "--quick"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert not LOG_LINE.search(done.stdout + done.stderr), done.stderr
    for name in ("ILRClassifier", "LogisticRegression", "HistGradientBoosting"):
        accuracy, nll, ece, _ = numbers(name, done.stdout)[0]
        assert accuracy > 0.5
        assert nll < 1.5
        assert ece < 0.5
    assert (tmp_path / "outputs" / "quickstart.png").stat().st_size > 10_000


@pytest.mark.slow
def test_exact_chooses_the_smoothing_that_leave_one_out_prefers(run: Run) -> None:
    output = run("exact")
    table = output.partition("leave-one-out NLL   test NLL")[2]
    rows = numbers(r"(?=\d)", table)
    chosen = numbers(r"(?=.*←)", table)[0]
    assert chosen[1] == rows[:, 1].min()
    assert chosen[2] < rows[0, 2]


@pytest.mark.slow
def test_swapped_likelihood_is_the_better_one_for_noisy_labels(run: Run) -> None:
    output = run("swap_likelihood")
    robust_max, ilr = numbers("one in five drawn anew", output)
    assert ilr[1] < robust_max[1]
    assert numbers("the notebook's labels", output)[:, 0].min() > 0.9


@pytest.mark.slow
def test_large_data_has_three_models(run: Run) -> None:
    output = run("large_data")
    table = np.concatenate(
        [numbers(r"[a-z].* rows ", output), numbers(r"\d+ neigh.* rows ", output)]
    )
    assert table.shape == (3, 3)
    assert table[:, 0].min() > 0.5


@pytest.mark.slow
def test_minibatches_train_by_both_methods(run: Run) -> None:
    output = run("minibatches")
    assert re.findall(r"steps \((\w+)\)", output) == ["natural", "adam"]
    curves = numbers("NLL of the validation rows after", output)
    tested = numbers("test rows:", output)
    assert np.all(tested[:, 1] < curves[:, 0])


@pytest.mark.slow
def test_deep_kernel_compares_two_last_layers(run: Run) -> None:
    assert set(re.findall(r"^\| (\w+) \|.*±", run("deep_kernel"), re.MULTILINE)) == {
        "softmax",
        "GPHead",
    }


@pytest.mark.slow
def test_last_layers_are_seventeen(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "benchmarks"))
    output = run("benchmarks/heads")
    rows = re.findall(r"^\| ([^|]+) \| \.\d+ ", output, re.MULTILINE)
    assert len(set(rows) - {"last-layer Laplace, laplace-torch"}) == 17
    for name in ("ClosedFormHead", "last-layer Laplace", "SNGP"):
        assert {name, f"{name}, earlier layers"} < set(rows)


@pytest.mark.slow
def test_feature_head_predicts_as_well_as_the_layer_that_it_replaces(run: Run) -> None:
    output = run("feature_head")
    softmax, gp = numbers("softmax layer", output)[0], numbers("GP on the features", output)[0]
    assert gp[0] > softmax[0] - 0.02
    wrong, right = numbers("epistemic entropy where", output)[0]
    assert wrong > right


@pytest.mark.slow
def test_epistemic_entropy_finds_unknown_classes(run: Run) -> None:
    output = run("out_of_distribution")
    assert numbers("GP, epistemic entropy", output).min() > 0.9
    assert numbers("network, entropy", output).shape == (1, 2)


@pytest.mark.slow
def test_soft_labels_come_nearer_to_the_truth_than_the_majority(run: Run) -> None:
    output = run("annotators")
    assert numbers(r"share of votes \(soft\)", output)[0, 0] < numbers("majority", output)[0, 0]


@pytest.mark.slow
def test_mean_probabilities_are_the_shares_of_rare_classes(run: Run) -> None:
    output = run("imbalance")
    shares = numbers("share of each class among test rows:", output)[0]
    predicted = numbers("ILRSGPR", output)[0, 1:4]
    assert predicted == pytest.approx(shares, rel=0.2)
    balanced = numbers("… balanced in training", output)[0, 1:4]
    assert balanced[2] > 2.0 * shares[2]
    plain, weighted, corrected = (
        numbers(name, output)[0] for name in ("ILRSGPR", "… balanced by weights", "… and corrected")
    )
    assert weighted[5] > plain[5]  # recall of the second class
    assert weighted[0] > 1.5 * plain[0]  # NLL
    assert corrected[0] < 0.7 * weighted[0]


@pytest.mark.slow
def test_a_class_that_appears_later_is_noticed_and_learned(run: Run) -> None:
    output = run("new_class")
    assert float(re.search(r"in (\S+)% of pairs", output)[1]) > 80.0
    table = numbers(r"\d+ ", output)
    assert table[-1, 0] > table[0, 0] + 0.5
    assert np.all(table[:, 1] > 0.95)


@pytest.mark.slow
def test_active_learning_draws_two_curves(run: Run) -> None:
    output = run("active_learning")
    assert np.all(numbers("at random", output)[:, -1] > numbers("at random", output)[:, 0])
    assert numbers("epistemic entropy", output)[0, 0] == numbers("at random", output)[0, 0]
    assert Path("outputs/active_learning.png").stat().st_size > 10_000


@pytest.mark.slow
def test_served_probabilities_are_the_models_own_without_gpflow(run: Run) -> None:
    output = run("serving")
    assert float(re.search(r"own probabilities: (\S+)", output)[1]) < 1e-9
    assert "gpflow imported: False" in output
    assert Path("outputs/served/1/saved_model.pb").exists()


@pytest.mark.slow
def test_prediction_sets_cover_what_their_methods_promise(run: Run) -> None:
    output = run("benchmarks/prediction_sets")
    for line in ("split, adaptive ", "split, plain ", "jackknife, plain ", r"jackknife\+, plain "):
        coverage, low, *_ = numbers(line, output)[0]
        assert coverage >= low
    assert numbers("split, adaptive ", output)[0, 3] == 0.0  # no set is empty


@pytest.mark.slow
def test_paper_models_are_eight(run: Run) -> None:
    output = run("paper_models")
    assert numbers(r"[A-Z].{14,15} (?= *0\.)", output).shape == (8, 4)
    assert Path("outputs/paper_models.png").stat().st_size > 10_000
