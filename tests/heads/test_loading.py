"""An attached model in a fresh process: what has to be imported, and what Keras says if it is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.heads.stacks import STACKS, X, Y

SCRIPT = """
import importlib, sys
import numpy as np
name, path, rows, found = sys.argv[1:]
Keras = importlib.import_module(name)
try:
    Keras.models.load_model(path)
except Exception as error:
    print("refused:", error)
importlib.import_module("gpflow_ilr." + name)
np.save(found, Keras.models.load_model(path).predict(np.load(rows), verbose=0))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", STACKS)
def test_a_fresh_process_loads_an_attached_model_after_one_import(
    name: str, tmp_path: Path
) -> None:
    head = STACKS[name].closed_form()
    head.fit((X, Y), validation=(X, Y))
    model, rows, found = (tmp_path / file for file in ("model.keras", "rows.npy", "found.npy"))
    head.attach().save(model)
    np.save(rows, X)
    command = [sys.executable, "-c", SCRIPT, name, *map(str, (model, rows, found))]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "refused:" in done.stdout
    if name == "keras":  # tf_keras does not say what is missing
        assert "Could not locate class 'PosteriorHead'" in done.stdout
    np.testing.assert_allclose(np.load(found), head.predict(X), atol=1e-6)
