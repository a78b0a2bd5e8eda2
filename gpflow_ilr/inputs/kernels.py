"""Which kernel, and which inducing variables, belong to which latent function.

The one place that matches them: a kernel may serve all latent functions, or be GPflow's
``SharedIndependent`` or ``SeparateIndependent``; inducing variables may be shared, or a set for each.
Kernels that mix latent functions are refused: every model here takes them to be independent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import (
    InducingVariables,
    MultioutputInducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel, MultioutputKernel, SeparateIndependent, SharedIndependent
from gpflow.mean_functions import MeanFunction, Zero

__all__ = [
    "OutputSpan",
    "check_columns",
    "for_conditional",
    "independent_kernels",
    "output_spans",
]


class OutputSpan(NamedTuple):
    """Latent functions ``start`` to ``stop``, which share a kernel (and inducing variables)."""

    kernel: Kernel
    start: int
    stop: int
    inducing: InducingVariables = None  # type: ignore[assignment]  # exact models have none

    def columns(self, table: tf.Tensor) -> tf.Tensor:
        """The columns of a [..., P] table that belong to the span; a single column serves all.

        :param table: one column for each latent function, or one for all.
        """
        return table if table.shape[-1] == 1 else table[..., self.start : self.stop]

    def mean(self, mean_function: MeanFunction, X: tf.Tensor) -> tf.Tensor | None:
        """The mean function's columns for the span, [N, stop − start], or None if it is zero.

        :param mean_function: of one column, or of one for each latent function.
        :param X: [N, D].
        """
        if type(mean_function) is Zero:
            return None
        columns = self.columns(mean_function(X))
        return tf.broadcast_to(columns, [tf.shape(X)[0], self.stop - self.start])


def independent_kernels(kernel: Any, num_latent_gps: int) -> list[Kernel]:
    """One kernel for all latent functions, or one for each.

    :param kernel: a single-output kernel, ``SharedIndependent`` or ``SeparateIndependent``.
    :param num_latent_gps: number of latent functions.
    :raises TypeError: if it is no kernel, or mixes the latent functions.
    :raises ValueError: if it is made for another number of them.
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(
            "kernel must be a GPflow kernel such as gpflow.kernels.SquaredExponential(), but is "
            f"{kernel!r}."
        )
    if isinstance(kernel, (SharedIndependent, SeparateIndependent)):
        found = kernel.num_latent_gps
        if found != num_latent_gps:
            raise ValueError(
                f"The {type(kernel).__name__} kernel is for {found} latent functions, but the model "
                f"has {num_latent_gps}. Build it for {num_latent_gps}."
            )
        separate = isinstance(kernel, SeparateIndependent)
        return list(kernel.kernels) if separate else [kernel.kernel]
    if isinstance(kernel, MultioutputKernel):
        raise TypeError(
            f"{type(kernel).__name__} mixes the latent functions, which are taken to be independent "
            "here. Pass a single-output kernel, SharedIndependent or SeparateIndependent; a "
            "likelihood mixes latents exactly (ILRSVGP(..., mixing=True), num_latent_gps for a low "
            "rank)."
        )
    return [kernel]


def check_columns(kernel: Kernel, num_columns: int) -> None:
    """Refuse a kernel that is made for other columns than there are.

    TensorFlow would say so in terms of shapes, when the kernel is first computed.

    :param kernel: of any kind; what it is made of is looked at, too.
    :param num_columns: D.
    :raises ValueError: naming the numbers of columns.
    """
    if not type(kernel).__module__.startswith("gpflow."):
        return  # one of the user's own may map columns to others before it gives them to its parts
    parts = getattr(kernel, "kernels", None) or [
        part for part in (getattr(kernel, "kernel", None),) if isinstance(part, Kernel)
    ]
    for part in parts:
        check_columns(part, num_columns)
    if parts:
        return
    columns, name = kernel.active_dims, type(kernel).__name__
    if isinstance(columns, slice):
        active = len(range(*columns.indices(num_columns)))
    else:
        active, last = len(columns), int(np.max(columns, initial=0))
        if last >= num_columns:
            raise ValueError(
                f"kernel has a {name} with active_dims up to {last}, but X has {num_columns} columns, "
                f"which are counted from 0. Use columns up to {num_columns - 1}."
            )
    for parameter in ("lengthscales", "variance"):
        shape: Any = getattr(getattr(kernel, parameter, None), "shape", ())
        if len(shape) == 1 and shape[0] not in (None, 1, active):
            raise ValueError(
                f"kernel has a {name} with {shape[0]} {parameter}, one for each column, but of X it "
                f"sees {active} columns. Pass one, or {active}."
            )


def output_spans(kernel: Any, num_latent_gps: int, inducing: Any = None) -> list[OutputSpan]:
    """The latent functions, in spans that share all there is to share.

    :param kernel: as in :func:`independent_kernels`.
    :param num_latent_gps: number of latent functions.
    :param inducing: inducing variables, common or a set for each; None for a model without.
    :raises TypeError: if the inducing variables are of a kind that mixes latent functions.
    :raises ValueError: if there are too few or too many of anything.
    """
    kernels = independent_kernels(kernel, num_latent_gps)
    sets = _independent_sets(inducing, num_latent_gps)
    if len(kernels) == len(sets) == 1:
        return [OutputSpan(kernels[0], 0, num_latent_gps, sets[0])]
    kernels = kernels * (num_latent_gps // len(kernels))
    sets = sets * (num_latent_gps // len(sets))
    return [OutputSpan(k, p, p + 1, Z) for p, (k, Z) in enumerate(zip(kernels, sets, strict=True))]


def for_conditional(
    kernel: Any, inducing: InducingVariables, num_latent_gps: int
) -> tuple[Kernel, InducingVariables]:
    """Kernel and inducing variables in a combination that GPflow has a conditional for.

    :param kernel: as in :func:`independent_kernels`.
    :param inducing: inducing variables, common or a set for each.
    :param num_latent_gps: number of latent functions.
    :raises TypeError: if something mixes latent functions.
    :raises ValueError: if something does not fit.
    """
    independent_kernels(kernel, num_latent_gps)
    sizes = [int(Z.num_inducing) for Z in _independent_sets(inducing, num_latent_gps)]
    if len(set(sizes)) > 1:
        raise ValueError(
            f"The sets of inducing_variable have sizes {sizes}, but an SVGP needs equally many "
            "inducing inputs for all latent functions. Pass sets of one size."
        )
    shared = not isinstance(inducing, MultioutputInducingVariables)
    if isinstance(kernel, MultioutputKernel) and shared:
        return kernel, SharedIndependentInducingVariables(inducing)
    if not isinstance(kernel, MultioutputKernel) and not shared:
        return SharedIndependent(kernel, output_dim=num_latent_gps), inducing
    return kernel, inducing


def _independent_sets(inducing: Any, num_latent_gps: int) -> list[InducingVariables]:
    """One set of inducing variables for all latent functions, or one for each."""
    if isinstance(inducing, SeparateIndependentInducingVariables):
        sets = list(inducing.inducing_variable_list)
        if len(sets) != num_latent_gps:
            raise ValueError(
                f"inducing_variable has {len(sets)} separate sets, but the model has "
                f"{num_latent_gps} latent functions. Pass a set for each, or one for all."
            )
        return sets
    if isinstance(inducing, SharedIndependentInducingVariables):
        return [inducing.inducing_variable]
    if isinstance(inducing, MultioutputInducingVariables):
        raise TypeError(
            f"inducing_variable is a {type(inducing).__name__}; use an array, InducingPoints, or "
            "Shared- or SeparateIndependentInducingVariables."
        )
    return [inducing]
