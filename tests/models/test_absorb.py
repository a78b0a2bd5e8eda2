"""Rows of a stream, absorbed in one pass: equal to a model built on all of them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr import saving
from gpflow_ilr.calibration.criterion import Marginals, MeanNLL
from gpflow_ilr.calibration.search import choose_sharpness
from gpflow_ilr.collapsed.kept import Elsewhere
from tests.models import streams
from tests.models.oracles import XNEW, K, Z, blobs, build, kernel

X, Y = blobs(61)
SOFT = np.random.default_rng(3).dirichlet(np.ones(K), size=len(X))
SMALL = {"batch_size": 8, "sample_size": 10}
CASES = [("ILRSGPR", "fixed"), ("ILRSGPR", "per_output"), ("ILRSGPR", "per_class")]
CASES += [("DirichletSGPR", "per_output")]


def sample(name: str = "ILRSGPR", noise: str = "fixed", **options: Any) -> Any:
    """A model of a few rows, which are part of the stream."""
    return build(name, noise, **({"data": (X[:12], Y[:12])} | options))


def assert_same_posterior(model: Any, other: Any) -> None:
    for ours, theirs in zip(
        model.predict_f(XNEW, full_cov=True), other.predict_f(XNEW, full_cov=True), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    np.testing.assert_allclose(model.predict_y(XNEW)[0], other.predict_y(XNEW)[0], rtol=1e-9)
    np.testing.assert_allclose(model.elbo(), other.elbo(), rtol=1e-9)


def bits(model: Any) -> list[bytes]:
    sums = [value for span in model.known_statistics() for value in span]
    return [np.asarray(value).tobytes() for value in (*sums, *model.data)]


@pytest.mark.parametrize(("name", "noise"), CASES)
def test_absorbing_equals_a_model_built_on_all_rows(name, noise):
    model, whole = sample(name, noise), build(name, noise, data=(X, Y))
    assert model.absorb((X, Y), **SMALL) == len(X)
    assert_same_posterior(model, whole)
    rows = [int(np.flatnonzero((x == X).all(1))[0]) for x in model.data[0].numpy()]
    assert rows == sorted(rows)
    np.testing.assert_array_equal(model.data[1][:, 0], Y[rows])
    for ours, theirs in zip(model.predict_loo(), whole.predict_loo(), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy()[rows], atol=1e-8)


@pytest.mark.parametrize("noise", ["fixed", "per_output"])
def test_soft_labels_and_a_mean_function_are_absorbed(noise):
    options = {"mean_function": gpflow.functions.Constant([0.4])}
    model = sample(noise=noise, **options, data=(X[:12], SOFT[:12]))
    labels = SOFT.copy()
    labels[:8] = np.eye(K)[Y[:8]]  # a batch of certain rows among soft ones
    model.absorb((X, labels), **SMALL)
    assert_same_posterior(model, build("ILRSGPR", noise, data=(X, labels), **options))


def test_inducing_inputs_of_each_output_and_chunks_are_absorbed():
    def separate() -> Any:
        points = [gpflow.inducing_variables.InducingPoints(Z[: 6 - i] + i) for i in range(2)]
        return gpflow.inducing_variables.SeparateIndependentInducingVariables(points)

    model = sample(inducing_variable=separate(), chunk_size=3)
    model.absorb((X, Y), **SMALL)
    assert_same_posterior(model, build("ILRSGPR", data=(X, Y), inducing_variable=separate()))


def test_shards_and_datasets_give_the_bits_of_arrays(tmp_path):
    paths = [tmp_path / f"{i}.npz" for i in range(3)]
    for path, rows in zip(paths, (slice(20), slice(20, 23), slice(23, None)), strict=True):
        np.savez(path, X=X[rows], y=Y[rows])
    dataset = tf.data.Dataset.from_tensor_slices((X, Y))
    expected = sample()
    expected.absorb((X, Y), **SMALL)
    for source in (paths, dataset.batch(5)):
        model = sample()
        model.absorb(source, **SMALL)
        assert bits(model) == bits(expected)


def test_own_rows_are_left_behind_unless_they_are_included():
    model = sample()
    model.absorb((X[12:], Y[12:]), **SMALL)
    assert_same_posterior(model, build("ILRSGPR", data=(X[12:], Y[12:])))
    model = sample()
    model.absorb((X[12:30], Y[12:30]), include_own_rows=True, **SMALL)
    model.absorb((X[30:], Y[30:]), include_own_rows=True, **SMALL)  # and what was absorbed
    assert_same_posterior(model, build("ILRSGPR", data=(X, Y)))
    assert model.num_data == SMALL["sample_size"]


def test_absorbing_again_begins_anew_whatever_the_parameters_are():
    model = sample()
    model.absorb((X, Y), **SMALL)
    model.kernel.lengthscales.assign([0.5, 2.0])
    model.absorb((X[:40], Y[:40]), **SMALL)
    assert_same_posterior(model, build("ILRSGPR", data=(X[:40], Y[:40]), k=model.kernel))


def test_calibration_is_that_of_all_rows_with_the_sample_left_out_in_turn():
    model, whole = sample(), build("ILRSGPR", data=(X, Y))
    model.absorb((X, Y), batch_size=8, sample_size=40)
    rows = np.flatnonzero([(x == model.data[0].numpy()).all(1).any() for x in X])
    assert model.calibrate().num_rows == len(rows) == 40
    held_out = Marginals(*whole.leave_one_out(rows), Y[rows].astype(np.int32))
    sharpness, _ = choose_sharpness(MeanNLL(held_out, whole.code.link))
    np.testing.assert_allclose(model.code.sharpness, sharpness, rtol=1e-9)
    at_noise = (m.loo_at_noise(r)([0.1])[0] for m, r in ((model, np.arange(40)), (whole, rows)))
    for ours, theirs in zip(*(marginals[:3] for marginals in at_noise), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_a_model_that_has_not_all_rows_refuses_what_would_miss_them():
    model = sample()
    model.absorb((X, Y), **SMALL)
    assert model.elsewhere is Elsewhere.SEEN_ONCE
    for compile_loss in (False, True):
        with pytest.raises(ValueError, match=r"would miss them. Train before model.absorb"):
            gpflow.optimizers.Scipy().minimize(
                model.training_loss_closure(compile=compile_loss),
                model.trainable_variables,
                compile=compile_loss,
            )
    model.kernel.variance.assign(2.0)
    with pytest.raises(ValueError, match=r"Take new ones: model.absorb\(dataset\)"):
        model.predict_y(XNEW)


@pytest.mark.parametrize("predicts_first", [False, True])
def test_a_model_trains_again_with_other_data_or_with_all_of_them(predicts_first):
    model, other = sample(), build("ILRSGPR", data=(X[:20], Y[:20]))
    model.absorb((X, Y), **SMALL)
    model.data = X[:20], Y[:20]
    everything = sample()
    everything.absorb((X[:20], Y[:20]), batch_size=8)
    if predicts_first:
        assert_same_posterior(model, other)
    for m in (model, everything):
        assert m.elsewhere is Elsewhere.NOWHERE
        with tf.GradientTape(persistent=True) as tape:
            losses = m.training_loss(), other.training_loss()
        np.testing.assert_allclose(
            tape.gradient(losses[0], m.kernel.trainable_variables[0]),
            tape.gradient(losses[1], other.kernel.trainable_variables[0]),
            rtol=1e-9,
        )


def test_rows_come_and_go_and_models_are_saved_after_absorbing(tmp_path):
    model = sample()
    model.absorb((X[:50], Y[:50]), **SMALL)
    model.update(X[50:], Y[50:])
    saving.save(model, tmp_path / "model")
    loaded = saving.load(tmp_path / "model")
    assert_same_posterior(loaded, build("ILRSGPR", data=(X, Y)))
    loaded.forget(X[50:], Y[50:])
    assert_same_posterior(loaded, build("ILRSGPR", data=(X[:50], Y[:50])))
    assert loaded.elsewhere is Elsewhere.SEEN_ONCE


class CountingKernel(gpflow.kernels.SquaredExponential):
    """Counts how often Python asks it for a matrix."""

    calls = 0

    def K(self, X: Any, X2: Any = None) -> tf.Tensor:
        self.calls += 1
        return super().K(X, X2)


def test_one_graph_serves_all_batches():
    def calls(num_rows: int) -> int:
        counting = CountingKernel()
        sample(k=counting).absorb((X[:num_rows], Y[:num_rows]), **SMALL)
        return counting.calls

    assert calls(12) == calls(61)


def test_progress_is_told(capsys):
    told: list[int] = []
    sample().absorb((X, Y), progress=lambda rows, seconds: told.append(rows), **SMALL)
    assert told[-1] == len(X)
    sample().absorb((X, Y), progress=True, **SMALL)
    assert capsys.readouterr().err.endswith(" a second\n")


# Rows that make no sense


@pytest.mark.parametrize(
    ("position", "change", "pattern"),
    [
        (29, lambda x, y: x.__setitem__((29, 1), np.nan), "finite, but row 29, column 1 is nan"),
        (33, lambda x, y: y.__setitem__(33, K), "row 33"),
    ],
)
def test_a_bad_row_is_named_by_its_place_in_the_stream_and_changes_nothing(
    position, change, pattern
):
    model = sample()
    before = model.predict_y(XNEW)[0]
    rows = X.copy(), Y.copy()
    change(*rows)
    with pytest.raises(ValueError, match=pattern) as error:
        model.absorb(rows, **SMALL)
    assert f"begins at row {position // 8 * 8}" in str(error.value)
    assert model.num_data == 12
    np.testing.assert_array_equal(model.predict_y(XNEW)[0], before)


@pytest.mark.parametrize(
    ("dataset", "pattern"),
    [
        ((X[:, :1], Y), "1 columns, but the training data have 2"),
        ((X, SOFT), "The model has hard labels, but the batch of dataset that begins at row 0"),
        ((X[:0], Y[:0]), "dataset must have at least one row"),
        ((X[:7], Y[:6]), "X has 7 rows and y has 6"),
    ],
)
def test_a_dataset_that_does_not_fit_is_refused(dataset, pattern):
    with pytest.raises(ValueError, match=pattern):
        sample().absorb(dataset, **SMALL)


# Interruptions


class StopAfter:
    """Rows of an array, which fail to be read after some."""

    def __init__(self, values: np.ndarray, num_rows: int) -> None:
        self.values, self.num_rows = values, num_rows

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> np.ndarray:
        if rows.start >= self.num_rows:
            raise KeyboardInterrupt
        return self.values[rows]


def interrupted(path: Path, num_rows: int = 30, **options: Any) -> None:
    options = SMALL | {"checkpoint": path, "checkpoint_every": 0.0} | options
    with pytest.raises(KeyboardInterrupt):
        sample("DirichletSGPR").absorb((StopAfter(X, num_rows), Y), **options)


@pytest.mark.parametrize("own", [False, True])
def test_an_interrupted_pass_continues_to_the_same_bits(own, tmp_path):
    expected = sample("DirichletSGPR")
    expected.absorb((X, Y), include_own_rows=own, **SMALL)
    path = tmp_path / "checkpoint"
    interrupted(path, include_own_rows=own)
    read = np.r_[np.full((16, 2), np.nan), X[16:]]  # rows before the last batch are not looked at
    for _ in range(2):  # the second finds nothing left to do
        model, told = sample("DirichletSGPR"), []
        options = {"checkpoint": path, "progress": lambda rows, _, told=told: told.append(rows)}
        assert model.absorb((read, Y), include_own_rows=own, **SMALL, **options) == len(X)
        assert bits(model) == bits(expected)
        assert told[-1] in (len(X) - 32, 0)
    assert not list(tmp_path.glob("*.unfinished"))
    if own:
        with pytest.raises(ValueError, match=r"include_own_rows=True \(.*now"):
            sample("DirichletSGPR", data=(X[1:], Y[1:])).absorb(
                (X, Y), include_own_rows=True, checkpoint=path, **SMALL
            )


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    path = tmp_path / "checkpoint"
    interrupted(path)
    options = SMALL | {"checkpoint": path}
    other = sample("DirichletSGPR")
    other.kernel.lengthscales.assign([1.3, 0.8 + 1e-6])
    moved = sample("DirichletSGPR", inducing_variable=Z + np.array([0.0, 1e-6]))
    shuffled = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(61, seed=1)
    for model, dataset, changed, pattern in (
        (other, (X, Y), {}, "other hyperparameters"),
        (moved, (X, Y), {}, "other hyperparameters"),
        (sample("ILRSGPR"), (X, Y), {}, "of another model"),
        (sample("DirichletSGPR"), (X + 1e-9, Y), {}, "of another dataset"),
        (sample("DirichletSGPR"), (X[:20], Y[:20]), {}, "of another dataset"),
        (sample("DirichletSGPR"), shuffled, {}, "another order at every reading"),
        (sample("DirichletSGPR"), (X, Y), {"batch_size": 9}, "batch_size=8.*now batch_size=9"),
    ):
        with pytest.raises(ValueError, match=pattern):
            model.absorb(dataset, **(options | changed))
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="was not written by absorb"):
        sample("DirichletSGPR").absorb((X, Y), **options)


def test_noise_and_smoothing_may_change_while_a_pass_is_interrupted(tmp_path):
    path = tmp_path / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        sample(noise="shared").absorb(
            (StopAfter(X, 30), Y), checkpoint=path, checkpoint_every=0.0, **SMALL
        )
    model = sample(noise="shared", smoothing=0.9)
    model.code.extra_noise.assign([[0.3]])
    model.absorb((X, Y), checkpoint=path, **SMALL)
    whole = build("ILRSGPR", "shared", data=(X, Y), smoothing=0.9, k=kernel())
    whole.code.extra_noise.assign([[0.3]])
    assert_same_posterior(model, whole)


@pytest.mark.slow
def test_a_killed_process_used_constant_memory_and_is_continued_to_the_same_bits(tmp_path):
    path, environment = tmp_path / "checkpoint", {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    memory = {}
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.models.streams", os.fspath(path)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            number, kilobytes = map(int, line.split())
            memory[number] = kilobytes
            if number == 150:
                process.kill()
    # 120 batches were 63 MB of rows.
    assert memory[150] - memory[30] < 15_000, memory
    model, uninterrupted = streams.small_model(), streams.small_model()
    model.absorb(streams.stream(170), checkpoint=path, **streams.OPTIONS)
    uninterrupted.absorb(streams.stream(170), **streams.OPTIONS)
    assert bits(model) == bits(uninterrupted)
