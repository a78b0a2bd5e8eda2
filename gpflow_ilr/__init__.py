"""Calibrated multiclass Gaussian-process classification for GPflow."""

from gpflow_ilr.version import __version__

__all__ = ["__version__"]
