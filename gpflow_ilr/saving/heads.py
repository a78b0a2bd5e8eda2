"""Heads of trained networks in files: to go on with ``update`` or ``polish`` another day.

An attached model has what predictions need; this keeps the rows' sums as well. The network is Keras'
own affair: ``network.save``, and ``load(path, network=...)``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gpflow
import tensorflow as tf

from gpflow_ilr.heads.gp_layer import gp_precision
from gpflow_ilr.saving.container import read_header
from gpflow_ilr.saving.whole import load, save

__all__ = ["SavedHead", "load_head", "save_head"]

_OPTIONS = "num_classes num_inducing kernel sample_size max_iterations nodes gp_dtype jitter seed"
_STATE = "model polished num_rows network_saw_rows"


class SavedHead(tf.Module):
    """What a ``ClosedFormHead`` is, apart from its network.

    :param head: a head that is fitted.
    """

    def __init__(self, head: Any) -> None:
        super().__init__()
        self.options = {name: getattr(head, name) for name in _OPTIONS.split()}
        for name in _STATE.split():
            setattr(self, name, getattr(head, name))


def save_head(self: Any, path: str | os.PathLike[str]) -> int:
    """Write the head to a file, atomically: all but its network, for :meth:`load`.

    :param path: the file, as of :func:`gpflow_ilr.saving.save`. A kernel that is a function of yours is
        registered with :func:`gpflow_ilr.saving.register`, where it is saved and where it is loaded.
    :returns: the size of the file in bytes.
    :raises ValueError: if the head is not fitted, or its kernel is a function without a name in files.
    """
    if not hasattr(self, "model"):
        raise ValueError("This head has seen no rows yet: call head.fit((X, y)) first.")
    with self.precision():
        return save(SavedHead(self), path)


def load_head(cls: Any, path: str | os.PathLike[str], network: Any = None) -> Any:
    """A head that :meth:`save` wrote: it predicts, and is updated, polished and attached, as that one.

    :param path: the file.
    :param network: the network that the head was fitted with, or None if it had none.
    :raises ValueError: if the file is no head's.
    """
    with gp_precision(_float_of(path), gpflow.default_jitter()):
        saved = load(path)
    if not isinstance(saved, SavedHead):
        raise ValueError(
            f"{os.fspath(path)!r} has a {type(saved).__name__}, not a head. Load it with "
            "gpflow_ilr.saving.load."
        )
    if missing := [name for name in ("options", *_STATE.split()) if not hasattr(saved, name)]:
        raise ValueError(f"{os.fspath(path)!r} has a head without {missing[0]}: save it again.")
    head = cls(**saved.options, network=network)
    for name in _STATE.split():
        setattr(head, name, getattr(saved, name))
    return head


def _float_of(path: Any) -> str:
    """The float that a file says it has; what is no such file is refused by :func:`load`."""
    try:
        with Path(path).open("rb") as file:
            return str(tf.as_dtype(read_header(file)["float"]).name)
    except (KeyError, OSError, TypeError, ValueError):
        return str(tf.as_dtype(gpflow.default_float()).name)
