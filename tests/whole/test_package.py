"""Claims about the package as a whole: what it imports, what README and CI promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpflow_ilr

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SETUP = (ROOT / "setup.py").read_text(encoding="utf-8")
LOWEST = (ROOT / ".ci" / "lowest.txt").read_text(encoding="utf-8")
OPTIONAL = (
    *("matplotlib", "mpltern", "sklearn", "keras", "tqdm", "polyagamma", "pandas", "torch"),
    "tensorboard",
)
IMPORTED = """
import sys, gpflow
before = set(sys.modules)
import gpflow_ilr
print(*sorted({m.partition('.')[0] for m in set(sys.modules) - before}))
"""


def test_importing_the_package_imports_no_optional_package_that_gpflow_does_not() -> None:
    command = [sys.executable, "-W", "ignore", "-c", IMPORTED]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    added = set(output.split())
    assert "gpflow_ilr" in added
    assert not added.intersection(OPTIONAL)


def test_version_has_one_home() -> None:
    version = (ROOT / "gpflow_ilr" / "version.py").read_text()
    assert f'__version__ = "{gpflow_ilr.__version__}"' in version
    assert gpflow_ilr.__version__ not in SETUP


def test_all_public_names_exist_and_are_documented() -> None:
    for name in gpflow_ilr.__all__:
        assert getattr(gpflow_ilr, name).__doc__ or name == "__version__", name


def test_ci_runs_the_test_command_of_the_readme() -> None:
    command = "pip install -e '.[test]' && pytest"
    assert f"    {command}\n" in README
    assert command in (ROOT / ".ci" / "run").read_text()


def test_the_lowest_versions_that_ci_tests_are_those_that_setup_admits() -> None:
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)", LOWEST, re.MULTILINE))
    admitted = re.findall(r'"([\w-]+)>=([\d.]+)', SETUP)
    required = {name: least for name, least in admitted if name in pinned}
    # What others need, and a package that warns of another's lowest version.
    assert set(pinned) - set(required) <= {"pyparsing"}
    for name, least in required.items():
        assert f"{pinned[name]}.".startswith(f"{least}."), name
    tools = {"pytest", "hypothesis", "arviz", "composition-stats", "pandas", "setuptools"}
    ours = re.search(r"EXTRAS = {.*?^}", SETUP, re.MULTILINE | re.DOTALL).group()
    ours += re.search(r"install_requires=\[.*?\]", SETUP, re.DOTALL).group()
    named = set(re.findall(r'"([\w-]+)(?:>=[\d.]+)?"[,\]]', ours)) - tools
    assert named - set(pinned) <= {"tqdm"}


@pytest.mark.parametrize("arguments", [["lowest", "python9.9"], ["oldest", sys.executable]])
def test_a_run_of_versions_that_tests_nothing_fails(arguments: list[str]) -> None:
    command = ["bash", str(ROOT / ".ci" / "versions"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Nothing was tested" in done.stdout


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_code_of_the_readme_runs() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    namespace: dict = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    probabilities = namespace["p"].numpy()
    assert probabilities.shape == (50, 3)
    assert gpflow_ilr.metrics.accuracy(probabilities, namespace["y_test"]) > 0.8
