"""Claims about the progress bar: it shows the loss and the NLL, and says what it needs."""

import sys

import pytest

from gpflow_ilr.training.progress import progress_bar
from gpflow_ilr.training.watch import Watch


@pytest.mark.parametrize("has_nll", [True, False])
def test_the_bar_shows_steps_loss_and_nll(has_nll: bool, capsys) -> None:
    pytest.importorskip("tqdm")
    with progress_bar(3, "Model", has_nll) as draw:
        values = iter([9.0, 0.25, 0.125, 0.0625])
        watch = Watch([], lambda _: next(values), check_every=1, max_steps=3, observers=[draw])

        def train() -> tuple[bool, str]:
            for loss in (12.0, 11.0, 10.5):
                watch.step(loss)
            return True, ""

        watch.run(train)
    last = capsys.readouterr().err.split("\r")[-1]
    assert last.startswith("Model: 100%")
    assert "3/3" in last
    assert "loss=10.5" in last
    assert ("NLL=0.0625" in last) == has_nll


def test_without_tqdm_it_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    bar = progress_bar(3, "Model", False)
    with pytest.raises(ImportError, match=r"needs the package tqdm: pip install .*\[training\]"):
        bar.__enter__()
