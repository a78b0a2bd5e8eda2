"""What no implementation can undercut: one product, one factorisation, one pass through memory."""

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np

__all__ = ["bandwidth", "lapack", "product"]


def product(M: int, N: int, **_: int) -> Callable[[], object]:
    """One matrix product [M, N]·[N, M] by TensorFlow."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    A, B = tf.constant(rng.normal(size=(M, N))), tf.constant(rng.normal(size=(N, M)))
    return lambda: tf.matmul(A, B)


def bandwidth(M: int, N: int, **_: int) -> Callable[[], object]:
    """A matrix [M, N] copied once."""
    A, B = np.ones((2, M, N))
    return lambda: np.copyto(A, B)


def lapack(N: int, invert: bool = False, **_: int) -> Callable[[], object]:
    """One ``potrf``, and one ``trtri`` if it is to be inverted, in place."""
    from scipy.linalg import get_lapack_funcs
    from threadpoolctl import threadpool_limits

    A = np.full((N, N), 0.5)
    potrf, trtri = get_lapack_funcs(("potrf", "trtri"), dtype=A.dtype)

    def turn() -> Callable[[], dict[str, float]]:
        np.fill_diagonal(A, 1.0)
        # OpenBLAS 0.3.30 ends the process at 16,000 rows, with more threads than one.
        with threadpool_limits(1) if N > 12_000 else nullcontext():
            potrf(A.T, lower=False, clean=False, overwrite_a=True)
        if invert:
            trtri(A.T, lower=False, overwrite_c=True)

        def restored() -> dict[str, float]:
            A.fill(0.5)
            return {}

        return restored

    return turn
