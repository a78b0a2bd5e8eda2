"""A program that trains until it is killed, for tests of checkpoints.

Usage: ``python -m tests.training.killed_fit METHOD FILE``: writes the number of each step.
"""

import sys
from typing import Any

import numpy as np

import gpflow_ilr as gi
from gpflow_ilr.training import fit

__all__ = ["METHODS", "X", "Y", "model_and_options"]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
METHODS = ["l-bfgs", "adam", "natural"]


def model_and_options(method: str) -> tuple[Any, dict[str, Any]]:
    kernel = gi.starting_kernel(X, 3)
    if method == "l-bfgs":
        return gi.ILRGPR((X, Y), kernel, num_classes=3), {"method": method}
    model = gi.ILRSVGP(kernel, X[:5], num_classes=3, num_data=len(X))
    # Small steps, so that the loss falls at every look until the kill and after it.
    return model, {
        "data": (X, Y),
        "method": method,
        "learning_rate": 1e-3,
        "natural_step": 0.01,
        "check_every": 1,
    }


if __name__ == "__main__":
    model, options = model_and_options(sys.argv[1])

    def tell(step: int, _: float) -> None:
        print(step, flush=True)
        if step >= 5:
            sys.stdin.read()  # to be killed here, after this step was written

    fit(model, checkpoint=sys.argv[2], checkpoint_every=0.0, callback=tell, **options)
