"""The floor plan: which rooms there are, what they owe each other, and that tests mirror them."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpflow.models import GPModel

import gpflow_ilr
from tests.whole.test_guard import MODELS, descendants, import_everything

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gpflow_ilr"
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))

# From left to right, as the data flow. A room, or a door, imports from those to its left alone.
ORDER = [
    "version",
    "simplex",
    "inputs",
    "linalg",
    "codes",
    "expectations",
    "likelihoods",
    "collapsed",
    "calibration",
    "starting",
    "metrics",
    "plotting",
    "models",
    "augmented",
    "training",
    "heads",
    "saving",
    "distributed",
    "keras",
    "tf_keras",
    "sklearn",
    "__init__",
]


def room_of(module: Path) -> str:
    return module.parts[0].removesuffix(".py")


def nodes_of(module: Path) -> Iterator[ast.AST]:
    yield from ast.walk(ast.parse((PACKAGE / module).read_text(encoding="utf-8")))


def imports_of(module: Path) -> Iterator[tuple[str, str]]:
    """Pairs (module, name) of what is imported, whether at the top or where it is needed."""
    for node in nodes_of(module):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def test_few_names_stand_at_the_top() -> None:
    top = {room_of(module) for module in MODULES} - {"__init__", "version"}
    assert len(top) <= 20
    assert top <= set(ORDER)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_file_is_no_longer_than_a_reader_can_hold(module: Path) -> None:
    assert len((PACKAGE / module).read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("module", [m for m in MODULES if m.name == "__init__.py"], ids=str)
def test_every_room_says_what_it_is_for(module: Path) -> None:
    docstring = ast.get_docstring(ast.parse((PACKAGE / module).read_text(encoding="utf-8")))
    assert docstring is not None
    assert len(docstring.split()) >= 20


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_data_flow_from_left_to_right(module: Path) -> None:
    room = room_of(module)
    for source, name in imports_of(module):
        if source == "gpflow_ilr":  # from gpflow_ilr import metrics
            source = f"gpflow_ilr.{name}"
        if source.startswith("gpflow_ilr."):
            other = source.split(".")[1]
            assert other == room or ORDER.index(other) < ORDER.index(room), f"{source} in {module}"


@pytest.mark.parametrize(
    "module", [m for m in MODULES if m.name not in ("__init__.py", "version.py")], ids=str
)
def test_every_module_has_tests_of_its_name(module: Path) -> None:
    folder, name = ROOT / "tests" / module.parent, module.stem
    assert (folder / f"test_{name}.py").exists() or list((folder / name).glob("test_*.py"))


@pytest.mark.parametrize("case", MODELS, ids=lambda case: case.cls.__name__)
def test_a_model_has_at_most_two_ancestors_of_ours(case) -> None:
    ours = [c for c in case.cls.__mro__[1:] if c.__module__.startswith("gpflow_ilr")]
    assert len(ours) <= 2, ours


def test_every_calibrate_has_one_signature() -> None:
    import_everything()
    signatures = {
        str(inspect.signature(cls.calibrate))
        for cls in descendants(GPModel)
        if cls.__module__.startswith("gpflow_ilr") and hasattr(cls, "calibrate")
    }
    assert len(signatures) == 1


def own_names(module: Path) -> set[str]:
    """Underscore names that the module itself defines: attributes, methods, functions, fields."""
    names = set()
    for node in nodes_of(module):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


PUBLIC_IN_PYTHON = {"_fields", "_replace", "_asdict"}  # of named tuples


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_no_class_reads_underscore_names_of_another(module: Path) -> None:
    own = own_names(module) | PUBLIC_IN_PYTHON
    for node in nodes_of(module):
        if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr):
            of_itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            of_super = isinstance(node.value, ast.Call) and "super" in ast.unparse(node.value)
            assert of_itself or of_super or node.attr in own, f"{ast.unparse(node)} in {module}"


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_no_private_name_is_imported(module: Path) -> None:
    """Neither ours nor GPflow's, TensorFlow's or Keras', which change without notice."""
    for source, name in imports_of(module):
        parts = [part for part in (*source.split("."), name) if part != "__future__"]
        assert not any(re.match(r"_[^_]", part) for part in parts), f"{source}.{name} in {module}"
        assert not source.startswith(("tensorflow.python", "keras.src", "tf_keras.src")), source


DOORS = """
simplex.helmert metrics.accuracy starting.starting_kernel saving.save saving.load training.fit
saving.register saving.export_saved_model distributed.training_loss_closure distributed.share_statistics
keras.GPHead keras.ELBOLoss tf_keras.GPHead tf_keras.ELBOLoss
plotting.plot_decision_regions plotting.plot_simplex plotting.plot_entropies plotting.plot_reliability
plotting.plot_confusion plotting.plot_trace plotting.plot_smoothing
"""


@pytest.mark.parametrize("name", [*DOORS.split(), *gpflow_ilr.__all__])
def test_public_names_are_where_users_import_them_from(name: str) -> None:
    module, _, attribute = f"gpflow_ilr.{name}".rpartition(".")
    assert hasattr(importlib.import_module(module), attribute)
