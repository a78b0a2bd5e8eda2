"""Claims about the package as a whole: what it imports, what README and CI promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpflow_ilr

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SETUP = (ROOT / "setup.py").read_text(encoding="utf-8")
CI_RUN = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
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
    assert command in CI_RUN


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


def write_program(path: Path, lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{lines}\n", encoding="utf-8")
    path.chmod(0o755)


def test_a_python_that_only_pyenv_has_is_tested(tmp_path: Path) -> None:
    """pyenv's shims are on the path, and say of what is not chosen that it is not found."""
    write_program(tmp_path / "bin" / "pyenv", f"echo {tmp_path}")
    write_program(tmp_path / "bin" / "python9.9", "exit 127")
    write_program(tmp_path / "versions" / "9.9.10" / "bin" / "python", '[ "$1" = --version ]')
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    command = ["bash", "-x", str(ROOT / ".ci" / "versions"), "lowest", "python9.9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert f"{tmp_path}/versions/9.9.10/bin/python -m venv" in done.stderr
    assert "left out" not in done.stdout


RUN_UNTIL = re.search(r"^run_until\(\) {.*?^}", CI_RUN, re.MULTILINE | re.DOTALL).group()


@pytest.mark.parametrize(
    ("tests", "said", "fails"),
    [
        ("while true; do echo -n .; sleep 0.1; done", "No test had failed", False),
        ("echo -n ..; sleep 60", "hang", True),
        ("echo ..F; while true; do echo .; sleep 0.1; done", "some had failed", True),
        ("echo ..", "", False),
        ("exit 3", "", True),
    ],
)
def test_ci_fails_where_tests_that_it_cuts_off_fail_or_hang(
    tests: str, said: str, fails: bool, tmp_path: Path
) -> None:
    script = f"""
        set -euo pipefail
        cut_off="" log={tmp_path}/log SILENT=2
        {RUN_UNTIL}
        run_until 4 bash -c '{tests}'
        printf '%s' "$cut_off"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert said in done.stdout
    assert bool(done.returncode) == fails, done.stderr


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
