"""Claims about the comparison of last layers: everybody runs, and only validation rows choose."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "benchmarks"
VAL = (np.zeros((4, 1)), np.array([0, 0, 0, 1]))

Import = Callable[[str], ModuleType]


@pytest.fixture(name="module")
def _module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    """A module of the folder, which is on the path as it is when a script there is run."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield __import__
    for path in (*FOLDER.glob("*.py"), FOLDER.parent / "paper" / "results.py"):
        sys.modules.pop(path.stem, None)


def says(p: float, K: int = 2) -> Callable[[np.ndarray], tuple[np.ndarray, None]]:
    """A contestant that gives the first class this probability."""
    others = np.full(K - 1, (1.0 - p) / (K - 1))
    return lambda X: (np.tile([p, *others], (len(X), 1)), None)


@pytest.fixture(name="heads")
def _heads(module: Import, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script with nothing in it that trains: what trains returns what would have been trained."""
    heads = module("heads")

    def network(*_: object) -> mock.Mock:
        trained = mock.Mock(layers=[mock.Mock()])
        trained.predict = lambda X, verbose: np.zeros((len(X), heads.K))
        return trained

    head = mock.Mock()
    head.attach.return_value.predict = lambda X, verbose: {
        "probabilities": says(0.5, heads.K)(X)[0],
        "epistemic": np.zeros(len(X)),
    }
    head.polish.return_value = mock.Mock(row_weight=0.3, kept=True)
    predict = says(0.5, heads.K)
    fakes: dict[str, Any] = {
        "softmax_network": network,
        "with_new_layer": network,
        "with_earlier_layers": lambda features, X, share: features,
        "ClosedFormHead": lambda *_, **__: head,
        "sngp": lambda *_: (predict, mock.Mock()),
        "with_gp_layer": lambda body, train, val, objective, *_: {
            name: predict for name in heads.MODES.values() for name in _gp_names(heads, objective)
        },
        **dict.fromkeys(("dropout", "ensemble", "sngp_layer"), lambda *_: predict),
        **dict.fromkeys(("last_layer_laplace", "laplace_by_torch"), lambda *_: predict),
    }
    for name, fake in fakes.items():
        assert hasattr(heads, name)
        monkeypatch.setattr(heads, name, fake)
    monkeypatch.setattr(heads.laplace_torch, "is_installed", lambda: True)
    return heads


def _gp_names(heads: ModuleType, objective: str) -> list[str]:
    every = [*heads.KINDS["layers"], *heads.KINDS["draws"]]
    return [name for name in every if name.startswith(heads.MODES[objective])]


def run(heads: ModuleType, *arguments: object) -> None:
    with mock.patch.object(sys, "argv", ["heads.py", "--quick", *map(str, arguments)]):
        heads.main()


def test_every_kind_of_contestant_runs_and_is_who_it_says(heads: ModuleType) -> None:
    contest = heads.Contest(mock.Mock(), VAL, VAL, epochs=1, steps=1, tries=3)
    for kind, names in heads.KINDS.items():
        found = contest.run(kind)
        assert tuple(found) == names
        for each in found.values():
            assert each.predict(VAL[0])[0].shape == (4, heads.K)


def test_every_setting_has_three_values(heads: ModuleType) -> None:
    for settings in heads.SETTINGS.values():
        for values in settings.values():
            assert len(set(values)) == len(values) == 3
    assert len(heads.ROW_WEIGHTS) == 3


@pytest.mark.parametrize(("num_tries", "best"), [(1, (0.5, 1)), (2, (0.5, 2)), (3, (0.7, 2))])
def test_settings_are_chosen_one_after_the_other_by_validation_rows(
    module: Import, num_tries: int, best: tuple[float, int]
) -> None:
    made = []

    def make(p: float, power: int) -> tuple[Callable, str]:
        made.append((p, power))
        return says(p if power == 2 else p / 2), f"made of {p} and {power}"

    # Three of four rows are of the first class, so the smallest NLL is that of p = .75.
    found = module("choosing").chosen(make, VAL, num_tries, p=(0.5, 0.4, 0.7), power=(1, 2, 3))
    assert tuple(found.settings.values()) == best
    assert found.made == "made of {} and {}".format(*best)
    assert len(set(made)) == len(made) == 2 * num_tries - 1


def test_unseen_classes_are_scored_by_images_that_chose_nothing(
    module: Import, tmp_path: Path
) -> None:
    path, rng = tmp_path / "images.npz", np.random.default_rng(0)
    images = rng.permutation(1000).reshape(-1, 1, 1) % 250  # each names itself, in grey
    y = np.arange(1000) % 10
    np.savez(path, X_train=images[:800], y_train=y[:800], X_test=images[800:], y_test=y[800:])
    _, train, val, test, unknown = module("sets_of_heads").split(str(path), seed=3, quick=True)
    known = {"train": images[:800][y[:800] < 8], "test": images[800:][y[800:] < 8]}
    assert len(unknown["unseen"]) == np.sum(y[:800] >= 8)
    np.testing.assert_allclose(
        unknown["unseen"][:, 0, 0, 0] * 255, images[:800][y[:800] >= 8][:, 0, 0]
    )
    np.testing.assert_allclose(test[0][:, 0, 0, 0] * 255, known["test"][:, 0, 0], rtol=1e-6)
    chosen = np.sort(np.concatenate([train[0], val[0]]).ravel() * 255)
    left = np.sort(known["train"].ravel()).tolist()
    for grey in chosen.round().tolist():  # no row twice, and none of the test part
        left.remove(grey)


def test_a_run_goes_on_with_the_kinds_that_have_no_line(
    heads: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lines.jsonl"
    run(heads, "--json", path)
    whole = path.read_text(encoding="utf-8").splitlines()
    names = [json.loads(line)["contestant"] for line in whole]
    assert names == [name for names in heads.KINDS.values() for name in names]
    line = json.loads(whole[0])
    assert {"set", "seed", "accuracy", "nll", "ece", "seconds", "processor", "versions"} < set(line)
    kinds = []
    run_kind = heads.Contest.run
    monkeypatch.setattr(
        heads.Contest, "run", lambda self, kind: kinds.append(kind) or run_kind(self, kind)
    )
    run(heads, "--json", path)
    assert not kinds
    gone = names.index("SNGP, earlier layers")
    path.write_text("\n".join(whole[:gone] + whole[gone + 1 :]) + "\n" + whole[gone][:40])
    run(heads, "--json", path)
    assert kinds == ["sngp"]
    assert len(path.read_text(encoding="utf-8").splitlines()) == len(names)


def test_tables_have_means_and_errors_of_the_seeds_that_all_have_finished(
    heads: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "lines.jsonl"
    scores = dict.fromkeys(("accuracy", "ece", "unseen entropy", "noise entropy"), 0.9)
    scores |= dict.fromkeys(("unseen epistemic", "noise epistemic"))
    of = {"set": "digits", "processor": "a processor", "seconds": 7.0, **scores}
    lines = [
        {**of, "seed": seed, "contestant": name, "nll": nll}
        for seed, name, nll in [
            (0, "softmax", 0.1),
            (0, "SNGP", 0.3),
            (1, "SNGP", 0.5),
            (1, "softmax", 0.2),
            (2, "softmax", 99.0),  # whose SNGP was never finished
        ]
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    run(heads, "--report", path)
    output = capsys.readouterr().out
    assert output.startswith("digits: 2 seeds (0, 1); a processor.")
    assert output.splitlines()[-2:] == [
        f"| {name} | .900 ± .000 | {nll} | .900 ± .000 | .900 ± .000 / – | .900 ± .000 / – | 7 |"
        for name, nll in (("softmax", ".150 ± .050"), ("SNGP", ".400 ± .100"))
    ]


def test_the_tables_of_the_docs_are_those_of_the_kept_lines(
    heads: ModuleType, capsys: pytest.CaptureFixture
) -> None:
    run(heads, "--report", *sorted((FOLDER / "results").glob("heads-*.jsonl")))
    page = (FOLDER.parents[1] / "docs" / "measured.md").read_text(encoding="utf-8").splitlines()
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(lines) > 30
    assert not [line for line in lines if line not in page]
