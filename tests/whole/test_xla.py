"""XLA compiles predictions of every model, whatever the number of rows, and changes none of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_ilr.augmented import sampled
from gpflow_ilr.expectations import softmax
from gpflow_ilr.linalg import nearest
from gpflow_ilr.models import conjugate, neighbours
from tests.whole.test_guard import MODELS, Case, name_of

pytestmark = pytest.mark.slow
WITH_CACHE = [case for case in MODELS if not case.cls.__name__.endswith("SoftmaxGP")]
TOLERANCES = {"ILRSGPR": 1e-8}
"""XLA's eigensolver stops early: it errs by 6e-9 of the largest element of a matrix of six rows, and
the probabilities of the one model that needs it by 1.3e-9 here. All others differ by 1e-15."""
MANY = np.random.default_rng(5).standard_normal((23, 2))


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few rows, so that 23 of them are several."""

    monkeypatch.setattr(conjugate, "_CHUNK_ELEMENTS", 100)
    monkeypatch.setattr(nearest, "_CHUNK_ELEMENTS", 60)
    monkeypatch.setattr(neighbours, "_CHUNK_ELEMENTS", 300)
    monkeypatch.setattr(softmax, "CHUNK_ELEMENTS", 4000)
    monkeypatch.setattr(sampled, "_CHUNK_ELEMENTS", 20_000)


def assert_compiles(predict: Callable[..., Any], tolerance: float) -> None:
    rows = [MANY, MANY[:5], MANY[:0]]
    any_number = tf.function(
        predict,
        jit_compile=True,
        autograph=False,
        input_signature=[tf.TensorSpec([None, 2], tf.float64)],
    )
    static = tf.function(predict, jit_compile=True, autograph=False)
    for compiled, Xnew in [*((any_number, x) for x in rows), (static, tf.constant(MANY))]:
        for ours, eager in zip(compiled(Xnew), predict(Xnew), strict=True):
            assert ours.shape == eager.shape
            np.testing.assert_allclose(ours, eager, rtol=0, atol=tolerance)


@pytest.mark.parametrize("case", MODELS, ids=name_of)
def test_predictions_compile_for_any_number_of_rows(case: Case) -> None:
    model = case.build()
    tolerance = TOLERANCES.get(name_of(case), 1e-12)
    assert_compiles(lambda Xnew: model.predict_y(Xnew), tolerance)


@pytest.mark.parametrize("case", WITH_CACHE, ids=name_of)
def test_cached_predictions_compile_for_any_number_of_rows(case: Case) -> None:
    cached = case.build().posterior()
    # What needs an eigensolver is in the cache, which is not compiled.
    # The posteriors of SVGPs are GPflow's, for latent functions only.
    predict = getattr(cached, "predict_y", cached.predict_f)
    assert_compiles(lambda Xnew: predict(Xnew), 1e-12)
