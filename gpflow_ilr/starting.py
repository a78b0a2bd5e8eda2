"""Starting values: a kernel that fits the data's scales, and inducing inputs that cover them.

Training is local, so where it starts matters. A kernel wants a lengthscale near the typical distance
between rows and the amplitude of the code's targets (1/K in the unit ILR code, which users should not
have to know). Inducing inputs start at rows that are spread by distance (k-means++, as the paper does)
or at rows that the kernel finds hardest to predict from those already chosen (greedy conditional
variance: Burt, Rasmussen and van der Wilk, 2020).
"""

import numbers

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import InputData
from gpflow.kernels import IsotropicStationary, Kernel
from scipy.spatial.distance import pdist

from gpflow_ilr.codes import ILRCode, LabelCode
from gpflow_ilr.inputs.counts import check_count, check_seed, evenly_spaced
from gpflow_ilr.inputs.kernels import check_columns, independent_kernels
from gpflow_ilr.inputs.rows import as_rows

__all__ = ["starting_kernel", "kmeans_plusplus", "greedy_variance"]

_MEDIAN_ROWS = 1000


def starting_kernel(
    X: InputData,
    code: int | LabelCode,
    kernel_class: type[IsotropicStationary] = gpflow.kernels.SquaredExponential,
    ard: bool = False,
) -> IsotropicStationary:
    """A stationary kernel with the median distance as lengthscale and the targets' amplitude.

    :param X: [N, D]; columns of very different scale should be standardised first, or use ``ard``.
    :param code: the number of classes K, for ILR models, or a label code (``model.code``).
    :param kernel_class: class of the kernel.
    :param ard: give each column a lengthscale of its own, in proportion to its spread.
    :raises ValueError: if X is refused by :func:`gpflow_ilr.inputs.rows.as_rows`, as by the models.
    :raises TypeError: likewise.
    """
    X = as_rows(X).numpy()
    if not isinstance(code, (LabelCode, numbers.Integral)):
        raise TypeError(
            f"code must be the number of classes or a label code, but is {code!r}. Pass num_classes, "
            "or model.code."
        )
    if not (isinstance(kernel_class, type) and issubclass(kernel_class, IsotropicStationary)):
        raise TypeError(
            f"kernel_class must be a class of stationary kernels, but is {kernel_class!r}. Pass, for "
            "example, gpflow.kernels.Matern52, not an instance of it."
        )
    code = code if isinstance(code, LabelCode) else ILRCode(code)
    amplitude = float(tf.reduce_mean(tf.square(code.targets)))
    spread = np.std(X, axis=0) if ard else np.ones(X.shape[1])
    spread = np.where(spread > 0.0, spread, 1.0)  # a constant column has no scale of its own
    sample = X[evenly_spaced(len(X), _MEDIAN_ROWS)] / spread
    median = float(np.median(pdist(sample))) if len(sample) > 1 else 0.0
    lengthscale = median if median > 0.0 else 1.0
    return kernel_class(
        variance=amplitude, lengthscales=lengthscale * spread if ard else lengthscale
    )


def kmeans_plusplus(X: InputData, num_inducing: int, seed: int = 0) -> np.ndarray:
    """M rows of X, each drawn with probability ∝ its squared distance to those drawn before, [M, D].

    :param X: [N, D].
    :param num_inducing: M.
    :param seed: seed of the draws.
    :raises ValueError: if M < 1, or X has fewer than M distinct rows.
    """
    X = as_rows(X).numpy()
    check_count("num_inducing", num_inducing)
    check_seed(seed)
    rng = np.random.default_rng(seed)
    chosen = [int(rng.integers(len(X)))]
    distance = np.sum(np.square(X - X[chosen[0]]), axis=1)
    while len(chosen) < num_inducing:
        total = np.sum(distance)
        if total == 0.0:
            raise ValueError(
                f"num_inducing is {num_inducing}, but X has only {len(chosen)} distinct rows. "
                f"Use num_inducing={len(chosen)}."
            )
        chosen.append(int(rng.choice(len(X), p=distance / total)))
        distance = np.minimum(distance, np.sum(np.square(X - X[chosen[-1]]), axis=1))
    return X[chosen]


def greedy_variance(X: InputData, num_inducing: int, kernel: Kernel) -> np.ndarray:
    """M rows of X, each the one that those chosen before predict worst under the kernel, [M, D].

    This is a pivoted Cholesky factorisation of K, O(N M²), without forming K. It stops early, with
    fewer rows, when the chosen ones predict all others exactly.

    :param X: [N, D].
    :param num_inducing: M.
    :param kernel: the kernel to be used.
    :raises ValueError: if M < 1.
    """
    X = as_rows(X).numpy()
    check_count("num_inducing", num_inducing)
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"kernel must be a GPflow kernel such as starting_kernel(X, num_classes), but is "
            f"{kernel!r}."
        )
    independent_kernels(kernel, 1)  # refuses one of several outputs
    check_columns(kernel, X.shape[1])
    variance = kernel(X, full_cov=False).numpy().copy()
    smallest = np.finfo(X.dtype).eps * len(X) * float(np.max(variance))
    factor = np.zeros((num_inducing, len(X)), X.dtype)
    chosen: list[int] = []
    for m in range(num_inducing):
        row = int(np.argmax(variance))
        if variance[row] <= smallest:
            break
        covariance = kernel(X[row : row + 1], X).numpy()[0]
        factor[m] = (covariance - factor[:m, row] @ factor[:m]) / np.sqrt(variance[row])
        variance = np.maximum(variance - np.square(factor[m]), 0.0)
        variance[row] = 0.0
        chosen.append(row)
    return X[chosen]
