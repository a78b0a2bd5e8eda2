"""Under load: threads give what one gives, memory stays, and a seed gives the same numbers again."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr import saving
from gpflow_ilr.models import ILRGPR, ILRNNGPR, ILRSGPR, ILRSVGP
from gpflow_ilr.sklearn import ILRClassifier
from tests.linalg.memory import resident_bytes
from tests.whole.test_guard import MODELS, K, X, Y, Z, kernel, name_of

NUM_THREADS, NUM_CALLS = 8, 5
BATCHES = [np.random.default_rng(i).standard_normal((3 + i % 4, 2)) for i in range(NUM_THREADS)]
ROOT = Path(__file__).parents[2]


def check_threads(predict: Callable[[np.ndarray], Any]) -> None:
    """Eight threads that predict batches of their own, again and again, equal one after the other."""
    serial = [np.asarray(predict(batch)) for batch in BATCHES]

    def work(number: int) -> list[np.ndarray]:
        return [np.asarray(predict(BATCHES[number])) for _ in range(NUM_CALLS)]

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        for expected, found in zip(serial, pool.map(work, range(NUM_THREADS)), strict=True):
            for p in found:
                np.testing.assert_allclose(p, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("case", MODELS, ids=name_of)
def test_threads_on_one_model_equal_one_thread(case: Any) -> None:
    model = case.build()
    check_threads(lambda batch: model.predict_y(batch)[0])


def cases(*classes: type) -> Any:
    some = [case for case in MODELS if case.cls in classes]
    assert len(some) == len(classes)
    return pytest.mark.parametrize("case", some, ids=name_of)


@cases(ILRGPR, ILRSGPR, ILRNNGPR, ILRSVGP)
def test_threads_on_one_posterior_equal_one_thread(case: Any) -> None:
    posterior = case.build().posterior()

    def predict(batch: Any) -> tf.Tensor:
        if hasattr(posterior, "predict_y"):
            return posterior.predict_y(batch)[0]
        return tf.concat(posterior.predict_f(batch), axis=-1)  # that of an SVGP knows latents only

    check_threads(predict)
    compiled = tf.function(predict, autograph=False)
    check_threads(lambda batch: compiled(tf.constant(batch)))


@cases(ILRSGPR, ILRSVGP)
def test_threads_on_one_saved_model_equal_one_thread(case: Any, tmp_path: Path) -> None:
    saving.export_saved_model(case.build(), tmp_path / "model")
    loaded = tf.saved_model.load(os.fspath(tmp_path / "model"))
    check_threads(lambda batch: loaded.predict_proba(tf.constant(batch))["probabilities"])


def test_threads_on_one_estimator_equal_one_thread() -> None:
    estimator = ILRClassifier(time_limit=0.1, random_state=0).fit(X, Y)
    check_threads(estimator.predict_proba)


# Memory


def growth(work: Callable[[], Any], warm_up: int, repetitions: int) -> float:
    """By what share the memory of the process grows while work is done again and again."""
    for _ in range(warm_up):
        work()
    before = _bytes_in_use()
    for _ in range(repetitions):
        work()
    return _bytes_in_use() / before - 1.0


def _bytes_in_use() -> int:
    """What is left when garbage is collected and the allocator has given back what is free."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)
    return resident_bytes()


@pytest.mark.slow
def test_ten_thousand_predictions_leave_no_memory_behind() -> None:
    model = ILRSGPR((X, Y), kernel(), Z, num_classes=K)
    posterior = model.posterior()
    batch = BATCHES[0]
    compiled = tf.function(posterior.predict_y, autograph=False)
    # A call outside a graph takes twenty times as long, so there are fewer, which may leave less. (Of
    # 400 calls a memory of one gigabyte grew by 1e-4, all of it in the first hundred.)
    for predict, count, most in (
        (compiled, 9_800, 0.05),
        (posterior.predict_y, 100, 0.005),
        (model.predict_y, 100, 0.005),
    ):
        assert growth(lambda predict=predict: predict(batch), 20, count) < most


@pytest.mark.slow
@pytest.mark.parametrize("cls", [ILRGPR, ILRSGPR, ILRNNGPR])
def test_a_thousand_updates_leave_no_memory_behind(cls: Any) -> None:
    inducing = [Z] if cls is ILRSGPR else []
    model = cls((X, Y), gpflow.kernels.SquaredExponential(), *inducing, num_classes=K)

    def work() -> None:
        model.update(BATCHES[0], [0, 1, 2])
        model.forget(BATCHES[0], [0, 1, 2])

    # Five hundred that add rows and as many that remove them; each may leave as much as of a thousand
    # pairs, which take twice as long.
    assert growth(work, 20, 500) < 0.025


# Seeds

PROGRAM = """
import json, sys
import numpy as np, tensorflow as tf
threads = int(sys.argv[1])
tf.config.threading.set_intra_op_parallelism_threads(threads)
tf.config.threading.set_inter_op_parallelism_threads(threads)
import warnings
warnings.simplefilter("ignore")
import gpflow_ilr as gi
from gpflow_ilr.sklearn import ILRClassifier
from gpflow_ilr.training import few_rows, fit
from tests.whole.test_guard import K, X, XNEW, Y, Z, kernel
sgpr = gi.ILRSGPR((X, Y), kernel(), gi.kmeans_plusplus(X, 4, seed=1), num_classes=K)
fit(sgpr, max_iterations=3, seed=1)
svgp = gi.ILRSVGP(kernel(), Z, num_classes=K, num_data=9)
fit(svgp, (X, Y), method="adam", max_iterations=3, batch_size=4, seed=1)
lsm = gi.LogisticSoftmaxGP((X, Y), kernel(), num_classes=K)
lsm.sample(num_samples=3, num_burnin=3, num_chains=2, seed=1)
# The estimator tries planes in one scaling, ten natural gradients from them and the mixture, and takes
# all the time that it wants: no clock decides what it tries.
few_rows.FAMILIES, few_rows.LINEAR_FAMILIES = {}, (few_rows.LINEAR,)
few_rows.suitable_scalings = lambda X: ["standardised"]
few_rows.MAX_STEPS = few_rows.CHECK_EVERY
rows = np.random.default_rng(0).standard_normal((60, 2))
labels = (rows[:, 0] > 0.0).astype(int) + (rows[:, 1] > 0.5)
estimator = ILRClassifier(time_limit=1e6, random_state=1).fit(rows, labels)
found = [m.predict_y(XNEW)[0].numpy().tolist() for m in (sgpr, svgp, lsm)]
print(json.dumps([*found, estimator.predict_proba(XNEW).tolist()]))
"""


def probabilities_of_a_process(num_threads: int) -> np.ndarray:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([os.fspath(ROOT), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": str(num_threads),
    }
    program = [sys.executable, "-c", PROGRAM, str(num_threads)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    return np.array(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
def test_a_seed_gives_the_same_numbers_in_every_process_and_with_every_number_of_threads() -> None:
    one, again, two = (probabilities_of_a_process(n) for n in (1, 1, 2))
    np.testing.assert_array_equal(again, one)
    np.testing.assert_allclose(two, one, rtol=1e-8)
