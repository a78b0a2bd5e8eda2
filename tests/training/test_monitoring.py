"""Claims about calibration in TensorBoard: the event file, read back, has it."""

import sys

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr.training import CalibrationToTensorBoard, fit

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
TRAIN, HELD_OUT = (X[:40], Y[:40]), (X[40:], Y[40:])


def exact() -> gi.ILRGPR:
    return gi.ILRGPR(TRAIN, gi.starting_kernel(X, 3), num_classes=3)


def events_of(folder) -> dict[str, list]:
    """What an event file has, (step, value) by tag."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    return {
        tag: [(e.step, tf.make_ndarray(e.tensor_proto)) for e in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> tuple:
    pytest.importorskip("tensorboard")
    pytest.importorskip("matplotlib")
    folder, model, seen = tmp_path_factory.mktemp("logs"), exact(), {}
    task = CalibrationToTensorBoard(folder, model, HELD_OUT)
    monitor = gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup(task, period=2))

    def note(step: int, _: float) -> None:
        seen[step] = model.predict_y(HELD_OUT[0])[0].numpy()

    fit(model, max_iterations=5, callback=note, monitor=monitor)
    return events_of(folder), seen


def test_scalars_of_every_other_step_are_in_the_event_file(written: tuple) -> None:
    events, seen = written
    expected = {
        "NLL": gi.metrics.negative_log_likelihood,
        "accuracy": gi.metrics.accuracy,
        "ECE": gi.metrics.expected_calibration_error,
    }
    for name, metric in expected.items():
        entries = events[f"calibration/{name}"]
        assert [step for step, _ in entries] == [2, 4]
        for step, value in entries:
            assert float(value) == pytest.approx(metric(seen[step], HELD_OUT[1]), rel=1e-5)


def test_the_reliability_picture_is_in_the_event_file(written: tuple) -> None:
    events, _ = written
    (step, (width, height, encoded)), *_ = events["calibration/reliability"]
    assert step == 2
    image = tf.io.decode_png(encoded).numpy()
    assert image.shape[:2] == (int(height), int(width))
    assert len(np.unique(image.reshape(-1, image.shape[-1]), axis=0)) > 10  # not a blank sheet


def test_the_picture_can_be_left_out(tmp_path) -> None:
    pytest.importorskip("tensorboard")
    task = CalibrationToTensorBoard(tmp_path, exact(), HELD_OUT, picture=False, name="mine")
    task(7)
    assert set(events_of(tmp_path)) == {"mine/NLL", "mine/accuracy", "mine/ECE"}


def test_without_tensorboard_it_says_what_to_install(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match=r"pip install 'gpflow_ilr\[tensorboard\]'"):
        CalibrationToTensorBoard(tmp_path, exact(), HELD_OUT)
