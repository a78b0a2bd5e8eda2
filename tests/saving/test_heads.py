"""A head that was saved goes on as the one that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest

from gpflow_ilr import Sobol, saving
from gpflow_ilr.saving.heads import SavedHead
from tests.heads.stacks import IMAGES, STACKS, K, N, Stack, X, Y

FEW = {"max_steps": 4, "check_every": 2, "row_weights": 1.0}


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest) -> Stack:
    return STACKS[request.param]


@saving.register
def rough() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern32() + gpflow.kernels.Constant()


OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "in one pass": {"sample_size": 10},
    "all": {"kernel": rough, "nodes": Sobol(512, seed=3), "gp_dtype": "float32", "seed": 1},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_updates_of_a_loaded_head_are_those_of_the_saved_one(
    stack: Stack, options: dict[str, Any], tmp_path: Path
) -> None:
    network = stack.door.feature_network(stack.classifier())
    head = stack.closed_form(network=network, **options)
    head.fit((IMAGES[:16], Y[:16]), validation=(IMAGES, Y))
    assert head.save(tmp_path / "head") == (tmp_path / "head").stat().st_size
    loaded = stack.door.ClosedFormHead.load(tmp_path / "head", network)
    assert type(loaded) is type(head)
    np.testing.assert_array_equal(loaded.predict(IMAGES), head.predict(IMAGES))
    for each in (head, loaded):
        each.update(IMAGES[16:], Y[16:])
        each.update(IMAGES[:2], [K, K], num_classes=K + 1)
    assert loaded.num_rows == head.num_rows == N + 2
    np.testing.assert_allclose(loaded.predict(IMAGES), head.predict(IMAGES), rtol=1e-9)
    for each in (head, loaded):
        each.calibrate((IMAGES, Y))
    np.testing.assert_allclose(loaded.predict(IMAGES), head.predict(IMAGES), rtol=1e-9)
    attached = loaded.attach().predict(IMAGES, verbose=0)
    np.testing.assert_array_equal(attached, head.attach().predict(IMAGES, verbose=0))
    for each in (head, loaded):  # all over again, by its options
        each.fit((IMAGES, Y), validation=(IMAGES, Y))
    np.testing.assert_array_equal(loaded.predict(IMAGES), head.predict(IMAGES))


def test_what_was_polished_is_saved_and_polishing_goes_on(tmp_path: Path) -> None:
    stack = STACKS["keras"]
    rows = (X, Y)
    overlapping = (X, np.where(np.arange(N) % 3 == 0, (Y + 1) % K, Y))
    head = stack.closed_form()
    head.fit(rows, validation=rows, network_saw_rows=False)
    head.polish(overlapping, validation=overlapping, **FEW)
    assert head.polished is not None
    head.save(tmp_path / "head")
    loaded = stack.door.ClosedFormHead.load(tmp_path / "head")
    assert not loaded.network_saw_rows
    np.testing.assert_array_equal(loaded.predict(X), head.predict(X))
    attached = [each.attach().predict(X, verbose=0) for each in (head, loaded)]
    np.testing.assert_array_equal(*attached)
    found = [each.polish(rows, validation=overlapping, **FEW) for each in (head, loaded)]
    assert found[1].nll_after == pytest.approx(found[0].nll_after, rel=1e-9)


def test_what_is_no_head_is_refused(stack: Stack, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"call head.fit\(\(X, y\)\) first"):
        stack.closed_form().save(tmp_path / "head")
    head = stack.closed_form(kernel=lambda: gpflow.kernels.Matern12())
    head.fit((X, Y), validation=(X, Y))
    with pytest.raises(ValueError, match=r"kernel.* cannot be saved.* gpflow_ilr.saving.register"):
        head.save(tmp_path / "head")
    with head.precision():
        saving.save(head.model, tmp_path / "model")
    load = stack.door.ClosedFormHead.load
    with pytest.raises(ValueError, match=r"has a ILRSGPR, not a head\. Load it with"):
        load(tmp_path / "model")
    (tmp_path / "text").write_text("no model")
    with pytest.raises(ValueError, match="cannot be loaded"):
        load(tmp_path / "text")
    with pytest.raises(FileNotFoundError, match="is no file"):
        load(tmp_path / "nothing")


def test_a_head_without_one_of_its_parts_is_refused(stack: Stack, tmp_path: Path) -> None:
    head = stack.closed_form()
    head.fit((X, Y), validation=(X, Y))
    part = SavedHead(head)
    del part.num_rows
    with head.precision():
        saving.save(part, tmp_path / "part")
    with pytest.raises(ValueError, match="has a head without num_rows: save it again"):
        stack.door.ClosedFormHead.load(tmp_path / "part")
