"""Claims about ``examples/distributed.py``: it runs as it says, and survives the death of a worker."""

import re
import runpy
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from gpflow_ilr.metrics import accuracy
from gpflow_ilr.saving import load
from tests.distributed.local_cluster import PATIENCE, LocalCluster

SCRIPT = str(Path(__file__).parents[2] / "examples" / "distributed.py")


def run_here(*arguments: str) -> None:
    """The script in this process, which has TensorFlow loaded already."""
    with mock.patch.object(sys, "argv", [SCRIPT, *arguments]):
        runpy.run_path(SCRIPT, run_name="__main__")


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    run_here(str(folder), "--make-shards", "3")
    return folder


def losses(cluster: LocalCluster, worker: int = 0) -> dict[int, str]:
    """Losses of the rounds that are complete, digit by digit."""
    return {
        int(n): loss for n, loss in re.findall(r"round (\d+) loss (\S+)\n", cluster.output(worker))
    }


@pytest.mark.slow
def test_job_resumes_from_the_last_checkpoint_after_a_worker_was_killed(folder: Path) -> None:
    options = ["--uncollapsed", "--num-inducing", "10", "--checkpoint-every", "20"]
    with LocalCluster([SCRIPT, str(folder), *options, "--rounds", "9999"], 2, folder) as cluster:
        # Beyond the checkpoint of round 20, so that rounds are repeated.
        cluster.wait_for(lambda: min(len(losses(cluster)), len(losses(cluster, 1))) >= 22)
        cluster.kill(1)
        # The other one does not wait for it for ever, and says what to do.
        assert cluster.processes[0].wait(PATIENCE) == 1
        assert "Another worker has died" in cluster.output()
        before = losses(cluster)

    rounds = max(before)
    options += ["--rounds", str(rounds)]
    with LocalCluster([SCRIPT, str(folder), *options], 2, folder) as cluster:
        cluster.finish()
        resumed = losses(cluster)
        assert losses(cluster, 1) == resumed
        start = int(re.search(r"starts after round (\d+)", cluster.output())[1])
        assert start >= 20
        assert start % 20 == 0
        printed = float(re.search(r"test accuracy (\S+)", cluster.output())[1])

    # The rounds after the checkpoint are trained again, with the same losses to the last digit.
    assert start < rounds
    assert list(resumed) == list(range(start + 1, rounds + 1))
    assert resumed == {number: before[number] for number in resumed}
    test = np.load(folder / "test.npz")
    p = load(folder / "model").predict_y(test["X"])[0]
    assert accuracy(p, test["y"]) == pytest.approx(printed, abs=5.1e-4)


@pytest.mark.slow
def test_one_machine_runs_the_same_command(folder: Path, capsys: pytest.CaptureFixture) -> None:
    for rounds in ("1", "2"):
        run_here(str(folder), "--num-inducing", "20", "--rounds", rounds)
    first, second = capsys.readouterr().out.split("worker 0 of 1 starts after round ")[1:]
    assert first.startswith("0\nround 1 loss")
    assert second.startswith("1\nround 2 loss")
    assert float(second.partition("test accuracy ")[2].split()[0]) > 0.9
