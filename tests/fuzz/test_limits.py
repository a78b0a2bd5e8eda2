"""Claims about the limit on the time of an example: it holds whatever hangs."""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fuzz.limits import at_most

ROOT = Path(__file__).parents[2]
HANGS = """
import itertools
from tests.fuzz.limits import at_most

def test_in_c():
    with at_most(0.1, clock=2.0):
        sum(itertools.repeat(0))
"""


def test_an_example_that_hangs_fails_even_if_exceptions_are_caught() -> None:
    def hang() -> None:
        while True:
            with suppress(Exception):
                sum(range(1000))

    start = time.process_time()
    late = pytest.raises(pytest.fail.Exception, match=r"hang did not end within 0\.2 seconds")
    with late, at_most(0.2, "hang"):
        hang()
    assert time.process_time() - start < 10.0


def test_what_ends_in_time_is_left_alone() -> None:
    with at_most(0.2):
        pass
    start = time.process_time()
    while time.process_time() < start + 0.5:
        pass


def test_a_hang_outside_python_ends_the_process_which_says_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.fuzz.conftest import _hangs_are_seen\n")
    (tmp_path / "test_hang.py").write_text(HANGS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path]
    run = {"capture_output": True, "text": True, "check": False, "timeout": 500}
    done = subprocess.run(command, cwd=ROOT, **run)
    assert done.returncode
    assert 'test_hang.py", line 7 in test_in_c' in done.stderr, done.stderr
