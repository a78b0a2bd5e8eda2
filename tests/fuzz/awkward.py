"""Inputs as users have them on a bad day, as Hypothesis strategies: right ones among wrong ones.

Every strategy gives what is right about half of the time, so that an example has few faults and gets
beyond the first check; sizes are small, because nothing here depends on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from hypothesis import strategies as st

import gpflow_ilr as gi

__all__ = [
    "CLASSES",
    "LEVELS",
    "NUMBERS",
    "SEEDS",
    "SEEDS_GIVEN",
    "SIZES",
    "counts",
    "inducing",
    "kernels",
    "labels",
    "latents",
    "mean_functions",
    "nodes",
    "probabilities",
    "rows",
    "weights",
]

CLASSES = st.sampled_from([2, 2, 3, 3, 3, 5, 1000, 1, 0, -1, 2.0, "3", None, True])
SIZES = st.sampled_from([1, 2, 3, 6, 6, 9])
SCALES = st.sampled_from([1.0, 1.0, 1.0, 1.0, 1e-30, 1e5, 1e30, 1e-160, 1e160])
KERNELS = [
    getattr(gpflow.kernels, name)
    for name in [
        "SquaredExponential",
        "SquaredExponential",
        "Matern12",
        "Matern32",
        "Matern52",
        "RationalQuadratic",
        "Exponential",
        "Cosine",
        "Linear",
        "Polynomial",
        "ArcCosine",
        "Constant",
        "White",
    ]
]
SEEDS = st.integers(0, 99)
SEEDS_GIVEN = st.sampled_from([0, 0, 0, 7, np.int64(3), -1, 2.5, "a", None])
LEVELS = st.sampled_from([0.9, 0.9, 0.5, 1e-9, 1 - 1e-12, 1.0, 0.0, -1, 2, "a", np.nan, None])
NUMBERS = st.sampled_from([0.5, 0.99, 1e-6, 1e-30, 1e30, 0.0, 1.0, -1.0, np.nan, np.inf, "a", None])


def _with(place: Any, value: Any) -> Callable[[np.ndarray], np.ndarray]:
    def change(values: np.ndarray) -> np.ndarray:
        changed = values.astype(np.result_type(values, type(value)))
        if changed.size:
            changed[place] = value
        return changed

    return change


VALUES: list[Callable[[np.ndarray], np.ndarray]] = [
    *[lambda x: x] * 8,
    _with((0, 0), np.nan),
    _with((-1, -1), np.inf),
    _with((0, 0), 7e5),
    _with((0, 0), 1e30),
    _with((slice(None), 0), 3.0),  # a constant column
    _with(slice(None), 0.0),
    lambda x: np.repeat(x[:1], len(x), axis=0),  # one row again and again
    lambda x: np.concatenate([x, 1e30 * x], axis=1),
]
FORMS: list[Callable[[np.ndarray], Any]] = [
    *[lambda x: x] * 8,
    lambda x: np.asfortranarray(x),
    lambda x: np.repeat(x, 2, axis=0)[::2],  # not contiguous
    lambda x: x[:, ::-1],
    lambda x: _read_only(x),
    lambda x: x.astype(np.float32),
    lambda x: x.astype(np.float16),
    lambda x: np.sign(x).astype(np.int64),
    lambda x: (x > 0).astype(np.uint8),
    lambda x: x > 0,
    lambda x: x.astype(object),
    lambda x: x.astype(str),
    lambda x: x.astype(complex),
    lambda x: x.tolist(),
    lambda x: [tuple(row) for row in x],
    lambda x: pd.DataFrame(x),
    lambda x: pd.DataFrame(x).astype("Float64"),
    lambda x: pd.DataFrame(x).astype("category"),
    lambda x: tf.constant(x),
    lambda x: tf.Variable(x),
    lambda x: tf.constant(x, tf.bfloat16),
    lambda x: x[:, 0],
    lambda x: x[None],
    lambda x: x[:, :0],
    lambda x: x[:0],
    lambda x: x[:1],
    lambda x: np.ma.masked_invalid(x),
    lambda x: None,
    lambda x: 3.0,
    lambda x: "X",
    lambda x: {"a": x},
]


def _read_only(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values.flags.writeable = False
    return values


@st.composite
def rows(draw: Any, num_rows: int, num_columns: int) -> Any:
    """Inputs X, about [N, D]."""
    values = np.random.default_rng(draw(SEEDS)).standard_normal((num_rows, num_columns))
    values = draw(st.sampled_from(VALUES))(draw(SCALES) * values)
    with np.errstate(all="ignore"):
        return draw(st.sampled_from(FORMS))(values)


def _soft(y: np.ndarray, K: int) -> np.ndarray:
    return 0.9 * np.eye(K)[y] + 0.1 / K


LABELS: list[Callable[[np.ndarray, int], Any]] = [
    *[lambda y, K: y] * 6,
    lambda y, K: np.zeros_like(y),  # one class of K
    lambda y, K: np.full_like(y, K - 1),
    lambda y, K: y[:, None],
    lambda y, K: y.astype(float),
    lambda y, K: y.astype(np.uint8),
    lambda y, K: y.astype(bool),
    lambda y, K: y.tolist(),
    lambda y, K: pd.Series(y),
    lambda y, K: pd.Series(y).astype("category"),
    lambda y, K: pd.Series(y, index=y[::-1]).astype("Int64"),
    lambda y, K: tf.constant(y),
    lambda y, K: np.eye(K)[y],
    _soft,
    lambda y, K: _soft(y, K).tolist(),
    lambda y, K: np.eye(K)[y].T,
    lambda y, K: y + 1,
    lambda y, K: y - 1,
    lambda y, K: y + 0.5,
    lambda y, K: np.where(y == 0, np.nan, y),
    lambda y, K: np.where(y == 0, 1e30, y),
    lambda y, K: y.astype(str),
    lambda y, K: y.astype(object),
    lambda y, K: np.array([None] * len(y)),
    lambda y, K: y[:-1],
    lambda y, K: y[:0],
    lambda y, K: np.eye(K)[y] * 2.0,
    lambda y, K: None,
    lambda y, K: 0,
]


@st.composite
def labels(draw: Any, num_rows: int, num_classes: Any) -> Any:
    """Labels of about N rows and K classes."""
    K = num_classes if type(num_classes) is int and num_classes > 1 else 3
    y = np.random.default_rng(draw(SEEDS)).integers(0, K, num_rows)
    return draw(st.sampled_from(LABELS))(y, K)


@st.composite
def weights(draw: Any, num_rows: int) -> Any:
    """Weights of about N rows, mostly none."""
    given = np.random.default_rng(draw(SEEDS)).uniform(0.0, 2.0, num_rows)
    changes: list[Callable[[np.ndarray], Any]] = [
        *[lambda w: None] * 8,
        lambda w: w,
        lambda w: w.tolist(),
        lambda w: pd.Series(w),
        lambda w: 1e30 * w,
        lambda w: 1e-30 * w,
        lambda w: 0.0 * w,
        lambda w: np.where(np.arange(len(w)), w, 0.0),
        lambda w: -w,
        lambda w: np.nan * w,
        lambda w: w[:-1],
        lambda w: "w",
    ]
    return draw(st.sampled_from(changes))(given)


@st.composite
def kernels(draw: Any, num_columns: int) -> Any:
    """A kernel, mostly of unit variance."""
    k = gpflow.kernels
    kind = draw(st.sampled_from(KERNELS))
    scale = draw(st.sampled_from([1.0, 1.0, 1.0, 1e-30, 1e10, 1e30]))
    stationary = issubclass(kind, k.Stationary)
    wide = draw(st.sampled_from([0, 0, num_columns, num_columns + 1])) if stationary else 0
    options = {"lengthscales": np.full(wide, scale)} if wide else {}
    kernel = kind(variance=scale, **options)
    made: list[Callable[[], Any]] = [
        *[lambda: kernel] * 8,
        lambda: kernel + k.Linear(),
        lambda: k.SquaredExponential(active_dims=[num_columns - 1]),
        lambda: k.SquaredExponential(active_dims=[7]),
        lambda: k.Periodic(k.SquaredExponential()),
        lambda: k.SharedIndependent(kernel, 2),
        lambda: k.SeparateIndependent([kernel, k.Matern32()]),
        lambda: k.LinearCoregionalization([kernel, k.Matern32()], np.ones((2, 2))),
        lambda: None,
        lambda: kind,
    ]
    return draw(st.sampled_from(made))()


@st.composite
def inducing(draw: Any, num_columns: int) -> Any:
    """Inducing inputs, one or more, also more than rows and the same again."""
    Z = draw(rows(draw(st.sampled_from([1, 2, 4, 12])), num_columns))
    forms: list[Callable[[Any], Any]] = [
        *[lambda Z: Z] * 8,
        lambda Z: np.concatenate([Z, Z]) if isinstance(Z, np.ndarray) else Z,
        lambda Z: 5,
    ]
    return draw(st.sampled_from(forms))(Z)


def counts() -> st.SearchStrategy[Any]:
    """Numbers of rows, samples or bins."""
    return st.sampled_from([1, 2, 2, 3, 3, 7, 0, -1, 2.0, 2.5, "2", None, np.int32(2), True])


@st.composite
def latents(draw: Any, num_latents: int) -> tuple[Any, Any]:
    """Means and variances of latents, about [N, L]."""
    rng, N = np.random.default_rng(draw(SEEDS)), draw(SIZES)
    mean = draw(SCALES) * rng.standard_normal((N, num_latents))
    variance = draw(st.sampled_from([0.0, 1.0, 1e-30, 25.0, 900.0, 1e30])) * rng.uniform(
        size=mean.shape
    )
    forms: list[Callable[[np.ndarray], Any]] = [
        *[lambda x: x] * 4,
        lambda x: x.tolist(),
        lambda x: tf.constant(x),
        lambda x: x.astype(np.float32),
        lambda x: x[:, :1],
        lambda x: x[:0],
        lambda x: np.nan * x,
    ]
    form = draw(st.sampled_from(forms))
    return form(mean), form(variance)


def mean_functions(num_latents: int) -> st.SearchStrategy[Any]:
    """A mean function, mostly none."""
    f, L = gpflow.functions, max(num_latents, 1)
    return st.sampled_from(
        [
            *[None] * 4,
            f.Zero(),
            f.Constant(0.3),
            f.Constant(np.full(L, 1e5)),
            f.Constant(np.ones(L + 1)),
            f.Constant(1e30),
            "zero",
            1.0,
        ]
    )


def nodes() -> st.SearchStrategy[Any]:
    """A node rule, mostly none."""
    rules = [gi.Sobol(2), gi.Sobol(64), gi.GaussHermite(3), gi.MonteCarlo(5, seed=0)]
    return st.sampled_from([*[None] * 4, *rules, gi.Sobol, 64, "sobol"])


@st.composite
def probabilities(draw: Any, num_classes: int) -> Any:
    """Class probabilities, about [N, K]."""
    p = np.random.default_rng(draw(SEEDS)).dirichlet(np.ones(num_classes), draw(SIZES))
    forms: list[Callable[[np.ndarray], Any]] = [
        *[lambda p: p] * 4,
        lambda p: p.astype(np.float32),
        lambda p: p.tolist(),
        lambda p: tf.constant(p),
        lambda p: pd.DataFrame(p),
        lambda p: np.eye(num_classes)[np.argmax(p, axis=1)],
        lambda p: 1e30 * p,
        lambda p: p - 0.5,
        lambda p: np.log(p),
        lambda p: p[:0],
        lambda p: p[0],
        lambda p: np.nan * p,
        lambda p: None,
    ]
    return draw(st.sampled_from(forms))(p)
