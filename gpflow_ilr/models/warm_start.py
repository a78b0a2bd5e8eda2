"""Starting an uncollapsed model from a fitted collapsed one.

The collapsed posterior is a Gaussian q(u) in closed form, so an SVGP can start at it instead of at the
prior. The kernel is copied in the units of the new model: k of f/L becomes L² k of f.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from gpflow import kernels
from gpflow.kernels import Kernel, Product, SeparateIndependent, SharedIndependent
from gpflow.mean_functions import Constant as ConstantMean
from gpflow.mean_functions import Product as ProductMean
from gpflow.mean_functions import Zero
from gpflow.utilities import deepcopy, set_trainable

from gpflow_ilr.linalg.inverse_factors import cholesky_or_error
from gpflow_ilr.models.collapsed import CollapsedClassifier

__all__ = ["scaled_kernel", "variational_start"]


def variational_start(model: CollapsedClassifier, scale: float) -> dict[str, Any]:
    """Kernel, inducing inputs, mean function and whitened q(u) of scale · f, as SVGP's arguments.

    :param model: a fitted collapsed model.
    :param scale: factor from the model's internal units to those of the new latents.
    :raises ValueError: if the sets of inducing inputs differ in size, which SVGP cannot have.
    """
    spans = model.output_spans
    sizes = {int(span.inducing.num_inducing) for span in spans}
    if len(sizes) > 1:
        raise ValueError(
            "An SVGP needs equally many inducing inputs for all latents, but the model's sets have "
            f"{', '.join(map(str, sorted(sizes)))}. Use sets of one size."
        )
    q_mu, q_sqrt = [], []
    for q in model.whitened_posteriors():  # whitened with the same jitter as an SVGP's
        covariance = q.covariance(tf.eye(q.mean.shape[0], dtype=q.mean.dtype))
        root = cholesky_or_error(covariance, "the covariance of q(u)")
        q_mu.append(q.mean)
        q_sqrt.append(tf.repeat(root, q.mean.shape[1] // root.shape[0], axis=0))
    mean_function = None
    if type(model.mean_function) is not Zero:
        factor = ConstantMean([scale])
        set_trainable(factor, False)
        mean_function = ProductMean(factor, deepcopy(model.mean_function))
    return {
        "kernel": scaled_kernel(deepcopy(model.kernel), scale**2),
        "inducing_variable": deepcopy(model.inducing_variable),
        "mean_function": mean_function,
        "q_mu": tf.concat(q_mu, axis=1),
        "q_sqrt": tf.concat(q_sqrt, axis=0),
    }


def scaled_kernel(kernel: Kernel, factor: float) -> Kernel:
    """The kernel factor · k, by its own variance where that is safe, otherwise by a constant kernel.

    :param kernel: the kernel; it is changed in place where that is possible.
    :param factor: positive factor.
    """
    if isinstance(kernel, SharedIndependent):
        return SharedIndependent(scaled_kernel(kernel.kernel, factor), kernel.num_latent_gps)
    if isinstance(kernel, SeparateIndependent):
        variances = [id(k.variance) for k in kernel.kernels if hasattr(k, "variance")]
        tied = len(set(variances)) < len(variances)  # in place it would be scaled repeatedly
        scale = _times_constant if tied else scaled_kernel
        return SeparateIndependent([scale(k, factor) for k in kernel.kernels])
    if not _has_amplitude(kernel):
        return _times_constant(kernel, factor)
    try:
        kernel.variance.assign(factor * kernel.variance)
    except tf.errors.InvalidArgumentError:  # outside the bounds that its transform sets
        return _times_constant(kernel, factor)
    return kernel


def _has_amplitude(kernel: Kernel) -> bool:
    """Whether k is proportional to its variance, and no prior ties that to the old units."""
    known = (kernels.Stationary, kernels.Static, kernels.ArcCosine)
    # A polynomial is a Linear too, but has its variance inside the power.
    proportional = isinstance(kernel, known) or type(kernel) is kernels.Linear
    return proportional and kernel.variance.prior is None


def _times_constant(kernel: Kernel, factor: float) -> Kernel:
    constant = kernels.Constant(factor)
    set_trainable(constant, False)
    return Product([constant, kernel])
