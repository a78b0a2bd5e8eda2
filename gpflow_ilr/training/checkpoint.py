"""A training that is killed goes on at the next start: the best values so far, in a file.

The file has the unconstrained values of what is trained, by their places in the model
(``ILRGPR.kernel.lengthscales``), and the criterion they had. It has no moments of Adam and no
curvature of L-BFGS: these are found anew in a few steps.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter
from gpflow.models import GPModel
from gpflow.utilities import leaf_components

from gpflow_ilr.inputs.archives import NO_CHECKPOINT, read_arrays, refused, write_arrays
from gpflow_ilr.training.watch import Watch

__all__ = ["Checkpoint"]

_FORMAT = "gpflow_ilr fit 1"


class Checkpoint:
    """Observes a watch, and writes its best state now and then.

    :param path: of the file.
    :param every: seconds between two writings, at least.
    :param model: what is trained.
    :param variables: of it, those of the watch.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        every: float,
        model: GPModel,
        variables: Sequence[tf.Variable],
    ) -> None:
        places = {
            id(leaf.unconstrained_variable if isinstance(leaf, Parameter) else leaf): place
            for place, leaf in leaf_components(model).items()
        }
        self._names = [places.get(id(v), f"variables[{i}]") for i, v in enumerate(variables)]
        self._path, self._every, self._variables = path, every, variables
        self._written: Sequence[np.ndarray] | None = None
        self._time = time.monotonic()

    def restore(self) -> bool:
        """Give the variables the values of the file, all or none; whether there is one.

        :raises ValueError: if it is of something else, or damaged.
        """
        if not os.path.exists(self._path):
            return False
        try:
            found = read_arrays(self._path)
            if str(found.pop("format", None)) != _FORMAT:
                raise ValueError("its format is another")
            found.pop("criterion")
        except NO_CHECKPOINT as error:
            raise refused(self._path, "fit", error) from error
        there, here = _shown(found), _shown(self._by_name([v.numpy() for v in self._variables]))
        if there != here:
            raise ValueError(
                f"checkpoint={os.fspath(self._path)!r} is of another model: {there}, but now {here}. "
                "Pass the model and the variables it was written with, or remove it, to begin anew."
            )
        if not all(np.isfinite(value).all() for value in found.values()):
            raise refused(self._path, "fit", ValueError("a value is not finite"))
        for name, variable in zip(self._names, self._variables, strict=True):
            variable.assign(found[name])
        return True

    def __call__(self, watch: Watch) -> None:
        """After a step."""
        if time.monotonic() - self._time >= self._every:
            self.write(watch)

    def write(self, watch: Watch) -> None:
        """Write the best state, if it is another than before."""
        best = watch.best
        if best.state is self._written or not np.isfinite(best.value):
            return
        about = {"format": _FORMAT, "criterion": best.value}
        write_arrays(self._path, about | self._by_name(best.state))
        self._written, self._time = best.state, time.monotonic()

    def _by_name(self, values: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(self._names, values, strict=True))


def _shown(values: dict[str, np.ndarray]) -> str:
    return ", ".join(f"{name} {list(v.shape)} {v.dtype}" for name, v in sorted(values.items()))
