"""Last-layer Laplace by laplace-torch, in a process of its own: it cannot share one with TensorFlow.

``python laplace_torch.py FILE`` reads features H and labels y of training rows, the kernel and bias of
the last layer, the prior's precision, and new features from an .npz file, and adds to it the class
probabilities of draws from the posterior. ``LAPLACE_PYTHON`` names another interpreter that has it.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

PYTHON = os.environ.get("LAPLACE_PYTHON", sys.executable)


def is_installed() -> bool:
    return subprocess.run([PYTHON, "-c", "import laplace"], capture_output=True).returncode == 0


def draws_of_probabilities(**arrays: np.ndarray) -> np.ndarray:
    """[draws, N, K]."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "features.npz"
        np.savez(path, **arrays)
        subprocess.run([PYTHON, __file__, str(path)], check=True, capture_output=True)
        return np.load(path)["samples"]


def main(path: str) -> None:
    import torch
    from laplace import Laplace
    from torch.utils.data import DataLoader, TensorDataset

    arrays = dict(np.load(path))
    H, kernel, bias, H_new = (torch.tensor(arrays[k]) for k in ("H", "kernel", "bias", "H_new"))
    linear = torch.nn.Linear(*kernel.shape)
    linear.load_state_dict({"weight": kernel.T, "bias": bias})
    posterior = Laplace(
        linear,
        "classification",
        subset_of_weights="all",
        hessian_structure="full",
        prior_precision=float(arrays["precision"]),
    )
    rows = TensorDataset(H, torch.tensor(arrays["y"].astype("int64")))
    posterior.fit(DataLoader(rows, batch_size=256))
    samples = posterior.predictive_samples(H_new, pred_type="glm", n_samples=int(arrays["draws"]))
    np.savez(path, samples=samples.detach().numpy())


if __name__ == "__main__":
    main(sys.argv[1])
