"""Saving models: whole, for later work in Python, and as TensorFlow SavedModels, for serving.

:func:`save` keeps everything a model is: parameters, priors, data, statistics, samples. Its files are
data and carry no code: :func:`load` makes objects of known classes alone, those of GPflow, of
TensorFlow Probability, of this package, and yours once you :func:`register` them.
:func:`export_saved_model` keeps only what predictions need, in a form that loads where neither GPflow
nor this package is installed. Both write atomically: a crash leaves the old file or the new one, never
half of one. During training ``tf.train.Checkpoint(model=model, optimizer=optimizer, data=iterator)``
resumes exactly.
"""

from gpflow_ilr.saving.export import export_saved_model
from gpflow_ilr.saving.names import register
from gpflow_ilr.saving.whole import load, save

__all__ = ["export_saved_model", "load", "register", "save"]
