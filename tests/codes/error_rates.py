"""The exact error rate of a code, by quadrature."""

from __future__ import annotations

import numpy as np
import scipy.special

from gpflow_ilr.codes import (
    ILRCode,
    LabelCode,
)

EPS = np.finfo(np.float64).eps


def exact_error_rate(code: LabelCode) -> float:
    """P(argmax of the logits is not class 0 | class 0), by quadrature over the true class' noise.

    Both links make the logits of z, up to a common term, independent Gaussians: for ILR Z = H(e_k +
    σ g), whose logits HᵀZ are those of e_k + σ g; for GPD they are z itself. Hence
    P(right) = E_g Φ((gap + s_0 g)/s_1)^(K−1) with the gap of the means.
    """
    K, V = code.num_classes, np.sqrt(code.noise_variance.numpy())
    if isinstance(code, ILRCode):
        gap, own, other = 1.0, V[0, 0], V[0, 0]
    else:
        T = code.targets.numpy()
        gap, own, other = T[0, 0] - T[0, 1], V[0, 0], V[0, 1]
    g = np.linspace(-12.0, 12.0, 20_001)  # the trapezoidal rule is spectrally accurate here
    log_right = (K - 1) * scipy.special.log_ndtr((gap + own * g) / other)
    density = np.exp(-0.5 * g**2) / np.sqrt(2 * np.pi)
    return float(np.sum(density * -np.expm1(log_right)) * (g[1] - g[0]))
