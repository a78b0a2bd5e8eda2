"""Claims about ``examples/paper``: all of it runs, and nothing finished is lost or repeated."""

import io
import os
import re
import signal
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from gpflow_ilr import metrics
from tests.whole.paper import FOLDER, Import, command, importing, lines_of

RUN_IN_SECONDS = ("gpd-breakdown", "gpd-error-rate", "likelihood-figure", "toy-lambda")
RUN_SLOWLY = (
    "visual-abstract",
    "decision-boundaries",
    "toy-alpha",
    "toy-sigma",
    "scaling-k",
    "uci-exact",
    "uci-sparse",
)
SETS = ("eeg", "htru2", "magic", "miniboo", "letter", "drive", "mocap", "thyroid", "wine", "glass")


@pytest.fixture(name="paper")
def _paper(monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    yield from importing(monkeypatch)


@pytest.fixture(name="run")
def _run(paper: Import, capsys: pytest.CaptureFixture) -> Callable[..., tuple[int, str, str]]:
    """The command, in this process: its exit code and what it printed."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = command(*arguments)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_every_experiment_of_the_list_is_run_by_a_test(run: Callable) -> None:
    _, printed, _ = run("list")
    assert {line.split()[0] for line in printed.splitlines()} == {*RUN_IN_SECONDS, *RUN_SLOWLY}


@pytest.mark.parametrize(
    "experiment",
    [*RUN_IN_SECONDS, *(pytest.param(name, marks=pytest.mark.slow) for name in RUN_SLOWLY)],
)
@pytest.mark.filterwarnings("ignore")
def test_an_experiment_runs_without_a_data_dir(
    experiment: str, run: Callable, tmp_path: Path
) -> None:
    code, _, errors = run(experiment, "--quick", "--out", tmp_path)
    assert code == 0, errors
    page = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    pictures = re.findall(r"\]\((.+?\.png)\)", page)
    assert pictures or experiment == "gpd-breakdown"
    assert all(0 < (tmp_path / picture).stat().st_size < 200_000 for picture in pictures)
    results = tmp_path / f"{experiment}.jsonl"
    if results.exists():
        before = results.read_bytes()
        assert "0 of " in run(experiment, "--quick", "--out", tmp_path)[1]
        assert results.read_bytes() == before
        assert {"date", "processor", "versions"} <= set(lines_of(results)[0])


def test_the_paper_protocol_runs(run: Callable, tmp_path: Path) -> None:
    options = ("--quick", "--protocol", "paper", "--out", tmp_path)
    code, _, errors = run("uci-exact", "--models", "E-ILR", "gpd", *options)
    assert code == 0, errors
    found = {line["model"]: line for line in lines_of(tmp_path / "uci-exact.jsonl")}
    assert set(found) == {"E-ILR", "GPD"}
    chosen = {"normalisation", "learning_rate", "tried"}
    assert set(found["E-ILR"]["chosen"]) == chosen | {"smoothing"}
    assert set(found["GPD"]["chosen"]) == chosen | {"alpha_epsilon"}


def test_a_set_of_any_name_runs_and_has_no_paper_column(run: Callable, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    np.savez(tmp_path / "mine.npz", X=rng.normal(size=[120, 2]) + 2.0 * y[:, None], y=y)
    out = tmp_path / "out"
    options = ("--data-dir", tmp_path, "--datasets", "mine", "--models", "E-ILR", "--quick")
    assert run("uci-exact", *options, "--out", out)[0] == 0
    page = (out / "RESULTS.md").read_text(encoding="utf-8")
    assert "### mine: 70 training and 50 test rows, 3 classes" in page
    assert "the paper:" not in page


def test_every_set_in_the_folder_runs_unless_some_are_named(
    paper: Import, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    uci, runner = paper("uci"), paper("runner")
    for name, count in {"few": 60, "many": 3000, "glass": 40}.items():
        np.savez(tmp_path / f"{name}.npz", X=np.zeros([count, 1]), y=np.arange(count) % 2)
    np.savez(tmp_path / "images.npz", X_train=np.zeros([3, 1]), y_train=np.arange(3))
    (tmp_path / "half.npz").write_bytes(b"PK")
    rest = {"models": None, "seeds": 1, "protocol": "ours", "quick": True, "out": tmp_path / "out"}
    everything = runner.Options(data_dir=tmp_path, datasets=None, **rest)
    assert uci._names("uci-exact", everything) == ["wine", "glass", "few"]
    printed = capsys.readouterr().out
    assert "images is left out" in printed
    assert "needs arrays X and y" in printed
    assert "half is left out" in printed
    assert uci._names("uci-sparse", everything) == ["many"]
    named = runner.Options(data_dir=tmp_path, datasets=["many"], **rest)
    assert uci._names("uci-sparse", named) == ["many"]


@pytest.fixture(name="_no_network")
def _network_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", fail)


@pytest.mark.usefixtures("_no_network")
def test_without_folder_and_network_wine_runs_and_the_others_are_left_out_with_a_word(
    paper: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    uci, runner = paper("uci"), paper("runner")
    ran: list[dict] = []
    monkeypatch.setattr(uci, "complete", lambda _, runs, *__, **___: ran.extend(runs) or True)
    rest = {"models": ["E-ILR"], "seeds": 2, "protocol": "ours", "quick": False}
    assert uci.run("uci-exact", runner.Options(data_dir=None, datasets=None, out=tmp_path, **rest))
    assert [(run["data"], run["seed"]) for run in ran] == [("wine", 0), ("wine", 1)]
    printed = capsys.readouterr().out
    for name in ("glass", "thyroid"):
        assert f"{name} is left out: {name} could not be downloaded" in printed
        assert f"put {name}.npz" in printed


@pytest.mark.usefixtures("_no_network")
def test_wrong_names_and_missing_files_are_said(run: Callable, tmp_path: Path) -> None:
    out = ("--quick", "--out", tmp_path / "out")
    code, _, error = run("uci-exact", "--datasets", "no_such_set", *out)
    assert code == 2
    assert "'no_such_set' is neither a set of the paper" in error
    assert "--data-dir" in error
    np.savez(tmp_path / "mine.npz", X=np.zeros([3, 1]), y=np.arange(3))
    code, _, error = run("uci-exact", "--data-dir", tmp_path, "--datasets", "glass", *out)
    assert code == 2
    assert f"There is no glass.npz in {tmp_path}, which has mine" in error
    code, _, error = run("uci-exact", "--datasets", "glass", *out)
    assert code == 2
    assert "glass could not be downloaded" in error
    assert "no route to host" in error
    assert "put glass.npz" in error
    code, _, error = run("uci-exact", "--models", "XGBoost", *out)
    assert code == 2
    assert "No model of uci-exact is called 'XGBoost'. There are ILR-auto, E-ILR" in error
    np.savez(tmp_path / "other.npz", X=np.zeros([3, 1]), y=np.array([0, 1, 3]))
    code, _, error = run("uci-exact", "--data-dir", tmp_path, "--datasets", "other", *out)
    assert code == 2
    assert "needs 0, 1, …, K-1" in error
    with pytest.raises(SystemExit):
        run("no-such-experiment")


def test_a_report_of_nothing_or_of_broken_lines_is_no_success(
    run: Callable, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    code, printed, _ = run("report", "--out", tmp_path / "nowhere")
    assert code == 1
    assert "There are no results in" in printed
    (tmp_path / "uci-exact.jsonl").write_text("{}\nno json\n{}\n")
    for words in (["report"], ["uci-exact", "--quick"]):
        code, _, error = run(*words, "--out", tmp_path)
        assert code == 2
        assert error.startswith("Line 2 of ")
    for seeds in ("0", "-1", "many"):
        with pytest.raises(SystemExit):
            run("uci-exact", "--seeds", seeds, "--out", tmp_path)
        assert f"must be a number of at least 1, but is '{seeds}'" in capsys.readouterr().err


def test_a_line_that_was_cut_short_is_run_again_and_no_other(paper: Import, tmp_path: Path) -> None:
    results, runner = paper("results"), paper("runner")
    path, key, done = tmp_path / "some.jsonl", ("data", "seed"), []

    def measure(run: dict) -> dict:
        done.append(run["seed"])
        return {"NLL": 0.5}

    runs = [{"data": "wine", "seed": seed} for seed in range(3)]
    assert runner.complete(results.Results(path, key), runs, measure)
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    assert [line["seed"] for line in results.Results(path, key).lines] == [0, 1]
    assert runner.complete(results.Results(path, key), runs, measure)
    assert done == [0, 1, 2, 2]
    assert [line["seed"] for line in lines_of(path)] == [0, 1, 2]
    path.write_bytes(b"{}\nno json\n{}\n")
    with pytest.raises(ValueError, match=r"Line 2 of .* is no JSON"):
        results.Results(path, key)


def test_two_processes_share_a_file(paper: Import, tmp_path: Path) -> None:
    """Neither cuts off what the other has added since it looked, nor repeats it."""
    results, runner = paper("results"), paper("runner")
    path, key = tmp_path / "some.jsonl", ("seed",)
    one, other = (results.Results(path, key) for _ in range(2))
    one.add({"seed": 0, "NLL": 0.5})
    other.add({"seed": 1, "NLL": 0.25})
    one.add({"seed": 1, "NLL": 0.75})
    assert lines_of(path) == [{"seed": 0, "NLL": 0.5}, {"seed": 1, "NLL": 0.25}]

    def measure(run: dict) -> dict:
        assert run["seed"] == 2
        other.add({"seed": 3, "NLL": 0.0})  # the other is faster with the next
        return {"NLL": 1.0}

    assert runner.complete(one, [{"seed": seed} for seed in range(4)], measure)
    assert [line["seed"] for line in lines_of(path)] == [0, 1, 3, 2]


def test_a_run_that_fails_does_not_end_the_others(
    paper: Import, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    results, runner = paper("results"), paper("runner")

    def measure(run: dict) -> dict:
        return {"NLL": 1.0 / run["seed"]}

    store = results.Results(tmp_path / "some.jsonl", ("seed",))
    assert not runner.complete(store, [{"seed": 0}, {"seed": 2}], measure)
    assert "seed 0 failed" in capsys.readouterr().out
    assert [line["NLL"] for line in lines_of(store.path)] == [0.5]


KILLED = """
import sys, time
sys.path.insert(0, {folder!r})
from pathlib import Path
from results import Results
from runner import complete

def measure(run):
    time.sleep(0.02)
    return {{"NLL": 0.5, "filling": "x" * 2000}}

runs = [{{"seed": seed}} for seed in range(40)]
complete(Results(Path({path!r}), ("seed",)), runs, measure)
"""


def test_sigkill_loses_at_most_the_run_under_way(paper: Import, tmp_path: Path) -> None:
    results, path = paper("results"), tmp_path / "some.jsonl"
    script = KILLED.format(folder=str(FOLDER), path=str(path))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    printed = [process.stdout.readline() for _ in range(6)]  # the sixth is the fifth finished run
    os.kill(process.pid, signal.SIGKILL)
    printed += process.stdout.read().splitlines()
    process.stdout.close()
    process.wait()
    said = sum(line.startswith("[") for line in printed)
    kept = [line["seed"] for line in results.Results(path, ("seed",)).lines]
    assert 5 <= said <= len(kept) < 40
    assert kept == list(range(len(kept)))
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert [line["seed"] for line in lines_of(path)] == list(range(40))


def test_published_numbers_are_complete_and_have_their_places(paper: Import) -> None:
    published = paper("published")
    numbers = published.published()
    sets, uci = numbers["sets"]["values"], numbers["uci"]["values"]
    assert set(sets) == set(uci) == set(SETS)
    for name, facts in sets.items():
        assert facts["training"] + facts["test"] == facts["rows"]
        small = facts["inducing"] is None
        models = {"E-ILR"} if small else {"C-ILR", "U-ILR", "SVGPC"}
        assert set(uci[name]) == models | {"GPD", "LSM", "BSM"}
        for row in uci[name].values():
            assert all(len(row[metric]) == 2 for metric in published.METRICS)
            assert 0.5 < row["ACC"][0] <= 1.0
    assert all(part["place"] for key, part in numbers.items() if key != "paper")
    for name, best in {"glass": (0.71, 0.82, 0.13), "letter": (0.96, 0.13, 0.04)}.items():
        assert tuple(mean for mean, _ in published.best_ilr(name).values()) == best
    assert published.best_ilr("mine") is None


def test_splits_have_the_papers_sizes_and_are_the_same_for_all(paper: Import) -> None:
    data = paper("data")
    X, y = data.load("wine", None, Path("nowhere"))
    first, again, other = (data.split("wine", X, y, seed) for seed in (0, 0, 1))
    assert (len(first.X), len(first.X_test)) == (128, 50)
    np.testing.assert_array_equal(first.X, again.X)
    assert not np.array_equal(first.X_test, other.X_test)
    together = np.concatenate([first.X, first.X_test])
    np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(X, axis=0))
    many = data.split("mine", np.zeros([4000, 1]), np.arange(4000) % 2, 0)
    assert len(many.X_test) == 1000


def test_pulsars_are_few_and_the_same_every_time(paper: Import) -> None:
    data = paper("data")
    X, y = data.load("pulsars", None, Path("nowhere"))
    assert X.shape == (17_898, 8)
    assert np.isfinite(X).all()
    assert 0.085 < np.mean(y) < 0.1
    np.testing.assert_array_equal(X, data.load("pulsars", None, Path("nowhere"))[0])
    assert data.available(("pulsars", "htru2"), None) == ["pulsars"]


def test_a_downloaded_set_is_verified(paper: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    download = paper("download")
    assert set(download.SOURCES) == set(SETS) - {"wine"}
    rows = "\n".join(f"{i},{i}.5,{i % 2 + 1}" for i in range(6)) + "\n"
    X = np.array([[i + 0.5] for i in range(6)], np.float32)
    y = np.arange(6) % 2

    def serve(address: str, timeout: float) -> io.BytesIO:
        assert address == "server/1/tiny.zip"
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("folder/tiny.data", rows)
        archive.seek(0)
        return archive

    monkeypatch.setattr(urllib.request, "urlopen", serve)

    def source(**known: object) -> object:
        read = download._columns(-1, drop=(0,))
        return download.Source("1/tiny.zip", "tiny.data", read, (6, 1), **known)

    monkeypatch.setitem(download.SOURCES, "tiny", source(sha256=download.digest(X, y)))
    for found, expected in zip(download.download("tiny", "server"), (X, y), strict=True):
        np.testing.assert_array_equal(found, expected)
    for known in ({"sha256": "0" * 64}, {"counts": (4, 2)}):
        monkeypatch.setitem(download.SOURCES, "tiny", source(**known))
        with pytest.raises(download.DownloadError, match="another set there now"):
            download.download("tiny", "server")


def test_chance_is_what_a_perfect_forecaster_has(paper: Import) -> None:
    scores, rng = paper("scores"), np.random.default_rng(0)
    for num_rows in (50, 5000):
        p = rng.dirichlet(np.ones(4), num_rows)
        mean, unusual = scores.chance_ece(p)
        y = [rng.choice(4, p=row) for row in p]
        assert metrics.expected_calibration_error(p, y) < 1.5 * unusual
        assert 0.3 * mean < metrics.expected_calibration_error(p, y)
    # The bias of |hits − expected| falls with the root of the number of rows.
    few, many = (scores.chance_ece(rng.dirichlet(np.ones(4), n))[0] for n in (50, 5000))
    assert few / many == pytest.approx(10.0, rel=0.4)


@pytest.mark.parametrize("model", ["HistGradientBoosting", "LightGBM", "CatBoost"])
def test_a_missing_package_is_said(
    model: str, paper: Import, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert paper("models").contestants("uci-exact", "ours", [model]) == {}
    assert f"{model} is left out" in capsys.readouterr().out


def test_a_class_that_training_rows_lack_has_a_column(paper: Import) -> None:
    problem, peers = paper("problem"), paper("peers")
    rng = np.random.default_rng(0)
    y = np.array([0, 2] * 30 + [3])
    X = rng.normal(size=[61, 2]) + y[:, None]
    task = problem.Problem(X, y, num_classes=5, seed=0, quick=True)
    assert not task.held_out_tenth()[-1]  # the only row of its class
    p = peers.gradient_boosting(task).predict(X)
    assert p.shape == (61, 5)
    assert np.all(p[:, [1, 4]] == 0.0)


@pytest.mark.slow
def test_gpd_errs_from_noisy_observations_and_ilr_does_not(run: Callable, tmp_path: Path) -> None:
    """Table 1, whose size is that of α_ε = 0.1."""
    assert run("gpd-breakdown", "--seeds", 3, "--out", tmp_path)[0] == 0
    found = lines_of(tmp_path / "gpd-breakdown.jsonl")

    def mean(model: str, setting: float, name: str) -> float:
        rows = [r for r in found if (r["model"], r["setting"]) == (model, setting)]
        return float(np.mean([row[name] for row in rows]))

    assert mean("GPD", 0.1, "z*") == pytest.approx(0.076, abs=2 * 0.013)
    assert 0.0 < mean("GPD", 0.01, "z*") < 0.02
    assert mean("E-ILR", 0.9, "z*") == 0.0
    assert all(row["f*"] == 0.0 for row in found)
