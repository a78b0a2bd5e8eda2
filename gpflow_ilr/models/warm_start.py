"""Starting an uncollapsed model from a fitted collapsed one.

The collapsed posterior is a Gaussian q(u) in closed form, so an SVGP can start at it instead of at the
prior. The kernel is copied in the units of the new model: k of f/L becomes L² k of f.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from gpflow.kernels import Constant, Kernel, Product, SeparateIndependent, SharedIndependent, Sum
from gpflow.mean_functions import Constant as ConstantMean
from gpflow.mean_functions import Product as ProductMean
from gpflow.mean_functions import Zero
from gpflow.utilities import deepcopy

from gpflow_ilr.models.collapsed import CollapsedClassifier

__all__ = ["scaled_kernel", "variational_start"]


def variational_start(model: CollapsedClassifier, scale: float) -> dict[str, Any]:
    """Kernel, inducing inputs, mean function and whitened q(u) of scale · f, as SVGP's arguments.

    :param model: a fitted collapsed model.
    :param scale: factor from the model's internal units to those of the new latents.
    """
    q_mu, q_sqrt = [], []
    for q in model._posteriors():
        identity = tf.eye(q.mean.shape[0], dtype=q.mean.dtype)
        root = tf.linalg.cholesky(q.covariance(identity))
        q_mu.append(q.mean)
        q_sqrt.append(tf.repeat(root, q.mean.shape[1] // root.shape[0], axis=0))
    mean_function = None
    if type(model.mean_function) is not Zero:
        mean_function = ProductMean(ConstantMean([scale]), deepcopy(model.mean_function))
    return {
        "kernel": scaled_kernel(deepcopy(model.kernel), scale**2),
        "inducing_variable": deepcopy(model.inducing_variable),
        "mean_function": mean_function,
        "q_mu": tf.concat(q_mu, axis=1),
        "q_sqrt": tf.concat(q_sqrt, axis=0),
    }


def scaled_kernel(kernel: Kernel, factor: float) -> Kernel:
    """The kernel factor · k, by its own variance where it has one, otherwise by a constant kernel.

    :param kernel: the kernel; it is changed in place where that is possible.
    :param factor: positive factor.
    """
    if isinstance(kernel, SharedIndependent):
        return SharedIndependent(scaled_kernel(kernel.kernel, factor), kernel.num_latent_gps)
    if isinstance(kernel, SeparateIndependent):
        return SeparateIndependent([scaled_kernel(k, factor) for k in kernel.kernels])
    if isinstance(kernel, Sum):
        return Sum([scaled_kernel(k, factor) for k in kernel.kernels])
    if isinstance(kernel, Product):
        first, *others = kernel.kernels
        return Product([scaled_kernel(first, factor), *others])
    if hasattr(kernel, "variance"):
        kernel.variance.assign(factor * kernel.variance)
        return kernel
    constant = Constant(factor)
    constant.variance.trainable = False  # type: ignore[misc]
    return Product([constant, kernel])
