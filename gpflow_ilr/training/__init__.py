"""Training that does not lose what it has found.

GPflow's optimisers train every model here; :func:`fit` runs them so that a failure in the middle, of a
factorisation or by Ctrl-C, leaves the model with the best parameters seen so far instead of with
those that a line search happened to try last.
"""

from gpflow_ilr.training.fit import fit

__all__ = ["fit"]
