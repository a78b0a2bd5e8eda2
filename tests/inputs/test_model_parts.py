"""Claims about what a model is made of beside data and kernel."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr.inputs.model_parts import (
    as_inducing_variable,
    check_function,
    check_model,
    check_num_data,
)

Z = np.arange(6.0).reshape(3, 2)


def test_inducing_variables_are_kept_and_rows_become_points() -> None:
    variable = gpflow.inducing_variables.InducingPoints(Z)
    assert as_inducing_variable(variable) is variable
    for given in (Z, Z.tolist(), tf.constant(Z), Z.astype(int)):
        points = as_inducing_variable(given)
        assert type(points) is gpflow.inducing_variables.InducingPoints
        np.testing.assert_array_equal(points.Z, Z)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (20, r"is the number 20. Pass rows: kmeans_plusplus\(X, 20\)"),
        (None, "inducing_variable must be an array"),
        (Z[:, 0], r"inducing_variable must have shape \[N, D\], but has \[3\]"),
        (np.full([2, 2], np.inf), "inducing_variable must be finite, but row 0, column 0 is inf"),
    ],
)
def test_what_are_no_inducing_inputs_is_refused(given: object, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        as_inducing_variable(given)


def test_functions_can_be_called_or_are_left_out() -> None:
    check_function("callback", None, "print")
    check_function("callback", print, "print")
    with pytest.raises(
        TypeError, match=r"callback must be a function, or None, but is 3\. Pass print"
    ):
        check_function("callback", 3, "print")


def test_numbers_of_rows_are_positive_integers_tensors_or_unknown() -> None:
    for given in (None, 5, np.int64(5), tf.constant(5)):
        check_num_data(given)
    for given in (0, -1, 2.5, "5"):
        with pytest.raises(ValueError, match="num_data must be an integer of at least 1"):
            check_num_data(given)


def test_models_are_of_gpflow() -> None:
    kernel = gpflow.kernels.Matern52()
    check_model(gi.ILRGPR((Z, [0, 1, 0]), kernel, num_classes=2))
    check_model(gpflow.models.GPR((Z, Z), kernel))
    for given, what in (
        (kernel, "of type Matern52"),
        (Z, r"\[3, 2\]"),
        (gi.ILRGPR, "the class ILRGPR"),
    ):
        with pytest.raises(TypeError, match=f"model must be a model of GPflow.*{what}.*Build one"):
            check_model(given)
