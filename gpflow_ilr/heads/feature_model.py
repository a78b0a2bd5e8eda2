"""A collapsed model of features before training: its kernel and inducing inputs fit a sample of them.

The kernel ``"Linear"`` has finite rank, so D + 1 points that span the features and the bias lose
nothing; any other kernel gets rows that are spread by distance. Weights of rows count in the evidence
and in the posterior; where inducing inputs and the lengthscale start, each row counts once.
"""

from __future__ import annotations

import numpy as np
from gpflow.kernels import Kernel
from gpflow.utilities import set_trainable

from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.heads.gp_layer import LINEAR, KernelSpec, make_kernel
from gpflow_ilr.inputs.rows import LabelledRows
from gpflow_ilr.models import ILRSGPR
from gpflow_ilr.starting import kmeans_plusplus, starting_kernel

__all__ = ["feature_model"]


def feature_model(
    rows: LabelledRows,
    num_classes: int,
    kernel: KernelSpec,
    num_inducing: int,
    nodes: NodeRule | None = None,
    seed: int = 0,
) -> ILRSGPR:
    """The collapsed model of a sample of features, as training finds it.

    :param rows: features, labels and, if there are some, weights.
    :param num_classes: K.
    :param kernel: as :func:`~gpflow_ilr.heads.gp_layer.check_kernel` returned it.
    :param num_inducing: M; at most as many as there are rows, and not used by ``"Linear"``.
    :param nodes: node rule of the predictive probabilities.
    :param seed: of the inducing inputs.
    """
    F = rows.X.numpy()
    usual = starting_kernel(F, num_classes)
    variance, lengthscale = (float(p.numpy()) for p in (usual.variance, usual.lengthscales))
    if kernel == LINEAR:
        made, Z = _linear_start(F, rows.known_weights.numpy(), variance)
    else:
        made = make_kernel(kernel, variance, lengthscale)
        Z = kmeans_plusplus(F, min(num_inducing, len(F)), seed)
    model = ILRSGPR(tuple(rows.tensors), made, Z, num_classes=num_classes, nodes=nodes)
    if kernel == LINEAR:  # any points that span the features do
        set_trainable(model.inducing_variable, False)
    return model


def _linear_start(F: np.ndarray, weights: np.ndarray, variance: float) -> tuple[Kernel, np.ndarray]:
    """hᵀh' and the bias with equal shares; points at the features' own scale, which span them."""
    size = float(np.sqrt(np.average(np.sum(np.square(F), axis=1), weights=weights))) or 1.0
    kernel = make_kernel(LINEAR, variance, 1.0)
    kernel.kernels[0].variance.assign(variance / size**2)
    return kernel, np.vstack([size * np.eye(F.shape[1]), np.zeros([1, F.shape[1]])])
