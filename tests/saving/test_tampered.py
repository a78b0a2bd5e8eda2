"""Claims about files that say anything: ``load`` reads a model or refuses it, and does nothing else."""

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpflow_ilr.saving import load, save
from gpflow_ilr.saving.container import MAGIC
from tests.fuzz.limits import LIMIT_SECONDS, at_most
from tests.saving.hostile import parts_of, tamper
from tests.saving.models import MODELS

KINDS = ["ILRGPR", "ILRSGPR", "ILRNNGPR", "SoftmaxSVGP", "LogisticSoftmaxGP"]
DONE = {"os.system", "os.exec", "os.posix_spawn", "os.fork", "os.remove", "os.rename", "os.mkdir",
        "subprocess.Popen", "shutil.rmtree", "socket.connect", "pickle.find_class"}  # fmt: skip
watched: list[str] | None = None


def hook(event: str, arguments: tuple[Any, ...]) -> None:
    """What a file has done: anything but reading. A hook stays, so it asks whether it is wanted."""
    writing = event == "open" and isinstance(arguments[1], str) and arguments[1].strip("rb")
    if watched is not None and (event in DONE or writing):
        watched.append(f"{event} {arguments}")


sys.addaudithook(hook)

NAMES = [
    *("os.system", "builtins.eval", "builtins.exec", "subprocess.Popen", "gpflow_ilr.saving.load"),
    *(
        "tensorflow.io.write_file",
        "gpflow.utilities.deepcopy",
        "gpflow_ilr.ILRGPR",
        "gpflow.Module",
    ),
    *("gpflow_ilr.saving.whole.pickle.loads", "numpy.load", "tensorflow.Variable", "", ".", "../x"),
    *(
        "__class__",
        "__init__",
        "__reduce__",
        "data",
        "kernel",
        "object",
        "class",
        "state",
        "echo x",
    ),
]
OTHERS = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from([None, True, -1, 0, 1, 2**31, 2**63, 10**400, 0.5, -1e308, [], {}, [[]]]),
    st.integers(0, 200).map(lambda number: {"object": number}),
    st.sampled_from(NAMES).map(lambda name: {"known": name}),
    st.sampled_from(NAMES).map(lambda name: {"class": name, "state": {}, "name": None}),
    st.sampled_from(NAMES).map(lambda name: {"class": name, "parameters": {"name": "echo x"}}),
    st.sampled_from([{"dict": [[{"tuple": []}, 1], [[], 2]]}, {"scalar": "float64", "value": []}]),
)


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every dictionary and list of a description with each of its keys."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], (dict, list)):
            yield from places(tree[key])


def change(draw: Any, tree: dict[str, Any]) -> None:
    """Something else at one or two places: a value, another part of the file, or nothing."""
    for _ in range(draw(st.integers(1, 2))):
        found = list(places(tree))
        holder, key = found[draw(st.integers(0, len(found) - 1))]
        match draw(st.sampled_from(["other", "other", "part", "nothing", "key"])):
            case "other":
                holder[key] = draw(OTHERS)
            case "part":
                other, there = found[draw(st.integers(0, len(found) - 1))]
                holder[key] = copy.deepcopy(other[there])
            case "nothing":
                del holder[key]
            case "key" if isinstance(holder, dict):
                holder[draw(st.sampled_from(NAMES))] = holder.pop(key)


def answer(path: Path) -> None:
    """Load a file, which may be refused by a sentence, and look at what it does."""
    global watched
    watched = []
    try:
        with at_most(LIMIT_SECONDS):
            model = load(path)
        assert isinstance(model, tf.Module)
    except ValueError as error:
        sentence = str(error)
        assert "cannot be loaded. " in sentence or "is not a model, but a" in sentence, sentence
    finally:
        done, watched = watched, None
    assert done == []


@pytest.fixture(name="files", scope="module")
def _files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("tampered") / "model"
    files = {}
    for kind in KINDS:
        save(MODELS[kind](), path)
        files[kind] = path.read_bytes()
    return files


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(kind=st.sampled_from(KINDS), data=st.data())
def test_a_description_that_says_anything_is_read_or_refused(
    kind: str, data: Any, files: dict[str, bytes], tmp_path: Path
) -> None:
    path = tmp_path / "model"
    path.write_bytes(files[kind])
    tamper(path, lambda description: change(data.draw, description))
    answer(path)


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(kind=st.sampled_from(KINDS), data=st.data())
def test_a_header_that_says_anything_is_read_or_refused(
    kind: str, data: Any, files: dict[str, bytes], tmp_path: Path
) -> None:
    path = tmp_path / "model"
    path.write_bytes(files[kind])
    header, _, _ = parts_of(path)
    _, _, body = files[kind].removeprefix(MAGIC).partition(b"\n")
    change(data.draw, header)
    path.write_bytes(MAGIC + json.dumps(header).encode() + b"\n" + body)
    answer(path)


def test_what_a_file_would_do_is_noticed(tmp_path: Path) -> None:
    """Or the tests before would say nothing."""
    global watched
    watched = []
    try:
        (tmp_path / "file").write_bytes(b"")
        (tmp_path / "file").unlink()
        (tmp_path / "file").exists()
    finally:
        done, watched = watched, None
    assert [event.split()[0] for event in done] == ["open", "os.remove"]
